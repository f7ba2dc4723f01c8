//! Scatter, ScatterElements, ScatterND, TensorScatter. ONNX Scatter 9, 11; ScatterElements and ScatterND 11, 13, 16
//! (`reduction`), 18; TensorScatter 24.
//!
//! Autograd keeps the indices (derivatives.yaml: `scatter`, `scatter_add`, `index_put`, `index_copy`): the input's gradient is a
//! copy with the written places zeroed, or the gradient itself where values were added; that of the updates is gathered. The
//! other reductions keep input, updates and result too (`scatter_reduce_backward`). `scatter_add` and `index_put` are on
//! autocast's promote list.

use super::fold;
use super::gather::normalize;
use crate::value::indices;
use crate::{
    Attributes, Autocast, Call, Grad, Infer, Lowering, Num, Op, OpError, OpSpec, Operand, OutDtype, Place,
    Saved, Value,
};
use std::sync::Arc;

/// How places are addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Places {
    /// One index along this axis for each update.
    Elements(i64),
    /// A tuple of indices for each slice of updates.
    Tuples,
    /// One start for each sample: the cache of an attention.
    Cache,
}

/// Writes updates into a copy of the input.
#[derive(Clone, Debug)]
pub struct Scatter {
    /// The operator's name.
    pub name: &'static str,
    /// How places are addressed.
    pub places: Places,
    /// `none`, `add`, `mul`, `max` or `min`.
    pub reduction: String,
}

/// How the four are found.
pub const SPECS: &[OpSpec] = &[
    OpSpec { domain: "", name: "Scatter", since: &[9, 11], build: |a, _| elements("Scatter", a) },
    OpSpec {
        domain: "",
        name: "ScatterElements",
        since: &[11, 13, 16, 18],
        build: |a, _| elements("ScatterElements", a),
    },
    OpSpec {
        domain: "",
        name: "ScatterND",
        since: &[11, 13, 16, 18],
        build: |a, _| build("ScatterND", Places::Tuples, a),
    },
    OpSpec {
        domain: "",
        name: "TensorScatter",
        since: &[24],
        build: |a, _| build("TensorScatter", Places::Cache, a),
    },
];

fn elements(name: &'static str, a: &mut Attributes) -> Result<Arc<dyn Op>, OpError> {
    let axis = a.int("axis")?.unwrap_or(0);
    build(name, Places::Elements(axis), a)
}

fn build(name: &'static str, places: Places, a: &mut Attributes) -> Result<Arc<dyn Op>, OpError> {
    let reduction = a.text("reduction")?.unwrap_or_else(|| "none".into());
    Ok(Arc::new(Scatter { name, places, reduction }))
}

impl Scatter {
    /// The input with the updates written; elements that an unknown index may have written are unknown.
    fn fold(&self, cx: &Infer<'_>) -> Option<Value> {
        let (x, at, updates) = (cx.value(0)?, cx.value(1)?, cx.value(2));
        let mut out = x.clone();
        let updates_shape = cx.shape(2)?.known()?;
        let count = updates_shape.iter().try_fold(1_u64, |acc, d| acc.checked_mul(*d))?;
        if self.reduction != "none" || count > Value::MAX_ELEMENTS {
            return None;
        }
        for index in indices(&updates_shape) {
            let Some(place) = self.place(x, at, &index) else {
                out.data.fill(Num::Unknown);
                return Some(out);
            };
            let new = updates.and_then(|v| fold::element(v, &index)).cloned().unwrap_or(Num::Unknown);
            let flat = fold::element(x, &place).map(|_| x.broadcast_index(&place));
            *out.data.get_mut(flat?)? = new;
        }
        Some(out)
    }

    fn place(&self, x: &Value, at: &Value, index: &[u64]) -> Option<Vec<u64>> {
        match self.places {
            Places::Elements(axis) => {
                let axis = crate::shape::normalize_axis(axis, x.shape.len())?;
                let mut place = index.to_vec();
                *place.get_mut(axis)? = normalize(fold::element(at, index)?, *x.shape.get(axis)?)?;
                Some(place)
            }
            Places::Tuples => {
                let tuples = at.shape.len().checked_sub(1)?;
                let mut place = Vec::with_capacity(x.shape.len());
                for k in 0..*at.shape.last()? {
                    let n = fold::element(at, &[index.get(..tuples)?, &[k]].concat())?;
                    place.push(normalize(n, *x.shape.get(place.len())?)?);
                }
                place.extend_from_slice(index.get(tuples..)?);
                Some(place)
            }
            Places::Cache => None,
        }
    }

    /// Which inputs are indices and updates.
    fn roles(&self) -> (usize, usize) {
        if self.places == Places::Cache { (2, 1) } else { (1, 2) }
    }
}

impl Op for Scatter {
    fn name(&self) -> &str {
        self.name
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        let (at, updates) = self.roles();
        cx.require(0)?;
        cx.require(updates)?;
        if self.places != Places::Cache {
            cx.require(at)?;
        }
        if let (Places::Elements(axis), Some(x)) = (self.places, cx.shape(0)) {
            x.axis(axis).ok_or_else(|| {
                OpError::input(0, format!("a rank that has axis {axis}"), format!("shape {x}"))
            })?;
            cx.shape_of_rank(at, x.rank())?;
        }
        let folded = if self.places == Places::Cache { None } else { self.fold(cx) };
        cx.set(0, cx.dtype(0), cx.shape(0).cloned());
        if let Some(value) = folded {
            cx.set_value(0, value);
        }
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let (at, updates) = self.roles();
        let (name, own) = match (self.places, &*self.reduction) {
            (Places::Elements(_), "none") => ("scatter", Grad::Pointwise),
            (Places::Elements(_), "add") => ("scatter_add", Grad::Pass),
            (Places::Elements(_), _) => ("scatter_reduce", Grad::New),
            (Places::Tuples, "add") => ("index_put", Grad::Pass),
            (Places::Tuples, _) => ("index_put", Grad::Pointwise),
            (Places::Cache, _) => ("index_copy", Grad::Pointwise),
        };
        let mut call = Call::new(name)
            .input(Operand::Input(0), own)
            .input(Operand::Input(updates), Grad::New)
            .output(l.out_shape(0), OutDtype::Like(0), Place::New);
        if l.state(at).is_some() {
            call = call.input(Operand::Input(at), Grad::None).saves([Saved::Input(2)]);
        }
        if matches!(name, "scatter_add" | "index_put") {
            call = call.autocast(Autocast::Promote);
        }
        if name == "scatter_reduce" {
            call = call.saves([Saved::Input(0), Saved::Input(1), Saved::Output(0)]);
        }
        if name == "index_put" && self.reduction == "none" && l.state(0).is_some_and(|s| s.requires_grad) {
            // grad.index_put(indices, zeros_like(values))
            call = call.backward_scratch(l.shape(updates), OutDtype::Like(1));
        }
        l.finish(call);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{In, calls, float, folded, ints, run, shape};
    use super::*;
    use crate::{Attribute, DType, Shape, Type};

    #[test]
    fn places_are_written() {
        let tuple = In::Value(Value {
            dtype: DType::Int64,
            shape: vec![2, 1],
            data: vec![Num::Int(0), Num::Int(-1)],
        });
        let inputs = [ints(&[1, 2, 3]), tuple, ints(&[8, 9])];
        assert_eq!(folded("ScatterND", Attributes::default(), &inputs).unwrap(), [8, 2, 9]);
        let inputs = [ints(&[1, 2, 3]), ints(&[1]), ints(&[7])];
        assert_eq!(folded("ScatterElements", Attributes::default(), &inputs).unwrap(), [1, 7, 3]);
    }

    #[test]
    fn an_unknown_place_may_be_any() {
        let at = In::Value(Value::vector(DType::Int64, [Num::Unknown]));
        let out =
            run("ScatterElements", 18, Attributes::default(), &[ints(&[1, 2]), at, ints(&[7])], 1).unwrap();
        assert_eq!(out[0].1.as_ref().unwrap().data, [Num::Unknown, Num::Unknown]);
    }

    #[test]
    fn the_shape_is_the_input_s() {
        let at = In::Typed(Type::tensor(DType::Int64, Shape::from([1, 2])));
        let inputs = [float(&[3, 3]), at.clone(), float(&[1, 2])];
        assert_eq!(shape("ScatterElements", 18, Attributes::default(), &inputs).unwrap(), "3x3");
        let wrong = Attributes::from([("axis", Attribute::Int(2))]);
        assert!(shape("ScatterElements", 18, wrong, &inputs).is_err());
        let calls = calls("ScatterElements", 18, Attributes::default(), &inputs, 1);
        assert_eq!((calls[0].function, &calls[0].saved[..]), ("scatter", &[Saved::Input(2)][..]));
    }
}
