//! GatherElements, GatherND. ONNX 11, 12 (`batch_dims`), 13.
//!
//! Autograd keeps the indices, and for single elements the input too, although only its shape is read; the gradient is
//! scattered into a new zero tensor of that shape (derivatives.yaml: `gather_backward`, `index_backward`).

use super::gather::normalize;
use super::{fold, rebatch};
use crate::{Call, Grad, Infer, Lowering, Op, OpError, OpSpec, Operand, OutDtype, Place, Saved, Shape};
use std::sync::Arc;

/// Single elements: `output[i][j] = input[indices[i][j]][j]`.
#[derive(Clone, Copy, Debug)]
pub struct GatherElements {
    /// Counted from the back when negative.
    pub axis: i64,
}

/// Slices at index tuples: the last axis of the indices is a tuple.
#[derive(Clone, Copy, Debug)]
pub struct GatherNd {
    /// How many leading axes input and indices share.
    pub batch_dims: usize,
}

/// How the two are found.
pub const SPECS: &[OpSpec] = &[
    OpSpec {
        domain: "",
        name: "GatherElements",
        since: &[11, 13],
        build: |a, _| Ok(Arc::new(GatherElements { axis: a.int("axis")?.unwrap_or(0) })),
    },
    OpSpec {
        domain: "",
        name: "GatherND",
        since: &[11, 12, 13],
        build: |a, _| {
            let n = a.int("batch_dims")?.unwrap_or(0);
            let batch_dims =
                usize::try_from(n).map_err(|_| OpError::attribute("batch_dims", "a count", n.to_string()))?;
            Ok(Arc::new(GatherNd { batch_dims }))
        },
    },
];

impl Op for GatherElements {
    fn name(&self) -> &str {
        "GatherElements"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        cx.require(1)?;
        let indices = cx.shape(1);
        let mut folded = None;
        if let Some(x) = cx.shape(0) {
            let axis = x.axis(self.axis).ok_or_else(|| {
                OpError::input(0, format!("a rank that has axis {}", self.axis), format!("shape {x}"))
            })?;
            cx.shape_of_rank(1, x.rank())?;
            folded = cx.value(0).zip(cx.value(1)).and_then(|(x, indices)| {
                fold::pick(x, &indices.shape, |index| {
                    let mut at = index.to_vec();
                    at[axis] = normalize(fold::element(indices, index)?, *x.shape.get(axis)?)?;
                    Some(at)
                })
            });
        }
        cx.set(0, cx.dtype(0), indices.cloned());
        if let Some(value) = folded {
            cx.set_value(0, value);
        }
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        lower(l, "gather", &[Saved::Input(0), Saved::Input(1)]);
    }
}

impl GatherNd {
    fn shape(&self, x: &Shape, indices: &Shape) -> Result<Option<Shape>, OpError> {
        let Some(tuple) = indices.dims().last() else {
            return Err(OpError::input(1, "indices of rank 1 or more", indices));
        };
        let b = self.batch_dims;
        if b >= indices.rank() || b > x.rank() {
            return Err(OpError::attribute("batch_dims", "fewer than the ranks", b.to_string()));
        }
        let Some(length) = tuple.known().and_then(|n| usize::try_from(n).ok()) else { return Ok(None) };
        let rest = x.dims().get(b..).and_then(|rest| rest.get(length..)).ok_or_else(|| {
            OpError::input(1, format!("tuples of at most {} indices", x.rank() - b), format!("{length}"))
        })?;
        // The shared axes: whichever of the two knows the number.
        let batch = (0..b).map(|k| if indices[k].known().is_some() { &indices[k] } else { &x[k] });
        let own = &indices.dims()[b..indices.rank() - 1];
        Ok(Some(batch.chain(own).chain(rest).cloned().collect::<Shape>()))
    }
}

impl Op for GatherNd {
    fn name(&self) -> &str {
        "GatherND"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        cx.require(1)?;
        let shape = match (cx.shape(0), cx.shape(1)) {
            (Some(x), Some(indices)) => self.shape(x, indices)?,
            _ => None,
        };
        let folded = cx.value(0).zip(cx.value(1)).zip(shape.as_ref()).and_then(|((x, indices), shape)| {
            let (b, tuples) = (self.batch_dims, indices.shape.len() - 1);
            fold::pick(x, &shape.known()?, |index| {
                let mut at = index.get(..b)?.to_vec();
                for k in 0..*indices.shape.last()? {
                    let n = fold::element(indices, &[index.get(..tuples)?, &[k]].concat())?;
                    at.push(normalize(n, *x.shape.get(at.len())?)?);
                }
                at.extend_from_slice(index.get(tuples..)?);
                Some(at)
            })
        });
        let tuple = cx.shape(1).and_then(|s| usize::try_from(s.dims().last()?.known()?).ok()).unwrap_or(0);
        let shape = shape.map(|mut shape| {
            rebatch::rearranged(cx, &shape).unwrap_or_else(|| {
                let b = self.batch_dims;
                rebatch::indexed(cx, b..b.saturating_add(tuple), b, &mut shape);
                shape
            })
        });
        cx.set(0, cx.dtype(0), shape);
        if let Some(value) = folded {
            cx.set_value(0, value);
        }
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        lower(l, "index", &[Saved::Input(1)]);
    }
}

fn lower(l: &mut Lowering<'_>, name: &'static str, saved: &[Saved]) {
    let call = Call::new(name)
        .input(Operand::Input(0), Grad::New)
        .input(Operand::Input(1), Grad::None)
        .output(l.out_shape(0), OutDtype::Like(0), Place::New)
        .saves(saved.iter().copied());
    l.finish(call);
}

#[cfg(test)]
mod tests {
    use super::super::testing::{In, float, folded, ints, shape};
    use super::*;
    use crate::{Attribute, Attributes, DType, Num, Type, Value};

    fn indices(dims: &[u64]) -> In {
        In::Typed(Type::tensor(DType::Int64, Shape::from(dims)))
    }

    #[test]
    fn tuples_take_leading_axes() {
        let nd = |b, x: &[u64], i: &[u64]| {
            let a = Attributes::from([("batch_dims", Attribute::Int(b))]);
            shape("GatherND", 13, a, &[float(x), indices(i)])
        };
        assert_eq!(nd(0, &[2, 2, 5], &[2, 1]).unwrap(), "2x2x5");
        assert_eq!(nd(0, &[2, 2], &[3, 2]).unwrap(), "3");
        assert_eq!(nd(1, &[2, 2, 5], &[2, 1]).unwrap(), "2x5");
        assert!(nd(0, &[2], &[3, 2]).is_err());
        assert!(nd(2, &[2, 2], &[2, 2]).is_err());
        assert!(nd(0, &[2], &[]).is_err());
    }

    #[test]
    fn elements_are_picked() {
        let matrix = |d: [i64; 4]| {
            In::Value(Value {
                dtype: DType::Int64,
                shape: vec![2, 2],
                data: d.into_iter().map(Num::Int).collect(),
            })
        };
        let axis = Attributes::from([("axis", Attribute::Int(-1))]);
        let inputs = [matrix([1, 2, 3, 4]), matrix([0, 0, 1, -2])];
        assert_eq!(folded("GatherElements", axis, &inputs).unwrap(), [1, 1, 4, 3]);
        let inputs = [matrix([1, 2, 3, 4]), matrix([0, 1, -1, 0])];
        assert_eq!(folded("GatherND", Attributes::default(), &inputs).unwrap(), [2, 3]);
        let inputs = [matrix([1, 2, 3, 4]), ints(&[1])];
        assert_eq!(folded("GatherND", Attributes::default(), &inputs).unwrap(), [3, 4]);
    }
}
