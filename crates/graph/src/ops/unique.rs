//! Unique. ONNX 11, 28.
//!
//! How many elements stay depends on the data: exact where they are known, else bounded by the input. `_unique2` has no
//! gradient.

use super::fold;
use crate::{DType, Dim, Infer, Lowering, Num, Op, OpError, OpSpec, Shape, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The different elements, or the different slices along an axis.
#[derive(Clone, Copy, Debug)]
pub struct Unique {
    /// Counted from the back when negative; single elements where absent.
    pub axis: Option<i64>,
    /// Whether they come sorted, else in the order in which they first occur.
    pub sorted: bool,
}

/// How Unique is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "Unique",
    since: &[11, 28],
    build: |a, _| Ok(Arc::new(Unique { axis: a.int("axis")?, sorted: a.int("sorted")?.unwrap_or(1) != 0 })),
}];

/// The first occurrence of each different key, which key each place has, and how often each key occurs.
struct Groups {
    first: Vec<usize>,
    inverse: Vec<usize>,
    counts: Vec<usize>,
}

impl Unique {
    fn group(&self, keys: &[Vec<i128>]) -> Groups {
        let mut found: BTreeMap<&[i128], usize> = BTreeMap::new();
        let mut first = Vec::new();
        for (k, key) in keys.iter().enumerate() {
            found.entry(key).or_insert_with(|| {
                first.push(k);
                first.len() - 1
            });
        }
        if self.sorted {
            first = found
                .iter_mut()
                .enumerate()
                .map(|(rank, (_, place))| {
                    let at = first[*place];
                    *place = rank;
                    at
                })
                .collect();
        }
        let inverse: Vec<usize> = keys.iter().map(|key| found[&key[..]]).collect();
        let mut counts = vec![0; first.len()];
        inverse.iter().for_each(|k| counts[*k] += 1);
        Groups { first, inverse, counts }
    }

    fn fold(&self, x: &Value, axis: Option<usize>) -> Option<[Value; 4]> {
        let keys = fold::keys(x)?;
        let places = axis.map_or(Some(keys.len() as u64), |a| x.shape.get(a).copied())?;
        // A value without elements may still have a long axis.
        if places > Value::MAX_ELEMENTS {
            return None;
        }
        let mut slices: Vec<Vec<i128>> = vec![Vec::new(); usize::try_from(places).ok()?];
        for (k, index) in crate::value::indices(&x.shape).enumerate() {
            let slice = axis.map_or(k, |a| index[a] as usize);
            slices[slice].push(keys[k]);
        }
        let groups = self.group(&slices);
        let shape = match axis {
            Some(axis) => {
                let mut shape = x.shape.clone();
                shape[axis] = groups.first.len() as u64;
                shape
            }
            None => vec![groups.first.len() as u64],
        };
        let flat = Value { dtype: x.dtype, shape: vec![x.data.len() as u64], data: x.data.clone() };
        let source = if axis.is_some() { x } else { &flat };
        let axis = axis.unwrap_or(0);
        let values = fold::pick(source, &shape, |index| {
            let mut at = index.to_vec();
            at[axis] = *groups.first.get(usize::try_from(at[axis]).ok()?)? as u64;
            Some(at)
        })?;
        let ints =
            |v: &[usize]| Value::vector(DType::Int64, v.iter().map(|n| Num::from(Dim::Known(*n as u64))));
        Some([values, ints(&groups.first), ints(&groups.inverse), ints(&groups.counts)])
    }
}

impl Op for Unique {
    fn name(&self) -> &str {
        "Unique"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        let Some(x) = cx.shape(0) else {
            cx.set(0, cx.dtype(0), None);
            return Ok(());
        };
        let axis = match self.axis {
            Some(axis) => Some(x.axis(axis).ok_or_else(|| {
                OpError::input(0, format!("a rank that has axis {axis}"), format!("shape {x}"))
            })?),
            None => None,
        };
        if let Some(folded) = cx.value(0).and_then(|v| self.fold(v, axis)) {
            folded.into_iter().enumerate().for_each(|(j, value)| cx.set_value(j, value));
            return Ok(());
        }
        let places = match axis {
            Some(axis) => x[axis].clone(),
            None => x.product().ok_or_else(|| OpError::overflow("the element count of the input"))?,
        };
        let count = match places {
            Dim::Known(n @ (0 | 1)) => Dim::Known(n),
            _ => cx.fresh_dim("unique", places.upper()),
        };
        let vector = |dim: Dim| [dim].into_iter().collect::<Shape>();
        let mut shape = vector(count.clone());
        if let Some(axis) = axis {
            shape = x.clone();
            shape.dims_mut()[axis] = count.clone();
        }
        cx.set(0, cx.dtype(0), Some(shape));
        cx.set(1, DType::Int64, Some(vector(count.clone())));
        cx.set(2, DType::Int64, Some(vector(places)));
        cx.set(3, DType::Int64, Some(vector(count)));
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        super::allocate(l, "_unique2");
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{In, float, run};
    use super::*;
    use crate::{Attribute, Attributes};

    fn unique(a: Attributes, shape: &[u64], data: &[i64]) -> Vec<Vec<i64>> {
        let data = data.iter().copied().map(Num::Int).collect();
        let x = In::Value(Value { dtype: DType::Int64, shape: shape.to_vec(), data });
        run("Unique", 11, a, &[x], 4)
            .unwrap()
            .iter()
            .map(|(_, v)| v.as_ref().unwrap().ints().unwrap())
            .collect()
    }

    #[test]
    fn known_elements_are_grouped() {
        let sorted = |n| Attributes::from([("sorted", Attribute::Int(n))]);
        let x = [2, 1, 1, 3, 4, 3];
        assert_eq!(
            unique(sorted(0), &[6], &x),
            [vec![2, 1, 3, 4], vec![0, 1, 3, 4], vec![0, 1, 1, 2, 3, 2], vec![1, 2, 2, 1]]
        );
        assert_eq!(unique(sorted(1), &[2, 3], &x)[0], [1, 2, 3, 4]);
        let by_row = Attributes::from([("axis", Attribute::Int(0))]);
        assert_eq!(
            unique(by_row, &[3, 2], &[2, 3, 1, 0, 1, 0]),
            [vec![1, 0, 2, 3], vec![1, 0], vec![1, 0, 0], vec![2, 1]]
        );
    }

    #[test]
    fn unknown_elements_have_a_bound() {
        let out = run("Unique", 11, Attributes::default(), &[float(&[2, 3])], 4).unwrap();
        assert_eq!(out[0].0.shape().unwrap().upper(), Some(vec![6]));
        assert_eq!(out[0].0.shape(), out[3].0.shape());
        assert_eq!(out[2].0.shape(), Some(&Shape::from([6])));
    }
}
