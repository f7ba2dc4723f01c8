//! A plan as JSON, in an estimate and by itself.

use super::Allocator;
use memfit_engine::{Framework, Word, parallel};
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Serialize)]
pub(super) struct Plan<'a> {
    batch_size: Option<u64>,
    framework: &'static str,
    precision: &'static str,
    optimizer: &'a str,
    optimizer_impl: &'static str,
    mode: &'static str,
    weight_decay: bool,
    accumulate: u32,
    checkpoint: &'static str,
    freeze: &'a [String],
    keep_gradients: bool,
    loss: &'static str,
    ema: bool,
    master_weights: bool,
    cudnn_benchmark: bool,
    channels_last: bool,
    autocast_backward: bool,
    composed_attention: bool,
    assume_batchnorm: bool,
    assume_dropout: bool,
    /// Where it was said.
    #[serde(skip_serializing_if = "Option::is_none")]
    tied_embeddings: Option<bool>,
    as_fake_tensors: bool,
    /// Only where it is on.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    global_clipnorm: bool,
    /// Only where it is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    loss_scale: Option<bool>,
    /// Where the framework has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    xla: Option<bool>,
    /// Where the framework has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    run_eagerly: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gpus: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parallel: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tensor_parallel: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pipeline_stages: Option<u32>,
    /// Where it is DeepSpeed that shares.
    #[serde(skip_serializing_if = "Option::is_none")]
    deepspeed: Option<DeepSpeed>,
    /// Only where it is not the framework's own default.
    #[serde(skip_serializing_if = "Option::is_none")]
    allocator: Option<Allocator>,
    /// PyTorch's settings of it, all of them, where one is not its own default.
    #[serde(skip_serializing_if = "Option::is_none")]
    allocator_conf: Option<String>,
}

/// DeepSpeed's options, under the names that its configuration has for them; all in elements. What a plan that is read does not say is
/// DeepSpeed's default.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeepSpeed {
    reduce_bucket_size: u64,
    stage3_prefetch_bucket_size: u64,
    stage3_max_live_parameters: u64,
    stage3_max_reuse_distance: u64,
    stage3_param_persistence_threshold: u64,
}

impl Default for DeepSpeed {
    fn default() -> DeepSpeed {
        parallel::DeepSpeed::default().into()
    }
}

impl From<DeepSpeed> for parallel::DeepSpeed {
    fn from(said: DeepSpeed) -> parallel::DeepSpeed {
        parallel::DeepSpeed {
            reduce_bucket: said.reduce_bucket_size,
            prefetch_bucket: said.stage3_prefetch_bucket_size,
            max_live: said.stage3_max_live_parameters,
            max_reuse: said.stage3_max_reuse_distance,
            persistence: said.stage3_param_persistence_threshold,
        }
    }
}

impl From<parallel::DeepSpeed> for DeepSpeed {
    fn from(options: parallel::DeepSpeed) -> DeepSpeed {
        let parallel::DeepSpeed { reduce_bucket, prefetch_bucket, max_live, max_reuse, persistence } =
            options;
        DeepSpeed {
            reduce_bucket_size: reduce_bucket,
            stage3_prefetch_bucket_size: prefetch_bucket,
            stage3_max_live_parameters: max_live,
            stage3_max_reuse_distance: max_reuse,
            stage3_param_persistence_threshold: persistence,
        }
    }
}

/// All of a plan but what a card decides: a field that is added to it does not compile until it is shown.
pub(super) fn plan(p: &memfit_engine::Plan, batch_size: Option<u64>) -> Plan<'_> {
    let memfit_engine::Plan {
        framework,
        precision,
        mode,
        optimizer,
        optimizer_impl,
        weight_decay,
        accumulate,
        checkpoint,
        freeze,
        keep_gradients,
        loss,
        ema,
        master_weights,
        parallel,
        allocator,
        cudnn_benchmark,
        channels_last,
        compute_capability: _,
        amd: _,
        autocast_backward,
        composed_attention,
        as_fake_tensors,
        clip_norm,
        xla,
        eager,
        // Nobody can ask for it but the comparison with TensorFlow's own traces.
        grappler: _,
        loss_scale,
        assume_batchnorm,
        assume_dropout,
        tied_embeddings,
    } = p;
    let is_tensorflow = *framework == Framework::Tensorflow;
    Plan {
        batch_size,
        framework: framework.name(),
        precision: precision.name(),
        optimizer,
        optimizer_impl: optimizer_impl.name(),
        mode: mode.name(),
        weight_decay: *weight_decay,
        accumulate: *accumulate,
        checkpoint: checkpoint.name(),
        freeze,
        keep_gradients: *keep_gradients,
        loss: loss.name(),
        ema: *ema,
        master_weights: *master_weights,
        cudnn_benchmark: *cudnn_benchmark,
        channels_last: *channels_last,
        autocast_backward: *autocast_backward,
        composed_attention: *composed_attention,
        assume_batchnorm: *assume_batchnorm,
        assume_dropout: *assume_dropout,
        tied_embeddings: *tied_embeddings,
        as_fake_tensors: *as_fake_tensors,
        global_clipnorm: *clip_norm,
        loss_scale: (!loss_scale).then_some(false),
        xla: is_tensorflow.then_some(*xla),
        run_eagerly: is_tensorflow.then_some(*eager),
        gpus: parallel.map(|p| p.gpus),
        parallel: parallel.filter(|p| p.replicas() > 1).map(|p| p.sharding.name()),
        tensor_parallel: parallel.map(|p| p.tensor).filter(|n| *n > 1),
        pipeline_stages: parallel.map(|p| p.pipeline).filter(|n| *n > 1),
        deepspeed: parallel.and_then(|p| p.deepspeed).map(Into::into),
        allocator: Some(Allocator::from(allocator)).filter(|shown| *shown != Allocator::default()),
        allocator_conf: allocator.pytorch.text(),
    }
}

/// A plan as an estimate's JSON has it.
pub fn plan_value(plan: &memfit_engine::Plan, batch_size: Option<u64>) -> Value {
    serde_json::to_value(self::plan(plan, batch_size)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_engine::allocators::PytorchAllocatorConfig;
    use memfit_engine::parallel::{Parallel, Sharding};
    use memfit_engine::{Checkpoint, Loss, Mode, OptimizerImpl, Plan, Precision};
    use memfit_graph::Bytes;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_plans_look_alike() {
        let changed: &[fn(&mut Plan)] = &[
            |_| {},
            |p| p.precision = Precision::Bf16,
            |p| p.mode = Mode::Infer,
            |p| p.optimizer = "lion".into(),
            |p| p.optimizer_impl = OptimizerImpl::Fused,
            |p| p.weight_decay ^= true,
            |p| p.accumulate = 2,
            |p| p.checkpoint = Checkpoint::Block,
            |p| p.freeze = vec!["a.*".into()],
            |p| p.keep_gradients ^= true,
            |p| p.loss = Loss::Mse,
            |p| p.ema ^= true,
            |p| p.master_weights ^= true,
            |p| p.cudnn_benchmark ^= true,
            |p| p.channels_last ^= true,
            |p| p.autocast_backward ^= true,
            |p| p.composed_attention ^= true,
            |p| p.as_fake_tensors ^= true,
            |p| p.clip_norm ^= true,
            |p| p.xla ^= true,
            |p| p.eager ^= true,
            |p| p.loss_scale ^= true,
            |p| p.assume_batchnorm ^= true,
            |p| p.assume_dropout ^= true,
            |p| p.tied_embeddings = Some(false),
            |p| p.parallel = Some(Parallel::data(2, Sharding::Ddp)),
            |p| p.parallel = Some(Parallel::data(2, Sharding::Zero2)),
            |p| p.parallel = Some(Parallel::data(4, Sharding::Zero2)),
            |p| p.parallel = Some(Parallel { tensor: 2, ..Parallel::data(4, Sharding::Zero2) }),
            |p| p.parallel = Some(Parallel { pipeline: 2, ..Parallel::data(4, Sharding::Zero2) }),
            |p| {
                let deepspeed = Some(parallel::DeepSpeed::default());
                p.parallel = Some(Parallel { deepspeed, ..Parallel::data(2, Sharding::Zero2) });
            },
            |p| {
                let deepspeed = parallel::DeepSpeed { max_live: 5, ..parallel::DeepSpeed::default() };
                p.parallel =
                    Some(Parallel { deepspeed: Some(deepspeed), ..Parallel::data(2, Sharding::Zero2) });
            },
            |p| p.allocator.cuda_malloc_async ^= true,
            |p| p.allocator.memory_growth ^= true,
            |p| p.allocator.memory_fraction = Some(500),
            |p| p.allocator.memory_limit = Some(Bytes(1)),
            |p| p.allocator.pytorch = of("expandable_segments:True"),
            |p| p.allocator.pytorch = of("max_split_size_mb:64"),
            |p| p.allocator.pytorch = of("garbage_collection_threshold:0.6"),
            |p| p.allocator.pytorch = of("roundup_power2_divisions:8"),
        ];
        let mut shown = BTreeSet::new();
        for change in changed {
            let mut plan = Plan { framework: Framework::Tensorflow, ..Plan::default() };
            change(&mut plan);
            shown.insert(plan_value(&plan, Some(8)).to_string());
        }
        assert_eq!(shown.len(), changed.len());
    }

    fn of(conf: &str) -> PytorchAllocatorConfig {
        PytorchAllocatorConfig::default().apply(conf).unwrap()
    }
}
