//! The compiled core in its two sizes, and the workers that run it: how they are started, asked, heard and ended.

use crate::protocol::{Answer, Question};
use js_sys::Array;
use js_sys::WebAssembly::Module;
use std::cell::RefCell;
use std::rc::Rc;
use wasm_bindgen::prelude::*;
use web_sys::{MessageEvent, Worker, WorkerOptions, WorkerType};

/// The compiled modules: the page's own, and the larger one once a worker has loaded it.
pub(super) struct Modules {
    own: JsValue,
    full: RefCell<JsValue>,
}

/// Kept alive as long as its worker.
pub(super) type Listener = Closure<dyn Fn(MessageEvent)>;

impl Modules {
    pub(super) fn new(own: JsValue) -> Rc<Modules> {
        Rc::new(Modules { own, full: RefCell::new(JsValue::UNDEFINED) })
    }

    /// Keeps what a worker loaded for the others; whether it said that.
    pub(super) fn keeps(&self, said: &JsValue) -> bool {
        let loaded = said.is_instance_of::<Module>();
        if loaded {
            *self.full.borrow_mut() = said.clone();
        }
        loaded
    }

    /// Starts a worker on one of the two modules.
    pub(super) fn worker(
        &self,
        full: bool,
        hear: impl Fn(&JsValue) + 'static,
        stopped: impl Fn() + 'static,
    ) -> Option<(Worker, [Listener; 2])> {
        let options = WorkerOptions::new();
        options.set_type(WorkerType::Module);
        let (script, module) = if full {
            ("worker-full.js", self.full.borrow().clone())
        } else {
            ("worker.js", self.own.clone())
        };
        let worker = Worker::new_with_options(script, &options).ok()?;
        let message = Listener::new(move |event: MessageEvent| hear(&event.data()));
        let error = Listener::new(move |_| stopped());
        worker.set_onmessage(Some(message.as_ref().unchecked_ref()));
        worker.set_onerror(Some(error.as_ref().unchecked_ref()));
        let _ = worker.post_message(&module);
        Some((worker, [message, error]))
    }
}

/// Asks a worker.
pub(super) fn post(worker: &Worker, question: &Question, file: &JsValue) {
    if let Ok(text) = serde_json::to_string(question) {
        let _ = worker.post_message(&Array::of2(&text.into(), file));
    }
}

/// What a worker answers, and the bytes that come with it.
pub(super) fn read(data: &JsValue) -> Option<(Answer, JsValue)> {
    let pair = data.dyn_ref::<Array>()?;
    let answer = serde_json::from_str(&pair.get(0).as_string()?).ok()?;
    Some((answer, pair.get(1)))
}

/// Ends a worker.
pub(super) fn end(worker: Option<Worker>) {
    if let Some(worker) = worker {
        worker.set_onmessage(None);
        worker.set_onerror(None);
        worker.terminate();
    }
}
