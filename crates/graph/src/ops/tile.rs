//! Tile. ONNX 1 (`tiles` along one axis), 6, 13 (a factor for each axis).
//!
//! Autograd keeps nothing: `aten::repeat` makes a new tensor, its gradient is summed into another (derivatives.yaml:
//! `repeat_backward`).

use super::fold;
use crate::kernels::TfLowering;
use crate::{
    Call, Dim, Grad, Infer, Lowering, Num, Op, OpError, OpSpec, Operand, OutDtype, Place, Shape, Value,
};
use std::sync::Arc;

/// Repeats the whole tensor along its axes.
#[derive(Clone, Copy, Debug)]
pub struct Tile {
    /// Whether inputs 1 and 2 are one factor and its axis, as in opset 1.
    pub one_axis: bool,
}

/// How Tile is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "Tile",
    since: &[1, 6, 13],
    build: |_, version| Ok(Arc::new(Tile { one_axis: version < 6 })),
}];

impl Tile {
    /// A factor for each axis.
    fn repeats(&self, cx: &Infer<'_>, rank: usize) -> Result<Option<Vec<Num>>, OpError> {
        let Some(given) = cx.value(1) else { return Ok(None) };
        if self.one_axis {
            let Some(axis) = cx.value(2).and_then(Value::single).and_then(Num::as_i64) else {
                return Ok(None);
            };
            let axis = crate::shape::normalize_axis(axis, rank)
                .ok_or_else(|| OpError::input(2, format!("an axis of {rank}"), axis))?;
            let mut repeats = vec![Num::Int(1); rank];
            repeats[axis] = given.single().cloned().unwrap_or(Num::Unknown);
            return Ok(Some(repeats));
        }
        if given.data.len() != rank {
            return Err(OpError::input(1, format!("{rank} factors"), given.data.len()));
        }
        Ok(Some(given.data.clone()))
    }
}

impl Op for Tile {
    fn name(&self) -> &str {
        "Tile"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        cx.require(1)?;
        let Some(x) = cx.shape(0) else {
            cx.set(0, cx.dtype(0), None);
            return Ok(());
        };
        let repeats = self.repeats(cx, x.rank())?.unwrap_or_else(|| vec![Num::Unknown; x.rank()]);
        if let Some(n) = repeats.iter().filter_map(Num::as_i64).find(|n| *n < 0) {
            return Err(OpError::input(1, "factors that are not negative", n));
        }
        let mut shape = Shape::scalar();
        for (k, (dim, n)) in x.dims().iter().zip(&repeats).enumerate() {
            shape.push(match n.as_dim() {
                Some(n) => dim.mul(&n).ok_or_else(|| OpError::overflow(format!("the size of axis {k}")))?,
                None if *dim == Dim::Known(0) => Dim::Known(0),
                None => cx.fresh_dim(&format!("dim{k}"), None),
            });
        }
        let folded = cx.value(0).zip(shape.known()).and_then(|(v, shape)| {
            fold::pick(v, &shape, |index| Some(index.iter().zip(&v.shape).map(|(i, d)| i % d).collect()))
        });
        cx.set(0, cx.dtype(0), Some(shape));
        if let Some(value) = folded {
            cx.set_value(0, value);
        }
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let (x, shape) = (l.raw(0), l.out_shape(0));
        let y = l.broadcast_to(x, shape);
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let call = Call::new("repeat").input(Operand::Input(0), Grad::New);
        l.finish(call.output(l.out_shape(0), OutDtype::Like(0), Place::New));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{float, folded, int, ints, shape};
    use crate::Attributes;

    #[test]
    fn axes_are_multiplied() {
        let tile = |x, n: &[i64]| shape("Tile", 13, Attributes::default(), &[x, ints(n)]);
        assert_eq!(tile(float(&[2, 3]), &[2, 0]).unwrap(), "4x0");
        assert!(tile(float(&[2, 3]), &[2]).is_err());
        assert!(tile(float(&[2]), &[-1]).is_err());
        assert!(tile(float(&[1 << 40]), &[1 << 40]).is_err());
        assert_eq!(
            shape("Tile", 1, Attributes::default(), &[float(&[2, 3]), int(5), int(1)]).unwrap(),
            "2x15"
        );
        assert_eq!(
            folded("Tile", Attributes::default(), &[ints(&[1, 2]), ints(&[2])]).unwrap(),
            [1, 2, 1, 2]
        );
    }
}
