//! The worker: takes questions one by one, asks the core, and sends answers back.

use crate::categories::{PHASES, index, parts};
use crate::protocol;
use crate::protocol::{
    Answer, Ask, Details, Facts, Format, Head, Input, Layer, Problem, Question, Said, Step, Tensor,
};
use memfit_engine::devices::Card;
use memfit_engine::fit::{self, Axis, Cell};
use memfit_engine::{Category, Estimate, EventKind, Phase, Plan, Timeline, Verdict};
use memfit_graph::{Bytes, Dim, batch_symbol};
use memfit_report::json;
use memfit_wasm::javascript::Slices;
use memfit_wasm::{Asked, Opened, read_request_for};
use std::cell::RefCell;
use std::collections::BTreeSet;
use wasm_bindgen::prelude::*;
use web_sys::{DedicatedWorkerGlobalScope, MessageEvent};

/// PyTorch's allocator rounds up to this; the timeline is drawn as it holds memory.
const BLOCK: u64 = 512;

/// The place where questions are answered.
#[derive(Default)]
struct Desk {
    opened: Option<Opened>,
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
        let begin = js_sys::Date::now();
        let kind = question.ask.kind();
        let said = desk.borrow_mut().answer(question.ask, pair.get(1));
        let said = said.unwrap_or_else(|problems| Said::Failed(kind, problems));
        send(&answering, Answer { generation: question.generation, took: js_sys::Date::now() - begin, said });
    });
    scope.set_onmessage(Some(listen.as_ref().unchecked_ref()));
    listen.forget();
    send(&scope, Answer { generation: 0, took: 0.0, said: Said::Ready });
}

fn send(scope: &DedicatedWorkerGlobalScope, answer: Answer) {
    // The answers are plain data, which always becomes JSON, and text can always be posted.
    if let Ok(text) = serde_json::to_string(&answer) {
        let _ = scope.post_message(&text.into());
    }
}

impl Desk {
    fn answer(&mut self, ask: Ask, file: JsValue) -> Result<Said, Vec<Problem>> {
        Ok(match ask {
            Ask::Open { file: name } => {
                (self.opened, self.last) = (None, None);
                let slices = Slices::new(file).map_err(|e| vec![thrown(&name, &e)])?;
                let opened = Opened::read(slices, Some(&name)).map_err(shown)?;
                let facts = facts(&opened);
                self.opened = Some(opened);
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
                let estimate = self.estimate(&plan)?;
                let text = match format {
                    Format::Json => json::estimate(estimate),
                };
                Said::Exported { format, text }
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
        let (Some(opened), Ok(mut asked)) = (&self.opened, self.asked(plan)) else {
            return explain_text(log, None);
        };
        explain_text(
            log,
            Some(&mut |batch| {
                asked.binding.batch = Some(batch);
                opened.estimate(&asked).ok()
            }),
        )
    }

    /// The client asks the larger module.
    #[cfg(not(feature = "full"))]
    fn explain(&self, _: &str, _: &str) -> String {
        String::new()
    }

    fn asked(&self, plan: &str) -> Result<Asked, Vec<Problem>> {
        read_request_for(plan, self.opened()?.framework()).map_err(shown)
    }

    /// The estimate for a plan, computed unless it was the last one.
    fn estimate(&mut self, plan: &str) -> Result<&Estimate, Vec<Problem>> {
        if self.last.as_ref().is_none_or(|(last, _)| last != plan) {
            let asked = self.asked(plan)?;
            let estimate = self.opened()?.estimate(&asked).map_err(shown)?;
            self.last = Some((plan.to_owned(), estimate));
        }
        self.last.as_ref().map(|(_, estimate)| estimate).ok_or_default()
    }

    /// None where the model has no batch.
    fn largest(&self, plan: &str) -> Result<Option<u64>, Vec<Problem>> {
        let asked = self.asked(plan)?;
        let cards: Vec<Card> = asked.card.clone().into_iter().collect();
        Ok(self.cells(&asked, asked.plan.clone(), &cards)?.and_then(|cells| cells.first().map(|c| c.largest)))
    }

    /// A row of the matrix: one precision on all cards.
    fn row(&self, plan: &str, precision: &str, gpus: &[String]) -> Result<Vec<u64>, Vec<Problem>> {
        let asked = self.asked(plan)?;
        let words = format!(r#"{{"precision": "{precision}"}}"#);
        let precision = read_request_for(&words, asked.plan.framework).map_err(shown)?.plan.precision;
        let cards: Vec<Card> = gpus.iter().filter_map(|gpu| Card::find(gpu).ok()).collect();
        let cells = self.cells(&asked, Plan { precision, ..asked.plan.clone() }, &cards)?;
        Ok(cells.unwrap_or_default().iter().map(|c| c.largest).collect())
    }

    fn cells(&self, asked: &Asked, plan: Plan, cards: &[Card]) -> Result<Option<Vec<Cell>>, Vec<Problem>> {
        if self.last.as_ref().is_some_and(|(_, estimate)| estimate.batch_size.is_none()) {
            return Ok(None);
        }
        let model = &self.opened()?.model;
        let found = fit::matrix(model, &asked.binding, &[plan], cards, &Axis::Batch, &mut |_, _| {});
        found.map(Some).map_err(shown)
    }

    fn curve(&self, plan: &str, batches: &[u64]) -> Result<Vec<(u64, u64)>, Vec<Problem>> {
        let mut asked = self.asked(plan)?;
        let opened = self.opened()?;
        let mut points = Vec::with_capacity(batches.len());
        for batch in batches {
            asked.binding.batch = Some(*batch);
            let estimate = opened.estimate(&asked).map_err(shown)?;
            points.push((*batch, estimate.peak.device.0));
        }
        Ok(points)
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

fn shown(problems: Vec<memfit_graph::Problem>) -> Vec<Problem> {
    let one =
        |p: memfit_graph::Problem| Problem { place: p.place, op: p.op, message: p.message, hint: p.hint };
    problems.into_iter().map(one).collect()
}

fn facts(opened: &Opened) -> Facts {
    let graph = opened.model.graph();
    let batch = batch_symbol(graph);
    let mut symbols = BTreeSet::new();
    let inputs = graph.inputs.iter().map(|id| {
        let tensor = graph.tensor(*id);
        let dims = tensor.declared.shape().map(|s| s.dims());
        symbols.extend(dims.into_iter().flatten().flat_map(Dim::symbols).map(str::to_owned));
        Input {
            name: tensor.name.to_string(),
            dtype: tensor.declared.dtype().map(|d| d.name().to_owned()).unwrap_or_default(),
            dims: dims.map(|dims| dims.iter().map(ToString::to_string).collect()),
        }
    });
    let inputs = inputs.collect();
    if let Some(batch) = batch {
        symbols.remove(&batch);
    }
    Facts {
        name: opened.name.clone(),
        format: opened.format.to_owned(),
        producer: opened.producer.clone(),
        operators: opened.operators,
        inputs,
        symbols: symbols.into_iter().collect(),
        eval: opened.model.report().findings.iter().any(|f| f.kind == "folded-batchnorm"),
    }
}

fn head(e: &Estimate) -> Head {
    let m = &e.model;
    Head {
        batch: e.batch_size,
        parameters: m.parameters_trainable,
        frozen: m.parameters_frozen,
        buffers: m.buffers,
        allocated: e.peak.allocated.0,
        reserved: e.peak.reserved.0,
        device: e.peak.device.0,
        device_low: e.peak.device_low.0,
        device_high: e.peak.device_high.0,
        phase: phase(e.peak.phase),
        layer: e.peak.layer.clone(),
        parts: parts(&e.breakdown),
        saved: e.saved_for_backward.0,
        fit: e.fit.as_ref().map(fit),
        optimizer_impl: format!("{:?}", e.plan.optimizer_impl).to_lowercase(),
        unknown: e.unknown.clone(),
        assumptions: e.assumptions.clone(),
        warnings: e.warnings.clone(),
    }
}

fn fit(f: &memfit_engine::Fit) -> protocol::Fit {
    let shortage = f.shortage.as_ref().map(|s| {
        let place = if s.layer.is_empty() { String::new() } else { format!(" at {}", s.layer) };
        let pieces = if s.unusable > Bytes::ZERO {
            format!(", {} of it in pieces of at most {}", s.unusable, s.largest_free)
        } else {
            String::new()
        };
        format!(
            "{}{place} asks for {} in {}, with {} free{pieces}",
            s.tensor,
            s.request,
            PHASES[usize::from(phase(s.phase))],
            s.free
        )
    });
    protocol::Fit {
        verdict: match f.verdict {
            Verdict::DoesNotFit => protocol::Verdict::DoesNotFit,
            Verdict::Tight => protocol::Verdict::Tight,
            Verdict::Fits => protocol::Verdict::Fits,
        },
        usable: f.usable.0,
        headroom: f.headroom(),
        retries: f.retries,
        shortage,
        preallocated: f.preallocated.map(|b| b.0),
        others: f.others.iter().map(|o| o.expected.0).sum(),
    }
}

fn phase(phase: Phase) -> u8 {
    match phase {
        Phase::Setup => 0,
        Phase::Forward => 1,
        Phase::Backward => 2,
        Phase::OptimizerStep => 3,
    }
}

fn details(e: &Estimate) -> Details {
    let layers = e.layers.iter().map(|l| Layer {
        name: l.name.clone(),
        op: l.op.clone(),
        shape: l.output_shapes.first().map(|s| joined(s)).unwrap_or_default(),
        parameters: l.parameters,
        saved: l.saved_bytes.0,
        parts: parts(&l.at_peak).into_iter().take(9).collect(),
    });
    let largest = e.largest.iter().map(|t| Tensor {
        name: t.label.clone(),
        layer: t.layer.clone(),
        category: index(t.category),
        bytes: t.bytes.0,
    });
    Details { layers: layers.collect(), largest: largest.collect(), step: step(&e.timeline) }
}

fn joined(shape: &[u64]) -> String {
    shape.iter().map(ToString::to_string).collect::<Vec<_>>().join("×")
}

/// What each storage is for; as in a breakdown, an activation that is freed before forward ends is a transient.
fn categories(t: &Timeline) -> Vec<u8> {
    let mut categories: Vec<Category> = t.storages.iter().map(|s| s.category).collect();
    for event in t.events.iter().filter(|e| e.kind == EventKind::Free && e.phase == Phase::Forward) {
        if let Some(category @ Category::Activation) = categories.get_mut(event.storage.0 as usize) {
            *category = Category::Transient;
        }
    }
    categories.into_iter().map(index).collect()
}

fn step(t: &Timeline) -> Step {
    let events = || t.events.iter();
    let first = |p: Phase| {
        let at = t.events.iter().position(|e| e.phase >= p).unwrap_or(t.events.len());
        u32::try_from(at).unwrap_or(u32::MAX)
    };
    Step {
        layers: t.layers.iter().map(ToString::to_string).collect(),
        labels: t.labels.iter().map(ToString::to_string).collect(),
        bytes: t.storages.iter().map(|s| s.bytes.round_up(BLOCK).0).collect(),
        category: categories(t),
        layer: t.storages.iter().map(|s| s.layer).collect(),
        label: t.storages.iter().map(|s| s.label).collect(),
        events: events().map(|e| e.storage.0 * 2 + u32::from(e.kind == EventKind::Free)).collect(),
        event_layer: events().map(|e| e.layer).collect(),
        phases: [
            first(Phase::Setup),
            first(Phase::Forward),
            first(Phase::Backward),
            first(Phase::OptimizerStep),
        ],
    }
}
