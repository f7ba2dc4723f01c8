//! What burn-autodiff keeps of forward for backward, and what it makes again (0.21, `checkpoint/{strategy,builder,base,state}.rs`).
//!
//! Without checkpointing a step holds its tensors itself. `BalancedCheckpointing` takes Burn's own marks: what a memory-bound function
//! made is not kept but made again from its inputs where a step asks for it, what a compute-bound one made is kept. A tensor that is
//! kept waits with the number of its readers, and the last of them takes it. A function with an input that is not tracked counts as
//! compute-bound.

use super::super::program::{Prim, SlotType};
use super::functions::recompute;
use super::memory::{Device, Tensor};
use crate::Category;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Whether burn-autodiff marks a function as `memory_bound` (`ops/{tensor,activation}.rs`; all of `ops/module.rs` is `compute_bound`).
pub(super) fn is_memory_bound(prim: &Prim) -> bool {
    matches!(
        prim,
        Prim::Unary(_)
            | Prim::Binary(_)
            | Prim::AddScalar(_)
            | Prim::MulScalar(_)
            | Prim::DivScalar(_)
            | Prim::PowScalar(_)
            | Prim::Reshape
            | Prim::Permute(_)
            | Prim::Expand
            | Prim::Slice(_)
            | Prim::Select(_)
            | Prim::SelectAdd(_)
    )
}

/// A tensor that a step of backward reads: there since forward, or put there just before the step runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Kept(Rc<RefCell<Option<Tensor>>>);

impl Kept {
    pub(super) fn new(tensor: Tensor) -> Kept {
        Kept(Rc::new(RefCell::new(Some(tensor))))
    }

    pub(super) fn take(&self) -> Option<Tensor> {
        self.0.borrow_mut().take()
    }

    pub(super) fn put(&self, tensor: Option<Tensor>) {
        *self.0.borrow_mut() = tensor;
    }
}

/// `RetroForward`: how a function's output is made again.
#[derive(Debug)]
pub(super) struct Retro {
    pub(super) prim: Prim,
    pub(super) out: SlotType,
    /// Nodes of its inputs.
    pub(super) inputs: Vec<usize>,
    /// Indices, of which it holds a handle.
    pub(super) indices: Vec<Tensor>,
}

/// What stands for a node's output.
#[derive(Clone, Debug)]
pub(super) enum Content {
    Computed(Tensor),
    Recompute(Rc<Retro>),
}

/// `CheckpointingAction`: asked for by a step's own state, or held in case that what follows is made again.
#[derive(Debug)]
pub(super) struct Action {
    pub(super) node: usize,
    pub(super) content: Content,
    pub(super) explicit: bool,
}

/// A node's output, and how often it will still be asked for.
struct State {
    content: Content,
    required: usize,
}

/// `Checkpointer`: gives the outputs of forward to backward's steps.
#[derive(Default)]
pub(super) struct Checkpointer {
    states: BTreeMap<usize, State>,
}

impl Checkpointer {
    /// Counts who will ask for each output, and drops what nobody asks for. `parents` are the tracked inputs of a node.
    pub(super) fn build(actions: Vec<Action>, parents: impl Fn(usize) -> Vec<usize>) -> Checkpointer {
        let computed: BTreeSet<usize> =
            actions.iter().filter(|a| matches!(a.content, Content::Computed(_))).map(|a| a.node).collect();
        let mut required: BTreeMap<usize, usize> = BTreeMap::new();
        let mut asked: Vec<usize> = actions.iter().filter(|a| a.explicit).map(|a| a.node).collect();
        while let Some(node) = asked.pop() {
            let count = required.entry(node).or_default();
            *count += 1;
            if *count == 1 && !computed.contains(&node) {
                asked.extend(parents(node));
            }
        }
        let mut states = BTreeMap::new();
        for action in actions {
            if let Some(required) = required.get(&action.node).copied() {
                states.entry(action.node).or_insert(State { content: action.content, required });
            }
        }
        Checkpointer { states }
    }

    /// `retrieve_node_output`: makes again what is not there, inputs before what is made of them.
    pub(super) fn retrieve(&mut self, device: &Device, node: usize) -> Option<Tensor> {
        let mut seen = BTreeSet::new();
        // A node with whether its inputs are there.
        let mut stack = vec![(node, false)];
        while let Some((at, ready)) = stack.pop() {
            let Some(State { content: Content::Recompute(retro), .. }) = self.states.get(&at) else {
                continue;
            };
            let retro = retro.clone();
            if !ready {
                if seen.insert(at) {
                    stack.push((at, true));
                    stack.extend(retro.inputs.iter().rev().map(|input| (*input, false)));
                }
                continue;
            }
            let inputs: Option<Vec<Tensor>> = retro.inputs.iter().map(|input| self.take(*input)).collect();
            let inputs = inputs?.into_iter().chain(retro.indices.iter().cloned()).collect();
            let made = recompute(device, &retro.prim, inputs, &retro.out)?;
            device.recategorize(&made, Category::Activation);
            self.states.get_mut(&at)?.content = Content::Computed(made);
        }
        self.take(node)
    }

    /// `get_state`: the last reader gets the handle itself.
    fn take(&mut self, node: usize) -> Option<Tensor> {
        let state = self.states.get_mut(&node)?;
        let Content::Computed(tensor) = &state.content else { return None };
        state.required -= 1;
        if state.required > 0 {
            return Some(tensor.clone());
        }
        match self.states.remove(&node)?.content {
            Content::Computed(tensor) => Some(tensor),
            Content::Recompute(_) => None,
        }
    }
}
