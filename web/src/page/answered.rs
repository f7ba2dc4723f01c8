//! What the page makes of the workers' answers.

use super::{Msg, Page, browser};
use crate::client::{ADVISE, ESTIMATE, EXPLAIN, EXPORT, LARGEST, OPEN};
use crate::protocol::{Answer, Ask, Said};
use crate::state::Source;
use std::rc::Rc;
use wasm_bindgen::JsValue;
use yew::prelude::*;

impl Page {
    pub(super) fn answered(&mut self, ctx: &Context<Self>, answer: Answer, bytes: JsValue) -> bool {
        let current = answer.generation == self.generation;
        match answer.said {
            Said::Ready => return false,
            Said::Reading(percent) => self.read = percent,
            Said::Opened(facts) => {
                (self.opening, self.read) = (None, 0);
                self.took = answer.took;
                (self.head, self.details, self.curve) = (None, None, Rc::default());
                self.selected = AttrValue::default();
                self.facts = Some(Rc::new(facts));
                self.fill_sizes();
                self.changed(ctx);
                if self.packed.is_some() {
                    self.remember();
                } else if matches!(self.state.source, Source::Own(_)) {
                    self.ask(Ask::Compact);
                }
            }
            // While a slider moves, each answer that comes is newer than what is shown.
            Said::Estimated(head) if answer.generation > self.shown || current => {
                (self.shown, self.took) = (answer.generation, answer.took);
                self.head = Some(Rc::new(*head));
                self.problems = Rc::default();
            }
            Said::Detailed(details) if current => {
                self.detailed = answer.generation;
                self.details = Some(Rc::new(details));
            }
            Said::Largest(largest) if answer.generation == self.largest_asked.0 => {
                self.largest = Some((self.largest_asked.1.clone(), largest));
                self.ask_curve();
            }
            Said::Row { precision, sizes } if self.matrix.0 == self.any_card() => {
                Rc::make_mut(&mut self.matrix.1).insert(precision, sizes);
                self.ask_row();
            }
            Said::Curve(points) if current => {
                self.curve = Rc::new(points);
                self.ask_row();
            }
            Said::Advised(advice) if current => self.advice = Some((self.state.plan(), Rc::new(advice))),
            Said::Compacted => {
                if let Source::Own(name) = self.state.source.clone() {
                    ctx.link().send_future(async { Msg::Packed(name, browser::packed(bytes).await) });
                }
                return false;
            }
            Said::Explained(text) => self.explained = Some(text),
            Said::Exported { format, text } => {
                let name = self.facts.as_ref().map_or_else(|| "model".to_owned(), |f| f.name.clone());
                wasm_bindgen_futures::spawn_local(browser::download(name, format, text));
                return false;
            }
            Said::Failed(kind, problems) => {
                match kind {
                    OPEN => {
                        self.opening = None;
                        (self.facts, self.head, self.details) = (None, None, None);
                    }
                    ESTIMATE if current => {
                        (self.head, self.details, self.curve) = (None, None, Rc::default());
                    }
                    ESTIMATE => return false,
                    // What was asked for by a button, and does not come.
                    EXPORT | EXPLAIN => {}
                    ADVISE if self.advice_wanted => self.advice_wanted = false,
                    LARGEST => {
                        self.largest_asked = (0, String::new());
                        return false;
                    }
                    _ => return false,
                }
                self.problems = Rc::new(problems);
            }
            Said::Estimated(_)
            | Said::Detailed(_)
            | Said::Largest(_)
            | Said::Row { .. }
            | Said::Curve(_)
            | Said::Advised(_) => return false,
        }
        true
    }
}

impl Page {
    /// Gives every named size of the model a number to begin with, and forgets those of other models.
    pub(super) fn fill_sizes(&mut self) {
        let Some(facts) = &self.facts else { return };
        for symbol in &facts.symbols {
            self.state.set.entry(symbol.clone()).or_insert_with(|| usual_size(symbol));
        }
        self.state.set.retain(|name, _| facts.symbols.contains(name));
    }
}

/// A size to begin with for a named one that a file leaves open; it stands among the controls.
fn usual_size(name: &str) -> u64 {
    let name = name.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|w| name.contains(w));
    if has(&["seq", "len", "time", "token"]) {
        128
    } else if has(&["height", "width", "size"]) || name == "h" || name == "w" {
        224
    } else {
        16
    }
}
