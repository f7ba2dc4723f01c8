//! One worker with its questions. A worker that stops (the core's memory is full, say) is replaced, and the model that is open
//! is opened there again.

mod successor;

use super::OPEN;
use super::modules::{Listener, Modules, end, post, read};
use crate::protocol::{Answer, Ask, Problem, Question, Said};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use wasm_bindgen::prelude::*;
use web_sys::Worker;

/// A file that is open.
pub(super) struct Opened {
    pub(super) generation: u64,
    pub(super) name: String,
    /// What a Keras file does not say.
    pub(super) told: String,
    pub(super) file: JsValue,
    /// Whether the page hears of it, which it does once.
    pub(super) announced: bool,
}

impl Opened {
    fn ask(&self) -> Ask {
        Ask::Open { file: self.name.clone(), told: self.told.clone() }
    }
}

type Answered = Rc<dyn Fn(Answer, JsValue)>;

struct Inner {
    modules: Rc<Modules>,
    worker: Option<Worker>,
    /// Whether the worker has the larger module.
    full: bool,
    /// Whether it has said that it is ready.
    ready: bool,
    open: Option<Opened>,
    /// Whether the worker has that file.
    has_it: bool,
    /// The question in the worker's hands.
    busy: Option<Question>,
    waiting: BTreeMap<u8, Question>,
    answered: Answered,
    listeners: Vec<Listener>,
    /// Whether the model that was opened is large, until that was seen to.
    large: bool,
    /// The worker on the larger module that takes over once it has the model, so that answers don't wait for it.
    successor: Option<Worker>,
}

impl Inner {
    /// Whether the larger module is needed for what is open or waits.
    fn needs_more(&self) -> bool {
        let open = self.open.as_ref().map(Opened::ask);
        open.iter().chain(self.waiting.values().map(|q| &q.ask)).any(Ask::needs_more)
    }

    /// Cuts off the answer that the worker is at.
    fn cut_off(&mut self) {
        self.busy = None;
        self.end();
    }

    /// Whether the worker is reading a file, which takes long on a slow disk.
    fn reads(&self) -> bool {
        self.busy.as_ref().is_some_and(|q| matches!(q.ask, Ask::Open { .. }))
    }

    fn end(&mut self) {
        end(self.worker.take());
        (self.ready, self.has_it) = (false, false);
        // What was asked of it is asked of the next one, unless there is something newer.
        if let Some(question) = self.busy.take().filter(|q| !matches!(q.ask, Ask::Open { .. })) {
            self.waiting.entry(question.ask.kind()).or_insert(question);
        }
    }
}

/// A worker and what is asked of it.
#[derive(Clone)]
pub(super) struct Lane(Rc<RefCell<Inner>>);

impl Lane {
    pub(super) fn new(modules: &Rc<Modules>, answered: Answered) -> Lane {
        Lane(Rc::new(RefCell::new(Inner {
            modules: modules.clone(),
            worker: None,
            full: false,
            ready: false,
            open: None,
            has_it: false,
            busy: None,
            waiting: BTreeMap::new(),
            answered,
            listeners: Vec::new(),
            large: false,
            successor: None,
        })))
    }

    pub(super) fn open(&self, opened: Opened) {
        {
            let mut inner = self.0.borrow_mut();
            // Whatever waits is about the model before.
            inner.waiting.retain(|_, q| matches!(q.ask, Ask::Explain { .. }));
            // A quick question is soon answered, and its worker can be kept.
            if inner.reads() || inner.busy.is_some() && !opened.announced {
                inner.cut_off();
            }
            (inner.open, inner.has_it) = (Some(opened), false);
        }
        self.next();
    }

    pub(super) fn close(&self) {
        let mut inner = self.0.borrow_mut();
        inner.open = None;
        inner.waiting.clear();
        if inner.reads() {
            inner.cut_off();
        }
    }

    pub(super) fn ask(&self, generation: u64, ask: Ask) {
        self.0.borrow_mut().waiting.insert(ask.kind(), Question { generation, ask });
        self.next();
    }

    /// Forgets what waits of these kinds, and cuts off the answer to one of them.
    pub(super) fn forget(&self, kinds: &[u8]) {
        {
            let mut inner = self.0.borrow_mut();
            inner.waiting.retain(|kind, _| !kinds.contains(kind));
            if inner.busy.as_ref().is_none_or(|q| !kinds.contains(&q.ask.kind())) {
                return;
            }
            inner.cut_off();
        }
        self.next();
    }

    /// Gives the worker the most urgent question, if it is free.
    fn next(&self) {
        let (more, start) = {
            let inner = self.0.borrow();
            let wanted = !inner.waiting.is_empty() || inner.open.as_ref().is_some_and(|o| o.announced);
            (wanted && !inner.full && inner.needs_more(), wanted && inner.worker.is_none())
        };
        if more {
            let mut inner = self.0.borrow_mut();
            inner.end();
            end(inner.successor.take());
            inner.full = true;
        }
        if more || start {
            return self.start();
        }
        let mut inner = self.0.borrow_mut();
        if inner.busy.is_some() || !inner.ready {
            return;
        }
        let opens =
            inner.open.as_ref().filter(|o| !inner.has_it && (o.announced || !inner.waiting.is_empty()));
        let (question, file) = match opens {
            Some(o) => (Question { generation: o.generation, ask: o.ask() }, o.file.clone()),
            None => match inner.waiting.pop_first() {
                Some((_, question)) => (question, JsValue::UNDEFINED),
                None => return,
            },
        };
        if let Some(worker) = &inner.worker {
            post(worker, &question, &file);
        }
        inner.busy = Some(question);
    }

    pub(super) fn start(&self) {
        let full = self.0.borrow().full;
        let worker = self.worker(full, Lane::hear, Lane::stopped);
        self.0.borrow_mut().worker = worker;
    }

    /// Starts a worker on one of the two modules.
    fn worker(&self, full: bool, hear: fn(&Lane, &JsValue), stopped: fn(&Lane)) -> Option<Worker> {
        let (hears, stops) = (self.clone(), self.clone());
        let modules = self.0.borrow().modules.clone();
        let (worker, listeners) =
            modules.worker(full, move |said| hear(&hears, said), move || stopped(&stops))?;
        self.0.borrow_mut().listeners.extend(listeners);
        Some(worker)
    }

    fn hear(&self, data: &JsValue) {
        if self.0.borrow().modules.keeps(data) {
            return;
        }
        if let Some((answer, bytes)) = read(data) {
            self.receive(answer, bytes);
        }
    }

    fn receive(&self, answer: Answer, bytes: JsValue) {
        let heard = {
            let mut inner = self.0.borrow_mut();
            let answered = inner.answered.clone();
            if matches!(answer.said, Said::Reading(_)) {
                let announced = inner.open.as_ref().is_some_and(|o| o.announced);
                drop(inner);
                if announced {
                    answered(answer, bytes);
                }
                return;
            }
            inner.busy = None;
            let about_file = matches!(answer.said, Said::Opened(_) | Said::Failed(OPEN, _));
            // The file may have been replaced by another one meanwhile.
            let newest = inner.open.as_ref().is_some_and(|o| o.generation == answer.generation);
            if matches!(answer.said, Said::Ready) {
                inner.ready = true;
                None
            } else if about_file {
                inner.has_it = newest;
                inner.large =
                    matches!(&answer.said, Said::Opened(facts) if facts.operators > successor::LARGE);
                let announced =
                    inner.open.as_mut().is_some_and(|o| newest && std::mem::take(&mut o.announced));
                if newest && matches!(answer.said, Said::Failed(..)) {
                    inner.open = None;
                    inner.waiting.clear();
                }
                announced.then_some(answered)
            } else {
                Some(answered)
            }
        };
        self.hurry();
        self.next();
        if let Some(answered) = heard {
            answered(answer, bytes);
        }
    }

    /// The worker has failed: the question has no answer, and a new worker takes the next.
    fn stopped(&self) {
        let (answered, kind, generation, ready) = {
            let mut inner = self.0.borrow_mut();
            let ready = inner.ready;
            let waits = std::mem::take(&mut inner.waiting).into_values().next();
            let question = inner.busy.take().or(waits);
            inner.end();
            let (kind, generation) = match (&question, &inner.open) {
                (Some(q), _) => (q.ask.kind(), q.generation),
                (None, Some(open)) if open.announced => (OPEN, open.generation),
                (None, _) => (u8::MAX, 0),
            };
            // A file at which the worker stopped is not given to the next one.
            if kind == OPEN {
                inner.open = None;
            }
            (inner.answered.clone(), kind, generation, ready)
        };
        if ready {
            self.start();
        }
        let problem = Problem {
            place: "memfit".into(),
            op: String::new(),
            message: if ready {
                "the core stopped at this question; that is a bug, or this browser has no memory left".into()
            } else {
                "a part of the calculator could not be loaded; it needs the network the first time".into()
            },
            hint: ready.then(|| "the same file given to the command line says more".into()),
        };
        answered(
            Answer { generation, took: 0.0, said: Said::Failed(kind, vec![problem]) },
            JsValue::UNDEFINED,
        );
    }
}
