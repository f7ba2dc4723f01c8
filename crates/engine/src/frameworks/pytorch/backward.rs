//! Backward: the autograd engine's order, its buffers and what each node makes and frees.
//!
//! Sources, PyTorch 2.15: torch/csrc/autograd/engine.cpp (a ready node with the highest sequence number runs first, so
//! nodes run in reverse order of creation; a node's saved tensors are released after it ran), input_buffer.cpp
//! (gradients that meet are added in place where nobody else holds the first), accumulate_grad.h (a leaf takes a gradient
//! over where nobody else holds it and its layout suits, else it is cloned).

use super::strides::{self, Dims};
use super::tape::{Edge, Meta, Node, Tape, TensorRef};
use crate::{Category, StorageId};
use memfit_graph::{DType, Grad, Place, View};
use smallvec::SmallVec;

/// A gradient on its way; it holds its storage once.
#[derive(Clone, Debug)]
pub(super) struct Gradient {
    pub(super) storage: StorageId,
    pub(super) shape: Dims,
    pub(super) strides: Dims,
    pub(super) dtype: DType,
}

/// A trained parameter.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    pub(super) shape: Dims,
    pub(super) strides: Dims,
    pub(super) dtype: DType,
    pub(super) layer: u32,
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
    /// By node and output.
    buffers: Vec<SmallVec<[Option<Gradient>; 1]>>,
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

/// Runs backward from `loss`, leaving each leaf's gradient in [`Leaf::grad`].
pub(super) fn run<M: Machine>(machine: &mut M, loss: TensorRef, leaves: &mut Vec<Leaf>, options: Options) {
    let tape = machine.tape();
    let seed = tape.tensor(loss).clone();
    let storage = tape.new_storage(&seed.shape, seed.dtype, Category::ActivationGradient, "ones_like");
    let strides = strides::contiguous(&seed.shape);
    // Tensor.backward keeps the seed in a local of its own until it returns (torch/autograd/__init__.py).
    tape.memory.hold(storage);
    let gradient = Gradient { storage, strides, shape: seed.shape, dtype: seed.dtype };
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
    let nodes = std::mem::take(&mut machine.tape().nodes);
    let edges: Vec<Edge> = roots.iter().map(|(edge, _)| *edge).collect();
    let mut backward = Backward {
        buffers: vec![SmallVec::new(); nodes.len()],
        pending: vec![None; leaves.len()],
        remaining: dependencies(&nodes, &edges, leaves.len()),
        machine,
        leaves,
        options,
    };
    for (edge, gradient) in roots {
        backward.deliver(edge, gradient);
    }
    for (id, node) in nodes.iter().enumerate().rev() {
        backward.evaluate(id, node);
    }
}

/// How many gradients each leaf waits for.
fn dependencies(nodes: &[Node], roots: &[Edge], leaves: usize) -> Vec<u32> {
    let mut reached = vec![false; nodes.len()];
    let mut remaining = vec![0; leaves];
    for root in roots {
        match root {
            Edge::Node { node, .. } => reached[node.0 as usize] = true,
            Edge::Leaf(leaf) => remaining[*leaf as usize] += 1,
            Edge::None => {}
        }
    }
    for id in (0..nodes.len()).rev() {
        if !reached[id] {
            continue;
        }
        for input in &nodes[id].inputs {
            match input.edge {
                Edge::Node { node, .. } => reached[node.0 as usize] = true,
                Edge::Leaf(leaf) => remaining[leaf as usize] += 1,
                Edge::None => {}
            }
        }
    }
    remaining
}

impl<M: Machine> Backward<'_, M> {
    fn tape(&mut self) -> &mut Tape {
        self.machine.tape()
    }

    fn evaluate(&mut self, id: usize, node: &Node) {
        let incoming: SmallVec<[Option<Gradient>; 1]> = std::mem::take(&mut self.buffers[id]);
        self.tape().memory.layer = node.layer;
        let Some(first) = incoming.iter().flatten().next().cloned() else {
            return self.release_saved(node);
        };
        if let Some(segment) = node.segment {
            return self.evaluate_segment(node, segment, &incoming);
        }
        let mut scratch: SmallVec<[StorageId; 2]> = SmallVec::new();
        for (shape, dtype) in &node.scratch {
            scratch.push(self.tape().new_storage(shape, *dtype, Category::Transient, node.function));
        }
        for (shape, dtype) in node.workspace.iter().filter(|_| !self.options.as_fake_tensors) {
            scratch.push(self.machine.tape().new_storage(shape, *dtype, Category::Workspace, node.function));
        }
        if WANT_CONTIGUOUS.contains(&node.function) && !strides::is_plain(&first.shape, &first.strides) {
            scratch.push(self.tape().new_storage(
                &first.shape,
                first.dtype,
                Category::Transient,
                "contiguous",
            ));
        }
        let gradients: SmallVec<[(usize, Gradient); 3]> = node
            .inputs
            .iter()
            .enumerate()
            .filter(|(_, input)| input.edge != Edge::None)
            .map(|(i, _)| {
                let gradient = self.gradient(node, i, &first, &incoming, &mut scratch);
                self.tape().convolve_backward(node, i);
                (i, gradient)
            })
            .collect();
        let gradients: SmallVec<[(usize, Gradient); 3]> =
            gradients.into_iter().map(|(i, g)| (i, self.validated(g, &node.inputs[i].meta))).collect();
        for storage in scratch {
            self.tape().memory.release(storage);
        }
        for gradient in incoming.into_iter().flatten() {
            self.tape().memory.release(gradient.storage);
        }
        self.release_saved(node);
        for (i, gradient) in gradients {
            self.deliver(node.inputs[i].edge, gradient);
        }
    }

    /// A checkpointed segment: its inputs' gradients come from running it again.
    fn evaluate_segment(&mut self, node: &Node, segment: u32, incoming: &[Option<Gradient>]) {
        let gradients = self.machine.checkpoint(segment, incoming, self.leaves, self.options);
        // Parameters of the segment may have been given their gradients; the leaves' list has not grown.
        self.release_saved(node);
        for (input, gradient) in node.inputs.iter().zip(gradients) {
            if let Some(gradient) = gradient {
                self.deliver(input.edge, gradient);
            }
        }
    }

    fn release_saved(&mut self, node: &Node) {
        for storage in &node.saved {
            self.tape().memory.release(*storage);
        }
    }

    /// What the node's function returns for input `i`, before the engine validates it.
    fn gradient(
        &mut self,
        node: &Node,
        i: usize,
        first: &Gradient,
        incoming: &[Option<Gradient>],
        scratch: &mut SmallVec<[StorageId; 2]>,
    ) -> Gradient {
        let meta = &node.inputs[i].meta;
        match &node.inputs[i].grad {
            Grad::None | Grad::New => self.fresh(node, &meta.shape, meta.dtype),
            Grad::Like => {
                let mut gradient = self.fresh(node, &meta.shape, meta.dtype);
                gradient.strides = strides::like(&meta.shape, &meta.strides);
                gradient
            }
            Grad::Pointwise => {
                let dtype = if node.function == "_to_copy" { meta.dtype } else { first.dtype };
                let storage =
                    self.tape().new_storage(&first.shape, dtype, Category::ActivationGradient, node.function);
                let strides = strides::like(&first.shape, &first.strides);
                Gradient { storage, shape: first.shape.clone(), strides, dtype }
            }
            Grad::Pass => self.shared(first, first.shape.clone(), first.strides.clone()),
            Grad::Narrow { .. } => self.shared(first, meta.shape.clone(), first.strides.clone()),
            Grad::Expand => {
                let strides = strides::expand_reduced(&first.shape, &first.strides, &meta.shape);
                self.shared(first, meta.shape.clone(), strides)
            }
            Grad::Unview if node.outputs.len() > 1 => {
                // The gradient of a split joins its parts; a part without one is made of zeros.
                for (j, (out, _)) in node.outputs.iter().enumerate() {
                    if incoming.get(j).is_none_or(Option::is_none) {
                        scratch.push(self.tape().new_storage(
                            &out.shape,
                            out.dtype,
                            Category::Transient,
                            "zeros",
                        ));
                    }
                }
                self.fresh(node, &meta.shape, first.dtype)
            }
            Grad::Unview => match node.outputs.first().map(|(_, place)| place) {
                Some(Place::View(_, View::Permute(perm))) if perm.len() == first.shape.len() => {
                    let mut strides = first.strides.clone();
                    for (k, from) in perm.iter().enumerate() {
                        if let Some(slot) = strides.get_mut(*from) {
                            *slot = first.strides[k];
                        }
                    }
                    self.shared(first, meta.shape.clone(), strides)
                }
                Some(Place::View(_, View::Slice { .. })) if meta.shape != first.shape => {
                    self.fresh(node, &meta.shape, first.dtype)
                }
                Some(Place::View(_, View::Reshape)) => {
                    match strides::view(&first.shape, &first.strides, &meta.shape) {
                        Some(strides) => self.shared(first, meta.shape.clone(), strides),
                        None => self.fresh(node, &meta.shape, first.dtype),
                    }
                }
                // An expand's gradient is summed when it is validated.
                _ => self.shared(first, first.shape.clone(), first.strides.clone()),
            },
        }
    }

    fn fresh(&mut self, node: &Node, shape: &[u64], dtype: DType) -> Gradient {
        let storage = self.tape().new_storage(shape, dtype, Category::ActivationGradient, node.function);
        Gradient { storage, shape: shape.into(), strides: strides::contiguous(shape), dtype }
    }

    fn shared(&mut self, of: &Gradient, shape: Dims, strides: Dims) -> Gradient {
        self.tape().memory.hold(of.storage);
        Gradient { storage: of.storage, shape, strides, dtype: of.dtype }
    }

    /// `validate_outputs`: summed to the input's shape and cast to its dtype where they differ.
    fn validated(&mut self, mut g: Gradient, meta: &Meta) -> Gradient {
        if g.shape != meta.shape {
            let elements = |d: &[u64]| d.iter().fold(1_u64, |acc, n| acc.saturating_mul(*n));
            if elements(&g.shape) == elements(&meta.shape) {
                g.strides = strides::contiguous(&meta.shape);
                g.shape = meta.shape.clone();
            } else {
                let summed = self.tape().new_storage(
                    &meta.shape,
                    g.dtype,
                    Category::ActivationGradient,
                    "sum_to_size",
                );
                self.tape().memory.release(g.storage);
                let strides = strides::contiguous(&meta.shape);
                g = Gradient { storage: summed, shape: meta.shape.clone(), strides, dtype: g.dtype };
            }
        }
        if g.dtype != meta.dtype && meta.dtype.is_float() {
            let cast =
                self.tape().new_storage(&g.shape, meta.dtype, Category::ActivationGradient, "_to_copy");
            self.tape().memory.release(g.storage);
            g = Gradient {
                storage: cast,
                strides: strides::like(&g.shape, &g.strides),
                dtype: meta.dtype,
                ..g
            };
        }
        g
    }

    /// Puts a gradient where its edge leads, adding to what is there.
    fn deliver(&mut self, edge: Edge, gradient: Gradient) {
        match edge {
            Edge::None => self.tape().memory.release(gradient.storage),
            Edge::Node { node, output } => {
                let (node, output) = (node.0 as usize, output as usize);
                if self.buffers[node].len() <= output {
                    self.buffers[node].resize(output + 1, None);
                }
                let there = self.buffers[node][output].take();
                let sum = self.add(there, gradient);
                self.buffers[node][output] = Some(sum);
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
        let in_place = !self.options.as_fake_tensors
            && self.tape().memory.references(there.storage) == 1
            && strides::is_dense(&there.shape, &there.strides);
        if in_place {
            self.tape().memory.release(new.storage);
            return there;
        }
        let storage = self.tape().new_storage(&there.shape, there.dtype, Category::ActivationGradient, "add");
        self.tape().memory.release(there.storage);
        self.tape().memory.release(new.storage);
        Gradient { storage, strides: strides::like(&there.shape, &there.strides), ..there }
    }

    /// AccumulateGrad: a leaf's gradient is complete.
    fn accumulate(&mut self, leaf: usize, gradient: Gradient) {
        let (existing, layer) = (self.leaves[leaf].grad, self.leaves[leaf].layer);
        if existing.is_some() {
            // `grad.add_(new)`: under `no_grad` the sum is in place.
            return self.tape().memory.release(gradient.storage);
        }
        let l = self.leaves[leaf].clone();
        let suits =
            gradient.strides == l.strides || strides::is_contiguous(&gradient.shape, &gradient.strides);
        let storage = if suits && self.tape().memory.references(gradient.storage) == 1 {
            self.tape().memory.recategorize(gradient.storage, Category::Gradient, layer);
            gradient.storage
        } else {
            let clone = self.tape().new_storage(&l.shape, l.dtype, Category::Gradient, "clone");
            self.tape().memory.recategorize(clone, Category::Gradient, layer);
            self.tape().memory.release(gradient.storage);
            clone
        };
        self.leaves[leaf].grad = Some(storage);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EventKind;
    use crate::frameworks::pytorch::tape::Tensor;
    use memfit_graph::{Call, Operand, OutDtype, Saved};

    fn tape_with_leaf() -> (Tape, TensorRef, Vec<Leaf>) {
        let mut tape = Tape::new(None, true);
        let shape: Dims = [128][..].into();
        let storage = tape.new_storage(&shape, DType::Float32, Category::Parameter, "w");
        let strides = strides::contiguous(&shape);
        let leaf = Leaf {
            shape: shape.clone(),
            strides: strides.clone(),
            dtype: DType::Float32,
            layer: 0,
            grad: None,
        };
        let edge = Edge::Leaf(0);
        let w = tape.add(Tensor { storage, shape, strides, dtype: DType::Float32, edge, is_number: false });
        (tape, w, vec![leaf])
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
