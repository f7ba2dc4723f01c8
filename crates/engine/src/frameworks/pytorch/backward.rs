//! Backward: the autograd engine's order, its buffers and what each node makes and frees.
//!
//! Sources, PyTorch 2.15: torch/csrc/autograd/engine.cpp (a ready node with the highest sequence number runs first, so
//! nodes run in reverse order of creation; a node's saved tensors are released after it ran), input_buffer.cpp
//! (gradients that meet are added in place where nobody else holds the first), accumulate_grad.h (a leaf takes a gradient
//! over where nobody else holds it and its layout suits, else it is cloned).

use super::gradients::Gradient;
use super::layouts::Layout;
use super::reach::dependencies;
use super::record::{Node, NodeInput, Way};
use super::tape::{Edge, Tape, TensorRef};
use crate::{Category, StorageId};
use memfit_graph::DType;
use smallvec::SmallVec;

/// A trained parameter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaf {
    pub(super) layout: Layout,
    pub(super) dtype: DType,
    pub(super) layer: u32,
    /// Whether rows of it are looked up.
    pub(super) is_table: bool,
    /// Its `.grad`, once there is one.
    pub(super) grad: Option<StorageId>,
}

/// How gradients meet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    /// Out of place always, as tensor subclasses do.
    pub(super) as_fake_tensors: bool,
}

/// What backward needs beside the nodes: the tape, and a way to run a checkpointed segment again.
pub(super) trait Machine {
    /// The tape.
    fn tape(&mut self) -> &mut Tape;

    /// Runs a checkpointed segment forward again and then backward from `incoming`, by output of the segment; gives the
    /// gradients of its inputs, and leaves those of its parameters in `leaves`.
    fn checkpoint(
        &mut self,
        segment: u32,
        incoming: &[Option<Gradient>],
        leaves: &mut Vec<Leaf>,
        options: Options,
    ) -> Vec<Option<Gradient>>;
}

struct Backward<'a, M> {
    machine: &'a mut M,
    leaves: &'a mut Vec<Leaf>,
    options: Options,
    /// By output of the nodes.
    buffers: Vec<Option<Gradient>>,
    /// Where in the tape's list of outputs those of the nodes begin.
    first_output: usize,
    nodes: &'a [Node],
    pending: Vec<Option<Gradient>>,
    remaining: Vec<u32>,
}

/// Functions whose kernels read a contiguous gradient and copy another one first.
const WANT_CONTIGUOUS: &[&str] = &[
    "convolution",
    "cudnn_batch_norm",
    "native_batch_norm",
    "native_layer_norm",
    "native_group_norm",
    "max_pool2d_with_indices",
];

/// Those that make the copy inside of their kernels, which fake tensors do not run; others' formulas ask for it
/// (derivatives.yaml: `cudnn_batch_norm`, `native_group_norm`).
const INSIDE_OF_KERNELS: &[&str] =
    &["convolution", "native_batch_norm", "native_layer_norm", "max_pool2d_with_indices"];

/// Functions whose gradient is put into zeros of the input's shape. On fake tensors a second tensor takes the result: what is
/// like a subclass is not written in place (FunctionsManual.cpp, `gather_backward`, `index_select_backward`,
/// `value_selecting_reduction_backward`; TensorAdvancedIndexing.cpp, `index_backward`: `areAnyTensorSubclassLike`). Likewise
/// the target is taken from the probabilities (`binary_cross_entropy_with_logits_backward`: `sub` for `sub_`).
const PUT_INTO_ZEROS: &[&str] =
    &["binary_cross_entropy_with_logits", "gather", "index", "index_select", "max", "min", "topk"];

/// Runs backward from `loss`, leaving each leaf's gradient in [`Leaf::grad`].
pub(super) fn run<M: Machine>(machine: &mut M, loss: TensorRef, leaves: &mut Vec<Leaf>, options: Options) {
    let tape = machine.tape();
    let seed = *tape.tensor(loss);
    let layout = tape.layouts.made_contiguous(seed.layout);
    let storage = tape.new_storage(layout, seed.dtype, Category::ActivationGradient, "ones_like");
    // Tensor.backward keeps the seed in a local of its own until it returns (torch/autograd/__init__.py).
    tape.memory.hold(storage);
    let gradient = Gradient { storage, layout, dtype: seed.dtype };
    run_from(machine, vec![(seed.edge, gradient)], leaves, options);
    machine.tape().memory.release(storage);
}

/// Runs backward from several outputs at once. All nodes of the tape are consumed.
pub(super) fn run_from<M: Machine>(
    machine: &mut M,
    roots: Vec<(Edge, Gradient)>,
    leaves: &mut Vec<Leaf>,
    options: Options,
) {
    let tape = machine.tape();
    let nodes = std::mem::take(&mut tape.nodes);
    let edges: Vec<Edge> = roots.iter().map(|(edge, _)| *edge).collect();
    let first_output = nodes.first().map_or(tape.outputs.len(), |node| node.outputs.range().start);
    let remaining = dependencies(tape, &nodes, &edges, leaves.len());
    let mut backward = Backward {
        buffers: vec![None; tape.outputs.len() - first_output],
        first_output,
        nodes: &nodes,
        pending: vec![None; leaves.len()],
        remaining,
        machine,
        leaves,
        options,
    };
    for (edge, gradient) in roots {
        backward.deliver(edge, gradient);
    }
    for node in nodes.iter().rev() {
        backward.evaluate(node);
    }
}

/// Whether autograd knows this input of a function as a view of another tensor: what writes over it becomes a `CopySlices`
/// (torch/csrc/autograd/functions/tensor.cpp). The result of a product in another shape is none (`_unsafe_view`).
fn is_view(nodes: &[Node], input: &NodeInput) -> bool {
    let made_by = |edge| match edge {
        Edge::Node { node, .. } => nodes.get(node.0 as usize),
        _ => None,
    };
    made_by(input.edge).is_some_and(|node| node.function == "reshape" && node.way == Way::Reshape)
}

impl<M: Machine> Backward<'_, M> {
    fn tape(&mut self) -> &mut Tape {
        self.machine.tape()
    }

    fn evaluate(&mut self, node: &Node) {
        let outputs = node.outputs.range();
        let own = outputs.start - self.first_output..outputs.end - self.first_output;
        let incoming: SmallVec<[Option<Gradient>; 4]> =
            self.buffers[own].iter_mut().map(Option::take).collect();
        self.tape().memory.layer = node.layer;
        let Some(first) = incoming.iter().flatten().next().copied() else {
            return self.release_saved(node);
        };
        if let Some(segment) = node.segment {
            return self.evaluate_segment(node, segment, &incoming);
        }
        let mut scratch = self.temporaries(node, &first);
        let mut gradients: SmallVec<[(NodeInput, Gradient); 3]> = SmallVec::new();
        for (i, at) in node.inputs.range().enumerate() {
            let input = self.tape().inputs[at];
            if input.edge != Edge::None {
                let tape = self.tape();
                let gradient = tape.gradient(node, &input, &first, &incoming, &mut scratch);
                tape.convolve_backward(node, i);
                tape.multiply(node.function);
                gradients.push((input, gradient));
            }
        }
        // Names of the function go with it, before the engine sums and casts what it gave.
        let tape = self.tape();
        for storage in scratch {
            tape.memory.release(storage);
        }
        for (input, gradient) in &mut gradients {
            *gradient = tape.validated(*gradient, &input.meta);
        }
        for gradient in incoming.into_iter().flatten() {
            tape.memory.release(gradient.storage);
        }
        self.release_saved(node);
        for (input, gradient) in gradients {
            self.deliver(input.edge, gradient);
        }
    }

    /// What a function holds while it makes its gradients, beside them; `first` is the first gradient that came in.
    fn temporaries(&mut self, node: &Node, first: &Gradient) -> SmallVec<[StorageId; 2]> {
        let mut scratch: SmallVec<[StorageId; 2]> = SmallVec::new();
        let as_fake_tensors = self.options.as_fake_tensors;
        let nodes = self.nodes;
        let tape = self.machine.tape();
        for at in node.scratch.range() {
            let bytes = tape.temporaries[at];
            scratch.push(tape.memory.allocate(bytes, Category::Transient, node.function));
        }
        for at in node.workspace.range().filter(|_| !as_fake_tensors) {
            let bytes = tape.temporaries[at];
            scratch.push(tape.memory.allocate(bytes, Category::Workspace, node.function));
        }
        if WANT_CONTIGUOUS.contains(&node.function)
            && !(as_fake_tensors && INSIDE_OF_KERNELS.contains(&node.function))
            && !tape.layouts.is_plain(first.layout)
        {
            scratch.push(tape.new_storage(first.layout, first.dtype, Category::Transient, "contiguous"));
        }
        if as_fake_tensors && PUT_INTO_ZEROS.contains(&node.function) {
            let zeros = tape.inputs[node.inputs.range().start].meta.layout;
            scratch.push(tape.new_storage(zeros, first.dtype, Category::Transient, "zeros"));
        }
        if node.function.ends_with('_') && tape.inputs[node.inputs.range()].iter().any(|i| is_view(nodes, i))
        {
            // The gradient of what the view belongs to, and a copy of the view's part for the function to read.
            for label in ["new_empty_strided", "clone"] {
                scratch.push(tape.new_storage(first.layout, first.dtype, Category::Transient, label));
            }
        }
        scratch
    }

    /// A checkpointed segment: its inputs' gradients come from running it again.
    fn evaluate_segment(&mut self, node: &Node, segment: u32, incoming: &[Option<Gradient>]) {
        let gradients = self.machine.checkpoint(segment, incoming, self.leaves, self.options);
        // Parameters of the segment may have been given their gradients; the leaves' list has not grown.
        self.release_saved(node);
        for (at, gradient) in node.inputs.range().zip(gradients) {
            if let Some(gradient) = gradient {
                let edge = self.tape().inputs[at].edge;
                self.deliver(edge, gradient);
            }
        }
    }

    fn release_saved(&mut self, node: &Node) {
        let tape = self.tape();
        for at in node.saved.range() {
            tape.memory.release(tape.saved[at]);
        }
    }

    /// Puts a gradient where its edge leads, adding to what is there.
    fn deliver(&mut self, edge: Edge, gradient: Gradient) {
        match edge {
            Edge::None => self.tape().memory.release(gradient.storage),
            Edge::Node { node, output } => {
                let outputs = self.nodes[node.0 as usize].outputs.range();
                let at = outputs.start - self.first_output + output as usize;
                let there = self.buffers[at].take();
                let sum = self.add(there, gradient);
                self.buffers[at] = Some(sum);
            }
            Edge::Leaf(leaf) => {
                let slot = leaf as usize;
                let there = self.pending[slot].take();
                let sum = self.add(there, gradient);
                self.remaining[slot] = self.remaining[slot].saturating_sub(1);
                if self.remaining[slot] == 0 {
                    self.accumulate(slot, sum);
                } else {
                    self.pending[slot] = Some(sum);
                }
            }
        }
    }

    fn add(&mut self, there: Option<Gradient>, new: Gradient) -> Gradient {
        let Some(there) = there else { return new };
        let as_fake_tensors = self.options.as_fake_tensors;
        let tape = self.tape();
        let in_place = !as_fake_tensors
            && tape.memory.references(there.storage) == 1
            && tape.layouts.is_dense(there.layout);
        if in_place {
            tape.memory.release(new.storage);
            return there;
        }
        let storage = tape.new_storage(there.layout, there.dtype, Category::ActivationGradient, "add");
        tape.memory.release(there.storage);
        tape.memory.release(new.storage);
        let layout = tape.layouts.like(there.layout);
        Gradient { storage, layout, ..there }
    }

    /// AccumulateGrad: a leaf's gradient is complete.
    fn accumulate(&mut self, leaf: usize, gradient: Gradient) {
        let own = self.leaves[leaf];
        let tape = self.tape();
        if own.grad.is_some() {
            // `grad.add_(new)`: under `no_grad` the sum is in place.
            return tape.memory.release(gradient.storage);
        }
        let suits = gradient.layout == own.layout
            || tape.layouts.strides(gradient.layout) == tape.layouts.strides(own.layout)
            || tape.layouts.is_contiguous(gradient.layout);
        let storage = if suits && tape.memory.references(gradient.storage) == 1 {
            tape.memory.recategorize(gradient.storage, Category::Gradient, own.layer);
            gradient.storage
        } else {
            let clone = tape.new_storage(own.layout, own.dtype, Category::Gradient, "clone");
            tape.memory.recategorize(clone, Category::Gradient, own.layer);
            tape.memory.release(gradient.storage);
            clone
        };
        self.leaves[leaf].grad = Some(storage);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EventKind;
    use memfit_graph::{Call, Grad, Operand, OutDtype, Place, Saved};

    fn tape_with_leaf() -> (Tape, TensorRef, Vec<Leaf>) {
        let mut tape = Tape::new(None, true);
        let w = tape.new_tensor(&[128], DType::Float32, Category::Parameter, "w");
        tape.tensors[w.0 as usize].edge = Edge::Leaf(0);
        let layout = tape.tensor(w).layout;
        (tape, w, vec![Leaf { layout, dtype: DType::Float32, layer: 0, is_table: false, grad: None }])
    }

    fn unary(grad: Grad) -> Call {
        Call::new("f").input(Operand::Input(0), grad).output(&[128], OutDtype::Promoted, Place::Pointwise)
    }

    impl Machine for Tape {
        fn tape(&mut self) -> &mut Tape {
            self
        }

        fn checkpoint(
            &mut self,
            _: u32,
            _: &[Option<Gradient>],
            _: &mut Vec<Leaf>,
            _: Options,
        ) -> Vec<Option<Gradient>> {
            unreachable!("no test here makes a segment")
        }
    }

    #[test]
    fn a_gradient_is_taken_over_by_its_leaf() {
        let (mut tape, w, mut leaves) = tape_with_leaf();
        let y = tape.run(&unary(Grad::Pointwise).saves([Saved::Output(0)]), &[w])[0];
        let y_storage = tape.tensor(y).storage;
        tape.memory.release(y_storage);
        assert_eq!(tape.memory.references(y_storage), 1, "the node keeps its output");
        run(&mut tape, y, &mut leaves, Options { as_fake_tensors: false });
        assert_eq!(tape.memory.references(y_storage), 0);
        let grad = leaves[0].grad.unwrap();
        assert_eq!(tape.memory.storage(grad).category, Category::Gradient);
    }

    #[test]
    fn gradients_meet_in_place_except_on_fake_tensors() {
        let peak_allocations = |as_fake_tensors| {
            let (mut tape, w, mut leaves) = tape_with_leaf();
            let (a, b) =
                (tape.run(&unary(Grad::Pointwise), &[w])[0], tape.run(&unary(Grad::Pointwise), &[w])[0]);
            let add = Call::new("add")
                .input(Operand::Input(0), Grad::Pass)
                .input(Operand::Input(1), Grad::Pass)
                .output(&[128], OutDtype::Promoted, Place::Pointwise);
            let y = tape.run(&add, &[a, b])[0];
            run(&mut tape, y, &mut leaves, Options { as_fake_tensors });
            let events = tape.memory.into_timeline().events;
            events.iter().filter(|e| e.kind == EventKind::Allocate).count()
        };
        assert_eq!(peak_allocations(true), peak_allocations(false) + 1);
    }
}
