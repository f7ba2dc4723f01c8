//! NonZero, Compress. ONNX NonZero 9, 13; Compress 9, 11, 28.
//!
//! How many elements there are depends on the data: exact where it is known, else bounded by the input. `nonzero` gives
//! integers, without gradient; a selection by a mask keeps the mask (derivatives.yaml: `index_backward`).

use super::fold;
use crate::value::indices;
use crate::{
    Call, DType, Dim, Grad, Infer, Lowering, Num, Op, OpError, OpSpec, Operand, OutDtype, Place, Saved,
    Shape, Value,
};
use std::sync::Arc;

/// The indices of the elements that are not zero, one column each.
#[derive(Clone, Copy, Debug)]
pub struct NonZero;

/// The elements or slices for which the condition holds.
#[derive(Clone, Copy, Debug)]
pub struct Compress {
    /// Counted from the back when negative; single elements where absent.
    pub axis: Option<i64>,
}

/// How the two are found.
pub const SPECS: &[OpSpec] = &[
    OpSpec {
        domain: "",
        name: "Compress",
        since: &[9, 11, 28],
        build: |a, _| Ok(Arc::new(Compress { axis: a.int("axis")? })),
    },
    OpSpec { domain: "", name: "NonZero", since: &[9, 13], build: |_, _| Ok(Arc::new(NonZero)) },
];

/// The positions of the true ones among these elements; `None` where one is not known.
fn positions(v: &Value) -> Option<Vec<u64>> {
    let truth = v.data.iter().map(|n| n.as_f64().map(|x| x != 0.0)).collect::<Option<Vec<bool>>>()?;
    Some((0_u64..).zip(truth).filter(|(_, t)| *t).map(|(k, _)| k).collect())
}

impl Op for NonZero {
    fn name(&self) -> &str {
        "NonZero"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        if let Some((v, places)) = cx.value(0).and_then(|v| Some((v, positions(v)?))) {
            let all: Vec<Vec<u64>> = indices(&v.shape).collect();
            let found = places.iter().filter_map(|k| all.get(usize::try_from(*k).ok()?));
            let shape = vec![v.shape.len() as u64, places.len() as u64];
            let row = |axis: usize| found.clone().map(move |index| Num::from(Dim::Known(index[axis])));
            let data = (0..v.shape.len()).flat_map(row).collect();
            cx.set_value(0, Value { dtype: DType::Int64, shape, data });
            return Ok(());
        }
        let (rank, upper) = match cx.shape(0) {
            Some(x) => (Dim::Known(x.rank() as u64), x.product().and_then(|d| d.upper())),
            None => (cx.fresh_dim("rank", None), None),
        };
        let count = if upper == Some(0) { Dim::Known(0) } else { cx.fresh_dim("nonzero", upper) };
        cx.set(0, DType::Int64, Some([rank, count].into_iter().collect()));
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        super::allocate(l, "nonzero");
    }
}

impl Op for Compress {
    fn name(&self) -> &str {
        "Compress"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        cx.require(1)?;
        let Some(x) = cx.shape(0) else {
            let unknown = || [cx.fresh_dim("compressed", None)].into_iter().collect();
            let shape: Option<Shape> = self.axis.is_none().then(unknown);
            cx.set(0, cx.dtype(0), shape);
            return Ok(());
        };
        let axis = match self.axis {
            Some(axis) => Some(x.axis(axis).ok_or_else(|| {
                OpError::input(0, format!("a rank that has axis {axis}"), format!("shape {x}"))
            })?),
            None => None,
        };
        let length = axis.map_or_else(|| x.elements(), |axis| x[axis].known());
        let inside = |at: &u64| length.is_none_or(|n| *at < n);
        let chosen = cx
            .value(1)
            .and_then(positions)
            .map(|chosen| chosen.into_iter().filter(inside).collect::<Vec<_>>());
        let condition = cx.shape(1).and_then(|s| s.dims().first()?.upper());
        let places = match axis {
            Some(axis) => x[axis].upper(),
            None => x.product().and_then(|d| d.upper()),
        };
        let count = match &chosen {
            Some(chosen) => Dim::Known(chosen.len() as u64),
            None => cx.fresh_dim("compressed", condition.into_iter().chain(places).min()),
        };
        let mut shape: Shape = [count.clone()].into_iter().collect();
        if let Some(axis) = axis {
            shape = x.clone();
            shape.dims_mut()[axis] = count;
        }
        let folded = cx.value(0).zip(chosen).zip(shape.known()).and_then(|((v, chosen), shape)| {
            let flat = Value { dtype: v.dtype, shape: vec![v.data.len() as u64], data: v.data.clone() };
            let (source, axis) = axis.map_or((&flat, 0), |axis| (v, axis));
            fold::pick(source, &shape, |index| {
                let mut at = index.to_vec();
                at[axis] = *chosen.get(usize::try_from(at[axis]).ok()?)?;
                Some(at)
            })
        });
        cx.set(0, cx.dtype(0), Some(shape));
        if let Some(value) = folded {
            cx.set_value(0, value);
        }
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let call = Call::new("index")
            .input(Operand::Input(0), Grad::New)
            .input(Operand::Input(1), Grad::None)
            .output(l.out_shape(0), OutDtype::Like(0), Place::New)
            .saves([Saved::Input(1)]);
        l.finish(call);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{In, float, folded, int, ints, run, shape};
    use super::*;
    use crate::{Attribute, Attributes};

    #[test]
    fn known_elements_are_counted() {
        let data = [1, 0, 2, 0].map(Num::Int).to_vec();
        let matrix = In::Value(Value { dtype: DType::Int64, shape: vec![2, 2], data });
        let none = Attributes::default;
        assert_eq!(folded("NonZero", none(), std::slice::from_ref(&matrix)).unwrap(), [0, 1, 0, 0]);
        assert_eq!(
            run("NonZero", 13, none(), &[int(5)], 1).unwrap()[0].0.shape(),
            Some(&Shape::from([0, 1]))
        );
        let mask = |d: &[i64]| In::Value(Value::vector(DType::Bool, d.iter().copied()));
        assert_eq!(folded("Compress", none(), &[matrix.clone(), mask(&[1, 0, 1])]).unwrap(), [1, 2]);
        let rows = Attributes::from([("axis", Attribute::Int(0))]);
        assert_eq!(folded("Compress", rows.clone(), &[matrix, mask(&[0, 1])]).unwrap(), [2, 0]);
        assert_eq!(shape("Compress", 11, rows, &[float(&[3, 2]), mask(&[0, 1, 1])]).unwrap(), "2x2");
    }

    #[test]
    fn unknown_elements_have_a_bound() {
        let upper = |op: &str, inputs: &[In]| {
            let out = run(op, 13, Attributes::default(), inputs, 1).unwrap();
            out[0].0.shape().unwrap().upper().unwrap()
        };
        assert_eq!(upper("NonZero", &[float(&[2, 3])]), [2, 6]);
        assert_eq!(upper("NonZero", &[float(&[0, 3])]), [2, 0]);
        assert_eq!(upper("Compress", &[float(&[2, 3]), float(&[4])]), [4]);
        assert_eq!(upper("Compress", &[ints(&[1, 2]), float(&[4])]), [2]);
    }
}
