//! The page: what it knows, what may happen to it, and what is asked of the worker then.

mod asking;
pub(crate) mod browser;
mod machine;
mod reading;
mod view;

use crate::client::Client;
use crate::parts::matrix::Rows;
use crate::protocol::{Answer, Ask, Details, Facts, Format, Head, Problem, Said};
use crate::state::{Source, State};
use browser::Timer;
use std::rc::Rc;
use wasm_bindgen::JsValue;
use yew::prelude::*;

/// A change of the state.
pub(crate) type Edit = Rc<dyn Fn(&mut State)>;

/// The page's properties.
#[derive(Properties, PartialEq)]
pub(crate) struct Props {
    /// This module, for the worker.
    pub(crate) module: JsValue,
}

/// What may happen.
pub(crate) enum Msg {
    /// A file was dropped or chosen.
    File(web_sys::File),
    /// An example was chosen.
    Example(String),
    /// Its bytes have come.
    Fetched(String, Result<JsValue, String>),
    Answered(Box<Answer>),
    Edited(Edit),
    /// Nothing has changed for a while.
    Quiet,
    /// The URL was changed by hand or by going back.
    Linked,
    /// A layer was pointed at, by its path; empty for none.
    Selected(String),
    Pinned(bool),
    /// A log was pasted.
    Log(String),
    /// The matrix is wanted.
    Matrix,
    /// The plan that was kept is wanted back.
    Restored,
    /// This machine's card was found.
    Machine(Option<String>),
    /// The window has another width.
    Resized,
    Export(Format),
    Theme,
    /// Another model is wanted.
    Closed,
}

/// An estimate kept for comparison.
#[derive(Clone, PartialEq)]
pub(crate) struct Pinned {
    pub(crate) model: String,
    pub(crate) summary: String,
    pub(crate) state: State,
    pub(crate) head: Rc<Head>,
}

/// The page.
pub(crate) struct Page {
    client: Client,
    state: State,
    generation: u64,
    /// The generation of what is shown.
    shown: u64,
    /// The generation of the details that are shown.
    detailed: u64,
    took: f64,
    /// This machine's card.
    machine: Option<String>,
    opening: Option<String>,
    facts: Option<Rc<Facts>>,
    head: Option<Rc<Head>>,
    details: Option<Rc<Details>>,
    curve: Rc<Vec<(u64, u64)>>,
    /// The largest batch, with the plan that it is for, and the question that was asked for it.
    largest: Option<(String, Option<u64>)>,
    largest_asked: (u64, String),
    /// Whether the matrix is wanted, and its rows with the plan that they are for.
    matrix_wanted: bool,
    matrix: (String, Rc<Rows>),
    problems: Rc<Vec<Problem>>,
    selected: AttrValue,
    pinned: Option<Pinned>,
    /// What was said of the last log.
    explained: Option<String>,
    width: u32,
    quiet: Option<Timer>,
    _listeners: browser::Listeners,
}

impl Component for Page {
    type Message = Msg;
    type Properties = Props;

    fn create(ctx: &Context<Self>) -> Page {
        let link = ctx.link().clone();
        let client = Client::new(ctx.props().module.clone(), move |answer| {
            link.send_message(Msg::Answered(Box::new(answer)))
        });
        let link = ctx.link().clone();
        let listeners = browser::listen(
            link.callback(Msg::File),
            link.callback(|()| Msg::Linked),
            link.callback(|()| Msg::Resized),
        );
        let mut page = Page {
            client,
            state: State::from_link(&browser::fragment()),
            generation: 0,
            shown: 0,
            detailed: 0,
            took: 0.0,
            machine: None,
            opening: None,
            facts: None,
            head: None,
            details: None,
            curve: Rc::default(),
            largest: None,
            largest_asked: (0, String::new()),
            matrix_wanted: false,
            matrix: (String::new(), Rc::default()),
            problems: Rc::default(),
            selected: AttrValue::default(),
            pinned: None,
            explained: None,
            width: browser::picture_width(),
            quiet: None,
            _listeners: listeners,
        };
        if let Some(gpu) = browser::kept("gpu").filter(|_| !browser::fragment().contains("gpu=")) {
            page.state.gpu = gpu;
        }
        ctx.link().send_future(async { Msg::Machine(machine::card().await) });
        if let Source::Example(name) = page.state.source.clone() {
            page.fetch(ctx, name);
        }
        page
    }

    fn update(&mut self, ctx: &Context<Self>, msg: Msg) -> bool {
        match msg {
            Msg::File(file) => {
                self.state.source = Source::Own(file.name());
                self.forget_sizes();
                self.open(file.name(), file.into());
            }
            Msg::Example(name) => {
                self.state.source = Source::Example(name.clone());
                self.forget_sizes();
                self.fetch(ctx, name);
            }
            Msg::Fetched(name, Ok(bytes)) => self.open(name, bytes),
            Msg::Fetched(name, Err(message)) => {
                self.opening = None;
                self.problems =
                    Rc::new(vec![Problem { place: name, op: String::new(), message, hint: None }]);
            }
            Msg::Answered(answer) => return self.answered(ctx, *answer),
            Msg::Edited(edit) => {
                edit(&mut self.state);
                self.changed(ctx);
            }
            Msg::Quiet => {
                browser::set_fragment(&self.state.link());
                if self.state.gpu != State::default().gpu || browser::kept("gpu").is_some() {
                    browser::keep("gpu", &self.state.gpu);
                }
                self.ask_long_parts();
                return false;
            }
            Msg::Linked => return self.linked(ctx),
            Msg::Selected(path) => {
                let path = AttrValue::from(path);
                let changed = path != self.selected;
                self.selected = path;
                return changed;
            }
            Msg::Pinned(on) => {
                self.pinned = self.head.clone().filter(|_| on).map(|head| Pinned {
                    model: self.facts.as_ref().map(|f| f.name.clone()).unwrap_or_default(),
                    summary: self.state.summary(),
                    state: self.state.clone(),
                    head,
                });
            }
            Msg::Log(log) => {
                self.ask(Ask::Explain { log, plan: self.state.plan() });
                return false;
            }
            Msg::Matrix => {
                self.matrix_wanted = true;
                self.ask_row();
            }
            Msg::Restored => {
                if let Some(pinned) = &self.pinned {
                    // The model on the page stays; its sizes are its own.
                    let (source, set, input) =
                        (self.state.source.clone(), self.state.set.clone(), self.state.input.clone());
                    let same = pinned.state.source == source;
                    self.state = pinned.state.clone();
                    if !same {
                        (self.state.source, self.state.set, self.state.input) = (source, set, input);
                    }
                    self.changed(ctx);
                }
            }
            Msg::Machine(card) => {
                // What a link says or was chosen before is kept.
                if let Some(card) = &card
                    && browser::kept("gpu").is_none()
                    && !browser::fragment().contains("gpu=")
                {
                    self.state.gpu.clone_from(card);
                    self.changed(ctx);
                }
                self.machine = card;
            }
            Msg::Resized => {
                let width = browser::picture_width();
                let changed = width != self.width;
                self.width = width;
                return changed;
            }
            Msg::Export(format) => {
                self.ask(Ask::Export { plan: self.state.plan(), format });
                return false;
            }
            Msg::Theme => browser::toggle_theme(),
            Msg::Closed => {
                self.state.source = Source::None;
                (self.facts, self.head, self.details, self.largest) = (None, None, None, None);
                self.problems = Rc::default();
                browser::set_fragment(&self.state.link());
            }
        }
        true
    }

    fn view(&self, ctx: &Context<Self>) -> Html {
        view::page(self, ctx)
    }
}

impl Page {
    fn linked(&mut self, ctx: &Context<Self>) -> bool {
        let state = State::from_link(&browser::fragment());
        if state == self.state {
            return false;
        }
        let other_model = state.source != self.state.source;
        self.state = state;
        match self.state.source.clone() {
            Source::Example(name) if other_model => self.fetch(ctx, name),
            _ => self.changed(ctx),
        }
        true
    }

    fn answered(&mut self, ctx: &Context<Self>, answer: Answer) -> bool {
        let current = answer.generation == self.generation;
        match answer.said {
            Said::Ready => return false,
            Said::Opened(facts) => {
                self.opening = None;
                self.took = answer.took;
                (self.head, self.details, self.curve) = (None, None, Rc::default());
                self.selected = AttrValue::default();
                for symbol in &facts.symbols {
                    self.state.set.entry(symbol.clone()).or_insert_with(|| usual_size(symbol));
                }
                self.state.set.retain(|name, _| facts.symbols.contains(name));
                self.facts = Some(Rc::new(facts));
                self.changed(ctx);
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
            Said::Explained(text) => self.explained = Some(text),
            Said::Exported { format, text } => {
                let name = self.facts.as_ref().map_or("model", |f| &f.name);
                browser::download(name, format, &text);
                return false;
            }
            Said::Failed(kind, problems) => {
                if kind == 0 {
                    self.opening = None;
                    (self.facts, self.head, self.details) = (None, None, None);
                } else if !current || kind > 1 {
                    return false;
                } else {
                    (self.head, self.details, self.curve) = (None, None, Rc::default());
                }
                self.problems = Rc::new(problems);
            }
            Said::Estimated(_) | Said::Detailed(_) | Said::Largest(_) | Said::Row { .. } | Said::Curve(_) => {
                return false;
            }
        }
        true
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
