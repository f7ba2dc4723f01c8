//! What a framework said of its steps beside the estimate for them.

use crate::measurement::{PHASES, leak};
use crate::python::Report;
use crate::record::{Layer, Record, Row, Seen};
use memfit_engine::{Category, Estimate, EventKind, Framework, Phase, Timeline};
use memfit_graph::Bytes;
use std::collections::BTreeMap;

/// What the allocator rounds every request up to: PyTorch's caching allocator (`kMinBlockSize`), TensorFlow's BFC (`kMinAllocationSize`).
fn block(framework: Framework) -> u64 {
    if framework == Framework::Tensorflow { 256 } else { 512 }
}

/// All that an estimate says of a step, by the names of a record's rows.
pub fn figures(estimate: &Estimate) -> BTreeMap<&'static str, u64> {
    let mut found = predicted(&estimate.timeline, block(estimate.plan.framework));
    found.insert("saved", estimate.saved_for_backward.0);
    found.insert("peak", estimate.peak.allocated.0);
    found.insert("reserved", estimate.peak.reserved.0);
    found.insert("device", estimate.peak.device.0);
    found
}

/// The highest of each phase, and the sums of what stands before the step.
fn predicted(timeline: &Timeline, block: u64) -> BTreeMap<&'static str, u64> {
    let mut found: BTreeMap<&'static str, u64> = BTreeMap::new();
    let (mut live, mut gradients) = (0_u64, 0_u64);
    for event in &timeline.events {
        let Some(storage) = timeline.storages.get(event.storage.0 as usize) else { continue };
        let bytes = storage.bytes.0.next_multiple_of(block);
        let of_gradient = storage.category == Category::Gradient;
        match event.kind {
            EventKind::Allocate => {
                live += bytes;
                gradients += if of_gradient { bytes } else { 0 };
            }
            EventKind::Free => {
                live = live.saturating_sub(bytes);
                gradients = gradients.saturating_sub(if of_gradient { bytes } else { 0 });
            }
        }
        let phase = match event.phase {
            Phase::Setup => "before",
            Phase::Forward => "forward",
            Phase::Backward => "backward",
            Phase::OptimizerStep => "optimizer_step",
        };
        let slot = found.entry(phase).or_default();
        *slot = (*slot).max(live);
        let slot = found.entry("gradients").or_default();
        *slot = (*slot).max(gradients);
        if event.phase == Phase::Setup && event.kind == EventKind::Allocate {
            let category = match storage.category {
                Category::Parameter => "parameters",
                Category::Buffer => "buffers",
                Category::OptimizerState => "optimizer",
                Category::Input => "inputs",
                _ => continue,
            };
            *found.entry(category).or_default() += bytes;
        }
    }
    found
}

/// The order in which figures are shown.
const ROWS: [&str; 10] = [
    "parameters",
    "buffers",
    "inputs",
    "gradients",
    "optimizer",
    "saved",
    "before",
    "forward",
    "backward",
    "optimizer_step",
];

/// Fills a record. `device` is the highest that the driver showed for the process.
pub fn fill(record: &mut Record, report: &Report, estimate: &Estimate, device: Option<Bytes>) {
    record.framework.clone_from(&report.framework);
    (record.backend, record.device) = (report.backend.clone(), report.device.clone());
    (record.driver, record.device_total_bytes) = (report.driver.clone(), report.total_bytes);
    record.steps = report.steps;
    let predicted = figures(estimate);
    let measured = |what: &str| report.bytes.get(what).map(|bytes| Bytes(*bytes));
    for what in ROWS {
        if let (Some(measured), Some(predicted)) = (measured(what), predicted.get(what)) {
            record.rows.push(Row::new(what, measured, Bytes(*predicted)));
        }
    }
    let highest = |_| ["before"].into_iter().chain(PHASES).filter_map(measured).max();
    let peak = measured("peak").or_else(|| measured("forward").and_then(highest));
    record.rows.extend(peak.map(|bytes| Row::new("peak", bytes, estimate.peak.allocated)));
    let reserved = measured("reserved").filter(|bytes| *bytes > Bytes::ZERO);
    record.rows.extend(reserved.map(|bytes| Row::new("reserved", bytes, estimate.peak.reserved)));
    if let Some(bytes) = device {
        record.rows.push(Row {
            low_bytes: Some(estimate.peak.device_low.0),
            high_bytes: Some(estimate.peak.device_high.0),
            ..Row::new("device", bytes, estimate.peak.device)
        });
    }
    if !report.saved.is_empty() {
        record.layers_are = "saved".into();
        let of_layer =
            |name: &str| estimate.layers.iter().find(|l| &*l.name == name).map(|l| l.saved_bytes.0);
        record.layers = report
            .saved
            .iter()
            .filter(|(name, _)| !name.is_empty())
            .map(|(name, bytes)| Layer {
                name: name.clone(),
                measured_bytes: *bytes,
                predicted_bytes: of_layer(name).unwrap_or(0),
            })
            .collect();
    }
    record.after_step_bytes.clone_from(&report.after_step_bytes);
    record.leak_bytes = leak(&report.after_step_bytes);
    record.losses.clone_from(&report.losses);
    for name in ["start", "first kernel", "model", "first step"] {
        if let Some(Some(moment)) = report.context.get(&name.replace(' ', "_")) {
            record.driver_view.push(Seen {
                moment: name.into(),
                device_bytes: moment.used_bytes,
                reserved_bytes: Some(moment.reserved_bytes),
            });
        }
    }
    if let Some(bytes) = device {
        let reserved_bytes = reserved.map(|bytes| bytes.0);
        record.driver_view.push(Seen { moment: "highest".into(), device_bytes: bytes.0, reserved_bytes });
    }
    record.ended.clone_from(&report.ended);
    if report.counted {
        record.notes.push(
            "no CUDA on this host, so PyTorch reports no device memory: tensors were counted where its dispatcher makes them, \
             on the processor, whose kernels keep other tensors than those of CUDA for attention and recurrent layers"
                .into(),
        );
    } else if report.backend == "cpu" && report.steps > 0 {
        record.notes.push(
            "TensorFlow counts the memory of GPUs alone: the steps ran, and no bytes are reported".into(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_engine::{Event, Storage, StorageId};

    #[test]
    fn phases_and_categories_are_sums_of_blocks() {
        let storage = |bytes, category| Storage { bytes: Bytes(bytes), category, layer: 0, label: 0 };
        let event = |kind, id, phase| Event { kind, storage: StorageId(id), phase, layer: 0 };
        let timeline = Timeline {
            storages: vec![
                storage(1000, Category::Parameter),
                storage(100, Category::Activation),
                storage(1000, Category::Gradient),
            ],
            events: vec![
                event(EventKind::Allocate, 0, Phase::Setup),
                event(EventKind::Allocate, 1, Phase::Forward),
                event(EventKind::Allocate, 2, Phase::Backward),
                event(EventKind::Free, 1, Phase::Backward),
                event(EventKind::Free, 2, Phase::OptimizerStep),
            ],
            ..Timeline::default()
        };
        let found = predicted(&timeline, 512);
        let expected = [
            ("backward", 2560),
            ("before", 1024),
            ("forward", 1536),
            ("gradients", 1024),
            ("optimizer_step", 1024),
            ("parameters", 1024),
        ];
        assert_eq!(found, BTreeMap::from(expected));
    }
}
