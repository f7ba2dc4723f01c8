//! What the core says as what the page shows.

use crate::categories::{PHASES, index, parts};
use crate::protocol::{self, Details, Facts, Head, Input, Layer, Step, Tensor};
use memfit_engine::{Category, Estimate, EventKind, Framework, Phase, Timeline, Verdict};
use memfit_graph::{Bytes, Dim, batch_symbol};
use memfit_wasm::Opened;
use std::collections::BTreeSet;

pub(super) fn facts(opened: &Opened) -> Facts {
    let graph = opened.model.graph();
    let batch = batch_symbol(graph);
    let mut symbols = BTreeSet::new();
    let inputs = graph.inputs.iter().map(|id| {
        let tensor = graph.tensor(*id);
        let dims = tensor.declared.shape().map(|s| s.dims());
        symbols.extend(dims.into_iter().flatten().flat_map(Dim::symbols).map(str::to_owned));
        let axis = |symbol: &String| dims?.iter().position(|dim| dim.to_string() == *symbol);
        Input {
            name: tensor.name.to_string(),
            dtype: tensor.declared.dtype().map(|d| d.name().to_owned()).unwrap_or_default(),
            // Where nothing is named, a batch is bound to the first axis.
            batch: batch.as_ref().map_or(Some(0), axis),
            dims: dims.map(|dims| dims.iter().map(ToString::to_string).collect()),
        }
    });
    let inputs = inputs.collect();
    if let Some(batch) = batch {
        symbols.remove(&batch);
    }
    let found = |kind| opened.model.report().findings.iter().any(|f| f.kind == kind);
    Facts {
        name: opened.name.clone(),
        format: opened.format.to_owned(),
        producer: opened.producer.clone(),
        operators: opened.operators,
        inputs,
        symbols: symbols.into_iter().collect(),
        folded: found("folded-batchnorm"),
        untied: found("untied-embeddings"),
    }
}

pub(super) fn head(e: &Estimate) -> Head {
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
        stretches: e
            .scenario
            .iter()
            .flat_map(|s| &s.stretches)
            .map(|s| (s.name.clone(), s.allocated.0))
            .collect(),
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

pub(super) fn details(e: &Estimate) -> Details {
    let layers = e.layers.iter().map(|l| Layer {
        name: l.name.to_string(),
        op: l.op.to_string(),
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
    Details {
        layers: layers.collect(),
        largest: largest.collect(),
        step: step(&e.timeline, e.plan.framework),
    }
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

/// The timeline as its framework's allocator holds memory.
fn step(t: &Timeline, framework: Framework) -> Step {
    let block = memfit_engine::block(framework);
    let events = || t.events.iter();
    let first = |p: Phase| {
        let at = t.events.iter().position(|e| e.phase >= p).unwrap_or(t.events.len());
        u32::try_from(at).unwrap_or(u32::MAX)
    };
    Step {
        layers: t.layers.iter().map(ToString::to_string).collect(),
        labels: t.labels.iter().map(ToString::to_string).collect(),
        bytes: t.storages.iter().map(|s| s.bytes.round_up(block).0).collect(),
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
