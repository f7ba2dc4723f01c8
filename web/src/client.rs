//! The page's side of the worker: one question at a time is in its hands, and of those that wait only the newest of each kind.
//!
//! Dragging a slider asks fifty times a second. The worker answers the first, and when it is done the last; what was asked in
//! between is forgotten. A worker that stops (the core's memory is full, say) is replaced.

use crate::protocol::{Answer, Ask, Problem, Question, Said};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use wasm_bindgen::prelude::*;
use web_sys::{MessageEvent, Worker, WorkerOptions, WorkerType};

impl Ask {
    /// Whether it takes the larger module, which is loaded when it is first needed.
    fn needs_more(&self) -> bool {
        match self {
            Ask::Open { file } => !file.to_ascii_lowercase().ends_with(".onnx"),
            Ask::Explain { .. } => true,
            _ => false,
        }
    }

    /// What it asks for; the lowest is answered first, and the newest of each is kept.
    pub(crate) fn kind(&self) -> u8 {
        match self {
            Ask::Open { .. } => 0,
            Ask::Estimate { .. } => 1,
            Ask::Export { .. } | Ask::Explain { .. } => 2,
            Ask::Largest { .. } => 3,
            Ask::Details { .. } => 4,
            Ask::Curve { .. } => 5,
            Ask::Row { .. } => 6,
        }
    }
}

struct Inner {
    module: JsValue,
    worker: Option<Worker>,
    /// Whether the worker has the larger module.
    full: bool,
    /// The question in the worker's hands: its kind and generation. While it starts there is one too.
    busy: Option<(u8, u64)>,
    waiting: BTreeMap<u8, (Question, JsValue)>,
    /// The file of the model that is open, for a new worker.
    open: Option<(String, JsValue)>,
    answered: Rc<dyn Fn(Answer)>,
    /// Kept alive as long as the worker.
    listeners: Vec<Closure<dyn Fn(MessageEvent)>>,
}

/// A worker and what is asked of it.
#[derive(Clone)]
pub(crate) struct Client(Rc<RefCell<Inner>>);

impl Client {
    /// Starts a worker on this module.
    pub(crate) fn new(module: JsValue, answered: impl Fn(Answer) + 'static) -> Client {
        let client = Client(Rc::new(RefCell::new(Inner {
            module,
            worker: None,
            full: false,
            busy: None,
            waiting: BTreeMap::new(),
            open: None,
            answered: Rc::new(answered),
            listeners: Vec::new(),
        })));
        client.start();
        client
    }

    /// Asks; a question of the same kind that still waits is forgotten.
    pub(crate) fn ask(&self, generation: u64, ask: Ask, file: JsValue) {
        if ask.needs_more() && !self.0.borrow().full {
            self.replace(generation);
        }
        {
            let mut inner = self.0.borrow_mut();
            if let Ask::Open { file: name } = &ask {
                // Whatever waits is about the model before.
                inner.waiting.clear();
                inner.open = Some((name.clone(), file.clone()));
            }
            inner.waiting.insert(ask.kind(), (Question { generation, ask }, file));
        }
        self.next();
    }

    /// Gives the worker the most urgent question, if it is free.
    fn next(&self) {
        let mut inner = self.0.borrow_mut();
        if inner.busy.is_some() {
            return;
        }
        let Some((kind, (question, file))) = inner.waiting.pop_first() else { return };
        let Ok(text) = serde_json::to_string(&question) else { return };
        inner.busy = Some((kind, question.generation));
        if let Some(worker) = &inner.worker {
            let _ = worker.post_message(&js_sys::Array::of2(&text.into(), &file));
        }
    }

    fn start(&self) {
        let options = WorkerOptions::new();
        options.set_type(WorkerType::Module);
        let script = if self.0.borrow().full { "worker-full.js" } else { "worker.js" };
        let Ok(worker) = Worker::new_with_options(script, &options) else { return };
        let client = self.clone();
        let message = Closure::<dyn Fn(MessageEvent)>::new(move |event: MessageEvent| {
            let text = event.data().as_string().unwrap_or_default();
            if let Ok(answer) = serde_json::from_str::<Answer>(&text) {
                client.receive(answer);
            }
        });
        let client = self.clone();
        let error = Closure::<dyn Fn(MessageEvent)>::new(move |_| client.stopped());
        worker.set_onmessage(Some(message.as_ref().unchecked_ref()));
        worker.set_onerror(Some(error.as_ref().unchecked_ref()));
        let mut inner = self.0.borrow_mut();
        let _ = worker.post_message(&inner.module);
        inner.busy = Some((u8::MAX, 0));
        inner.worker = Some(worker);
        inner.listeners.extend([message, error]);
    }

    fn receive(&self, answer: Answer) {
        let answered = {
            let mut inner = self.0.borrow_mut();
            inner.busy = None;
            if matches!(answer.said, Said::Failed(0, _)) {
                inner.open = None;
            }
            inner.answered.clone()
        };
        self.next();
        if !matches!(answer.said, Said::Ready) {
            answered(answer);
        }
    }

    /// Puts a worker with the larger module in the worker's place; the model that is open is opened there again.
    fn replace(&self, generation: u64) {
        {
            let mut inner = self.0.borrow_mut();
            if let Some(worker) = inner.worker.take() {
                worker.terminate();
            }
            inner.full = true;
            if let Some((file, payload)) = inner.open.clone() {
                inner.waiting.insert(0, (Question { generation, ask: Ask::Open { file } }, payload));
            }
        }
        self.start();
    }

    /// The worker has failed: the question has no answer, and a new worker takes the next, with the model opened again.
    fn stopped(&self) {
        let (answered, busy, open) = {
            let mut inner = self.0.borrow_mut();
            if let Some(worker) = inner.worker.take() {
                worker.terminate();
            }
            inner.waiting.clear();
            let busy = inner.busy.take();
            // A file at which the worker stopped is not given to the next one.
            let open =
                inner.open.clone().filter(|_| busy.is_some_and(|(kind, _)| kind != 0 && kind != u8::MAX));
            (inner.answered.clone(), busy, open)
        };
        let Some((kind, generation)) = busy else { return };
        if kind != u8::MAX {
            self.start();
        }
        if let Some((file, payload)) = open {
            let question = Question { generation, ask: Ask::Open { file } };
            self.0.borrow_mut().waiting.insert(0, (question, payload));
        }
        let problem = Problem {
            place: "memfit".into(),
            op: String::new(),
            message: "the core stopped at this question; that is a bug, or this browser has no memory left"
                .into(),
            hint: Some("the same file given to the command line says more".into()),
        };
        answered(Answer { generation, took: 0.0, said: Said::Failed(kind, vec![problem]) });
    }
}
