//! burn-autodiff without checkpointing: what each function keeps, and the order in which backward runs.
//!
//! Source: burn-autodiff 0.21, `ops/{base,backward}.rs`, `grads.rs`, `runtime/server.rs`. Steps run by their depth below the leaves, those
//! of one depth in the order of a depth-first walk from the loss. A tensor that is kept is held by its step, and goes when the
//! step has run; a gradient is taken by the step that reads it, a parameter's stays.

use super::memory::{Device, Tensor};
use crate::Phase;
use std::collections::{BTreeMap, BTreeSet};

/// Where gradients wait, by node.
#[derive(Default)]
pub(super) struct Gradients {
    waiting: BTreeMap<usize, Tensor>,
}

impl Gradients {
    /// A second gradient is added to the first, in place where it can be.
    pub(super) fn register(&mut self, device: &Device, node: usize, gradient: Tensor) {
        let sum = match self.waiting.remove(&node) {
            Some(old) => device.binary(gradient, old),
            None => gradient,
        };
        self.waiting.insert(node, sum);
    }

    pub(super) fn take(&mut self, node: usize) -> Option<Tensor> {
        self.waiting.remove(&node)
    }
}

/// What a step does with the gradient of its output.
type Backward = Box<dyn FnOnce(&Device, &mut Gradients, Tensor)>;

struct Node {
    /// Tracked inputs only.
    parents: Vec<usize>,
    depth: usize,
    layer: u32,
    backward: Option<Backward>,
}

/// A tensor under autodiff; untracked ones have no node.
#[derive(Clone, Debug)]
pub(super) struct Tracked {
    pub(super) tensor: Tensor,
    pub(super) node: Option<usize>,
}

impl Tracked {
    pub(super) fn constant(tensor: Tensor) -> Tracked {
        Tracked { tensor, node: None }
    }

    pub(super) fn is_tracked(&self) -> bool {
        self.node.is_some()
    }
}

/// The graph that forward writes.
#[derive(Default)]
pub(super) struct Tape {
    nodes: Vec<Node>,
    pub(super) layer: u32,
}

impl Tape {
    /// A parameter.
    pub(super) fn leaf(&mut self, tensor: Tensor) -> Tracked {
        self.nodes.push(Node { parents: Vec::new(), depth: 0, layer: self.layer, backward: None });
        Tracked { tensor, node: Some(self.nodes.len() - 1) }
    }

    /// The output of a function of `parents`.
    pub(super) fn node(
        &mut self,
        parents: &[Option<usize>],
        output: Tensor,
        backward: impl FnOnce(&Device, &mut Gradients, Tensor) + 'static,
    ) -> Tracked {
        let tracked: Vec<usize> = parents.iter().flatten().copied().collect();
        if tracked.is_empty() {
            return Tracked::constant(output);
        }
        let depth = tracked.iter().map(|p| self.nodes[*p].depth).max().unwrap_or(0) + 1;
        let backward: Option<Backward> = Some(Box::new(backward));
        self.nodes.push(Node { parents: tracked, depth, layer: self.layer, backward });
        Tracked { tensor: output, node: Some(self.nodes.len() - 1) }
    }

    /// One gradient in, one out.
    pub(super) fn unary(
        &mut self,
        parent: Option<usize>,
        output: Tensor,
        backward: impl FnOnce(&Device, Tensor) -> Tensor + 'static,
    ) -> Tracked {
        self.node(&[parent], output, move |device, grads, grad| {
            if let Some(node) = parent {
                let grad = backward(device, grad);
                grads.register(device, node, grad);
            }
        })
    }

    /// One gradient in, one for each of two; while both are due the first one's copy of the handle keeps it from being written.
    pub(super) fn binary(
        &mut self,
        [left, right]: [Option<usize>; 2],
        output: Tensor,
        for_left: impl FnOnce(&Device, Tensor) -> Tensor + 'static,
        for_right: impl FnOnce(&Device, Tensor) -> Tensor + 'static,
    ) -> Tracked {
        self.node(&[left, right], output, move |device, grads, grad| {
            let copies = [left.map(|_| grad.clone()), right.map(|_| grad.clone())];
            drop(grad);
            let [first, second] = copies;
            if let (Some(node), Some(grad)) = (left, first) {
                let grad = for_left(device, grad);
                grads.register(device, node, grad);
            }
            if let (Some(node), Some(grad)) = (right, second) {
                let grad = for_right(device, grad);
                grads.register(device, node, grad);
            }
        })
    }

    /// Runs backward from the loss.
    pub(super) fn backward(&mut self, device: &Device, loss: Tracked) -> Gradients {
        let mut grads = Gradients::default();
        let Some(root) = loss.node else { return grads };
        let mut order: Vec<Vec<usize>> = vec![Vec::new(); self.nodes[root].depth + 1];
        let mut visited = BTreeSet::from([root]);
        let mut stack = self.nodes[root].parents.clone();
        order[self.nodes[root].depth].push(root);
        while let Some(node) = stack.pop() {
            if !visited.insert(node) {
                continue;
            }
            stack.extend(self.nodes[node].parents.iter().filter(|p| !visited.contains(p)));
            order[self.nodes[node].depth].push(node);
        }
        device.at(Phase::Backward, self.nodes[root].layer);
        let ones = device.zeros(loss.tensor.kind, &loss.tensor.shape);
        drop(loss);
        grads.register(device, root, ones);
        for node in order.into_iter().rev().flatten() {
            let Some(step) = self.nodes[node].backward.take() else { continue };
            device.at(Phase::Backward, self.nodes[node].layer);
            device.boundary();
            if let Some(grad) = grads.take(node) {
                step(device, &mut grads, grad);
            }
        }
        device.boundary();
        grads
    }
}
