//! Tensors and autograd nodes of one step, and the forward execution of ATen calls.
//!
//! A call makes storages or views, and, where a gradient flows, a node that holds what derivatives.yaml says (`record`). Autocast
//! casts its inputs before (`autocast`).

use super::autocast::Casts;
use super::cublas::Workspaces;
use super::layouts::{Layout, Layouts};
use super::memory::Memory;
use super::record::{Node, NodeInput};
use super::strides::{self, Dims};
use super::workspace::Kernels;
use crate::{Category, StorageId};
use memfit_graph::{Bytes, Call, DType, Grad, OutDtype, Place, View, elements};
use smallvec::SmallVec;

/// Functions whose result has its channels innermost where their image has (`suggest_memory_format` in aten/src/ATen/native:
/// ConvUtils.h, cudnn/BatchNorm.cpp, group_norm.cpp, cuda/DilatedMaxPool2d.cu, cuda/AveragePool2d.cu, cuda/UpSample*.cu,
/// PadNd.cpp), as tokens turned into an image have without a copy. `cat` asks all of its inputs (TensorShape.cpp).
const KEEP_FORMAT: [&str; 10] = [
    "convolution",
    "cudnn_batch_norm",
    "native_group_norm",
    "max_pool2d_with_indices",
    "avg_pool2d",
    "upsample_nearest2d",
    "upsample_bilinear2d",
    "upsample_bicubic2d",
    "constant_pad_nd",
    "cat",
];

/// A function that gives its first input and makes it hold the second.
const HOLDS: &str = "_keras_logits";

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
#[derive(Clone, Copy, Debug)]
pub(super) struct Tensor {
    pub(super) storage: StorageId,
    pub(super) layout: Layout,
    pub(super) dtype: DType,
    pub(super) edge: Edge,
    /// A Python number or a 0-dim constant: no part in type promotion, never cast, never kept.
    pub(super) is_number: bool,
    /// What Python's object of it holds, which lives as long as autograd keeps the tensor or a view of it
    /// (c10/core/impl/PyObjectSlot.h): the logits that Keras hangs on probabilities.
    pub(super) held: Option<StorageId>,
}

impl Tensor {
    pub(super) fn meta(&self) -> Meta {
        Meta { layout: self.layout, dtype: self.dtype }
    }

    pub(super) fn requires_grad(&self) -> bool {
        self.edge != Edge::None
    }
}

/// What a node must know of a tensor that it does not hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meta {
    pub(super) layout: Layout,
    pub(super) dtype: DType,
}

/// The state of a step while forward runs.
pub(super) struct Tape {
    pub(super) memory: Memory,
    pub(super) layouts: Layouts,
    pub(super) tensors: Vec<Tensor>,
    pub(super) nodes: Vec<Node>,
    /// What nodes list.
    pub(super) inputs: Vec<NodeInput>,
    pub(super) outputs: Vec<Meta>,
    pub(super) saved: Vec<StorageId>,
    pub(super) temporaries: Vec<Bytes>,
    pub(super) orders: Vec<usize>,
    pub(super) autocast: Option<DType>,
    /// Whether autograd records.
    pub(super) grad_mode: bool,
    /// Whether what runs now is the last to read its first input.
    pub(super) input_is_last_use: bool,
    /// What convolutions need; nothing on fake tensors, which run no kernel.
    pub(super) kernels: Option<Kernels>,
    /// What matrix products need; nothing there either.
    pub(super) cublas: Option<Workspaces>,
    pub(super) casts: Casts,
}

impl Tape {
    pub(super) fn new(autocast: Option<DType>, grad_mode: bool) -> Tape {
        Tape {
            memory: Memory::default(),
            layouts: Layouts::default(),
            tensors: Vec::new(),
            nodes: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            saved: Vec::new(),
            temporaries: Vec::new(),
            orders: Vec::new(),
            autocast,
            grad_mode,
            input_is_last_use: false,
            kernels: None,
            cublas: None,
            casts: Casts::default(),
        }
    }

    /// Makes room for what a graph of so many operators and tensors usually comes to.
    pub(super) fn reserve(&mut self, operators: usize, tensors: usize) {
        self.tensors.reserve(tensors.saturating_add(operators));
        self.nodes.reserve(operators.saturating_mul(2));
        self.inputs.reserve(operators.saturating_mul(4));
        self.outputs.reserve(operators.saturating_mul(3));
        self.saved.reserve(operators.saturating_mul(4));
        self.layouts.reserve(tensors.saturating_add(operators));
        self.memory.reserve(operators);
    }

    pub(super) fn tensor(&self, t: TensorRef) -> &Tensor {
        &self.tensors[t.0 as usize]
    }

    pub(super) fn add(&mut self, tensor: Tensor) -> TensorRef {
        self.tensors.push(tensor);
        TensorRef(u32::try_from(self.tensors.len() - 1).unwrap_or(u32::MAX))
    }

    /// The dims of a tensor.
    pub(super) fn shape(&self, t: TensorRef) -> &[u64] {
        self.layouts.shape(self.tensor(t).layout)
    }

    /// A new storage for a tensor of this layout.
    pub(super) fn new_storage(
        &mut self,
        layout: Layout,
        dtype: DType,
        category: Category,
        label: &'static str,
    ) -> StorageId {
        self.memory.allocate(dtype.size_of(self.layouts.elements(layout)), category, label)
    }

    /// A new row-major tensor.
    pub(super) fn new_tensor(
        &mut self,
        shape: &[u64],
        dtype: DType,
        category: Category,
        label: &'static str,
    ) -> TensorRef {
        let layout = self.layouts.contiguous(shape);
        let storage = self.new_storage(layout, dtype, category, label);
        self.add(Tensor { storage, layout, dtype, edge: Edge::None, is_number: false, held: None })
    }

    /// A Python number, or several: seen as a tensor that holds no memory.
    pub(super) fn new_number(&mut self, shape: &[u64], dtype: DType) -> TensorRef {
        let layout = self.layouts.contiguous(shape);
        let storage = self.memory.allocate(Bytes::ZERO, Category::Transient, "host value");
        self.add(Tensor { storage, layout, dtype, edge: Edge::None, is_number: true, held: None })
    }

    /// Runs a call. Each output's storage is held once for the caller.
    pub(super) fn run(&mut self, call: &Call, inputs: &[TensorRef]) -> SmallVec<[TensorRef; 4]> {
        let mut temporaries: SmallVec<[StorageId; 2]> = SmallVec::new();
        let inputs: SmallVec<[TensorRef; 6]> = match self.cast_target(call, inputs) {
            None => SmallVec::from_slice(inputs),
            Some(target) => {
                inputs.iter().map(|t| self.cast_for_call(call, *t, target, &mut temporaries)).collect()
            }
        };
        let scratch: SmallVec<[StorageId; 1]> = call
            .scratch
            .iter()
            .map(|(shape, dtype)| {
                self.memory.allocate(dtype.size_of(elements(shape)), Category::Workspace, call.function)
            })
            .collect();
        let differentiable = self.grad_mode
            && inputs
                .iter()
                .zip(&call.grads)
                .any(|(t, g)| *g != Grad::None && self.tensor(*t).requires_grad());
        let promoted = self.promoted(&inputs);
        let outputs: SmallVec<[TensorRef; 4]> =
            call.outputs.iter().map(|output| self.output(call.function, output, &inputs, promoted)).collect();
        if let (HOLDS, [_, held], [t]) = (call.function, &inputs[..], &outputs[..]) {
            let held = self.tensor(*held).storage;
            self.memory.hold(held);
            self.tensors[t.0 as usize].held = Some(held);
        }
        self.convolve_forward(call.function, &inputs, &outputs);
        self.multiply(call.function);
        if differentiable {
            self.record(call, &inputs, &outputs, promoted);
        }
        for storage in scratch.into_iter().chain(temporaries) {
            self.memory.release(storage);
        }
        outputs
    }

    /// The dtype that a call's float inputs meet in; for integers alone, theirs.
    pub(super) fn promoted(&self, inputs: &[TensorRef]) -> DType {
        let meet = |floats: bool| {
            let tensors = inputs.iter().map(|t| self.tensor(*t));
            let of_kind = tensors.filter(|t| t.dtype.is_float() == floats);
            let real = of_kind.clone().filter(|t| !t.is_number).map(|t| t.dtype).reduce(DType::promote);
            real.or_else(|| of_kind.map(|t| t.dtype).reduce(DType::promote))
        };
        meet(true).or_else(|| meet(false)).unwrap_or(DType::Float32)
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
        let shape = &output.shape[..];
        let fresh = |tape: &mut Tape, layout: Option<Layout>| {
            let layout = layout.unwrap_or_else(|| tape.layouts.contiguous(shape));
            let storage = tape.new_storage(layout, dtype, Category::Activation, function);
            Tensor { storage, layout, dtype, edge: Edge::None, is_number: false, held: None }
        };
        let tensor = match &output.place {
            Place::Reserve => {
                let layout = self.kernels.is_none().then(|| self.layouts.contiguous(&[0]));
                fresh(self, layout)
            }
            Place::New => {
                let layout = self.kept_format(function, shape, inputs);
                fresh(self, layout)
            }
            Place::Pointwise if self.overwrites(function, inputs, dtype) => self.alias(inputs[0], None),
            Place::Pointwise => {
                let layout = self.pointwise_layout(shape, inputs);
                fresh(self, layout)
            }
            Place::InPlace(i) => match inputs.get(*i) {
                Some(t) => self.alias(*t, None),
                None => fresh(self, None),
            },
            Place::View(i, view) => {
                match inputs.get(*i).and_then(|t| Some((*t, self.view_layout(*t, shape, view)?))) {
                    Some((t, layout)) => self.alias(t, Some(layout)),
                    None => fresh(self, None),
                }
            }
        };
        self.add(tensor)
    }

    /// One more holder of a tensor.
    pub(super) fn hold(&mut self, t: TensorRef) {
        let Tensor { storage, held, .. } = *self.tensor(t);
        [Some(storage), held].into_iter().flatten().for_each(|storage| self.memory.hold(storage));
    }

    /// One holder less.
    pub(super) fn release(&mut self, t: TensorRef) {
        let Tensor { storage, held, .. } = *self.tensor(t);
        [Some(storage), held].into_iter().flatten().for_each(|storage| self.memory.release(storage));
    }

    /// Another tensor on the same storage, which it holds.
    fn alias(&mut self, t: TensorRef, window: Option<Layout>) -> Tensor {
        self.hold(t);
        let tensor = *self.tensor(t);
        Tensor { layout: window.unwrap_or(tensor.layout), edge: Edge::None, ..tensor }
    }

    /// The layout of a view; `None` where it needs a copy.
    fn view_layout(&mut self, t: TensorRef, shape: &[u64], view: &View) -> Option<Layout> {
        let layout = self.tensor(t).layout;
        let (old, steps) = (self.layouts.shape(layout), self.layouts.strides(layout));
        let strides: Dims = match view {
            View::Reshape if self.layouts.is_row_major_of(layout, shape) => {
                return Some(self.layouts.contiguous(shape));
            }
            View::Reshape => strides::view(old, steps, shape)?,
            // With `batch_first`, fake tensors have a row-major result (torch/_meta_registrations.py, `_cudnn_rnn`) where the
            // kernel's is turned (cudnn/RNN.cpp).
            View::Permute(perm)
                if self.kernels.is_none()
                    && perm[..] == [1, 0, 2]
                    && self.memory.is_made_by(self.tensor(t).storage, "_cudnn_rnn")
                    && self.layouts.is_contiguous(layout) =>
            {
                return Some(self.layouts.contiguous(shape));
            }
            View::Permute(perm) => perm.iter().map(|k| steps.get(*k).copied()).collect::<Option<Dims>>()?,
            View::Expand => strides::expand(old, steps, shape),
            View::Slice { axis, step, .. } => {
                let mut out = Dims::from_slice(steps);
                if out.len() == shape.len() + 1 && *axis < out.len() {
                    // One index rather than a range: the axis goes.
                    out.remove(*axis);
                } else if let Some(stride) = out.get_mut(*axis) {
                    *stride = stride.saturating_mul(*step);
                }
                out
            }
            View::Alias if old == shape => return Some(layout),
            View::Alias => Dims::from_slice(steps),
        };
        (strides.len() == shape.len()).then(|| self.layouts.add(shape, &strides))
    }

    /// The layout of an image that a function makes of images with their channels innermost, where it keeps that.
    fn kept_format(&mut self, function: &str, shape: &[u64], inputs: &[TensorRef]) -> Option<Layout> {
        if shape.len() != 4 || !KEEP_FORMAT.contains(&function) {
            return None;
        }
        let read = if function == "cat" { inputs } else { inputs.get(..1)? };
        let is_innermost = |t: &TensorRef| {
            let layout = self.tensor(*t).layout;
            strides::is_channels_last(self.layouts.shape(layout), self.layouts.strides(layout))
        };
        // Fake tensors find no cuDNN that could convolve in bfloat16, but for depthwise filters (Convolution.cpp, `use_cudnn`).
        let is_without = function == "convolution"
            && self.kernels.is_none()
            && inputs.iter().take(2).all(|t| self.tensor(*t).dtype == DType::Bfloat16)
            && inputs.get(1).is_some_and(|w| self.shape(*w).get(1) != Some(&1));
        let all = !is_without && read.iter().all(is_innermost);
        all.then(|| self.layouts.add(shape, &strides::channels_last(shape)))
    }

    /// TensorIterator's layout: that of the first operand of the full shape, else contiguous.
    fn pointwise_layout(&mut self, shape: &[u64], inputs: &[TensorRef]) -> Option<Layout> {
        let mut layouts = inputs.iter().map(|t| self.tensor(*t).layout);
        let full = layouts.find(|layout| {
            self.layouts.shape(*layout) == shape && !self.layouts.strides(*layout).contains(&0)
        })?;
        Some(self.layouts.like(full))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_graph::Operand;

    fn leaf(tape: &mut Tape, shape: &[u64]) -> TensorRef {
        let t = tape.new_tensor(shape, DType::Float32, Category::Parameter, "w");
        tape.tensors[t.0 as usize].edge = Edge::Leaf(0);
        t
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
