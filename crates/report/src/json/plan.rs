//! A plan as JSON, in an estimate and by itself.

use super::Allocator;
use crate::words;
use memfit_engine::Framework;
use memfit_engine::allocators::AllocatorSettings;
use serde::Serialize;
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
    /// Only where it is not the framework's own default.
    #[serde(skip_serializing_if = "Option::is_none")]
    allocator: Option<Allocator>,
}

pub(super) fn plan(p: &memfit_engine::Plan, batch_size: Option<u64>) -> Plan<'_> {
    Plan {
        batch_size,
        framework: words::framework(p.framework),
        precision: words::precision(p.precision),
        optimizer: &p.optimizer,
        optimizer_impl: words::optimizer_impl(p.optimizer_impl),
        mode: words::mode(p.mode),
        weight_decay: p.weight_decay,
        accumulate: p.accumulate,
        checkpoint: words::checkpoint(p.checkpoint),
        freeze: &p.freeze,
        keep_gradients: p.keep_gradients,
        loss: words::loss(p.loss),
        ema: p.ema,
        master_weights: p.master_weights,
        cudnn_benchmark: p.cudnn_benchmark,
        channels_last: p.channels_last,
        autocast_backward: p.autocast_backward,
        composed_attention: p.composed_attention,
        assume_batchnorm: p.assume_batchnorm,
        assume_dropout: p.assume_dropout,
        tied_embeddings: p.tied_embeddings,
        as_fake_tensors: p.as_fake_tensors,
        global_clipnorm: p.clip_norm,
        xla: (p.framework == Framework::Tensorflow).then_some(p.xla),
        run_eagerly: (p.framework == Framework::Tensorflow).then_some(p.eager),
        gpus: p.parallel.map(|p| p.gpus),
        parallel: p.parallel.filter(|p| p.replicas() > 1).map(|p| words::sharding(p.sharding)),
        tensor_parallel: p.parallel.map(|p| p.tensor).filter(|n| *n > 1),
        pipeline_stages: p.parallel.map(|p| p.pipeline).filter(|n| *n > 1),
        allocator: (p.allocator != AllocatorSettings::default()).then(|| Allocator::from(&p.allocator)),
    }
}

/// A plan as an estimate's JSON has it.
pub fn plan_value(plan: &memfit_engine::Plan, batch_size: Option<u64>) -> Value {
    serde_json::to_value(self::plan(plan, batch_size)).unwrap_or_default()
}
