//! Kernels that move elements without computing, and those that look rows up (tensorflow/python/ops/array_grad.py).
//!
//! `Reshape`, `Identity`, `Squeeze` and `ExpandDims` share their input's buffer; everything else that moves elements
//! copies them.

use super::build::{first, incoming};
use super::{Flow, Kernel, Made, Place, Wire};
use crate::{DType, elements};

fn view_gradient(flow: &mut Flow, kernel: &Kernel, _: Wire, grads: &[Option<Wire>]) -> Vec<Option<Wire>> {
    let (Some(dy), Some(x)) = (incoming(grads), kernel.inputs.first()) else { return vec![None] };
    let shape = flow.shape(*x).to_vec();
    first(flow.view("Reshape", dy, &shape))
}

fn broadcast_gradient(
    flow: &mut Flow,
    kernel: &Kernel,
    _: Wire,
    grads: &[Option<Wire>],
) -> Vec<Option<Wire>> {
    let (Some(dy), Some(x)) = (incoming(grads), kernel.inputs.first()) else { return vec![None] };
    let shape = flow.shape(*x).to_vec();
    first(flow.unbroadcast(dy, &shape))
}

/// The gradient is a copy back into the input's shape.
fn copy_gradient(flow: &mut Flow, kernel: &Kernel, _: Wire, grads: &[Option<Wire>]) -> Vec<Option<Wire>> {
    let (Some(dy), Some(x)) = (incoming(grads), kernel.inputs.first().copied()) else { return vec![None] };
    let name = match kernel.name {
        "Pad" | "PadV2" | "MirrorPad" => "Slice",
        "Slice" => "Pad",
        "StridedSlice" => "StridedSliceGrad",
        "SpaceToDepth" => "DepthToSpace",
        "SpaceToBatchND" => "BatchToSpaceND",
        "BatchToSpaceND" => "SpaceToBatchND",
        "DepthToSpace" => "SpaceToDepth",
        "GatherV2" | "GatherNd" => "UnsortedSegmentSum",
        "ScatterNd" => "GatherNd",
        "ResizeNearestNeighbor" => "ResizeNearestNeighborGrad",
        name => name,
    };
    let shape = flow.shape(x).to_vec();
    let dtype = flow.dtype(x);
    if name == kernel.name || matches!(name, "Slice" | "Pad") {
        return first(flow.moved(name, dy, &shape));
    }
    first(flow.make(name, &[dy], &shape, dtype, None))
}

/// Rows along another axis than the first are summed in front of it: `_GatherV2Grad` turns them there and the sum back.
fn gather_gradient(flow: &mut Flow, kernel: &Kernel, _: Wire, grads: &[Option<Wire>]) -> Vec<Option<Wire>> {
    let (Some(dy), Some(x)) = (incoming(grads), kernel.inputs.first().copied()) else { return vec![None] };
    let (from, to, dtype) = (flow.shape(dy).to_vec(), flow.shape(x).to_vec(), flow.dtype(x));
    let turned = flow.make("Transpose", &[dy], &from, dtype, None);
    let sum = flow.make("UnsortedSegmentSum", &[turned], &to, dtype, None);
    first(flow.make("Transpose", &[sum], &to, dtype, None))
}

fn concat_gradient(flow: &mut Flow, kernel: &Kernel, _: Wire, grads: &[Option<Wire>]) -> Vec<Option<Wire>> {
    let Some(dy) = incoming(grads) else { return vec![None; kernel.inputs.len()] };
    let part = |x: &Wire| {
        let shape = flow.shape(*x).to_vec();
        Some(flow.moved("Slice", dy, &shape))
    };
    kernel.inputs.iter().map(part).collect()
}

fn split_gradient(flow: &mut Flow, kernel: &Kernel, y: Wire, grads: &[Option<Wire>]) -> Vec<Option<Wire>> {
    let Some(x) = kernel.inputs.first().copied() else { return Vec::new() };
    let mut parts = Vec::new();
    for (i, grad) in (0..).zip(grads) {
        let like = flow.output(y, i);
        let (shape, dtype) = (flow.shape(like).to_vec(), flow.dtype(like));
        // What nobody differentiated is filled with zeros.
        parts.push(grad.unwrap_or_else(|| flow.make("ZerosLike", &[], &shape, dtype, None)));
    }
    let shape = flow.shape(x).to_vec();
    first(flow.concat(&parts, &shape))
}

/// The rows of a table: the gradient is an `IndexedSlices`, whose values are the incoming gradient itself.
fn lookup_gradient(flow: &mut Flow, kernel: &Kernel, _: Wire, grads: &[Option<Wire>]) -> Vec<Option<Wire>> {
    let (Some(dy), Some(table)) = (incoming(grads), kernel.inputs.first().copied()) else {
        return vec![None];
    };
    let width = flow.shape(table).last().copied().unwrap_or(1);
    let rows = flow.made(dy).elements().checked_div(width).unwrap_or(0);
    first(flow.view("Reshape", dy, &[rows, width]))
}

/// The parts of the gradient lie in its own buffer (tensorflow/core/kernels/unpack_op.cc, along the first axis).
fn stack_gradient(flow: &mut Flow, kernel: &Kernel, _: Wire, grads: &[Option<Wire>]) -> Vec<Option<Wire>> {
    let Some(dy) = incoming(grads) else { return vec![None; kernel.inputs.len()] };
    let part = |x: &Wire| Made { place: Place::Alias, ..flow.made(*x).clone() };
    let made = kernel.inputs.iter().map(part).collect();
    let parts = flow.push("Unpack", &[dy], made, None);
    (0..).zip(&kernel.inputs).map(|(i, _)| Some(flow.output(parts, i))).collect()
}

impl Flow {
    /// The same elements in another shape, in the same buffer. Of two reshapes grappler leaves the second
    /// (arithmetic_optimizer.cc, `RemoveRedundantReshapeOrBroadcastTo`).
    pub fn view(&mut self, name: &'static str, x: Wire, shape: &[u64]) -> Wire {
        let before = Some(self.kernel(x)).filter(|before| name == "Reshape" && before.name == name);
        let x = before.and_then(|before| before.inputs.first().copied()).unwrap_or(x);
        if self.shape(x) == shape {
            return x;
        }
        let dtype = self.dtype(x);
        if let Some(folded) = self.folded(x, shape, dtype) {
            return folded;
        }
        let made = Made { shape: shape.to_vec(), dtype, place: Place::Alias };
        self.push(name, &[x], vec![made], Some(view_gradient))
    }

    /// A tensor repeated along axes of one.
    pub fn broadcast_to(&mut self, x: Wire, shape: &[u64]) -> Wire {
        if self.shape(x) == shape {
            return x;
        }
        let dtype = self.dtype(x);
        let folded = self.folded(x, shape, dtype);
        folded.unwrap_or_else(|| self.make("Tile", &[x], shape, dtype, Some(broadcast_gradient)))
    }

    /// A tensor that a kernel repeats inside, without a buffer, to this shape; its gradient is summed.
    pub fn repeated_inside(&mut self, x: Wire, shape: &[u64]) -> Wire {
        let made = Made { shape: shape.to_vec(), dtype: self.dtype(x), place: Place::Alias };
        self.push("Identity", &[x], vec![made], Some(broadcast_gradient))
    }

    /// Elements moved to another place in a new buffer: `Transpose`, `Pad`, `Slice`, `GatherV2`…
    pub fn moved(&mut self, name: &'static str, x: Wire, shape: &[u64]) -> Wire {
        let dtype = self.dtype(x);
        self.make(name, &[x], shape, dtype, Some(copy_gradient))
    }

    /// Elements by their numbers along another axis than the first.
    pub fn gathered(&mut self, x: Wire, shape: &[u64]) -> Wire {
        let dtype = self.dtype(x);
        self.make("GatherV2", &[x], shape, dtype, Some(gather_gradient))
    }

    /// A transpose that grappler folds into the product that reads it (arithmetic_optimizer.cc, `FoldTransposeIntoMatMul`); its
    /// gradient is a copy.
    pub fn turned(&mut self, x: Wire, shape: &[u64]) -> Wire {
        let made = Made { shape: shape.to_vec(), dtype: self.dtype(x), place: Place::Alias };
        self.push("Transpose", &[x], vec![made], Some(copy_gradient))
    }

    /// Tensors one after the other along an axis.
    pub fn concat(&mut self, inputs: &[Wire], shape: &[u64]) -> Wire {
        let dtype = inputs.first().map_or(DType::Float32, |x| self.dtype(*x));
        self.make("ConcatV2", inputs, shape, dtype, Some(concat_gradient))
    }

    /// Tensors of one shape along a new first axis.
    pub fn stack(&mut self, inputs: &[Wire]) -> Option<Wire> {
        let first = self.made(*inputs.first()?).clone();
        let shape = [&[inputs.len() as u64][..], &first.shape].concat();
        Some(self.make("Pack", inputs, &shape, first.dtype, Some(stack_gradient)))
    }

    /// One index of the first axis, in the tensor's own buffer (tensorflow/core/kernels/strided_slice_op.cc); its gradient is as large
    /// as the tensor.
    pub fn row(&mut self, x: Wire) -> Wire {
        let shape = self.shape(x).get(1..).unwrap_or_default().to_vec();
        let made = Made { shape, dtype: self.dtype(x), place: Place::Alias };
        self.push("StridedSlice", &[x], vec![made], Some(copy_gradient))
    }

    /// A stretch of the first axis: in the tensor's own buffer where each of its rows begins at a multiple of 64 bytes
    /// (tensorflow/core/kernels/ops_util.h, `IsInnerDimsSizeAligned`), else a copy.
    pub fn stretch(&mut self, x: Wire, shape: &[u64]) -> Wire {
        let made = self.made(x);
        let row = made.dtype.size_of(elements(made.shape.get(1..).unwrap_or_default())).0;
        if made.shape.len() < 2 || !row.is_multiple_of(64) {
            return self.moved("StridedSlice", x, shape);
        }
        let made = Made { shape: shape.to_vec(), dtype: made.dtype, place: Place::Alias };
        self.push("StridedSlice", &[x], vec![made], Some(copy_gradient))
    }

    /// A tensor in parts; gives the first part's wire.
    pub fn split(&mut self, x: Wire, shapes: &[Vec<u64>]) -> Wire {
        let dtype = self.dtype(x);
        let made = shapes.iter().map(|shape| super::build::new(shape, dtype)).collect();
        self.push("Split", &[x], made, Some(split_gradient))
    }

    /// Rows of a table by their numbers.
    pub fn lookup(&mut self, table: Wire, indices: Wire, shape: &[u64]) -> Wire {
        let dtype = self.dtype(table);
        self.make("GatherV2", &[table, indices], shape, dtype, Some(lookup_gradient))
    }
}
