//! Split. ONNX 1, 2, 11, 13 (sizes as an input), 18 (`num_outputs`).
//!
//! Autograd keeps nothing: the parts are views, and their gradients are joined into one new tensor of the input's shape
//! (derivatives.yaml: `split_with_sizes_backward`).

use super::fold;
use crate::kernels::TfLowering;
use crate::value::listed;
use crate::{
    Call, Dim, Grad, Infer, Lowering, Num, Op, OpError, OpSpec, Operand, OutDtype, Place, Shape, View,
};
use std::sync::Arc;

/// Cuts one axis into parts.
#[derive(Clone, Debug)]
pub struct Split {
    /// Counted from the back when negative.
    pub axis: i64,
    /// The sizes of the parts, where they are an attribute.
    pub sizes: Option<Vec<i64>>,
    /// How many parts of `ceil(size / parts)`, the last one smaller; from opset 18 on, where it only repeats the number of
    /// outputs. Earlier opsets ask for equal parts, but the reference implementation cuts the same way.
    pub parts: Option<i64>,
}

/// How Split is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "Split",
    since: &[1, 2, 11, 13, 18],
    build: |a, _| {
        let (axis, sizes) = (a.int("axis")?.unwrap_or(0), a.ints("split")?);
        Ok(Arc::new(Split { axis, sizes, parts: a.int("num_outputs")? }))
    },
}];

impl Split {
    /// The size of each output along the axis.
    fn lengths(&self, cx: &Infer<'_>, axis: usize, size: &Dim) -> Result<Vec<Dim>, OpError> {
        let outputs = cx.output_count();
        let attribute = || self.sizes.as_ref().map(|s| s.iter().copied().map(Num::Int).collect::<Vec<_>>());
        if let Some(sizes) = attribute().or_else(|| cx.value(1).map(|v| v.data.clone())) {
            return Split::given(cx, axis, size, &sizes);
        }
        if cx.has(1) {
            return Ok((0..outputs).map(|j| cx.fresh_dim(&format!("part{j}"), size.upper())).collect());
        }
        if let Some(parts) = self.parts
            && u64::try_from(parts) != Ok(outputs as u64)
        {
            return Err(OpError::attribute("num_outputs", format!("{outputs} outputs"), parts.to_string()));
        }
        let count = (outputs as u64).max(1);
        match size {
            Dim::Known(n) => {
                let part = n.div_ceil(count);
                let rest = |j: u64| n.saturating_sub(j.saturating_mul(part)).min(part);
                Ok((0..count).map(|j| Dim::Known(rest(j))).collect())
            }
            symbolic => {
                let part = symbolic.div_floor(&Dim::Known(count));
                Ok(vec![part.unwrap_or_else(|| cx.fresh_dim("part", size.upper())); outputs])
            }
        }
    }

    /// Sizes that the file gives. While a fixed batch is being replaced, sizes baked for the exported one grow with it.
    fn given(cx: &Infer<'_>, axis: usize, size: &Dim, sizes: &[Num]) -> Result<Vec<Dim>, OpError> {
        if sizes.len() != cx.output_count() {
            let expected = format!("one size for each of {} outputs", cx.output_count());
            return Err(OpError::mismatch(expected, format!("{} sizes", sizes.len())));
        }
        let dim = |(j, n): (usize, &Num)| match n.as_i64() {
            Some(n) if n < 0 => Err(OpError::mismatch("sizes that are not negative", n)),
            _ => Ok(n.as_dim().unwrap_or_else(|| cx.fresh_dim(&format!("part{j}"), size.upper()))),
        };
        let parts: Vec<Dim> = sizes.iter().enumerate().map(dim).collect::<Result<_, _>>()?;
        let total = parts.iter().try_fold(0_u64, |acc, d| acc.checked_add(d.known()?));
        let (Some(total), Some(size)) = (total, size.known()) else { return Ok(parts) };
        if total == size {
            return Ok(parts);
        }
        let baked = cx.before(0, 0).and_then(|(old_in, _)| old_in.dims().get(axis)?.known()) == Some(total);
        let scaled = |d: &Dim| {
            let n = d.known()?.checked_mul(size)?;
            (total > 0 && n % total == 0).then(|| Dim::Known(n / total))
        };
        let scaled = parts.iter().map(scaled).collect::<Option<Vec<_>>>().filter(|_| baked);
        scaled.ok_or_else(|| OpError::mismatch(format!("parts that add up to {size}"), listed(sizes)))
    }
}

impl Op for Split {
    fn name(&self) -> &str {
        "Split"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        let Some(x) = cx.shape(0) else {
            (0..cx.output_count()).for_each(|j| cx.set(j, cx.dtype(0), None));
            return Ok(());
        };
        let axis = x.axis(self.axis).ok_or_else(|| {
            OpError::input(0, format!("a rank that has axis {}", self.axis), format!("shape {x}"))
        })?;
        let mut start = Some(0_u64);
        for (j, length) in self.lengths(cx, axis, &x[axis])?.into_iter().enumerate() {
            let mut shape: Shape = x.clone();
            shape.dims_mut()[axis] = length.clone();
            let folded = cx.value(0).zip(shape.known()).zip(start).and_then(|((v, shape), start)| {
                fold::pick(v, &shape, |index| {
                    let mut source = index.to_vec();
                    source[axis] = source[axis].checked_add(start)?;
                    Some(source)
                })
            });
            cx.set(j, cx.dtype(0), Some(shape));
            if let Some(value) = folded {
                cx.set_value(j, value);
            }
            start = start.zip(length.known()).and_then(|(a, b)| a.checked_add(b));
        }
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let x = l.raw(0);
        let shapes: Vec<Vec<u64>> = (0..l.output_count()).map(|j| l.out_shape(j).to_vec()).collect();
        let first = l.split(x, &shapes);
        for (output, j) in (0..).zip(0..shapes.len()) {
            let part = l.output(first, output);
            l.bind(j, part);
        }
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let axis = crate::shape::normalize_axis(self.axis, l.shape(0).len()).unwrap_or(0);
        let mut call = Call::new("split").input(Operand::Input(0), Grad::Unview);
        let used: Vec<usize> = (0..l.output_count()).filter(|j| l.wants(*j)).collect();
        let mut start = 0;
        for j in &used {
            let view = View::Slice { axis, start, step: 1 };
            call = call.output(l.out_shape(*j), OutDtype::Like(0), Place::View(0, view));
            start = l.out_shape(*j).get(axis).map_or(start, |n| start.saturating_add(*n));
        }
        let Operand::Result { call, .. } = l.call(call) else { return };
        for (output, j) in used.into_iter().enumerate() {
            l.bind(j, Operand::Result { call, output });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{In, calls, float, ints, run, symbolic};
    use super::*;
    use crate::{Attribute, Attributes};

    fn split(version: i64, a: Attributes, inputs: &[In], outputs: usize) -> Result<Vec<String>, String> {
        let out = run("Split", version, a, inputs, outputs)?;
        Ok(out.iter().map(|(ty, _)| ty.shape().unwrap().to_string()).collect())
    }

    #[test]
    fn parts_are_equal_given_or_counted() {
        let none = Attributes::default;
        assert_eq!(split(13, none(), &[float(&[6])], 3).unwrap(), ["2", "2", "2"]);
        assert_eq!(split(13, none(), &[float(&[7])], 3).unwrap(), ["3", "3", "1"]);
        let counted = || Attributes::from([("num_outputs", Attribute::Int(4))]);
        assert_eq!(split(18, counted(), &[float(&[7])], 4).unwrap(), ["2", "2", "2", "1"]);
        assert_eq!(split(18, none(), &[float(&[7]), ints(&[0, 7])], 2).unwrap(), ["0", "7"]);
        assert!(split(18, none(), &[float(&[7]), ints(&[1, 7])], 2).is_err());
        let old = Attributes::from([("split", Attribute::Ints(vec![1, 2])), ("axis", Attribute::Int(-1))]);
        assert_eq!(split(11, old, &[float(&[2, 3])], 2).unwrap(), ["2x1", "2x2"]);
        assert_eq!(split(13, none(), &[symbolic(&["n"])], 2).unwrap(), ["floor(n/2)", "floor(n/2)"]);
    }

    #[test]
    fn values_are_cut_too() {
        let out = run("Split", 13, Attributes::default(), &[ints(&[5, 6, 7]), ints(&[1, 2])], 2).unwrap();
        assert_eq!(out[1].1.as_ref().unwrap().ints().unwrap(), [6, 7]);
    }

    #[test]
    fn the_parts_are_views_of_one_call() {
        let calls = calls("Split", 13, Attributes::default(), &[float(&[6]), ints(&[2, 4])], 2);
        let view = |start| Place::View(0, View::Slice { axis: 0, start, step: 1 });
        let places: Vec<_> = calls[0].outputs.iter().map(|o| o.place.clone()).collect();
        assert_eq!(places, [view(0), view(2)]);
    }
}
