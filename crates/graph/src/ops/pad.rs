//! Pad. ONNX 1 (`paddings`), 2 (`pads`), 11 (an input), 13, 18 (axes), 19 (`wrap`), 21, 23, 24, 25; Keras `ZeroPadding1D`, `ZeroPadding2D`.
//!
//! Autograd keeps nothing for a constant (derivatives.yaml: `constant_pad_nd_backward` pads by the negative amounts, which
//! clones a narrowed gradient); reflection and replication keep the input.

use super::fold;
use crate::kernels::TfLowering;
use crate::{
    Call, Grad, Infer, Lowering, Num, Op, OpError, OpSpec, Operand, OutDtype, Place, Saved, Shape, Value,
};
use std::sync::Arc;

/// What the new elements are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PadMode {
    /// A constant.
    Constant,
    /// The input mirrored at its edge, without the edge itself.
    Reflect,
    /// The edge repeated.
    Edge,
    /// The input from its other end.
    Wrap,
}

/// Adds elements before and after each axis; a negative amount takes them away.
#[derive(Clone, Debug)]
pub struct Pad {
    /// What the new elements are.
    pub mode: PadMode,
    /// Begin of every axis, then end of every axis, where they are an attribute.
    pub pads: Option<Vec<i64>>,
}

/// How Pad is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "Pad",
    since: &[1, 2, 11, 13, 18, 19, 21, 23, 24, 25],
    build: |a, version| {
        let mode = match a.text("mode")?.as_deref() {
            None | Some("constant") => PadMode::Constant,
            Some("reflect") => PadMode::Reflect,
            Some("edge") => PadMode::Edge,
            Some("wrap") => PadMode::Wrap,
            Some(other) => {
                return Err(OpError::attribute("mode", "constant, reflect, edge or wrap", other));
            }
        };
        let pads = if version < 2 { a.ints("paddings")? } else { None };
        Ok(Arc::new(Pad { mode, pads: pads.or(a.ints("pads")?) }))
    },
}];

impl Pad {
    /// What is added before and after each axis.
    fn amounts(&self, cx: &Infer<'_>, rank: usize) -> Result<Option<Vec<(Num, Num)>>, OpError> {
        let pads: Vec<Num> = match (&self.pads, cx.value(1)) {
            (Some(pads), _) => pads.iter().copied().map(Num::Int).collect(),
            (None, Some(v)) => v.data.clone(),
            (None, None) => return Ok(None),
        };
        let axes = match cx.value(3) {
            Some(v) => match v.ints() {
                Some(axes) => axes,
                None => return Ok(None),
            },
            None if cx.has(3) => return Ok(None),
            None => (0..rank).filter_map(|k| i64::try_from(k).ok()).collect(),
        };
        if pads.len() != axes.len() * 2 {
            let expected = format!("two amounts for each of {} axes", axes.len());
            return Err(OpError::input(1, expected, format!("{} amounts", pads.len())));
        }
        let mut amounts = vec![(Num::Int(0), Num::Int(0)); rank];
        for (k, axis) in axes.iter().enumerate() {
            let axis = crate::shape::normalize_axis(*axis, rank)
                .ok_or_else(|| OpError::input(3, format!("axes of {rank}"), axis))?;
            amounts[axis] = (pads[k].clone(), pads[k + axes.len()].clone());
        }
        Ok(Some(amounts))
    }

    /// The elements of a constant padding; unknown where they are the constant, unless that is known.
    fn fold(cx: &Infer<'_>, shape: &[u64], amounts: &[(Num, Num)]) -> Option<Value> {
        let x = cx.value(0)?;
        let begins: Vec<i64> = amounts.iter().map(|(begin, _)| begin.as_i64()).collect::<Option<_>>()?;
        let source = |index: &[u64]| {
            let at = index.iter().zip(&begins);
            at.map(|(i, begin)| i.checked_add_signed(begin.checked_neg()?)).collect::<Option<Vec<u64>>>()
        };
        let fill = match (cx.value(2), cx.has(2)) {
            (Some(v), _) => v.single().cloned().unwrap_or(Num::Unknown),
            (None, true) => Num::Unknown,
            (None, false) => Num::Int(0),
        };
        let mut out = fold::pick(x, shape, source)?;
        for (slot, index) in out.data.iter_mut().zip(crate::value::indices(shape)) {
            if source(&index).and_then(|at| fold::element(x, &at)).is_none() {
                *slot = fill.clone();
            }
        }
        Some(out)
    }
}

impl Op for Pad {
    fn name(&self) -> &str {
        "Pad"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        if self.pads.is_none() {
            cx.require(1)?;
        }
        let Some(x) = cx.shape(0) else {
            cx.set(0, cx.dtype(0), None);
            return Ok(());
        };
        let Some(amounts) = self.amounts(cx, x.rank())? else {
            let unknown = (0..x.rank()).map(|k| cx.fresh_dim(&format!("dim{k}"), None));
            cx.set(0, cx.dtype(0), Some(unknown.collect()));
            return Ok(());
        };
        let mut shape = Shape::scalar();
        for (k, (dim, (begin, end))) in x.dims().iter().zip(&amounts).enumerate() {
            let total = begin.as_i64().zip(end.as_i64()).and_then(|(a, b)| a.checked_add(b));
            shape.push(match (total, dim.known(), begin.as_dim().zip(end.as_dim())) {
                (Some(total), Some(n), _) => {
                    let too_small =
                        || OpError::mismatch(format!("axis {k} of {n} or less taken away"), total);
                    n.checked_add_signed(total).map(crate::Dim::Known).ok_or_else(too_small)?
                }
                (Some(total), None, _) => dim.offset(total),
                (None, _, Some((begin, end))) => dim
                    .add(&begin)
                    .and_then(|d| d.add(&end))
                    .ok_or_else(|| OpError::overflow(format!("the size of axis {k}")))?,
                (None, _, None) => cx.fresh_dim(&format!("dim{k}"), None),
            });
        }
        let constant = self.mode == PadMode::Constant;
        let folded = shape.known().filter(|_| constant).and_then(|s| Pad::fold(cx, &s, &amounts));
        cx.set(0, cx.dtype(0), Some(shape));
        if let Some(value) = folded {
            cx.set_value(0, value);
        }
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let (x, shape) = (l.input(0), l.out_shape(0));
        let name = if self.mode == PadMode::Constant { "Pad" } else { "MirrorPad" };
        let y = l.moved(name, x, shape);
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let (name, keeps_input) = match self.mode {
            PadMode::Constant => ("constant_pad_nd", false),
            PadMode::Reflect => ("reflection_pad", true),
            PadMode::Edge => ("replication_pad", true),
            PadMode::Wrap => ("_pad_circular", false),
        };
        let call = Call::new(name).input(Operand::Input(0), Grad::New).output(
            l.out_shape(0),
            OutDtype::Like(0),
            Place::New,
        );
        l.finish(call.saves(keeps_input.then_some(Saved::Input(0))));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{In, float, folded, int, ints, shape, symbolic};
    use crate::{Attribute, Attributes};

    #[test]
    fn both_ends_are_added() {
        let pad = |x, p: &[i64]| shape("Pad", 13, Attributes::default(), &[x, ints(p)]);
        assert_eq!(pad(float(&[1, 3, 4, 5]), &[0, 0, 1, 3, 0, 0, 2, 4]).unwrap(), "1x3x7x12");
        assert_eq!(pad(float(&[4]), &[-1, -3]).unwrap(), "0");
        assert!(pad(float(&[4]), &[-1, -4]).is_err());
        assert!(pad(float(&[4]), &[1]).is_err());
        assert_eq!(pad(symbolic(&["h"]), &[1, 1]).unwrap(), "(h + 2)");
        let old = |name| Attributes::from([(name, Attribute::Ints(vec![1, 2]))]);
        assert_eq!(shape("Pad", 1, old("paddings"), &[float(&[4])]).unwrap(), "7");
        assert_eq!(shape("Pad", 2, old("pads"), &[float(&[4])]).unwrap(), "7");
        let inputs = [float(&[2, 3, 4]), ints(&[1, 2, 3, 4]), In::Absent, ints(&[-1, 0])];
        assert_eq!(shape("Pad", 18, Attributes::default(), &inputs).unwrap(), "8x3x8");
    }

    #[test]
    fn elements_are_padded() {
        let pad = |p: &[i64], rest: &[In]| {
            folded("Pad", Attributes::default(), &[&[ints(&[5, 6]), ints(p)], rest].concat()).unwrap()
        };
        assert_eq!(pad(&[1, 2], &[]), [0, 5, 6, 0, 0]);
        assert_eq!(pad(&[-1, 1], &[int(9)]), [6, 9]);
    }
}
