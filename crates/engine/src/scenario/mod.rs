//! The life of a process around its training step: what is built before, what runs between steps, what else is alive.
//!
//! Each phase has a peak of its own; the largest is what must fit. Validation and prediction run forward alone, while weights
//! and optimizer state stay where they are (keras/src/trainers/trainer.py, `evaluate` inside of `fit`; a PyTorch loop under
//! `no_grad`). Batches that a pipeline puts on the device ahead of their step (`prefetch_to_device`, pinned copies with
//! `non_blocking=True`) are whole batches. Where Keras runs several steps in one graph (`steps_per_execution`), its loop fetches the
//! next batch without waiting for the step (keras/src/backend/tensorflow/trainer.py, `inner_body`), so that one is there as well; run
//! eagerly it is fetched after the step. A model that a notebook cell made and nobody let go of keeps its weights and
//! optimizer state, and so does any other model of the same process between its own steps; gradients that outlive a step are there, too.

mod parts;
mod ran;
mod stretches;

pub use ran::Companion;
pub(crate) use ran::Ran;
pub use stretches::{Scenario, Stretch};

use crate::timeline::Timeline;
use crate::{Category, EventKind, Framework, Mode, Plan};
use memfit_graph::Bytes;

/// What happens in the process beside the step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// The batch size of validation, where there is one.
    pub validation_batch: Option<u64>,
    /// Batches that are on the device before their step.
    pub prefetch: u32,
    /// Batches whose predictions are all kept on the device.
    pub predict_batches: u32,
    /// Models of earlier runs that are still alive.
    pub stale_models: u32,
    /// Steps that Keras runs in one call of its graph; none and one are the same.
    pub steps_per_execution: u32,
}

impl Life {
    /// Of a process that does nothing beside the step.
    pub const ALONE: Life = Life {
        validation_batch: None,
        prefetch: 0,
        predict_batches: 0,
        stale_models: 0,
        steps_per_execution: 0,
    };

    /// Whether the step is all that happens.
    pub fn is_step_alone(&self) -> bool {
        let steps_per_execution = self.steps_per_execution;
        !self.loops() && *self == Life { steps_per_execution, ..Life::default() }
    }

    /// How many parts such a process has without others.
    pub(crate) fn parts(&self) -> usize {
        1 + usize::from(self.validation_batch.is_some()) + usize::from(self.predict_batches > 0)
    }

    /// Whether one call of Keras's graph runs several steps.
    fn loops(&self) -> bool {
        self.steps_per_execution > 1
    }

    /// Batches on the device ahead of their step: what the pipeline puts there, and the one that a loop in the graph fetches.
    fn ahead(&self, plan: &Plan) -> u32 {
        let loops = self.loops() && plan.framework == Framework::Tensorflow && !plan.eager;
        self.prefetch.saturating_add(u32::from(loops))
    }
}

/// The name of the stretch that is a training step.
pub const TRAINING: &str = "train step";
/// The name of the stretch that is a forward pass alone.
pub const INFERENCE: &str = "inference";

/// The plan of a forward pass between steps. Several GPUs share it as they share the step.
fn forward_alone(plan: &Plan) -> Plan {
    Plan { mode: Mode::Infer, ..plan.clone() }
}

fn validation(batch: u64) -> String {
    format!("validation, batch {batch}")
}

fn prediction(batches: u32) -> String {
    format!("predict, {batches} batches kept")
}

fn step_of(name: &str) -> String {
    format!("step of {name}")
}

/// What is there before the step, of these categories.
fn set_up(timeline: &Timeline, of: &[Category]) -> impl Iterator<Item = Bytes> {
    let before = &timeline.events[..timeline.setup_end()];
    let made = before.iter().filter(|e| e.kind == EventKind::Allocate);
    let storages = made.map(|e| &timeline.storages[e.storage.0 as usize]);
    storages.filter(|s| of.contains(&s.category)).map(|s| s.bytes)
}

/// Gradients that are alive after the step: those that nobody lets go of before the next one, and the buckets of a data parallel wrapper.
fn gradients(timeline: &Timeline) -> Vec<Bytes> {
    let mut alive = vec![false; timeline.storages.len()];
    for event in &timeline.events {
        alive[event.storage.0 as usize] = event.kind == EventKind::Allocate;
    }
    let of = timeline.storages.iter().zip(alive);
    of.filter(|(s, alive)| *alive && s.category == Category::Gradient).map(|(s, _)| s.bytes).collect()
}

/// Whether all predictions that were kept are joined where they lie, so that both are there
/// (keras/src/backend/tensorflow/trainer.py, `predict`: `potentially_ragged_concat`).
fn joins_predictions(plan: &Plan) -> bool {
    plan.framework == Framework::Tensorflow
}

#[cfg(test)]
pub(crate) mod testing {
    use crate::Model;
    use memfit_graph::{Attributes, DType, Graph, Role, Shape, Type};

    /// One product of eight rows with weights of 4 MiB.
    pub(crate) fn dense(name: &str) -> Model {
        let mut g = Graph::default();
        let x = g.add_tensor("x", Type::tensor(DType::Float32, Shape::from([8, 1024])), Role::Input);
        g.inputs = vec![x];
        let w = g.add_tensor("w", Type::tensor(DType::Float32, Shape::from([1024, 1024])), Role::Initializer);
        let y = g.push("MatMul", Attributes::default(), &[x, w], "y").unwrap();
        g.outputs = vec![y];
        Model::new(g, name, "onnx", 1)
    }
}
