//! A side file for Netron, which shows our numbers beside the model it draws: drop it onto the open model.
//!
//! `netron:attachment` (Netron's source/view.js, `metadata.Attachment`): lists of entries with a kind, a target (the node's name up
//! to its first line break), a name and a value. An entry with an unknown target is ignored, so every node of the file gets the
//! layer it belongs to, and the first node of a layer its bytes.

use memfit_engine::Estimate;
use memfit_graph::Graph;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The attachment for an estimate of `graph`, as an importer made it.
pub fn attachment(e: &Estimate, graph: &Graph) -> String {
    let rows: BTreeMap<&str, _> = e.layers.iter().map(|row| (&*row.name, row)).collect();
    let mut told = std::collections::BTreeSet::new();
    let (mut metadata, mut metrics) = (Vec::<Value>::new(), Vec::<Value>::new());
    for node in &graph.nodes {
        let layer = [&*node.scope, &*node.name].into_iter().find_map(|name| rows.get(name));
        let (Some(row), false) = (layer, node.name.is_empty() || node.name.contains('\n')) else { continue };
        metadata.push(json!({"kind": "node", "target": &*node.name, "name": "layer", "value": &*row.name}));
        if told.insert(&*row.name) {
            let numbers = [
                ("parameters", row.parameters),
                ("saved_bytes", row.saved_bytes.0),
                ("peak_bytes", row.at_peak.allocated().0),
                ("optimizer_bytes", row.optimizer_bytes.0),
            ];
            for (name, value) in numbers.into_iter().filter(|(_, value)| *value > 0) {
                metrics.push(json!({"kind": "node", "target": &*node.name, "name": name, "value": value}));
            }
        }
    }
    let model = [("device_bytes", e.peak.device.0), ("allocated_bytes", e.peak.allocated.0)];
    metrics.extend(
        model.map(|(name, value)| json!({"kind": "model", "target": "", "name": name, "value": value})),
    );
    crate::json::to_text(&json!({"signature": "netron:attachment", "metadata": metadata, "metrics": metrics}))
}
