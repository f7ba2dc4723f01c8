//! Tensors and autograd nodes of one step, and the forward execution of ATen calls.
//!
//! A call makes storages or views, and, where a gradient flows, a node that holds what derivatives.yaml says. Autocast
//! casts inputs before the call as its lists say; a leaf parameter's cast is made once per step and kept until forward
//! ends (aten/src/ATen/autocast_mode.cpp, `cached_cast`).

use super::memory::Memory;
use super::strides::{self, Dims};
use super::workspace::Kernels;
use crate::{Category, StorageId};
use memfit_graph::{Autocast, Call, DType, Grad, OutDtype, Place, Saved, View};
use smallvec::SmallVec;
use std::collections::HashMap;

/// Index of a tensor on the tape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct TensorRef(pub(super) u32);

/// Index of an autograd node; a later node runs earlier in backward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct NodeRef(pub(super) u32);

/// Where the gradient of a tensor goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edge {
    /// Nowhere.
    None,
    /// To output `output` of a node.
    Node { node: NodeRef, output: u32 },
    /// Into the gradient of leaf parameter number `leaf`.
    Leaf(u32),
}

/// A tensor: a window on a storage.
#[derive(Clone, Debug)]
pub(super) struct Tensor {
    pub(super) storage: StorageId,
    pub(super) shape: Dims,
    pub(super) strides: Dims,
    pub(super) dtype: DType,
    pub(super) edge: Edge,
    /// A Python number or a 0-dim constant: no part in type promotion, never cast, never kept.
    pub(super) is_number: bool,
}

impl Tensor {
    pub(super) fn meta(&self) -> Meta {
        Meta { shape: self.shape.clone(), strides: self.strides.clone(), dtype: self.dtype }
    }

    pub(super) fn requires_grad(&self) -> bool {
        self.edge != Edge::None
    }
}

/// What a node must know of a tensor that it does not hold.
#[derive(Clone, Debug)]
pub(super) struct Meta {
    pub(super) shape: Dims,
    pub(super) strides: Dims,
    pub(super) dtype: DType,
}

/// One differentiable input of a node.
#[derive(Clone, Debug)]
pub(super) struct NodeInput {
    pub(super) meta: Meta,
    pub(super) edge: Edge,
    pub(super) grad: Grad,
}

/// An autograd node.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) function: &'static str,
    pub(super) layer: u32,
    pub(super) inputs: SmallVec<[NodeInput; 3]>,
    /// The outputs with how they view their input.
    pub(super) outputs: SmallVec<[(Meta, Place); 1]>,
    pub(super) saved: SmallVec<[StorageId; 4]>,
    pub(super) scratch: Vec<(Vec<u64>, DType)>,
    /// Inside of the kernels that backward calls.
    pub(super) workspace: Vec<(Vec<u64>, DType)>,
    /// The checkpointed segment that this node stands for.
    pub(super) segment: Option<u32>,
}

/// The state of a step while forward runs.
pub(super) struct Tape {
    pub(super) memory: Memory,
    pub(super) tensors: Vec<Tensor>,
    pub(super) nodes: Vec<Node>,
    pub(super) autocast: Option<DType>,
    /// Whether autograd records.
    pub(super) grad_mode: bool,
    /// Whether what runs now is the last to read its first input.
    pub(super) input_is_last_use: bool,
    /// What convolutions need; nothing on fake tensors, which run no kernel.
    pub(super) kernels: Option<Kernels>,
    casts: HashMap<(TensorRef, DType), TensorRef>,
    cached: Vec<StorageId>,
}

impl Tape {
    pub(super) fn new(autocast: Option<DType>, grad_mode: bool) -> Tape {
        Tape {
            memory: Memory::default(),
            tensors: Vec::new(),
            nodes: Vec::new(),
            autocast,
            grad_mode,
            input_is_last_use: false,
            kernels: None,
            casts: HashMap::new(),
            cached: Vec::new(),
        }
    }

    /// Makes room for what a graph of so many operators usually comes to.
    pub(super) fn reserve(&mut self, operators: usize) {
        self.tensors.reserve(operators.saturating_mul(4));
        self.nodes.reserve(operators.saturating_mul(2));
        self.memory.reserve(operators);
    }

    pub(super) fn tensor(&self, t: TensorRef) -> &Tensor {
        &self.tensors[t.0 as usize]
    }

    pub(super) fn add(&mut self, tensor: Tensor) -> TensorRef {
        self.tensors.push(tensor);
        TensorRef(u32::try_from(self.tensors.len() - 1).unwrap_or(u32::MAX))
    }

    /// A new storage for a tensor of this shape.
    pub(super) fn new_storage(
        &mut self,
        shape: &[u64],
        dtype: DType,
        category: Category,
        label: &'static str,
    ) -> StorageId {
        let elements = shape.iter().fold(1_u64, |acc, d| acc.saturating_mul(*d));
        self.memory.allocate(dtype.size_of(elements), category, label)
    }

    /// Runs a call. Each output's storage is held once for the caller.
    pub(super) fn run(&mut self, call: &Call, inputs: &[TensorRef]) -> SmallVec<[TensorRef; 2]> {
        let mut temporaries: SmallVec<[StorageId; 2]> = SmallVec::new();
        let inputs: SmallVec<[TensorRef; 4]> = match self.cast_target(call, inputs) {
            None => inputs.into(),
            Some(target) => inputs.iter().map(|t| self.cast_for_call(*t, target, &mut temporaries)).collect(),
        };
        let scratch: SmallVec<[StorageId; 1]> = call
            .scratch
            .iter()
            .map(|(shape, dtype)| self.new_storage(shape, *dtype, Category::Workspace, call.function))
            .collect();
        let differentiable = self.grad_mode
            && inputs
                .iter()
                .zip(&call.grads)
                .any(|(t, g)| *g != Grad::None && self.tensor(*t).requires_grad());
        let promoted = self.promoted(&inputs);
        let outputs: SmallVec<[TensorRef; 2]> =
            call.outputs.iter().map(|output| self.output(call.function, output, &inputs, promoted)).collect();
        self.convolve_forward(call.function, &inputs, &outputs);
        if differentiable {
            self.record(call, &inputs, &outputs, promoted);
        }
        for storage in scratch.into_iter().chain(temporaries) {
            self.memory.release(storage);
        }
        outputs
    }

    /// The dtype that a call's float inputs meet in; for integers alone, theirs.
    fn promoted(&self, inputs: &[TensorRef]) -> DType {
        let meet = |floats: bool| {
            let tensors = inputs.iter().map(|t| self.tensor(*t));
            let of_kind = tensors.filter(|t| t.dtype.is_float() == floats);
            let real = of_kind.clone().filter(|t| !t.is_number).map(|t| t.dtype).reduce(DType::promote);
            real.or_else(|| of_kind.map(|t| t.dtype).reduce(DType::promote))
        };
        meet(true).or_else(|| meet(false)).unwrap_or(DType::Float32)
    }

    /// What this call's float inputs are cast to. Without autocast, a matrix product cannot mix float32 with half: where
    /// float32 arrives in a half model, the model's own cast back is one that its float32 export does not show.
    fn cast_target(&self, call: &Call, inputs: &[TensorRef]) -> Option<DType> {
        let Some(half) = self.autocast else {
            let floats =
                inputs.iter().map(|t| self.tensor(*t)).filter(|t| t.dtype.is_float() && !t.is_number);
            let half = floats.clone().map(|t| t.dtype).find(|d| d.is_half())?;
            let mixes = floats.clone().any(|t| t.dtype == DType::Float32);
            return (call.autocast == Autocast::Lower && mixes).then_some(half);
        };
        match call.autocast {
            Autocast::Keep => None,
            Autocast::Lower => Some(half),
            Autocast::Fp32 => Some(DType::Float32),
            Autocast::Promote => Some(self.promoted(inputs)),
        }
    }

    fn cast_for_call(
        &mut self,
        t: TensorRef,
        target: DType,
        temporaries: &mut SmallVec<[StorageId; 2]>,
    ) -> TensorRef {
        let tensor = self.tensor(t);
        if tensor.is_number
            || !tensor.dtype.is_float()
            || tensor.dtype == target
            || tensor.dtype == DType::Float64
        {
            return t;
        }
        if let Some(cast) = self.casts.get(&(t, target)) {
            return *cast;
        }
        // Only a leaf that needs a gradient, cast down from float32, is cached.
        let cacheable =
            matches!(tensor.edge, Edge::Leaf(_)) && tensor.dtype == DType::Float32 && target.is_half();
        let cast = self.cast(t, target);
        let storage = self.tensor(cast).storage;
        if cacheable {
            self.casts.insert((t, target), cast);
            self.cached.push(storage);
        } else {
            temporaries.push(storage);
        }
        cast
    }

    /// `aten::_to_copy`: a new tensor in another dtype, laid out like the old one.
    pub(super) fn cast(&mut self, t: TensorRef, target: DType) -> TensorRef {
        let call = Call::new("_to_copy").input(memfit_graph::Operand::Input(0), Grad::Pointwise).output(
            &self.tensor(t).shape.clone(),
            OutDtype::Is(target),
            Place::Pointwise,
        );
        self.run(&call, &[t])[0]
    }

    /// Leaves the autocast region: the cached casts that no node keeps are freed.
    pub(super) fn end_autocast(&mut self) {
        self.casts.clear();
        for storage in std::mem::take(&mut self.cached) {
            self.memory.release(storage);
        }
    }

    fn output(
        &mut self,
        function: &'static str,
        output: &memfit_graph::Output,
        inputs: &[TensorRef],
        promoted: DType,
    ) -> TensorRef {
        let dtype = match output.dtype {
            OutDtype::Promoted => promoted,
            OutDtype::Like(i) => inputs.get(i).map_or(promoted, |t| self.tensor(*t).dtype),
            OutDtype::Is(dtype) => dtype,
        };
        let shape: Dims = output.shape[..].into();
        let fresh = |tape: &mut Tape, strides: Dims| {
            let storage = tape.new_storage(&shape, dtype, Category::Activation, function);
            Tensor { storage, shape: shape.clone(), strides, dtype, edge: Edge::None, is_number: false }
        };
        let tensor = match &output.place {
            Place::New => fresh(self, strides::contiguous(&shape)),
            Place::Pointwise if self.overwrites(function, inputs, dtype) => self.alias(inputs[0], None),
            Place::Pointwise => {
                let strides = self.pointwise_strides(&shape, inputs);
                fresh(self, strides)
            }
            Place::InPlace(i) => match inputs.get(*i) {
                Some(t) => self.alias(*t, None),
                None => fresh(self, strides::contiguous(&shape)),
            },
            Place::View(i, view) => {
                match inputs.get(*i).and_then(|t| Some((*t, self.view_strides(*t, &shape, view)?))) {
                    Some((t, strides)) => self.alias(t, Some((shape.clone(), strides))),
                    None => fresh(self, strides::contiguous(&shape)),
                }
            }
        };
        self.add(tensor)
    }

    /// Another tensor on the same storage, which it holds.
    fn alias(&mut self, t: TensorRef, window: Option<(Dims, Dims)>) -> Tensor {
        let mut tensor = self.tensor(t).clone();
        self.memory.hold(tensor.storage);
        if let Some((shape, strides)) = window {
            tensor.shape = shape;
            tensor.strides = strides;
        }
        tensor.edge = Edge::None;
        tensor
    }

    /// The strides of a view; `None` where it needs a copy.
    fn view_strides(&self, t: TensorRef, shape: &[u64], view: &View) -> Option<Dims> {
        let tensor = self.tensor(t);
        let strides = match view {
            View::Reshape => strides::view(&tensor.shape, &tensor.strides, shape),
            View::Permute(perm) => perm.iter().map(|k| tensor.strides.get(*k).copied()).collect(),
            View::Expand => Some(strides::expand(&tensor.shape, &tensor.strides, shape)),
            View::Slice { axis, step, .. } => {
                let mut out = tensor.strides.clone();
                if out.len() == shape.len() + 1 && *axis < out.len() {
                    // One index rather than a range: the axis goes.
                    out.remove(*axis);
                } else if let Some(stride) = out.get_mut(*axis) {
                    *stride = stride.saturating_mul(*step);
                }
                Some(out)
            }
            View::Alias => Some(tensor.strides.clone()),
        };
        strides.filter(|s| s.len() == shape.len())
    }

    /// TensorIterator's layout: that of the first operand of the full shape, else contiguous.
    fn pointwise_strides(&self, shape: &[u64], inputs: &[TensorRef]) -> Dims {
        let full = inputs
            .iter()
            .map(|t| self.tensor(*t))
            .filter(|t| t.shape[..] == *shape && !t.strides.contains(&0));
        let mut full = full.peekable();
        let contiguous = strides::contiguous(shape);
        match full.peek() {
            Some(t) => strides::like(shape, &t.strides),
            None => contiguous,
        }
    }

    /// Adds the autograd node of a call.
    fn record(&mut self, call: &Call, inputs: &[TensorRef], outputs: &[TensorRef], promoted: DType) {
        let needs_grad = |i: usize| inputs.get(i).is_some_and(|t| self.tensor(*t).requires_grad());
        let mut saved: SmallVec<[StorageId; 4]> = SmallVec::new();
        for item in &call.saved {
            let tensor = match item {
                Saved::Input(i) => inputs.get(*i),
                Saved::InputFor { input, needed_by } => inputs.get(*input).filter(|_| needs_grad(*needed_by)),
                Saved::Output(j) => outputs.get(*j),
            };
            if let Some(t) = tensor.map(|t| self.tensor(*t)).filter(|t| !t.is_number) {
                saved.push(t.storage);
            }
        }
        let sized = |list: &[(Vec<u64>, OutDtype)]| {
            let dtype = |dtype: &OutDtype| match dtype {
                OutDtype::Promoted => promoted,
                OutDtype::Like(i) => inputs.get(*i).map_or(promoted, |t| self.tensor(*t).dtype),
                OutDtype::Is(dtype) => *dtype,
            };
            list.iter().map(|(shape, d)| (shape.clone(), dtype(d))).collect()
        };
        let node = Node {
            function: call.function,
            layer: self.memory.layer,
            inputs: inputs
                .iter()
                .enumerate()
                .map(|(i, t)| {
                    let tensor = self.tensor(*t);
                    let grad = call.grads.get(i).cloned().unwrap_or(Grad::None);
                    let edge = if grad == Grad::None { Edge::None } else { tensor.edge };
                    NodeInput { meta: tensor.meta(), edge, grad }
                })
                .collect(),
            outputs: outputs
                .iter()
                .zip(&call.outputs)
                .map(|(t, o)| (self.tensor(*t).meta(), o.place.clone()))
                .collect(),
            scratch: sized(&call.backward_scratch),
            workspace: sized(&call.backward_workspace),
            saved,
            segment: None,
        };
        for storage in &node.saved {
            self.memory.hold(*storage);
        }
        let id = NodeRef(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
        self.nodes.push(node);
        for (output, t) in (0..).zip(outputs) {
            let tensor = &mut self.tensors[t.0 as usize];
            if tensor.dtype.is_float() {
                tensor.edge = Edge::Node { node: id, output };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_graph::{Bytes, Operand};

    fn leaf(tape: &mut Tape, shape: &[u64]) -> TensorRef {
        let storage = tape.new_storage(shape, DType::Float32, Category::Parameter, "w");
        tape.add(Tensor {
            storage,
            shape: shape.into(),
            strides: strides::contiguous(shape),
            dtype: DType::Float32,
            edge: Edge::Leaf(0),
            is_number: false,
        })
    }

    #[test]
    fn a_leaf_is_cast_once_and_an_activation_each_time() {
        let mut tape = Tape::new(Some(DType::Bfloat16), true);
        let w = leaf(&mut tape, &[4, 4]);
        let call = Call::new("mm")
            .autocast(Autocast::Lower)
            .input(Operand::Input(0), Grad::New)
            .input(Operand::Input(1), Grad::New)
            .output(&[4, 4], OutDtype::Promoted, Place::New)
            .saves([Saved::Input(0), Saved::Input(1)]);
        let y = tape.run(&call, &[w, w])[0];
        assert_eq!(tape.tensor(y).dtype, DType::Bfloat16);
        // The weight, one cast of it, the product.
        assert_eq!(tape.memory.storage(tape.tensor(y).storage).bytes, Bytes(32));
        tape.run(&call, &[y, w]);
        assert_eq!(tape.nodes.iter().filter(|n| n.function == "_to_copy").count(), 1);
    }

    #[test]
    fn a_reshape_of_permuted_axes_copies() {
        let mut tape = Tape::new(None, true);
        let w = leaf(&mut tape, &[2, 3]);
        let permute = Call::new("permute").input(Operand::Input(0), Grad::Unview).output(
            &[3, 2],
            OutDtype::Like(0),
            Place::View(0, View::Permute(vec![1, 0])),
        );
        let reshape = Call::new("reshape").input(Operand::Input(0), Grad::Unview).output(
            &[6],
            OutDtype::Like(0),
            Place::View(0, View::Reshape),
        );
        let t = tape.run(&permute, &[w])[0];
        let flat = tape.run(&reshape, &[t])[0];
        assert_eq!(tape.tensor(t).storage, tape.tensor(w).storage);
        assert_ne!(tape.tensor(flat).storage, tape.tensor(w).storage);
    }
}
