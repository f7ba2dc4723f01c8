//! What the page asks of the worker, and when.

use super::browser::{self, Timer};
use super::{Msg, Page, recent};
use crate::client::{ADVISE, CURVE, LARGEST, ROW};
use crate::parts::matrix;
use crate::protocol::Ask;
use crate::state::{PRECISIONS, Source, State, split, with_structure};
use std::rc::Rc;
use wasm_bindgen::JsValue;
use yew::prelude::*;

/// How long nothing may change before the long parts are asked for and the URL is written.
const QUIET_MS: i32 = 120;

impl Page {
    pub(super) fn ask(&self, ask: Ask) {
        self.client.ask(self.generation, ask);
    }

    /// Opens what the state says: an example, or a file of one's own that the browser's storage has, or the URL where the
    /// state came from there.
    pub(super) fn open_source(&mut self, ctx: &Context<Self>, linked: bool) {
        self.file = JsValue::UNDEFINED;
        match self.state.source.clone() {
            Source::Example(name) => self.fetch(ctx, name),
            Source::Own(name) => {
                let fragment = browser::fragment();
                let of_link = split(&fragment).1.filter(|_| linked).map(str::to_owned);
                self.linked = of_link.is_some();
                let Some(packed) = of_link.or_else(|| recent::structure(&name)) else {
                    (self.facts, self.head, self.packed) = (None, None, None);
                    return;
                };
                self.opening = Some(name.clone());
                self.packed = Some(packed.clone().into());
                ctx.link().send_future(async move {
                    let bytes = browser::unpacked(&packed).await;
                    Msg::Fetched(name, bytes)
                });
            }
            Source::None => {}
        }
    }

    /// Writes the state into the URL. A model that came in it stays in it. What was written there by hand a moment ago stays too: the
    /// event that tells of it is on its way.
    pub(super) fn write_link(&mut self) {
        if browser::fragment() != self.fragment {
            return;
        }
        let link = self.state.link();
        match self.packed.as_ref().filter(|_| self.linked) {
            Some(packed) => browser::set_fragment(&with_structure(&link, packed)),
            None => browser::set_fragment(&link),
        }
        self.fragment = browser::fragment();
    }

    /// Sizes belong to a model's own inputs.
    pub(super) fn forget_sizes(&mut self) {
        self.state.set.clear();
        self.state.input.clear();
        self.state.layers.clear();
        self.state.freeze.clear();
        self.state.tied.clear();
        self.state.turn("assume-batchnorm", false);
        self.state.turn("assume-dropout", false);
    }

    pub(super) fn fetch(&mut self, ctx: &Context<Self>, name: String) {
        self.opening = Some(name.clone());
        self.problems = Rc::default();
        ctx.link().send_future(async move {
            let bytes = browser::example(&name).await;
            Msg::Fetched(name, bytes)
        });
    }

    pub(super) fn open(&mut self, name: String, file: JsValue) {
        self.opening = Some(name.clone());
        self.problems = Rc::default();
        (self.largest, self.advice, self.applied) = (None, None, None);
        self.largest_asked = (0, String::new());
        self.generation += 1;
        self.client.open(self.generation, &name, &self.state.told(), &file);
        self.file = file;
    }

    /// Asks for what is said of the state as it is now, the short answer first.
    pub(super) fn changed(&mut self, ctx: &Context<Self>) {
        self.generation += 1;
        if let Some(facts) = &self.facts {
            self.state.rebatch(facts);
        }
        // Answers about what is no more so are not waited for.
        let mut stale = vec![ADVISE, CURVE];
        if self.largest_asked.1 != self.any_batch() {
            self.largest_asked = (0, String::new());
            stale.push(LARGEST);
        }
        stale.extend((self.matrix.0 != self.any_card()).then_some(ROW));
        self.client.forget(&stale);
        if self.facts.is_some() {
            self.ask(Ask::Estimate { plan: self.state.plan() });
        }
        let link = ctx.link().clone();
        self.quiet = Some(Timer::after(QUIET_MS, move || link.send_message(Msg::Quiet)));
    }

    pub(super) fn ask_long_parts(&mut self) {
        if self.facts.is_none() {
            return;
        }
        self.ask(Ask::Details { plan: self.state.plan() });
        self.ask_advice();
        let any_batch = self.any_batch();
        if self.largest().is_some() {
            self.ask_curve();
        } else if self.largest_asked.1 != any_batch {
            self.largest_asked = (self.generation, any_batch);
            self.ask(Ask::Largest { plan: self.state.plan() });
        }
    }

    /// Asks for advice where it is wanted, or where the step does not fit for sure.
    pub(super) fn ask_advice(&self) {
        let fits = self.head.as_ref().is_none_or(|head| head.fits());
        if self.facts.is_some() && self.advice().is_none() && (self.advice_wanted || !fits) {
            self.ask(Ask::Advise { plan: self.state.plan() });
        }
    }

    /// Asks for the next row of the matrix, if one is missing.
    pub(super) fn ask_row(&mut self) {
        let key = self.any_card();
        if self.matrix.0 != key {
            self.matrix = (key, Rc::default());
        }
        let missing = PRECISIONS.iter().find(|(word, _)| !self.matrix.1.contains_key(*word));
        if let Some((word, _)) = missing.filter(|_| self.matrix_wanted && self.facts.is_some()) {
            let gpus = matrix::cards(&self.state.gpu);
            self.ask(Ask::Row { plan: self.state.plan(), precision: (*word).into(), gpus });
        }
    }

    /// What the matrix depends on.
    pub(super) fn any_card(&self) -> String {
        let state = State { precision: String::new(), gpu: String::new(), ..self.with_one() };
        format!("{:?} {} {}", self.state.source, matrix::cards(&self.state.gpu).join(" "), state.plan())
    }

    pub(super) fn ask_curve(&self) {
        let batches = crate::draw::curve::batches(
            self.state.batch,
            self.largest().flatten().map(|sizes| sizes.largest),
        );
        self.ask(Ask::Curve { plan: self.state.plan(), batches });
    }

    /// The plan whatever its batch, and the model: what the largest batch depends on.
    pub(super) fn any_batch(&self) -> String {
        format!("{:?} {}", self.state.source, self.with_one().plan())
    }

    /// The state with one sample in a batch.
    fn with_one(&self) -> State {
        let mut state = State { batch: 1, ..self.state.clone() };
        if let Some(facts) = &self.facts {
            state.rebatch(facts);
        }
        state
    }
}
