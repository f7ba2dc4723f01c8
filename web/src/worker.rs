//! The worker: takes questions one by one, asks the core, and sends answers back.

mod shown;

use crate::protocol::{Advice, Answer, Ask, Format, Problem, Question, Said, Sizes};
use memfit_engine::devices::Card;
use memfit_engine::fit::{self, Axis, Cell, Subject};
use memfit_engine::{Estimate, Life, Plan};
use memfit_wasm::{Asked, Opened, Slices, read_request, read_request_for};
use shown::{details, facts, head};
use std::cell::RefCell;
use wasm_bindgen::prelude::*;
use web_sys::{DedicatedWorkerGlobalScope, MessageEvent};

/// How often it is said how far reading is, in milliseconds.
const TELLS_EVERY_MS: f64 = 200.0;

/// The place where questions are answered.
#[derive(Default)]
struct Desk {
    opened: Option<Opened>,
    /// Its file, and what that is called.
    file: Option<Slices>,
    name: String,
    /// The last estimate with the plan it is for: its details are asked for right after it.
    last: Option<(String, Estimate)>,
}

/// Listens for questions.
pub(crate) fn start() {
    let scope: DedicatedWorkerGlobalScope = js_sys::global().unchecked_into();
    let desk = RefCell::new(Desk::default());
    let answering = scope.clone();
    let listen = Closure::<dyn Fn(MessageEvent)>::new(move |event: MessageEvent| {
        let pair: js_sys::Array = event.data().unchecked_into();
        let text = pair.get(0).as_string().unwrap_or_default();
        let Ok(question) = serde_json::from_str::<Question>(&text) else { return };
        let begin = now(&answering);
        let (scope, generation, mut last) = (answering.clone(), question.generation, begin);
        let telling = move |at, of| {
            if now(&scope) - last > TELLS_EVERY_MS {
                last = now(&scope);
                let said = Said::Reading(percent(at, of));
                send(&scope, Answer { generation, took: 0.0, said }, &JsValue::UNDEFINED);
            }
        };
        let kind = question.ask.kind();
        let mut bytes = JsValue::UNDEFINED;
        let said = desk.borrow_mut().answer(question.ask, pair.get(1), telling, &mut bytes);
        let said = said.unwrap_or_else(|problems| Said::Failed(kind, problems));
        let took = now(&answering) - begin;
        send(&answering, Answer { generation: question.generation, took, said }, &bytes);
    });
    scope.set_onmessage(Some(listen.as_ref().unchecked_ref()));
    listen.forget();
    send(&scope, Answer { generation: 0, took: 0.0, said: Said::Ready }, &JsValue::UNDEFINED);
}

fn percent(part: u64, whole: u64) -> u8 {
    u8::try_from(u128::from(part) * 100 / u128::from(whole.max(1))).unwrap_or(100)
}

/// Milliseconds since the worker began.
fn now(scope: &DedicatedWorkerGlobalScope) -> f64 {
    scope.performance().map_or(0.0, |clock| clock.now())
}

fn send(scope: &DedicatedWorkerGlobalScope, answer: Answer, bytes: &JsValue) {
    // The answers are plain data, which always becomes JSON, and text and bytes can always be posted.
    if let Ok(text) = serde_json::to_string(&answer) {
        let _ = scope.post_message(&js_sys::Array::of2(&text.into(), bytes));
    }
}

impl Desk {
    /// What is said; `telling` hears how far reading is, and bytes that come beside the answer are put into `bytes`.
    fn answer(
        &mut self,
        ask: Ask,
        file: JsValue,
        telling: impl FnMut(u64, u64) + 'static,
        bytes: &mut JsValue,
    ) -> Result<Said, Vec<Problem>> {
        Ok(match ask {
            Ask::Open { file: name, told } => {
                *self = Desk::default();
                let told = read_request(&told).map_err(plain)?;
                let mut slices = Slices::new(file).map_err(|e| vec![thrown(&name, &e)])?.telling(telling);
                let opened = Opened::read_with(&mut slices, Some(&name), &told.options).map_err(plain)?;
                let facts = facts(&opened);
                self.file = Some(slices);
                self.opened = Some(opened);
                self.name = name;
                Said::Opened(facts)
            }
            Ask::Estimate { plan } => Said::Estimated(Box::new(head(self.estimate(&plan)?))),
            Ask::Details { plan } => Said::Detailed(details(self.estimate(&plan)?)),
            Ask::Row { plan, precision, gpus } => {
                let sizes = self.row(&plan, &precision, &gpus)?;
                Said::Row { precision, sizes }
            }
            Ask::Largest { plan } => Said::Largest(self.largest(&plan)?),
            Ask::Curve { plan, batches } => Said::Curve(self.curve(&plan, &batches)?),
            Ask::Explain { log, plan } => Said::Explained(self.explain(&log, &plan)),
            Ask::Export { plan, format } => {
                self.estimate(&plan)?;
                Said::Exported { format, text: self.document(format) }
            }
            Ask::Advise { plan } => Said::Advised(self.advise(&plan)?),
            Ask::Compact => {
                *bytes = js_sys::Uint8Array::from(&self.compact()?[..]).into();
                Said::Compacted
            }
        })
    }

    fn opened(&self) -> Result<&Opened, Vec<Problem>> {
        self.opened.as_ref().ok_or_else(|| vec![problem("model", "no model is open")])
    }

    /// With the open model's estimates beside it, where there is one.
    #[cfg(feature = "full")]
    fn explain(&self, log: &str, plan: &str) -> String {
        use memfit_wasm::explain_text;
        let (Some(opened), Ok(asked)) = (&self.opened, self.asked(plan)) else {
            return explain_text(log, None, None);
        };
        explain_text(
            log,
            asked.binding.batch,
            Some(&mut |batch| opened.estimate(&with_batch(&asked, opened, batch)).ok()),
        )
    }

    /// The last estimate as a document.
    #[cfg(feature = "full")]
    fn document(&self, format: Format) -> String {
        use memfit_report::{Provenance, html, json, markdown, svg};
        let (Some(opened), Some((_, estimate))) = (&self.opened, &self.last) else { return String::new() };
        let from = || Provenance::new(&self.name, opened.model.graph());
        match format {
            Format::Json => json::estimate(estimate),
            Format::Markdown => markdown::estimate(estimate, &from()),
            Format::Html => html::estimate(estimate, &from()),
            Format::Svg | Format::Png => svg::card(estimate, &from()),
        }
    }

    #[cfg(feature = "full")]
    fn advise(&self, plan: &str) -> Result<Advice, Vec<Problem>> {
        let text = self.opened()?.advise_json(plan).map_err(plain)?;
        serde_json::from_str(&text).map_err(|error| vec![problem("advice", &error.to_string())])
    }

    fn compact(&mut self) -> Result<Vec<u8>, Vec<Problem>> {
        let (Some(opened), Some(file)) = (&self.opened, &mut self.file) else {
            return Err(vec![problem("model", "no model is open")]);
        };
        opened.compact(file).map_err(plain)
    }

    fn asked(&self, plan: &str) -> Result<Asked, Vec<Problem>> {
        read_request_for(plan, self.opened()?.usual()).map_err(plain)
    }

    /// The estimate for a plan, computed unless it was the last one.
    fn estimate(&mut self, plan: &str) -> Result<&Estimate, Vec<Problem>> {
        if self.last.as_ref().is_none_or(|(last, _)| last != plan) {
            let asked = self.asked(plan)?;
            let estimate = self.opened()?.estimate(&asked).map_err(plain)?;
            self.last = Some((plan.to_owned(), estimate));
        }
        self.last.as_ref().map(|(_, estimate)| estimate).ok_or_default()
    }

    /// None where the model has no batch.
    fn largest(&self, plan: &str) -> Result<Option<Sizes>, Vec<Problem>> {
        let asked = self.asked(plan)?;
        let cards: Vec<Card> = asked.card.clone().into_iter().collect();
        Ok(self.cells(&asked, asked.plan.clone(), &cards)?.and_then(|cells| cells.first().map(sizes)))
    }

    /// A row of the matrix: one precision on all cards.
    fn row(&self, plan: &str, precision: &str, gpus: &[String]) -> Result<Vec<Sizes>, Vec<Problem>> {
        let asked = self.asked(plan)?;
        let words = format!(r#"{{"precision": "{precision}"}}"#);
        let precision = read_request(&words).map_err(plain)?.plan.precision;
        let cards: Vec<Card> = gpus.iter().filter_map(|gpu| Card::find(gpu).ok()).collect();
        let cells = self.cells(&asked, Plan { precision, ..asked.plan.clone() }, &cards)?;
        Ok(cells.unwrap_or_default().iter().map(sizes).collect())
    }

    fn cells(&self, asked: &Asked, plan: Plan, cards: &[Card]) -> Result<Option<Vec<Cell>>, Vec<Problem>> {
        if self.last.as_ref().is_some_and(|(_, estimate)| estimate.batch_size.is_none()) {
            return Ok(None);
        }
        let life = asked.life.as_ref().unwrap_or(&Life::ALONE);
        let subject = Subject { life, ..Subject::batch(&self.opened()?.model, &asked.binding) };
        let found = fit::matrix(subject, &[plan], cards, &mut |_, _| {});
        found.map(Some).map_err(plain)
    }

    fn curve(&self, plan: &str, batches: &[u64]) -> Result<Vec<(u64, u64)>, Vec<Problem>> {
        let asked = self.asked(plan)?;
        let opened = self.opened()?;
        let point = |batch: &u64| {
            let estimate = opened.estimate(&with_batch(&asked, opened, *batch)).map_err(plain)?;
            Ok((*batch, estimate.peak.device.0))
        };
        batches.iter().map(point).collect()
    }
}

fn sizes(cell: &Cell) -> Sizes {
    Sizes { largest: cell.largest, safe: cell.safe }
}

/// The same question with another batch.
fn with_batch(asked: &Asked, opened: &Opened, batch: u64) -> Asked {
    let mut asked = asked.clone();
    asked.binding = Axis::Batch.bind(opened.model.graph(), &asked.binding, batch);
    asked
}

/// What the client asks the larger module alone.
#[cfg(not(feature = "full"))]
impl Desk {
    fn explain(&self, _: &str, _: &str) -> String {
        String::new()
    }

    fn document(&self, _: Format) -> String {
        String::new()
    }

    fn advise(&self, _: &str) -> Result<Advice, Vec<Problem>> {
        Err(Vec::new())
    }
}

/// An option whose absence was excluded before, without a way to panic.
trait OrDefault<T> {
    fn ok_or_default(self) -> Result<T, Vec<Problem>>;
}

impl<T> OrDefault<T> for Option<T> {
    fn ok_or_default(self) -> Result<T, Vec<Problem>> {
        self.ok_or_else(Vec::new)
    }
}

fn problem(place: &str, message: &str) -> Problem {
    Problem { place: place.into(), op: String::new(), message: message.into(), hint: None }
}

fn thrown(file: &str, error: &JsValue) -> Problem {
    let message = error.dyn_ref::<js_sys::Error>().map(|e| String::from(e.message()));
    problem(file, &message.unwrap_or_else(|| "it cannot be read".into()))
}

fn plain(problems: Vec<memfit_graph::Problem>) -> Vec<Problem> {
    let one =
        |p: memfit_graph::Problem| Problem { place: p.place, op: p.op, message: p.message, hint: p.hint };
    problems.into_iter().map(one).collect()
}
