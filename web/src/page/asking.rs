//! What the page asks of the worker, and when.

use super::browser::{self, Timer};
use super::{Msg, Page};
use crate::parts::matrix;
use crate::protocol::Ask;
use crate::state::{PRECISIONS, State};
use std::rc::Rc;
use wasm_bindgen::JsValue;
use yew::prelude::*;

/// How long nothing may change before the long parts are asked for and the URL is written.
const QUIET_MS: i32 = 120;

impl Page {
    pub(super) fn ask(&self, ask: Ask) {
        self.client.ask(self.generation, ask, JsValue::UNDEFINED);
    }

    /// Sizes belong to a model's own inputs.
    pub(super) fn forget_sizes(&mut self) {
        self.state.set.clear();
        self.state.input.clear();
        self.state.freeze.clear();
        self.state.assume_batchnorm = false;
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
        self.largest = None;
        self.generation += 1;
        self.client.ask(self.generation, Ask::Open { file: name }, file);
    }

    /// Asks for what is said of the state as it is now, the short answer first.
    pub(super) fn changed(&mut self, ctx: &Context<Self>) {
        self.generation += 1;
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
        if self.largest().is_some() {
            self.ask_curve();
        } else {
            self.largest_asked = (self.generation, self.any_batch());
            self.ask(Ask::Largest { plan: self.state.plan() });
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
        let state = State { batch: 1, precision: String::new(), gpu: String::new(), ..self.state.clone() };
        format!("{:?} {} {}", self.state.source, matrix::cards(&self.state.gpu).join(" "), state.plan())
    }

    pub(super) fn ask_curve(&self) {
        let batches = crate::draw::curve::batches(self.state.batch, self.largest().flatten());
        self.ask(Ask::Curve { plan: self.state.plan(), batches });
    }

    /// The plan whatever its batch, and the model: what the largest batch depends on.
    pub(super) fn any_batch(&self) -> String {
        format!("{:?} {}", self.state.source, State { batch: 1, ..self.state.clone() }.plan())
    }
}
