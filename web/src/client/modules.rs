//! The compiled core in its two sizes, and workers that run it.

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

    /// Whether the larger module was loaded.
    pub(super) fn has_full(&self) -> bool {
        self.full.borrow().is_object()
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
