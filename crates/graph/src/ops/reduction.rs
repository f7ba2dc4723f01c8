//! What all reductions share: which axes go, the shape that is left, and the folding of small values.

use super::fold::{extremum, held};
use super::reduce::ReduceKind;
use super::sum::add;
use crate::shape::normalize_axis;
use crate::value::indices;
use crate::{Attributes, Infer, Num, OpError, Shape, Value, elements};

/// The axes of a reduction as the model gives them.
#[derive(Clone, Debug, Default)]
pub struct Axes {
    /// From the attribute; input 1 gives them where this is `None`.
    pub listed: Option<Vec<i64>>,
    /// Whether a reduced axis stays, with one element.
    pub keep_dims: bool,
    /// Whether no axes mean none rather than all.
    pub noop_when_empty: bool,
}

impl Axes {
    /// Reads the attributes.
    pub(super) fn read(a: &Attributes) -> Result<Axes, OpError> {
        Ok(Axes {
            listed: a.ints("axes")?,
            keep_dims: a.int("keepdims")?.unwrap_or(1) != 0,
            noop_when_empty: a.flag("noop_with_empty_axes")?,
        })
    }

    /// The axes counted from the front, ascending; `None` where they or the rank are not known.
    pub(super) fn resolve(&self, cx: &Infer<'_>) -> Result<Option<Vec<usize>>, OpError> {
        let given = match &self.listed {
            Some(axes) => Some(axes.clone()),
            None if !cx.has(1) => Some(Vec::new()),
            None => cx.ints(1),
        };
        let (Some(given), Some(shape)) = (given, cx.shape(0)) else { return Ok(None) };
        if given.is_empty() {
            return Ok(Some(if self.noop_when_empty { Vec::new() } else { (0..shape.rank()).collect() }));
        }
        let mut axes = Vec::with_capacity(given.len());
        for axis in given {
            axes.push(normalize_axis(axis, shape.rank()).ok_or_else(|| {
                OpError::input(0, format!("a rank that has axis {axis}"), format!("shape {shape}"))
            })?);
        }
        axes.sort_unstable();
        if axes.windows(2).any(|w| w[0] == w[1]) {
            return Err(OpError::mismatch("each axis once", format!("axes {axes:?}")));
        }
        Ok(Some(axes))
    }

    /// The shape that is left. With unknown axes each dim may be one or stay.
    pub(super) fn shape(&self, cx: &Infer<'_>, axes: Option<&[usize]>) -> Result<Option<Shape>, OpError> {
        let Some(input) = cx.shape(0) else { return Ok(None) };
        if let Some(axes) = axes {
            return Ok(Some(reduced(input, axes, self.keep_dims)));
        }
        let bound = |k: usize| input.dims()[k].upper().map(|d| d.max(1));
        if self.keep_dims {
            return Ok(Some((0..input.rank()).map(|k| cx.fresh_dim(&format!("dim{k}"), bound(k))).collect()));
        }
        let count = cx.shape(1).filter(|s| s.rank() == 1).and_then(|s| s[0].known());
        let left = count.and_then(|n| input.rank().checked_sub(usize::try_from(n).ok()?));
        let Some(left) = left.filter(|_| count != Some(0)) else { return Ok(None) };
        // Which dims stay is not known, so the largest bounds each of them.
        let largest = (0..input.rank()).map(bound).try_fold(1, |acc, d| Some(d?.max(acc)));
        Ok(Some((0..left).map(|k| cx.fresh_dim(&format!("dim{k}"), largest)).collect()))
    }
}

/// `input` without `axes`, or with ones in their place.
pub(super) fn reduced(input: &Shape, axes: &[usize], keep_dims: bool) -> Shape {
    let dims = input.dims().iter().enumerate();
    dims.filter_map(|(k, d)| match axes.contains(&k) {
        false => Some(d.clone()),
        true => keep_dims.then_some(1.into()),
    })
    .collect()
}

/// The elements of `value` that fall together, for each element that is left, in order along the reduced axes.
pub(super) fn groups(value: &Value, axes: &[usize]) -> (Vec<u64>, Vec<Vec<Num>>) {
    let kept: Vec<u64> =
        (0..value.shape.len()).map(|k| if axes.contains(&k) { 1 } else { value.shape[k] }).collect();
    let count = usize::try_from(elements(&kept)).unwrap_or(0);
    let mut groups = vec![Vec::new(); count];
    for (index, n) in indices(&value.shape).zip(&value.data) {
        let flat =
            (0..kept.len()).fold(0, |acc, k| acc * kept[k] + if axes.contains(&k) { 0 } else { index[k] });
        if let Some(group) = usize::try_from(flat).ok().and_then(|flat| groups.get_mut(flat)) {
            group.push(n.clone());
        }
    }
    (kept, groups)
}

/// The reduced elements; `None` where there would be too many.
pub(super) fn fold(value: &Value, axes: &[usize], keep_dims: bool, kind: ReduceKind) -> Option<Value> {
    let shape = reduced(&value.dims(), axes, keep_dims).known()?;
    // An empty axis makes elements out of nothing.
    Value::unknown(value.dtype, &shape)?;
    let (_, groups) = groups(value, axes);
    let data = groups.iter().map(|g| held(fold_group(g, kind), value.dtype)).collect();
    Some(Value { dtype: value.dtype, shape, data })
}

fn fold_group(group: &[Num], kind: ReduceKind) -> Num {
    let floats = || group.iter().map(Num::as_f64).collect::<Option<Vec<f64>>>();
    let float = |f: &dyn Fn(Vec<f64>) -> f64| floats().map_or(Num::Unknown, |x| Num::Float(f(x)));
    let sum = |x: Vec<f64>| x.iter().sum::<f64>();
    let whole = group.iter().any(|n| matches!(n, Num::Int(_)));
    let zero = || if whole || group.is_empty() { Num::Int(0) } else { Num::Float(0.0) };
    match kind {
        ReduceKind::Max | ReduceKind::Min => {
            let join = |a: Num, b: &Num| extremum(&a, b, kind == ReduceKind::Min);
            group.split_first().map_or(Num::Unknown, |(first, rest)| rest.iter().fold(first.clone(), join))
        }
        ReduceKind::Sum => group.iter().cloned().reduce(|a, b| add(&a, &b)).unwrap_or_else(zero),
        ReduceKind::Prod => group.iter().cloned().reduce(|a, b| multiply(&a, &b)).unwrap_or(Num::Int(1)),
        ReduceKind::L1 | ReduceKind::SumSquare if whole => {
            let term = |n: &Num| {
                let n = n.as_i64()?;
                if kind == ReduceKind::L1 { n.checked_abs() } else { n.checked_mul(n) }
            };
            group.iter().try_fold(0_i64, |acc, n| acc.checked_add(term(n)?)).map_or(Num::Unknown, Num::Int)
        }
        // An integer mean rounds, and runtimes differ in how.
        ReduceKind::Mean if whole => {
            let total = group.iter().try_fold(0_i64, |acc, n| acc.checked_add(n.as_i64()?));
            let count = i64::try_from(group.len()).ok();
            let exact = total.zip(count).filter(|(t, n)| *n > 0 && t % n == 0).map(|(t, n)| t / n);
            exact.map_or(Num::Unknown, Num::Int)
        }
        ReduceKind::Mean => float(&|x| sum(x) / group.len() as f64),
        ReduceKind::L1 => float(&|x| x.iter().map(|x| x.abs()).sum()),
        ReduceKind::L2 => float(&|x| x.iter().map(|x| x * x).sum::<f64>().sqrt()),
        ReduceKind::SumSquare => float(&|x| x.iter().map(|x| x * x).sum()),
        ReduceKind::LogSum => float(&|x| sum(x).ln()),
        ReduceKind::Var | ReduceKind::Std => Num::Unknown,
        ReduceKind::LogSumExp => float(&|x| x.iter().map(|x| x.exp()).sum::<f64>().ln()),
    }
}

/// Two elements multiplied: numbers, or sizes.
pub(super) fn multiply(a: &Num, b: &Num) -> Num {
    let product = match (a, b) {
        (Num::Int(a), Num::Int(b)) => a.checked_mul(*b).map(Num::Int),
        (Num::Dim(_), _) | (_, Num::Dim(_)) => {
            a.as_dim().zip(b.as_dim()).and_then(|(a, b)| a.mul(&b)).map(Num::from)
        }
        _ => a.as_f64().zip(b.as_f64()).map(|(a, b)| Num::Float(a * b)),
    };
    product.unwrap_or(Num::Unknown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{In, float, folded, ints, run, shape, symbolic};
    use crate::{Attribute, DType, Dim, Type};

    fn attributes(axes: Option<&[i64]>, keep: i64, noop: i64) -> Attributes {
        let mut a = Attributes::from([
            ("keepdims", Attribute::Int(keep)),
            ("noop_with_empty_axes", Attribute::Int(noop)),
        ]);
        if let Some(axes) = axes {
            a.0.insert("axes".into(), Attribute::Ints(axes.to_vec()));
        }
        a
    }

    #[test]
    fn nothing_falls_into_groups_beside_axes_of_any_size() {
        let empty =
            Value { dtype: DType::Int64, shape: vec![1 << 40, 1 << 40, 1 << 40, 0], data: Vec::new() };
        assert!(groups(&empty, &[0]).1.is_empty());
    }

    #[test]
    fn axes_go_or_stay_as_ones() {
        let x = || float(&[2, 3, 4]);
        let reduced = |a, inputs: &[In]| shape("ReduceSum", 13, a, inputs).unwrap();
        assert_eq!(reduced(attributes(Some(&[-1, 0]), 1, 0), &[x()]), "1x3x1");
        assert_eq!(reduced(attributes(None, 0, 0), &[x(), ints(&[1])]), "2x4");
        assert_eq!(reduced(attributes(None, 0, 0), &[x()]), "scalar");
        assert_eq!(reduced(attributes(None, 0, 0), &[x(), ints(&[])]), "scalar");
        assert_eq!(reduced(attributes(None, 0, 1), &[x(), ints(&[])]), "2x3x4");
        assert!(shape("ReduceMax", 18, attributes(Some(&[3]), 1, 0), &[x()]).is_err());
        assert!(shape("ReduceMax", 18, attributes(Some(&[0, -3]), 1, 0), &[x()]).is_err());
    }

    #[test]
    fn axes_that_are_not_known_leave_the_rank() {
        let axes = In::Typed(Type::tensor(DType::Int64, Shape::from([2])));
        let out = |keep| {
            let inputs = [symbolic(&["batch", "3", "5"]), axes.clone()];
            run("ReduceMean", 18, attributes(None, keep, 0), &inputs, 1).unwrap().remove(0).0
        };
        assert_eq!(out(1).shape().unwrap().upper(), None);
        assert_eq!(out(1).shape().unwrap()[2].upper(), Some(5));
        assert_eq!(out(0).shape().unwrap().rank(), 1);
    }

    #[test]
    fn small_values_fold() {
        let fold = |op: &str, v: &[i64]| folded(op, attributes(Some(&[0]), 0, 0), &[ints(v)]);
        assert_eq!(fold("ReduceProd", &[2, 3, 4]), Some(vec![24]));
        assert_eq!(fold("ReduceMax", &[2, 9, 4]), Some(vec![9]));
        assert_eq!(fold("ReduceSumSquare", &[2, -3]), Some(vec![13]));
        assert_eq!(fold("ReduceMean", &[2, 3]), None);
        assert_eq!(fold("ReduceProd", &[]), Some(vec![1]));
        assert_eq!(fold("ReduceProd", &[i64::MAX, 2]), None);
        let sizes = Value::vector(DType::Int64, [Num::Dim(Dim::symbol("batch")), Num::Int(12)]);
        let out = run("ReduceProd", 18, attributes(None, 0, 0), &[In::Value(sizes)], 1).unwrap();
        assert_eq!(out[0].1.as_ref().unwrap().single().unwrap().as_dim().unwrap().to_string(), "12*batch");
    }
}
