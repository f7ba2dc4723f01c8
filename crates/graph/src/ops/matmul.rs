//! MatMul, com.microsoft.FusedMatMul, FusedMatMulActivation and TransposeMatMul. ONNX 1, 9, 13; Keras `Dense`, `Dot`, `EinsumDense`.
//!
//! Autograd keeps each factor where the other one needs a gradient (derivatives.yaml: `mm`, `bmm`, `mv`, `dot`).
//! `at::matmul` (aten/src/ATen/native/LinearAlgebra.cpp) folds a batch against a matrix that needs a gradient into one
//! `mm`; otherwise it expands both batches and reshapes them to three axes, and where strides forbid that view the copy
//! is what `bmm` keeps: queries and keys that were transposed to `[B, H, S, D]` are copied. `F.linear` with a bias is
//! `addmm` over the flattened input. All are on autocast's lower-precision list, which casts once on entry.

use super::calls::Traced;
use super::rebatch;
use crate::kernels::TfLowering;
use crate::{
    Attributes, Autocast, Call, Dims, Grad, Infer, Lowering, Op, OpError, OpSpec, OutDtype, Place, Saved,
    Shape, elements,
};
use std::sync::Arc;

/// Matrix product with numpy's broadcasting of the leading axes.
#[derive(Clone, Debug, Default)]
pub struct MatMul {
    /// The contrib forms that an optimizer writes.
    pub fused: Option<FusedMatMul>,
}

/// What the contrib forms do beside.
#[derive(Clone, Copy, Debug)]
pub struct FusedMatMul {
    /// The operator's name.
    pub name: &'static str,
    /// A factor on the product.
    pub scaled: bool,
    /// The activation, and what autograd keeps of it.
    pub activation: Option<(&'static str, Saved)>,
    /// Whether the last two axes of each input are swapped.
    pub trans: [bool; 2],
    /// Whether the first axis of each input is moved before the last.
    pub trans_batch: [bool; 2],
}

/// How they are found.
pub const SPECS: &[OpSpec] = &[
    OpSpec { domain: "", name: "MatMul", since: &[1, 9, 13], build: |_, _| Ok(Arc::new(MatMul::default())) },
    OpSpec {
        domain: "com.microsoft",
        name: "FusedMatMul",
        since: &[1],
        build: |a, _| fused("com.microsoft.FusedMatMul", a),
    },
    OpSpec {
        domain: "com.microsoft",
        name: "FusedMatMulActivation",
        since: &[1],
        build: |a, _| fused("com.microsoft.FusedMatMulActivation", a),
    },
    OpSpec {
        domain: "com.microsoft",
        name: "TransposeMatMul",
        since: &[1],
        build: |a, _| fused("com.microsoft.TransposeMatMul", a),
    },
];

fn fused(name: &'static str, a: &mut Attributes) -> Result<Arc<dyn Op>, OpError> {
    Ok(Arc::new(MatMul {
        fused: Some(FusedMatMul {
            name,
            scaled: a.float("alpha")?.is_some_and(|alpha| alpha != 1.0),
            activation: a.text("activation")?.and_then(|name| super::gemm::activation(&name)),
            trans: [a.flag("transA")?, a.flag("transB")?],
            trans_batch: [a.flag("transBatchA")?, a.flag("transBatchB")?],
        }),
    }))
}

impl MatMul {
    /// The order of the axes in which input `i` is multiplied.
    fn order(&self, i: usize, rank: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..rank).collect();
        if let (Some(fused), 2..) = (&self.fused, rank) {
            if fused.trans_batch[i] {
                order[..rank - 1].rotate_left(1);
            }
            if fused.trans[i] {
                order.swap(rank - 2, rank - 1);
            }
        }
        order
    }
}

/// The shape of a matrix product.
pub(super) fn product_shape(a: &Shape, b: &Shape) -> Result<Shape, OpError> {
    let conflict = || OpError::mismatch("shapes that multiply", format!("{a} and {b}"));
    let (mut left, mut right) = (a.clone(), b.clone());
    if left.rank() == 0 || right.rank() == 0 {
        return Err(conflict());
    }
    if a.rank() == 1 {
        left.insert(0, 1);
    }
    if b.rank() == 1 {
        right.push(1);
    }
    let inner = (&left[left.rank() - 1], &right[right.rank() - 2]);
    if let (Some(x), Some(y)) = (inner.0.known(), inner.1.known())
        && x != y
    {
        return Err(conflict());
    }
    let batch = |s: &Shape| s.dims()[..s.rank() - 2].iter().cloned().collect::<Shape>();
    let mut out = batch(&left).broadcast(&batch(&right)).ok_or_else(conflict)?;
    if a.rank() > 1 {
        out.push(left[left.rank() - 2].clone());
    }
    if b.rank() > 1 {
        out.push(right[right.rank() - 1].clone());
    }
    Ok(out)
}

/// `at::matmul`.
pub fn matmul(l: &mut Lowering<'_>, a: &Traced, b: &Traced) -> Traced {
    let (a, b) = (a.autocast(l, Autocast::Lower), b.autocast(l, Autocast::Lower));
    matmul_as_is(l, &a, &b)
}

/// `at::matmul` behind autocast's door: within a function that has cast its inputs already.
pub(super) fn matmul_as_is(l: &mut Lowering<'_>, a: &Traced, b: &Traced) -> Traced {
    let (rows, columns) = (a.rank().checked_sub(2), b.rank().checked_sub(2));
    let inner = a.shape.last().copied().unwrap_or(1);
    let outer = Dims::from_slice(&a.shape[..a.rank().saturating_sub(1)]);
    let last = if columns.is_some() { b.shape.last().copied() } else { None };
    match (a.rank(), b.rank()) {
        (0..=1, 0..=1) => kernel(l, "dot", a, b, &[]),
        (1, 2) => {
            let row = a.reshape(l, &[1, inner]);
            let shape = [1, last.unwrap_or(1)];
            kernel(l, "mm", &row, b, &shape).reshape(l, &shape[1..])
        }
        (2, 1) => kernel(l, "mv", a, b, &outer),
        (2, 2) => kernel(l, "mm", a, b, &[outer[0], last.unwrap_or(1)]),
        (3.., 1..=2) => {
            let flat = a.reshape(l, &[elements(&outer), inner]);
            let shape = joined(&[elements(&outer)], last.as_slice());
            let name = if last.is_some() { "mm" } else { "mv" };
            kernel(l, name, &flat, b, &shape).unsafe_view(l, &joined(&outer, last.as_slice()))
        }
        (1..=2, 3..) if a.requires_grad => {
            // The product of the transposes, transposed back into a contiguous copy.
            let turned = b.transpose_last(l);
            let batch = Dims::from_slice(&turned.shape[..turned.rank() - 1]);
            let flat = turned.reshape(l, &[elements(&batch), inner]);
            let left = a.transpose_last(l);
            let columns: Dims = left.shape.get(1).copied().into_iter().collect();
            let shape = joined(&[elements(&batch)], &columns);
            let name = if a.rank() == 2 { "mm" } else { "mv" };
            let product = kernel(l, name, &flat, &left, &shape).unsafe_view(l, &joined(&batch, &columns));
            if a.rank() == 2 { product.transpose_last(l).copy(l) } else { product }
        }
        _ => {
            let left = if rows.is_none() { a.reshape(l, &[1, inner]) } else { a.clone() };
            let right = if columns.is_none() { b.reshape(l, &[inner, 1]) } else { b.clone() };
            let common = common_batch(&left.shape[..left.rank() - 2], &right.shape[..right.rank() - 2]);
            let flat = |l: &mut Lowering<'_>, t: &Traced| {
                let matrix = &t.shape[t.rank() - 2..];
                let expanded = t.expand(l, &joined(&common, matrix));
                expanded.reshape(l, &joined(&[elements(&common)], matrix))
            };
            let (left3, right3) = (flat(l, &left), flat(l, &right));
            let product =
                kernel(l, "bmm", &left3, &right3, &[left3.shape[0], left3.shape[1], right3.shape[2]]);
            let ends = [rows.map(|_| left3.shape[1]), columns.map(|_| right3.shape[2])];
            let shaped: Dims = common.into_iter().chain(ends.into_iter().flatten()).collect();
            product.unsafe_view(l, &shaped)
        }
    }
}

/// The batches of two stacks of matrices, broadcast.
fn common_batch(a: &[u64], b: &[u64]) -> Dims {
    if a == b {
        return Dims::from_slice(a);
    }
    let known = Shape::from(a).broadcast(&Shape::from(b)).and_then(|shape| shape.known());
    known.map_or_else(Dims::new, Dims::from_vec)
}

/// Dims in front of others.
fn joined(outer: &[u64], inner: &[u64]) -> Dims {
    let mut dims = Dims::from_slice(outer);
    dims.extend_from_slice(inner);
    dims
}

/// One product kernel: each factor is kept for the other's gradient.
fn kernel(l: &mut Lowering<'_>, name: &'static str, a: &Traced, b: &Traced, shape: &[u64]) -> Traced {
    let factor = |input, needed_by| Saved::InputFor { input, needed_by };
    // A product of matrices lays its gradients out like its factors; a batched one does not.
    let grad = || if name == "mm" { Grad::Like } else { Grad::New };
    let call = Call::new(name)
        .input(a.operand, grad())
        .input(b.operand, grad())
        .saves([factor(0, 1), factor(1, 0)])
        .output(shape, OutDtype::Promoted, Place::New);
    Traced::of(l, call, shape, &[a, b])
}

/// `F.linear`: `x` of any rank times a matrix `[in, out]`, with a bias. One `addmm` over the flattened input.
pub(super) fn linear(l: &mut Lowering<'_>, x: &Traced, weight: &Traced, bias: Option<&Traced>) -> Traced {
    let (Some(bias), 2.., 2) = (bias, x.rank(), weight.rank()) else {
        let product = matmul(l, x, weight);
        return match bias {
            Some(bias) => product.add(l, bias, &product.shape.clone()),
            None => product,
        };
    };
    let x = x.autocast(l, Autocast::Lower);
    let (outer, inner) = x.shape.split_at(x.rank() - 1);
    let flat = x.reshape(l, &joined(&[elements(outer)], inner));
    let shape = [elements(outer), weight.shape[1]];
    addmm(l, bias, &flat, weight, &shape, false).reshape(l, &joined(outer, &shape[1..]))
}

/// `bias + a @ b`, the bias broadcast; `scaled` where the bias has a factor.
pub(super) fn addmm(
    l: &mut Lowering<'_>,
    bias: &Traced,
    a: &Traced,
    b: &Traced,
    shape: &[u64],
    scaled: bool,
) -> Traced {
    let factor = |input, needed_by| Saved::InputFor { input, needed_by };
    let call = Call::new("addmm")
        .autocast(Autocast::Lower)
        .input(a.operand, Grad::Like)
        .input(b.operand, Grad::Like)
        .input(bias.operand, if scaled { Grad::Pointwise } else { Grad::Pass })
        .saves([factor(0, 1), factor(1, 0)])
        .output(shape, OutDtype::Promoted, Place::New);
    Traced::of(l, call, shape, &[a, b, bias])
}

impl Op for MatMul {
    fn name(&self) -> &str {
        self.fused.as_ref().map_or("MatMul", |f| f.name)
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        cx.require(1)?;
        let dtype = cx.dtype(0);
        let turned = |i: usize| {
            let shape = cx.shape(i)?;
            Some(self.order(i, shape.rank()).into_iter().map(|k| shape[k].clone()).collect::<Shape>())
        };
        let shape = match (turned(0), turned(1)) {
            (Some(mut a), Some(mut b)) => {
                let (m, n) = (a.rank().saturating_sub(2), b.rank().saturating_sub(2));
                rebatch::meet(cx, &mut a.dims_mut()[..m], &mut b.dims_mut()[..n]);
                Some(product_shape(&a, &b)?)
            }
            _ => None,
        };
        cx.set(0, dtype, shape);
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let (a, b, shape) = (l.input(0), l.input(1), l.out_shape(0));
        let name = if shape.len() > 2 { "BatchMatMulV2" } else { "MatMul" };
        let mut y = l.matmul(name, a, b, shape);
        if let Some((name, _)) = self.fused.as_ref().and_then(|f| f.activation) {
            y = l.activation(name, y);
        }
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let mut turned = |i: usize| {
            let x = Traced::input(l, i).autocast(l, Autocast::Lower);
            let order = self.order(i, x.rank());
            x.permute(l, &order)
        };
        let (a, b) = (turned(0), turned(1));
        let mut product = matmul_as_is(l, &a, &b);
        if self.fused.as_ref().is_some_and(|f| f.scaled) {
            product = product.scale(l, "mul");
        }
        if let Some((name, saved)) = self.fused.as_ref().and_then(|f| f.activation) {
            product = product.pointwise(l, name, saved);
        }
        product.bind(l, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Operand, OutState, TensorState, View};

    fn shape(a: &[u64], b: &[u64]) -> Option<String> {
        product_shape(&Shape::from(a), &Shape::from(b)).ok().map(|s| s.to_string())
    }

    #[test]
    fn shapes_follow_numpy() {
        assert_eq!(shape(&[5, 1, 2, 3], &[4, 3, 7]).unwrap(), "5x4x2x7");
        assert_eq!(shape(&[3], &[3]).unwrap(), "scalar");
        assert_eq!(shape(&[2, 3], &[3]).unwrap(), "2");
        assert_eq!(shape(&[3], &[4, 3, 7]).unwrap(), "4x7");
        assert_eq!(shape(&[2, 3], &[4, 7]), None);
        assert_eq!(shape(&[], &[3]), None);
    }

    fn calls(op: &MatMul, a: &[u64], b: &[u64], out: &[u64], weight: bool) -> Vec<Call> {
        let state = |shape, is_initializer| {
            Some(TensorState { shape, dtype: DType::Float32, requires_grad: true, is_initializer })
        };
        let inputs = [state(a, false), state(b, weight)];
        let outputs = [Some(OutState { shape: out, dtype: DType::Float32 })];
        let mut l = Lowering::new(&inputs, &outputs, None, true);
        op.pytorch(&mut l);
        l.into_parts().0
    }

    #[test]
    fn a_weight_is_multiplied_once_and_activations_in_batches() {
        let names = |c: &[Call]| c.iter().map(|c| c.function).collect::<Vec<_>>();
        let linear = calls(&MatMul::default(), &[8, 128, 64], &[64, 32], &[8, 128, 32], true);
        assert_eq!(names(&linear), ["reshape", "mm", "_unsafe_view"]);
        assert_eq!(linear[1].outputs[0].shape[..], [1024, 32]);
        assert_eq!(linear[1].saved[0], Saved::InputFor { input: 0, needed_by: 1 });
        let scores = calls(&MatMul::default(), &[2, 3, 5, 8], &[2, 3, 8, 7], &[2, 3, 5, 7], false);
        assert_eq!(names(&scores), ["reshape", "reshape", "bmm", "_unsafe_view"]);
        let broadcast = calls(&MatMul::default(), &[2, 3, 5, 8], &[3, 8, 7], &[2, 3, 5, 7], false);
        assert_eq!(names(&broadcast), ["reshape", "expand", "reshape", "bmm", "_unsafe_view"]);
        let left = calls(&MatMul::default(), &[5, 7], &[2, 7, 4], &[2, 5, 4], true);
        assert_eq!(names(&left), ["permute", "reshape", "permute", "mm", "_unsafe_view", "permute", "clone"]);
    }

    #[test]
    fn the_fused_form_turns_its_inputs_first() {
        let fused = FusedMatMul {
            name: "",
            scaled: true,
            activation: None,
            trans: [false, true],
            trans_batch: [false; 2],
        };
        let op = MatMul { fused: Some(fused) };
        let calls = calls(&op, &[2, 5, 8], &[2, 7, 8], &[2, 5, 7], false);
        assert_eq!(calls[0].outputs[0].place, Place::View(0, View::Permute(vec![0, 2, 1])));
        assert_eq!(calls[1].inputs[..], [Operand::Input(0), Operand::Result { call: 0, output: 0 }]);
        assert_eq!(calls.last().unwrap().function, "mul");
    }
}
