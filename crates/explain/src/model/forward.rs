//! Validation or prediction that ran out: a forward pass with a batch of its own, beside what training keeps.
//!
//! Under `torch.no_grad()` it holds its weights and what the next layer reads; with autograd on it keeps what a backward pass would
//! need, as training does. A log shows the former where a function was decorated (`decorate_context`, torch/utils/_contextlib.py) or
//! a framework's own loop ran it (transformers/trainer.py, `prediction_step`; Lightning's loops/utilities.py, `_no_grad_context`). Keras
//! has no gradient tape there (keras/src/backend/tensorflow/trainer.py, `test_step`, `predict_step`).

use super::{Beside, card, room};
use crate::model::room::Room;
use crate::{Log, Run};
use memfit_engine::{Estimate, EventKind, Framework, Life, Mode, Model, Phase, Plan};
use memfit_graph::{Binding, Bytes};

/// Functions inside of which autograd is off.
const OFF: [&str; 6] = [
    "decorate_context",
    "prediction_step",
    "evaluation_loop",
    "_evaluation_step",
    "_run_sanity_check",
    "_no_grad_context",
];

/// What PyTorch rounds tensors up to.
const BLOCK: u64 = 512;

/// A forward pass alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Forward {
    /// Validation or prediction.
    pub(crate) run: Run,
    /// Whether there is autograd, and the log shows that it was off; none where there is none.
    pub(crate) is_off: Option<bool>,
    /// How it gets on without autograd.
    pub(crate) room: Room,
    /// What training keeps beside it.
    pub(crate) kept: Bytes,
    /// What it takes on the device at least where autograd was on, if that is not ruled out.
    pub(crate) with_autograd: Option<Bytes>,
}

/// What ran out, where it was a forward pass alone.
pub(super) fn run(log: &Log) -> Option<Run> {
    log.context.run.filter(|run| matches!(run, Run::Validation | Run::Prediction))
}

/// Whether the log shows that autograd was off.
fn is_off(log: &Log) -> bool {
    log.context.frames.iter().any(|f| f.rsplit('.').next().is_some_and(|name| OFF.contains(&name)))
}

/// Whether the process trains, too.
fn trains(log: &Log) -> bool {
    let named = |f: &String| f.contains("train") || f.ends_with("fit");
    log.context.epoch.is_some() || log.context.frames.iter().any(named)
}

/// What is alive at most up to the end of the forward pass.
fn alive_in_forward(step: &Estimate) -> Bytes {
    let timeline = &step.timeline;
    let (mut alive, mut most) = (0, 0);
    for event in timeline.events.iter().take_while(|e| e.phase <= Phase::Forward) {
        let bytes = timeline.storages[event.storage.0 as usize].bytes.round_up(BLOCK).0;
        match event.kind {
            EventKind::Allocate => alive += bytes,
            EventKind::Free => alive -= bytes.min(alive),
        }
        most = most.max(alive);
    }
    Bytes(most)
}

impl Beside {
    /// Asks the engine how the forward pass gets on on the log's card, and which batch would have fitted.
    pub(super) fn forward_alone(
        &mut self,
        log: &Log,
        run: Run,
        model: &Model,
        binding: &Binding,
        plan: &Plan,
    ) {
        let parallel = plan.parallel.filter(|p| p.tensor > 1);
        let infer = Plan { mode: Mode::Infer, parallel, ..plan.clone() };
        let binding = Binding { batch: Some(self.batch.unwrap_or(1)), ..binding.clone() };
        let Ok(alone) = model.estimate(&binding, &infer) else { return };
        let kept = if trains(log) { kept(model, &binding, plan, &alone) } else { Bytes::ZERO };
        let Some((card, infer)) = card::of(log, &infer, kept) else { return };
        self.fit(model, &binding, &infer, &card);
        if self.batch.is_none() {
            return;
        }
        let Some(room) = room::of(model, &binding, &infer, &card, kept) else { return };
        let torch = plan.framework == Framework::Pytorch && plan.mode == Mode::Train;
        let is_off = torch.then(|| is_off(log));
        let step = (is_off == Some(false)).then(|| model.estimate(&binding, plan).ok()).flatten();
        let with_autograd =
            step.map(|step| (alive_in_forward(&step) + (room.device - room.reserved)).max(room.device));
        let most = alone.peak.allocated + kept;
        if let Some(held) = log.failure().and_then(|m| m.allocated).filter(|held| held.0 / 100 * 97 > most.0)
        {
            let (under, autograd) = match is_off {
                Some(false) => (" under torch.no_grad()", "autograd was on, "),
                _ => ("", ""),
            };
            self.contradictions.push(format!(
                "Tensors held {held} when the allocation failed, and a forward pass{under} never holds more than {most} with what \
                 training keeps: {autograd}outputs are kept on the device, or the batch or a size was larger, or tensors of training \
                 are still alive."
            ));
        }
        self.forward = Some(Forward { run, is_off, room, kept, with_autograd });
    }
}

/// What training keeps between its steps beside the weights.
fn kept(model: &Model, binding: &Binding, plan: &Plan, alone: &Estimate) -> Bytes {
    let life = Life { validation_batch: binding.batch, ..Life::ALONE };
    let Ok(mut step) = model.estimate(binding, plan) else { return Bytes::ZERO };
    let process = model.add_process(&mut step, binding, &life, &[], None).ok().and(step.scenario);
    let stretches = process.map(|process| process.stretches).unwrap_or_default();
    let both = stretches.iter().find(|s| s.name.starts_with("validation")).map(|s| s.allocated);
    both.unwrap_or_default().saturating_sub(alone.peak.allocated)
}

impl Forward {
    /// What it is called.
    pub(crate) fn name(&self) -> &'static str {
        if self.run == Run::Validation { "validation" } else { "prediction" }
    }

    /// What it takes, in sentences.
    pub(super) fn sentences(&self) -> Vec<String> {
        let what = if self.run == Run::Validation { "Validation" } else { "Prediction" };
        let under = if self.is_off.is_some() { " under torch.no_grad()" } else { "" };
        let kept = match self.kept {
            Bytes::ZERO => String::new(),
            kept => format!(", {kept} of it kept by training"),
        };
        let device = self.room.device;
        let mut said = vec![format!(
            "{what} takes {device} on the device{under}{kept}{}.",
            self.room.verdict_in_words()
        )];
        match (self.is_off, self.with_autograd) {
            (Some(true), _) => said.push("The log shows that autograd was off.".into()),
            (_, Some(with)) => {
                let verdict = if self.room.is_less_than(with) { ", and does not fit" } else { "" };
                said.push(format!(
                    "The log does not show whether autograd was off: where it was on, the pass keeps what backward would need and takes \
                     at least {with}{verdict}."
                ));
            }
            _ => {}
        }
        said
    }

    /// What helps, given the largest batch that fits.
    pub(super) fn helps(&self, fitting: Option<u64>) -> String {
        let mut what = Vec::new();
        if self.is_off == Some(false) {
            what.push("torch.no_grad() around it".to_owned());
        }
        if self.room.verdict != memfit_engine::Verdict::Fits {
            what.extend(
                fitting.filter(|n| *n > 0).map(|n| format!("a {} batch of {n} at most", self.name())),
            );
        }
        what.push("outputs taken off the device as they come: .cpu()".into());
        format!("What helps: {}.", what.join("; "))
    }
}
