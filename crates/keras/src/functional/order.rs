//! The order in which Keras runs a functional model, which is not that of its file.

use super::Functional;
use memfit_graph::{Graph, TensorId};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

impl Functional {
    /// Where each call stands when Keras runs the model (keras/src/ops/function.py, `map_graph`): by its distance from the outputs, and where
    /// that is equal in the order in which a walk back from the outputs first meets it. Calls of one layer stand at the furthest before them.
    pub(super) fn ranks(&self) -> HashMap<(usize, usize), usize> {
        let call = |at: (usize, usize)| self.entries.get(at.0).and_then(|entry| entry.calls.get(at.1));
        let parents = |at| call(at).into_iter().flat_map(|c| &c.tensors).map(|r| (r.layer, r.node));
        // Depth first, from each output: inputs come before what reads them.
        let (mut seen, mut found) = (HashSet::new(), Vec::new());
        for output in &self.outputs {
            let mut open = vec![((output.layer, output.node), 0)];
            seen.insert((output.layer, output.node));
            while let Some((at, next)) = open.last_mut() {
                let at = *at;
                match parents(at).nth(*next) {
                    Some(parent) => {
                        *next += 1;
                        if seen.insert(parent) {
                            open.push((parent, 0));
                        }
                    }
                    None => {
                        found.push(at);
                        open.pop();
                    }
                }
            }
        }
        let (mut depths, mut met) = (HashMap::new(), Vec::new());
        let mut layers: HashMap<usize, usize> = HashMap::new();
        for at in found.into_iter().rev() {
            if !depths.contains_key(&at) {
                met.push(at);
            }
            let layer = layers.entry(at.0).or_default();
            let depth = depths.get(&at).copied().unwrap_or(0).max(*layer);
            *layer = depth;
            depths.insert(at, depth);
            for parent in parents(at) {
                let before = depths.insert(parent, depth + 1);
                if let Some(before) = before {
                    depths.insert(parent, before.max(depth + 1));
                } else {
                    met.push(parent);
                }
            }
        }
        met.sort_by_key(|at| Reverse(depths.get(at).copied()));
        met.into_iter().enumerate().map(|(rank, at)| (at, rank)).collect()
    }
}

/// Brings the nodes from `first` on into the order of these ranks, one for each; what reads a tensor stays behind what makes it.
pub(super) fn sort(graph: &mut Graph, first: usize, ranks: &[usize]) {
    let nodes = graph.nodes.split_off(first);
    let makers: HashMap<TensorId, usize> = nodes
        .iter()
        .enumerate()
        .flat_map(|(i, n)| n.outputs.iter().flatten().map(move |id| (*id, i)))
        .collect();
    let mut readers = vec![Vec::new(); nodes.len()];
    let mut waiting = vec![0_usize; nodes.len()];
    for (i, node) in nodes.iter().enumerate() {
        for maker in node.inputs.iter().flatten().filter_map(|id| makers.get(id)) {
            readers[*maker].push(i);
            waiting[i] += 1;
        }
    }
    let key = |i: usize| Reverse((ranks.get(i).copied().unwrap_or(usize::MAX), i));
    let mut ready: BinaryHeap<_> = (0..nodes.len()).filter(|i| waiting[*i] == 0).map(key).collect();
    let mut nodes: Vec<_> = nodes.into_iter().map(Some).collect();
    while let Some(Reverse((_, i))) = ready.pop() {
        graph.nodes.extend(nodes[i].take());
        for reader in std::mem::take(&mut readers[i]) {
            waiting[reader] -= 1;
            if waiting[reader] == 0 {
                ready.push(key(reader));
            }
        }
    }
    // Nothing waits for itself: layers were called one after the other.
    graph.nodes.extend(nodes.into_iter().flatten());
}
