//! What one of several GPUs holds.
//!
//! Three ways of sharing, which may be used together: `data` (each GPU has other samples), `tensor` (each has a part of every
//! layer) and `pipeline` (each has a part of the layers). NCCL's own buffers are outside of the framework's allocator and in none
//! of them.

mod data;
mod deepspeed;
mod fsdp;
mod pipeline;
mod shared;
mod tensor;
mod vocabulary;

pub use deepspeed::DeepSpeed;
pub(crate) use pipeline::{Tie, ties};
pub use shared::{Shared, Sharing};
pub(crate) use tensor::Split;

use crate::model::block;
use crate::{Plan, Timeline};
use memfit_graph::{DType, Problem};

/// How GPUs that have different samples share the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharding {
    /// Each has everything, and buckets of gradients.
    Ddp,
    /// The optimizer's state is split.
    Zero1,
    /// And the gradients.
    Zero2,
    /// And the parameters: FSDP's full sharding.
    Zero3,
}

/// Several GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parallel {
    /// How many in all: a multiple of `tensor` times `pipeline`.
    pub gpus: u32,
    /// How those share that have different samples.
    pub sharding: Sharding,
    /// GPUs that each layer is split over.
    pub tensor: u32,
    /// Stages that the layers are split into.
    pub pipeline: u32,
    /// DeepSpeed's options, where it is DeepSpeed that shares.
    pub deepspeed: Option<DeepSpeed>,
}

impl Parallel {
    /// GPUs that have different samples and share the rest.
    pub fn data(gpus: u32, sharding: Sharding) -> Parallel {
        Parallel { gpus, sharding, tensor: 1, pipeline: 1, deepspeed: None }
    }

    /// How many GPUs have different samples.
    pub fn replicas(self) -> u32 {
        self.gpus / self.tensor.saturating_mul(self.pipeline).max(1)
    }

    /// Micro-batches that a step has at least, so that every stage has work.
    pub(crate) fn micro_batches(self, accumulate: u32) -> u32 {
        if self.pipeline > 1 { accumulate.max(self.pipeline) } else { accumulate }
    }

    /// The step as the fullest of the GPUs runs it; the layers have been split already. Gives which layers that GPU has, where it
    /// does not have all, and what was assumed.
    ///
    /// # Errors
    /// Where there are more stages than blocks.
    pub(crate) fn apply(
        self,
        timeline: &mut Timeline,
        ties: &[Tie],
        plan: &Plan,
        of_layers: Vec<String>,
    ) -> Result<(Option<Vec<bool>>, Vec<String>), Problem> {
        let mut here = None;
        let mut said = vec![format!(
            "{} GPUs, and this is one of them; NCCL's own buffers are not in the numbers",
            self.gpus
        )];
        said.extend(of_layers);
        if self.pipeline > 1 {
            let micro_batches = self.micro_batches(plan.accumulate);
            let block = block(plan.framework);
            let (layers, what) = pipeline::apply(timeline, ties, self.pipeline, micro_batches, block)?;
            here = Some(layers);
            said.push(what);
        }
        let replicas = self.replicas();
        if replicas > 1 {
            said.push(format!("{replicas} replicas with different samples, each with this batch"));
            said.extend(match (self.sharding, self.deepspeed) {
                (Sharding::Ddp, _) | (Sharding::Zero1, None) => None,
                (_, Some(options)) => Some(options.to_string()),
                (Sharding::Zero2, None) => Some(
                    "each repeated block is wrapped, then the model (FSDP2's `fully_shard`), and whole from forward to \
                     backward (`reshard_after_forward=False`)"
                        .into(),
                ),
                (Sharding::Zero3, None) => {
                    Some("each repeated block is wrapped, then the model (FSDP2's `fully_shard`)".into())
                }
            });
            let element = plan.precision.applied_to(DType::Float32).size_of(1).0;
            let by_deepspeed = self.deepspeed.map(|options| (options, element));
            data::apply(timeline, self.sharding, u64::from(replicas), by_deepspeed);
        }
        Ok((here, said))
    }
}
