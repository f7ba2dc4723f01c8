//! An estimate as JSON, schema version 1 (`docs/estimate.schema.json`): integers in keys that end in `_bytes`, categories
//! that re-add to the peak, the plan and the assumptions it was made under.
//!
//! Keys are only ever added within a version; a key is left out until memfit can say it, never filled with a guess.

mod allocator;
mod plan;

pub use allocator::Allocator;
pub use plan::{DeepSpeed, plan_value};

use crate::life::{Life, life};
use crate::words;
use memfit_engine::devices::context::ContextItem;
use memfit_engine::{Breakdown, Estimate, LayerRow};
use memfit_graph::Bytes;
use plan::{Plan, plan};
use serde::Serialize;

/// The version of the schema that [`estimate`] writes.
pub const SCHEMA_VERSION: u32 = 1;

/// The estimate as indented JSON, with a line break at the end.
pub fn estimate(e: &Estimate) -> String {
    to_text(&document(e))
}

/// The same on one line, which says what file it is of.
pub fn line(e: &Estimate, file: &str) -> String {
    let document = Document { file: Some(file), ..document(e) };
    let mut text = serde_json::to_string(&document).unwrap_or_default();
    text.push('\n');
    text
}

/// A model that could not be estimated, on one line.
pub fn failure(file: &str, message: &str) -> String {
    let mut text =
        serde_json::json!({"schema_version": SCHEMA_VERSION, "file": file, "error": message}).to_string();
    text.push('\n');
    text
}

pub(crate) fn to_text(value: &impl Serialize) -> String {
    // Serialising plain data into a string fails only on maps with keys that are not text, of which there are none.
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    text
}

/// Which program wrote it.
#[derive(Serialize)]
pub(crate) struct Tool {
    name: &'static str,
    version: &'static str,
}

pub(crate) const TOOL: Tool = Tool { name: "memfit", version: env!("CARGO_PKG_VERSION") };

#[derive(Serialize)]
pub(crate) struct Document<'a> {
    schema_version: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    tool: Tool,
    model: Model<'a>,
    plan: Plan<'a>,
    peak: Peak<'a>,
    breakdown: State,
    context: Vec<Item<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fit: Option<Fit<'a>>,
    saved_for_backward_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    scenario: Option<Life<'a>>,
    layers: Vec<Layer<'a>>,
    largest: Vec<Tensor<'a>>,
    unknown: &'a [String],
    assumptions: &'a [String],
    warnings: &'a [String],
}

#[derive(Serialize)]
struct Model<'a> {
    name: &'a str,
    format: &'a str,
    parameters_trainable: u64,
    parameters_frozen: u64,
    buffers: u64,
    operators: u64,
}

#[derive(Serialize)]
struct Peak<'a> {
    allocated_bytes: u64,
    reserved_bytes: u64,
    device_bytes: u64,
    phase: &'static str,
    layer: &'a str,
    device_low_bytes: u64,
    device_high_bytes: u64,
}

#[derive(Serialize)]
struct State {
    parameters_bytes: u64,
    buffers_bytes: u64,
    gradients_bytes: u64,
    optimizer_bytes: u64,
    activations_bytes: u64,
    activation_gradients_bytes: u64,
    workspace_bytes: u64,
    inputs_bytes: u64,
    transients_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    allocator_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context_bytes: Option<u64>,
}

#[derive(Serialize)]
struct Item<'a> {
    name: &'a str,
    low_bytes: u64,
    expected_bytes: u64,
    high_bytes: u64,
    source: &'a str,
}

#[derive(Serialize)]
pub(crate) struct Fit<'a> {
    gpu: &'a str,
    capacity_bytes: u64,
    usable_bytes: u64,
    reserved_bytes: u64,
    headroom_bytes: i64,
    verdict: &'static str,
    retries: u32,
    preallocated_bytes: Option<u64>,
    kept_by_driver_bytes: u64,
    left_to_system_bytes: u64,
    others: Vec<Item<'a>>,
    shortage: Option<Shortage<'a>>,
}

#[derive(Serialize)]
struct Shortage<'a> {
    tensor: &'a str,
    layer: &'a str,
    phase: &'static str,
    request_bytes: u64,
    free_bytes: u64,
    unusable_bytes: u64,
    largest_free_bytes: u64,
}

#[derive(Serialize)]
struct Layer<'a> {
    name: &'a str,
    op: &'a str,
    output_shapes: Vec<&'a [u64]>,
    parameters: u64,
    parameter_bytes: u64,
    gradient_bytes: u64,
    optimizer_bytes: u64,
    saved_bytes: u64,
    workspace_bytes: u64,
    at_peak: State,
}

#[derive(Serialize)]
struct Tensor<'a> {
    name: &'a str,
    layer: &'a str,
    category: &'static str,
    size_bytes: u64,
}

pub(crate) fn document(e: &Estimate) -> Document<'_> {
    let (m, peak) = (&e.model, &e.peak);
    Document {
        schema_version: SCHEMA_VERSION,
        file: None,
        tool: TOOL,
        model: Model {
            name: &m.name,
            format: &m.format,
            parameters_trainable: m.parameters_trainable,
            parameters_frozen: m.parameters_frozen,
            buffers: m.buffers,
            operators: m.operators,
        },
        plan: plan(&e.plan, e.batch_size),
        peak: Peak {
            allocated_bytes: peak.allocated.0,
            reserved_bytes: peak.reserved.0,
            device_bytes: peak.device.0,
            phase: words::phase(peak.phase),
            layer: &peak.layer,
            device_low_bytes: peak.device_low.0,
            device_high_bytes: peak.device_high.0,
        },
        breakdown: state(&e.breakdown, true),
        context: e.context.iter().map(item).collect(),
        fit: e.fit.as_ref().map(fit),
        saved_for_backward_bytes: e.saved_for_backward.0,
        scenario: e.scenario.as_ref().map(life),
        layers: e.layers.iter().map(layer).collect(),
        largest: e.largest.iter().map(tensor).collect(),
        unknown: &e.unknown,
        assumptions: &e.assumptions,
        warnings: &e.warnings,
    }
}

/// What is beyond live tensors belongs to the process as a whole, so a layer's state does not have it.
fn state(b: &Breakdown, process: bool) -> State {
    let process = |bytes: Bytes| process.then_some(bytes.0);
    State {
        parameters_bytes: b.parameters.0,
        buffers_bytes: b.buffers.0,
        gradients_bytes: b.gradients.0,
        optimizer_bytes: b.optimizer.0,
        activations_bytes: b.activations.0,
        activation_gradients_bytes: b.activation_gradients.0,
        workspace_bytes: b.workspace.0,
        inputs_bytes: b.inputs.0,
        transients_bytes: b.transients.0,
        allocator_bytes: process(b.allocator),
        context_bytes: process(b.context),
    }
}

fn item(item: &ContextItem) -> Item<'_> {
    Item {
        name: item.name,
        low_bytes: item.low.0,
        expected_bytes: item.expected.0,
        high_bytes: item.high.0,
        source: item.source,
    }
}

pub(crate) fn fit(f: &memfit_engine::Fit) -> Fit<'_> {
    Fit {
        gpu: &f.gpu,
        capacity_bytes: f.capacity.0,
        usable_bytes: f.usable.0,
        reserved_bytes: f.reserved.0,
        headroom_bytes: f.headroom(),
        verdict: words::verdict(f.verdict),
        retries: f.retries,
        preallocated_bytes: f.preallocated.map(|b| b.0),
        kept_by_driver_bytes: f.kept.0,
        left_to_system_bytes: f.system.0,
        others: f.others.iter().map(item).collect(),
        shortage: f.shortage.as_ref().map(|s| Shortage {
            tensor: &s.tensor,
            layer: &s.layer,
            phase: words::phase(s.phase),
            request_bytes: s.request.0,
            free_bytes: s.free.0,
            unusable_bytes: s.unusable.0,
            largest_free_bytes: s.largest_free.0,
        }),
    }
}

fn layer(l: &LayerRow) -> Layer<'_> {
    Layer {
        name: &l.name,
        op: &l.op,
        output_shapes: l.output_shapes.iter().map(|dims| &dims[..]).collect(),
        parameters: l.parameters,
        parameter_bytes: l.parameter_bytes.0,
        gradient_bytes: l.gradient_bytes.0,
        optimizer_bytes: l.optimizer_bytes.0,
        saved_bytes: l.saved_bytes.0,
        workspace_bytes: l.workspace_bytes.0,
        at_peak: state(&l.at_peak, false),
    }
}

fn tensor(t: &memfit_engine::LiveTensor) -> Tensor<'_> {
    Tensor {
        name: &t.label,
        layer: &t.layer,
        category: words::category_key(t.category),
        size_bytes: t.bytes.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use serde_json::Value;

    fn sum(state: &Value) -> u64 {
        state.as_object().unwrap().values().map(|v| v.as_u64().unwrap()).sum()
    }

    #[test]
    fn categories_and_layers_re_add() {
        let e = sample::estimate();
        let json: Value = serde_json::from_str(&estimate(&e)).unwrap();
        let peak = |key: &str| json["peak"][key].as_u64().unwrap();
        let process = |key: &str| json["breakdown"][key].as_u64().unwrap();
        assert_eq!(sum(&json["breakdown"]), peak("device_bytes"));
        assert_eq!(peak("reserved_bytes") + process("context_bytes"), peak("device_bytes"));
        assert_eq!(peak("allocated_bytes") + process("allocator_bytes"), peak("reserved_bytes"));
        let layers: u64 = json["layers"].as_array().unwrap().iter().map(|l| sum(&l["at_peak"])).sum();
        assert_eq!(layers, peak("allocated_bytes"));
    }

    #[test]
    fn keys_are_the_documented_ones_in_order() {
        let text = estimate(&sample::estimate());
        let mut at = 0;
        for key in [
            "schema_version",
            "tool",
            "model",
            "plan",
            "peak",
            "breakdown",
            "saved_for_backward_bytes",
            "layers",
        ] {
            let found = text.find(&format!("\n  \"{key}\"")).unwrap_or_else(|| panic!("{key} is missing"));
            assert!(found >= at, "{key} is out of order");
            at = found;
        }
        assert!(!text.contains("\"fit\""), "there is no verdict without a GPU");
    }
}
