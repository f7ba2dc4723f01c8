//! The device memory of one step: storages with reference counts, written down as events.

use crate::step::OWN_LAYERS;
use crate::timeline::{Event, EventKind, Search, Storage};
use crate::{Category, Phase, StorageId, Timeline};
use memfit_graph::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How many labels are found without a comparison of texts.
const RECENT: usize = 64;

/// Reference-counted storages; the timeline grows as they come and go.
pub(super) struct Memory {
    timeline: Timeline,
    references: Vec<u32>,
    labels: BTreeMap<&'static str, u32>,
    /// Labels that came up lately, by the address of their text: most are constants of one place in the code.
    recent: [Option<(usize, usize, u32)>; RECENT],
    /// The phase of what happens now.
    pub(super) phase: Phase,
    /// The layer of what happens now.
    pub(super) layer: u32,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory {
            timeline: Timeline::default(),
            references: Vec::new(),
            labels: BTreeMap::new(),
            recent: [None; RECENT],
            phase: Phase::default(),
            layer: 0,
        }
    }
}

impl Memory {
    /// Makes room for what so many operators usually allocate.
    pub(super) fn reserve(&mut self, operators: usize) {
        self.timeline.events.reserve(operators.saturating_mul(16));
        self.timeline.storages.reserve(operators.saturating_mul(10));
        self.references.reserve(operators.saturating_mul(10));
    }

    /// A new storage held once.
    pub(super) fn allocate(&mut self, bytes: Bytes, category: Category, label: &'static str) -> StorageId {
        let label = self.label(label);
        self.push(bytes, category, label)
    }

    /// A new storage with a name of its own, held once: a parameter, an input.
    pub(super) fn allocate_named(&mut self, bytes: Bytes, category: Category, name: Arc<str>) -> StorageId {
        let label = self.timeline.label(name);
        self.push(bytes, category, label)
    }

    /// Whether a kernel made it.
    pub(super) fn is_made_by(&self, id: StorageId, kernel: &str) -> bool {
        let storage = self.storages().get(id.0 as usize);
        storage.is_some_and(|storage| self.labels.get(kernel) == Some(&storage.label))
    }

    fn push(&mut self, bytes: Bytes, category: Category, label: u32) -> StorageId {
        let id = self.timeline.add(Storage { bytes, category, layer: self.layer, label });
        self.references.push(1);
        self.event(EventKind::Allocate, id);
        id
    }

    /// Plans for a kernel are tried, after which the allocator's cache is emptied.
    pub(super) fn search(&mut self, trial: Bytes) {
        let event = self.timeline.events.len();
        self.timeline.searches.push(Search { event, trial });
    }

    /// Scratch memory of a kernel that is there for one call, and that it can do without.
    pub(super) fn scratch(&mut self, bytes: Bytes, label: &'static str) {
        let storage = self.allocate(bytes, Category::Workspace, label);
        self.timeline.optional.push(storage);
        self.release(storage);
    }

    fn label(&mut self, label: &'static str) -> u32 {
        let (address, length) = (label.as_ptr().addr(), label.len());
        // Texts lie close to each other, so that the low bits differ.
        let slot = (address ^ (address >> 6)) % RECENT;
        if let Some((_, _, number)) = self.recent[slot].filter(|r| (r.0, r.1) == (address, length)) {
            return number;
        }
        let number = *self.labels.entry(label).or_insert_with(|| self.timeline.label(label));
        self.recent[slot] = Some((address, length, number));
        number
    }

    fn event(&mut self, kind: EventKind, storage: StorageId) {
        self.timeline.events.push(Event { kind, storage, phase: self.phase, layer: self.layer });
    }

    /// One more holder.
    pub(super) fn hold(&mut self, id: StorageId) {
        self.references[id.0 as usize] += 1;
    }

    /// One holder less; the last one frees the storage.
    pub(super) fn release(&mut self, id: StorageId) {
        let references = &mut self.references[id.0 as usize];
        debug_assert!(*references > 0, "released once too often");
        *references = references.saturating_sub(1);
        if *references == 0 {
            self.event(EventKind::Free, id);
        }
    }

    /// How many holders.
    pub(super) fn references(&self, id: StorageId) -> u32 {
        self.references[id.0 as usize]
    }

    /// Its facts.
    pub(super) fn storage(&self, id: StorageId) -> &Storage {
        &self.timeline.storages[id.0 as usize]
    }

    /// All storages so far.
    pub(super) fn storages(&self) -> &[Storage] {
        &self.timeline.storages
    }

    /// Says what a storage turned out to be for (an activation gradient that became a parameter's gradient).
    pub(super) fn recategorize(&mut self, id: StorageId, category: Category, layer: u32) {
        let storage = &mut self.timeline.storages[id.0 as usize];
        storage.category = category;
        storage.layer = layer;
    }

    /// Says how many bytes a storage has had since it was made.
    pub(super) fn resize(&mut self, id: StorageId, bytes: Bytes) {
        self.timeline.storages[id.0 as usize].bytes = bytes;
    }

    /// The layers that there are from the beginning; some of the step's own will follow.
    pub(super) fn set_layers(&mut self, names: &[Arc<str>]) {
        self.timeline.layers.reserve(names.len() + OWN_LAYERS);
        self.timeline.layers.extend_from_slice(names);
    }

    /// A new layer.
    pub(super) fn add_layer(&mut self, name: Arc<str>) -> u32 {
        self.timeline.layers.push(name);
        u32::try_from(self.timeline.layers.len() - 1).unwrap_or(u32::MAX)
    }

    /// What takes the place of what when the step ends.
    pub(super) fn carry(&mut self, storages: impl Iterator<Item = (StorageId, StorageId)>) {
        self.timeline.carried.extend(storages);
    }

    /// What the model gives.
    pub(super) fn give(&mut self, outputs: BTreeSet<StorageId>) {
        self.timeline.outputs = outputs.into_iter().collect();
    }

    /// The step as it was written down.
    pub(super) fn into_timeline(self) -> Timeline {
        self.timeline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_holder_frees() {
        let mut m = Memory::default();
        let id = m.allocate(Bytes(4), Category::Activation, "relu");
        m.hold(id);
        m.release(id);
        assert_eq!(m.references(id), 1);
        m.release(id);
        let timeline = m.into_timeline();
        assert_eq!(
            timeline.events.iter().map(|e| e.kind).collect::<Vec<_>>(),
            [EventKind::Allocate, EventKind::Free]
        );
    }
}
