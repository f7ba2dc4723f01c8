//! Two estimates compared: what changed in memory, and in which layers.
//!
//! Layers are matched by name first. What is left is matched by structure, in the order of the step: the same operators, output shapes and
//! parameters at the other name are a layer that was renamed or moved. What is left then came or went.

use crate::{Category, Estimate, LayerRow};
use memfit_graph::Bytes;
use std::collections::{BTreeMap, VecDeque};

/// What happened to a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Its numbers differ.
    Changed,
    /// It has another name, and its numbers may differ too.
    Renamed {
        /// Its name before.
        from: String,
    },
    /// It is new.
    Added,
    /// It is gone.
    Removed,
}

/// A layer that changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerChange {
    /// Its name; the old one where it is gone.
    pub name: String,
    /// What happened.
    pub change: Change,
    /// Its bytes at the peak, before and after.
    pub at_peak: [Bytes; 2],
    /// Its bytes kept for backward.
    pub saved: [Bytes; 2],
    /// Elements of its parameters.
    pub parameters: [u64; 2],
}

/// What changed from one estimate to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diff {
    /// On the device at the peak, before and after.
    pub device: [Bytes; 2],
    /// In live tensors at the peak.
    pub allocated: [Bytes; 2],
    /// Kept for backward.
    pub saved: [Bytes; 2],
    /// Elements of trainable parameters.
    pub parameters: [u64; 2],
    /// Categories at the peak that differ.
    pub categories: Vec<(Category, [Bytes; 2])>,
    /// Layers that differ, in the order of the new step, then those that are gone.
    pub layers: Vec<LayerChange>,
}

impl Diff {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        let same = |pair: [Bytes; 2]| pair[0] == pair[1];
        same(self.device)
            && same(self.allocated)
            && same(self.saved)
            && self.parameters[0] == self.parameters[1]
            && self.categories.is_empty()
            && self.layers.is_empty()
    }
}

/// What changed from `old` to `new`.
pub fn diff(old: &Estimate, new: &Estimate) -> Diff {
    let categories = old.breakdown.categories().into_iter().zip(new.breakdown.categories());
    Diff {
        device: [old.peak.device, new.peak.device],
        allocated: [old.peak.allocated, new.peak.allocated],
        saved: [old.saved_for_backward, new.saved_for_backward],
        parameters: [old.model.parameters_trainable, new.model.parameters_trainable],
        categories: categories
            .filter(|((_, old), (_, new))| old != new)
            .map(|((category, old), (_, new))| (category, [old, new]))
            .collect(),
        layers: layers(&old.layers, &new.layers),
    }
}

fn layers(old: &[LayerRow], new: &[LayerRow]) -> Vec<LayerChange> {
    let mut by_name: BTreeMap<&str, VecDeque<usize>> = BTreeMap::new();
    for (i, row) in old.iter().enumerate() {
        by_name.entry(&row.name).or_default().push_back(i);
    }
    let mut matched = vec![None; new.len()];
    let mut taken = vec![false; old.len()];
    for (j, row) in new.iter().enumerate() {
        if let Some(i) = by_name.get_mut(&*row.name).and_then(VecDeque::pop_front) {
            matched[j] = Some(i);
            taken[i] = true;
        }
    }
    let key = |row: &LayerRow| (row.op.clone(), row.output_shapes.clone(), row.parameters);
    let mut by_structure: BTreeMap<_, VecDeque<usize>> = BTreeMap::new();
    for (i, row) in old.iter().enumerate().filter(|(i, _)| !taken[*i]) {
        by_structure.entry(key(row)).or_default().push_back(i);
    }
    for (j, row) in new.iter().enumerate() {
        if matched[j].is_none()
            && let Some(i) = by_structure.get_mut(&key(row)).and_then(VecDeque::pop_front)
        {
            matched[j] = Some(i);
            taken[i] = true;
        }
    }
    let nothing = LayerRow::default();
    let change = |change, name: &str, old: &LayerRow, new: &LayerRow| LayerChange {
        name: name.into(),
        change,
        at_peak: [old.at_peak.allocated(), new.at_peak.allocated()],
        saved: [old.saved_bytes, new.saved_bytes],
        parameters: [old.parameters, new.parameters],
    };
    let mut changes = Vec::new();
    for (row, i) in new.iter().zip(&matched) {
        match i.map(|i| &old[i]) {
            None => changes.push(change(Change::Added, &row.name, &nothing, row)),
            Some(was) if was.name != row.name => {
                changes.push(change(Change::Renamed { from: was.name.to_string() }, &row.name, was, row));
            }
            Some(was) if was != row => changes.push(change(Change::Changed, &row.name, was, row)),
            Some(_) => {}
        }
    }
    let gone = old.iter().zip(&taken).filter(|(_, taken)| !**taken);
    changes.extend(gone.map(|(row, _)| change(Change::Removed, &row.name, row, &nothing)));
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, op: &str, parameters: u64) -> LayerRow {
        LayerRow { name: name.into(), op: op.into(), parameters, ..LayerRow::default() }
    }

    #[test]
    fn layers_are_matched_by_name_then_by_structure() {
        let old = [
            row("stem", "Conv", 10),
            row("block.0", "Conv", 20),
            row("old_head", "Gemm", 30),
            row("gone", "Relu", 0),
        ];
        let new = [
            row("stem", "Conv", 10),
            row("block.0", "Conv", 25),
            row("head", "Gemm", 30),
            row("extra", "Softmax", 0),
        ];
        let changes: Vec<_> = layers(&old, &new).into_iter().map(|c| (c.name, c.change)).collect();
        let expected = [
            ("block.0", Change::Changed),
            ("head", Change::Renamed { from: "old_head".into() }),
            ("extra", Change::Added),
            ("gone", Change::Removed),
        ];
        assert_eq!(changes, expected.map(|(name, change)| (name.to_owned(), change)));
        assert!(layers(&old, &old).is_empty());
    }
}
