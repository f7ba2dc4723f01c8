//! How the larger module takes over: a second worker loads it and opens the model while the first one answers.

use super::Lane;
use crate::client::modules::{end, post, read};
use crate::protocol::{Question, Said};
use wasm_bindgen::prelude::*;

/// A model of more operators moves to the larger module, which is compiled for speed and not for size, so that an estimate takes no
/// more than a frame of a screen: 13 µs an operator are some 16 ms here.
pub(super) const LARGE: u64 = 1_000;

impl Lane {
    /// Has the larger module take over if the model is large.
    pub(super) fn hurry(&self) {
        {
            let mut inner = self.0.borrow_mut();
            if inner.full || inner.successor.is_some() || !std::mem::take(&mut inner.large) {
                return;
            }
        }
        let successor = self.worker(true, Lane::hear_successor, Lane::successor_stopped);
        self.0.borrow_mut().successor = successor;
    }

    /// Gives the successor the model, and lets it take over when it has that.
    fn hear_successor(&self, data: &JsValue) {
        if self.0.borrow().successor.is_none() {
            return self.hear(data);
        }
        let modules = self.0.borrow().modules.clone();
        let Some((answer, _)) = (if modules.keeps(data) { None } else { read(data) }) else { return };
        let mut inner = self.0.borrow_mut();
        let newest = inner.open.as_ref().filter(|o| o.generation == answer.generation);
        match (answer.said, &inner.open, newest) {
            (Said::Reading(_), ..) => {}
            (Said::Ready, Some(open), _) => {
                let question = Question { generation: open.generation, ask: open.ask() };
                if let Some(successor) = &inner.successor {
                    post(successor, &question, &open.file);
                }
            }
            (Said::Opened(_), _, Some(_)) => {
                let successor = inner.successor.take();
                inner.end();
                inner.worker = successor;
                (inner.full, inner.ready, inner.has_it) = (true, true, true);
                drop(inner);
                self.next();
            }
            // It has another model than the one that is open by now.
            _ => {
                end(inner.successor.take());
                drop(inner);
                self.hurry();
            }
        }
    }

    fn successor_stopped(&self) {
        let successor = self.0.borrow_mut().successor.take();
        if successor.is_none() {
            return self.stopped();
        }
        end(successor);
    }
}
