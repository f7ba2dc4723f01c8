//! burn-autodiff: what each function keeps ([`super::checkpoint`]), and the order in which backward runs.
//!
//! Source: burn-autodiff 0.21, `ops/{base,backward}.rs`, `grads.rs`, `runtime/server.rs`. Steps run by their depth below the leaves, those
//! of one depth in the order of a depth-first walk from the loss. A tensor that is kept is held by its step, and goes when the
//! step has run; a gradient is taken by the step that reads it, a parameter's stays.

use super::super::program::{Kind, Prim, SlotType};
use super::checkpoint::{Action, Checkpointer, Content, Kept, Retro, is_memory_bound};
use super::memory::{Device, Tensor};
use crate::Phase;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

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
    kept: Keeping,
}

/// What is to be kept for a step of backward, under checkpointing.
#[derive(Default)]
struct Keeping {
    /// How the step's output is made again.
    retro: Option<Rc<Retro>>,
    actions: Vec<Action>,
    /// Whose outputs the step reads, in this order.
    reads: Vec<(usize, Kept)>,
}

/// A tensor under autodiff; untracked ones have no node.
#[derive(Clone, Debug)]
pub(super) struct Tracked {
    pub(super) tensor: Tensor,
    pub(super) node: Option<usize>,
    /// How many functions of floats it is away from what was there: those without a gradient count, too (`from_parents`).
    depth: usize,
}

impl Tracked {
    pub(super) fn constant(tensor: Tensor) -> Tracked {
        Tracked { tensor, node: None, depth: 0 }
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
    /// `BalancedCheckpointing` rather than none.
    balanced: bool,
    /// Of the function that runs now.
    now: Keeping,
    depth: usize,
}

impl Tape {
    pub(super) fn new(balanced: bool) -> Tape {
        Tape { balanced, ..Tape::default() }
    }

    /// A parameter.
    pub(super) fn leaf(&mut self, tensor: Tensor) -> Tracked {
        let kept = Keeping::default();
        self.nodes.push(Node { parents: Vec::new(), depth: 0, layer: self.layer, backward: None, kept });
        Tracked { tensor, node: Some(self.nodes.len() - 1), depth: 0 }
    }

    /// A function begins: one that is memory-bound and whose inputs are all tracked is made again where its output is read, for which the
    /// outputs of compute-bound ones wait (`OpsPrep::parents`).
    pub(super) fn begin(&mut self, prim: &Prim, inputs: &[Tracked], out: &SlotType) {
        let depth = inputs.iter().map(|input| input.depth).max().unwrap_or(0) + 1;
        self.depth = if matches!(out.kind, Kind::Float(_)) { depth } else { 0 };
        self.now = Keeping::default();
        if !self.balanced || !is_memory_bound(prim) {
            return;
        }
        let floats = match prim {
            Prim::Select(_) => 1,
            Prim::SelectAdd(_) => 2,
            _ => inputs.len(),
        };
        let (inputs, indices) = inputs.split_at(floats);
        let nodes: Option<Vec<usize>> = inputs.iter().map(|input| input.node).collect();
        let Some(nodes) = nodes else { return };
        for input in inputs {
            self.act(input, false);
        }
        let indices = indices.iter().map(|i| i.tensor.clone()).collect();
        self.now.retro =
            Some(Rc::new(Retro { prim: prim.clone(), out: out.clone(), inputs: nodes, indices }));
    }

    fn act(&mut self, x: &Tracked, explicit: bool) -> Option<usize> {
        let node = x.node?;
        let content = match &self.nodes[node].kept.retro {
            Some(retro) => Content::Recompute(retro.clone()),
            None => Content::Computed(x.tensor.clone()),
        };
        self.now.actions.push(Action { node, content, explicit });
        Some(node)
    }

    /// `OpsPrep::checkpoint`: the step will read this tensor.
    pub(super) fn keep(&mut self, x: &Tracked) -> Kept {
        match self.balanced.then(|| self.act(x, true)).flatten() {
            Some(node) => {
                let kept = Kept::default();
                self.now.reads.push((node, kept.clone()));
                kept
            }
            None => Kept::new(x.tensor.clone()),
        }
    }

    /// The same where `reads` holds; else nothing.
    pub(super) fn keep_if(&mut self, reads: bool, x: &Tracked) -> Kept {
        if reads { self.keep(x) } else { Kept::default() }
    }

    /// The output of a function of `parents`.
    pub(super) fn node(
        &mut self,
        parents: &[Option<usize>],
        output: Tensor,
        backward: impl FnOnce(&Device, &mut Gradients, Tensor) + 'static,
    ) -> Tracked {
        let (kept, depth) = (std::mem::take(&mut self.now), self.depth);
        let tracked: Vec<usize> = parents.iter().flatten().copied().collect();
        if tracked.is_empty() {
            return Tracked { tensor: output, node: None, depth };
        }
        let backward: Option<Backward> = Some(Box::new(backward));
        self.nodes.push(Node { parents: tracked, depth, layer: self.layer, backward, kept });
        Tracked { tensor: output, node: Some(self.nodes.len() - 1), depth }
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
        let mut actions = std::mem::take(&mut self.nodes[root].kept.actions);
        while let Some(node) = stack.pop() {
            if !visited.insert(node) {
                continue;
            }
            stack.extend(self.nodes[node].parents.iter().filter(|p| !visited.contains(p)));
            order[self.nodes[node].depth].push(node);
            actions.append(&mut self.nodes[node].kept.actions);
        }
        let mut checkpointer = Checkpointer::build(actions, |node| self.nodes[node].parents.clone());
        device.at(Phase::Backward, self.nodes[root].layer);
        let ones = device.zeros(loss.tensor.kind, &loss.tensor.shape);
        drop(loss);
        grads.register(device, root, ones);
        for depth in order.into_iter().rev() {
            // A device is asked before the first step of a depth runs (`probe.rs` of memfit-validate, whose steps are a depth of their own).
            for node in depth.iter().filter(|node| self.nodes[**node].backward.is_some()) {
                device.at(Phase::Backward, self.nodes[*node].layer);
                device.boundary();
            }
            for node in depth {
                let Some(step) = self.nodes[node].backward.take() else { continue };
                device.at(Phase::Backward, self.nodes[node].layer);
                let kept = std::mem::take(&mut self.nodes[node].kept);
                for (read, into) in &kept.reads {
                    into.put(checkpointer.retrieve(device, *read));
                }
                if let Some(grad) = grads.take(node) {
                    step(device, &mut grads, grad);
                }
            }
        }
        device.at(Phase::Backward, 0);
        device.boundary();
        grads
    }
}
