//! The page's side of its workers, of which there are two: one answers what is shown at once, the other what takes long.
//!
//! Each has one question in its hands, and of those that wait only the newest of each kind. Dragging a slider asks fifty times
//! a second: the worker answers the first, and when it is done the last; what was asked in between is forgotten. A long answer
//! that nobody wants any more is cut off.

mod lane;
mod modules;

use crate::protocol::{Answer, Ask};
use lane::{Lane, Opened};
use modules::Modules;
use std::rc::Rc;
use wasm_bindgen::JsValue;

impl Ask {
    /// What it asks for; the lowest is answered first, and the newest of each is kept.
    pub(crate) fn kind(&self) -> u8 {
        match self {
            Ask::Open { .. } => OPEN,
            Ask::Estimate { .. } => ESTIMATE,
            Ask::Details { .. } => 2,
            Ask::Export { .. } => EXPORT,
            Ask::Explain { .. } => EXPLAIN,
            Ask::Largest { .. } => LARGEST,
            Ask::Advise { .. } => ADVISE,
            Ask::Curve { .. } => CURVE,
            Ask::Compact => 8,
            Ask::Row { .. } => ROW,
        }
    }

    /// Whether it takes the larger module, which is loaded when it is first needed.
    fn needs_more(&self) -> bool {
        match self {
            Ask::Open { file, .. } => !file.to_ascii_lowercase().ends_with(".onnx"),
            Ask::Explain { .. } | Ask::Export { .. } | Ask::Advise { .. } => true,
            Ask::Estimate { plan }
            | Ask::Details { plan }
            | Ask::Largest { plan }
            | Ask::Row { plan, .. }
            | Ask::Curve { plan, .. } => LARGER.iter().any(|part| plan.contains(part)),
            Ask::Compact => false,
        }
    }

    fn is_quick(&self) -> bool {
        matches!(self, Ask::Estimate { .. } | Ask::Details { .. })
    }
}

/// Parts of a plan that the smaller module leaves out: the profiles beside PyTorch's, and several GPUs.
const LARGER: [&str; 5] = [
    r#""framework":"tensorflow""#,
    r#""framework":"burn""#,
    r#""gpus":"#,
    r#""tensor_parallel":"#,
    r#""pipeline_stages":"#,
];

/// Kinds of questions that are told apart elsewhere.
pub(crate) const OPEN: u8 = 0;
pub(crate) const ESTIMATE: u8 = 1;
pub(crate) const EXPORT: u8 = 3;
pub(crate) const EXPLAIN: u8 = 4;
pub(crate) const LARGEST: u8 = 5;
pub(crate) const ADVISE: u8 = 6;
pub(crate) const CURVE: u8 = 7;
pub(crate) const ROW: u8 = 9;

/// The workers and what is asked of them.
pub(crate) struct Client {
    quick: Lane,
    long: Lane,
}

impl Client {
    /// Starts the quick worker on this module; the other one starts when it is needed.
    pub(crate) fn new(module: JsValue, answered: impl Fn(Answer, JsValue) + 'static) -> Client {
        let (modules, answered) = (Modules::new(module), Rc::new(answered));
        let client =
            Client { quick: Lane::new(&modules, answered.clone()), long: Lane::new(&modules, answered) };
        client.quick.start();
        client
    }

    /// Opens a file: both workers forget the one before. `told` is what a Keras file does not say.
    pub(crate) fn open(&self, generation: u64, name: &str, told: &str, file: &JsValue) {
        let opened = |announced| Opened {
            generation,
            name: name.into(),
            told: told.into(),
            file: file.clone(),
            announced,
        };
        self.long.open(opened(false));
        self.quick.open(opened(true));
    }

    /// Asks; a question of the same kind that still waits is forgotten.
    pub(crate) fn ask(&self, generation: u64, ask: Ask) {
        if ask.is_quick() { self.quick.ask(generation, ask) } else { self.long.ask(generation, ask) }
    }

    /// Answers of these kinds are not wanted any more.
    pub(crate) fn forget(&self, kinds: &[u8]) {
        self.long.forget(kinds);
    }

    /// The model is closed.
    pub(crate) fn close(&self) {
        self.quick.close();
        self.long.close();
    }
}
