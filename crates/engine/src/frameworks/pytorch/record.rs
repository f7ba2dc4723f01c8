//! Autograd nodes: what a call leaves for backward.
//!
//! A node does not own what it lists. Inputs, outputs, kept storages and sizes lie in lists of the tape, one node's after the
//! other's, so that a step of many thousand nodes is a few blocks of memory.

use super::tape::{Edge, Meta, NodeRef, Tape, TensorRef};
use memfit_graph::{Call, DType, Grad, OutDtype, Place, Saved, View, elements};
use std::ops::Range;

/// One input of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeInput {
    pub(super) meta: Meta,
    pub(super) edge: Edge,
    pub(super) grad: Grad,
}

/// How the first output views its input, as far as the way back differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Nothing to undo, or no view.
    Plain,
    /// In another shape.
    Reshape,
    /// Its axes reordered: a part of [`Tape::orders`].
    Permute(Span),
    /// A part of it.
    Slice,
}

/// A part of one of the tape's lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// What was added to a list since it was `start` long.
    pub(super) fn since<T>(start: usize, list: &[T]) -> Span {
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Span { start: number(start), end: number(list.len()) }
    }

    /// As indices.
    pub(super) fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// An autograd node. What it lists lies in the tape's lists, where the parts of later nodes come later.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) function: &'static str,
    pub(super) layer: u32,
    pub(super) inputs: Span,
    pub(super) outputs: Span,
    pub(super) way: Way,
    pub(super) saved: Span,
    /// Sizes.
    pub(super) scratch: Span,
    /// Inside of the kernels that backward calls.
    pub(super) workspace: Span,
    /// The checkpointed segment that this node stands for.
    pub(super) segment: Option<u32>,
}

impl Tape {
    /// Adds the autograd node of a call.
    pub(super) fn record(
        &mut self,
        call: &Call,
        inputs: &[TensorRef],
        outputs: &[TensorRef],
        promoted: DType,
    ) {
        let (saved, tensors) = (self.saved.len(), &self.tensors);
        let tensor = |t: &TensorRef| &tensors[t.0 as usize];
        let needs_grad = |i: usize| inputs.get(i).is_some_and(|t| tensor(t).requires_grad());
        for item in &call.saved {
            let kept = match item {
                Saved::Input(i) => inputs.get(*i),
                Saved::InputFor { input, needed_by } => inputs.get(*input).filter(|_| needs_grad(*needed_by)),
                Saved::Output(j) => outputs.get(*j),
            };
            if let Some(kept) = kept.map(tensor).filter(|t| !t.is_number) {
                for storage in [Some(kept.storage), kept.held].into_iter().flatten() {
                    self.saved.push(storage);
                    self.memory.hold(storage);
                }
            }
        }
        let first_input = self.inputs.len();
        for (i, t) in inputs.iter().enumerate() {
            let tensor = &self.tensors[t.0 as usize];
            let grad = call.grads.get(i).copied().unwrap_or(Grad::None);
            let edge = if grad == Grad::None { Edge::None } else { tensor.edge };
            self.inputs.push(NodeInput { meta: tensor.meta(), edge, grad });
        }
        let first_output = self.outputs.len();
        self.outputs.extend(outputs.iter().map(|t| self.tensors[t.0 as usize].meta()));
        let way = match call.outputs.first().map(|output| &output.place) {
            Some(Place::View(_, View::Reshape)) => Way::Reshape,
            Some(Place::View(_, View::Slice { .. })) => Way::Slice,
            Some(Place::View(_, View::Permute(order))) => {
                let start = self.orders.len();
                self.orders.extend(order);
                Way::Permute(Span::since(start, &self.orders))
            }
            _ => Way::Plain,
        };
        let node = Node {
            function: call.function,
            layer: self.memory.layer,
            inputs: Span::since(first_input, &self.inputs),
            outputs: Span::since(first_output, &self.outputs),
            way,
            saved: Span::since(saved, &self.saved),
            scratch: self.sizes(&call.backward_scratch, inputs, promoted),
            workspace: self.sizes(&call.backward_workspace, inputs, promoted),
            segment: None,
        };
        let id = NodeRef(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
        self.nodes.push(node);
        for (output, t) in (0..).zip(outputs) {
            let tensor = &mut self.tensors[t.0 as usize];
            if tensor.dtype.is_float() {
                tensor.edge = Edge::Node { node: id, output };
            }
        }
    }

    /// Writes down the sizes of tensors that a node's function makes.
    fn sizes(&mut self, list: &[(Vec<u64>, OutDtype)], inputs: &[TensorRef], promoted: DType) -> Span {
        let start = self.temporaries.len();
        for (shape, dtype) in list {
            let dtype = match dtype {
                OutDtype::Promoted => promoted,
                OutDtype::Like(i) => inputs.get(*i).map_or(promoted, |t| self.tensor(*t).dtype),
                OutDtype::Is(dtype) => *dtype,
            };
            self.temporaries.push(dtype.size_of(elements(shape)));
        }
        Span::since(start, &self.temporaries)
    }
}
