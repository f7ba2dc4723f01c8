//! Loop. ONNX 1, 11, 13, 16, 19, 21, 23, 24, 25.
//!
//! A loop whose trip count and conditions are known is run for inference, iteration by iteration, so that scan outputs and
//! growing sequences get exact shapes. Any other loop keeps of its state what no iteration changes.

use super::bodies::{self, Typed};
use crate::{DType, Dim, Graph, Infer, Lowering, Num, Op, OpError, OpSpec, Shape, Type, Value};
use std::sync::Arc;

/// Runs a body with state; further outputs of the body are stacked.
#[derive(Clone, Debug)]
pub struct Loop {
    /// Inputs: iteration, condition, state. Outputs: condition, state, one slice of each scan output.
    pub body: Graph,
}

/// How Loop is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "Loop",
    since: &[1, 11, 13, 16, 19, 21, 23, 24, 25],
    build: |a, _| {
        let body = a.take_graph("body")?.ok_or_else(|| OpError::missing_attribute("body"))?;
        Ok(Arc::new(Loop { body }))
    },
}];

/// Whether the next iteration runs; `None` where that is not known.
fn holds(condition: Option<&Value>) -> Option<bool> {
    condition?.single()?.as_i64().map(|n| n != 0)
}

fn scalar(dtype: DType, n: Num) -> Typed {
    (Type::tensor(dtype, Shape::scalar()), Some(Value::scalar(dtype, n)))
}

impl Loop {
    /// More iterations than this are not run one by one.
    const MAX_UNROLLED: u64 = 1024;

    /// Runs the iterations as long as it is known whether the next one runs; `None` where that ends.
    fn unrolled(
        &self,
        cx: &Infer<'_>,
        trips: Option<u64>,
        initial: &[Typed],
    ) -> Result<Option<Vec<Typed>>, OpError> {
        let given = cx.has(1).then(|| cx.value(1).cloned());
        let mut condition = given.unwrap_or(Some(Value::scalar(DType::Bool, 1)));
        let mut state = initial.to_vec();
        let mut scans: Vec<Type> = Vec::new();
        for trip in 0.. {
            let (Some(runs), below) = (holds(condition.as_ref()), trips.is_none_or(|n| trip < n)) else {
                return Ok(None);
            };
            if !runs || !below {
                let scans = scans.iter().map(|element| (bodies::stacked(Dim::Known(trip), element), None));
                return Ok((trip > 0).then(|| state.into_iter().chain(scans).collect()));
            }
            if trip >= Loop::MAX_UNROLLED || !cx.affords(&self.body, 1) {
                return Ok(None);
            }
            let iteration = scalar(DType::Int64, Dim::Known(trip).into());
            let holding = (Type::tensor(DType::Bool, Shape::scalar()), condition);
            let inputs = [vec![iteration, holding], state.clone()].concat();
            let mut outputs = cx.body(&self.body, &inputs)?.into_iter();
            condition = outputs.next().and_then(|(_, value)| value);
            state = outputs.by_ref().take(state.len()).collect();
            let elements: Vec<Type> = outputs.map(|(ty, _)| ty).collect();
            scans = if trip == 0 {
                elements
            } else {
                scans.iter().zip(&elements).map(|(a, b)| a.join(b)).collect()
            };
        }
        Ok(None)
    }

    /// What holds after any number of iterations.
    fn any_count(&self, cx: &Infer<'_>, initial: Vec<Typed>) -> Result<Vec<Typed>, OpError> {
        let starts = !cx.has(1) || holds(cx.value(1)) == Some(true);
        let none = !starts && holds(cx.value(1)) == Some(false);
        let count = initial.len();
        let step = |state: &[Typed]| {
            [vec![scalar(DType::Int64, Num::Unknown), scalar(DType::Bool, Num::Int(1))], state.to_vec()]
                .concat()
        };
        let (state, outputs) = bodies::stable(cx, &self.body, initial, 1, step)?;
        let goes_on = outputs.first().is_some_and(|(_, value)| holds(value.as_ref()) == Some(true));
        let trips = cx.value(0).and_then(Value::single).and_then(Num::as_dim);
        let length = match trips {
            _ if none => Dim::Known(0),
            Some(trips) if (starts && goes_on) || trips == Dim::Known(0) => trips,
            trips => cx.fresh_dim("trips", trips.and_then(|d| d.upper())),
        };
        let scans = outputs.iter().skip(1 + count).map(|(ty, _)| (bodies::stacked(length.clone(), ty), None));
        Ok(state.into_iter().chain(scans).collect())
    }
}

impl Op for Loop {
    fn name(&self) -> &str {
        "Loop"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        let count = cx.input_count().saturating_sub(2);
        if self.body.inputs.len() != count + 2 || self.body.outputs.len() < count + 1 {
            let found = format!("{} inputs and {} outputs", self.body.inputs.len(), self.body.outputs.len());
            return Err(OpError::mismatch(format!("a body for {count} states"), found));
        }
        let initial: Vec<Typed> = (0..count).map(|k| bodies::typed(cx, k + 2)).collect();
        let trips = cx.value(0).and_then(Value::single).and_then(Num::as_i64);
        let trips = trips.map(|n| u64::try_from(n).unwrap_or(0));
        let known = !cx.has(0) || trips.is_some_and(|n| n <= Loop::MAX_UNROLLED && cx.affords(&self.body, n));
        let unrolled = if known { self.unrolled(cx, trips, &initial)? } else { None };
        let outputs = match unrolled {
            Some(outputs) => outputs,
            None => {
                let runs_never = trips == Some(0) || (cx.has(1) && holds(cx.value(1)) == Some(false));
                let before = initial.clone();
                let mut outputs = self.any_count(cx, initial)?;
                if runs_never {
                    outputs.iter_mut().zip(before).for_each(|(out, before)| *out = before);
                }
                outputs
            }
        };
        bodies::set_all(cx, outputs);
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        bodies::lower(l, "loop");
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{In, float, int, run};
    use super::*;
    use crate::{Attribute, Attributes, Role, TensorId};

    /// Each iteration joins the state with itself and hands its iteration number out; it goes on as `condition` says.
    fn doubling(condition: Option<i64>) -> Attributes {
        let mut g = Graph::default();
        let input = |g: &mut Graph, name: &str| {
            let id = g.add_tensor(name, Type::Unknown, Role::Input);
            g.inputs.push(id);
            id
        };
        let inputs: Vec<TensorId> = ["i", "c", "v"].iter().map(|n| input(&mut g, n)).collect();
        let out = match condition {
            Some(n) => g.add_constant("out", Value::scalar(DType::Bool, n)),
            None => g.add_tensor("out", Type::tensor(DType::Bool, Shape::scalar()), Role::Initializer),
        };
        let axis = Attributes::from([("axis", Attribute::Int(0))]);
        let v = g.push("Concat", axis, &[inputs[2], inputs[2]], "w").unwrap();
        g.outputs = vec![out, v, inputs[0]];
        Attributes::from([("body", Attribute::Graph(Box::new(g)))])
    }

    fn shapes(a: Attributes, trips: In) -> Vec<String> {
        let yes = In::Value(Value::scalar(DType::Bool, 1));
        let out = run("Loop", 13, a, &[trips, yes, float(&[3, 2])], 2).unwrap();
        out.iter().map(|(ty, _)| ty.shape().unwrap().to_string()).collect()
    }

    #[test]
    fn a_known_count_is_run() {
        assert_eq!(shapes(doubling(Some(1)), int(3)), ["24x2", "3"]);
        assert_eq!(shapes(doubling(Some(0)), int(3)), ["6x2", "1"]);
        assert_eq!(shapes(doubling(Some(0)), In::Absent), ["6x2", "1"]);
        assert_eq!(shapes(doubling(Some(1)), int(0)), ["3x2", "0"]);
    }

    #[test]
    fn an_unknown_count_keeps_what_does_not_change() {
        assert_eq!(shapes(doubling(None), int(3)), ["y0.state0.dim0x2", "y0.trips"]);
        let symbol = In::Value(Value::scalar(DType::Int64, Num::Dim(Dim::symbol("seq"))));
        assert_eq!(shapes(doubling(Some(1)), symbol), ["y0.state0.dim0x2", "seq"]);
    }

    #[test]
    fn a_loop_without_end_ends() {
        let mut g = Graph::default();
        for name in ["i", "c"] {
            let id = g.add_tensor(name, Type::Unknown, Role::Input);
            g.inputs.push(id);
        }
        g.outputs = vec![g.inputs[1], g.inputs[0]];
        let a = Attributes::from([("body", Attribute::Graph(Box::new(g)))]);
        let of = |trips| run("Loop", 13, a.clone(), &[trips], 1).unwrap()[0].0.shape().unwrap().to_string();
        assert_eq!(of(int(1000)), "1000");
        assert_eq!(of(int(i64::MAX)), i64::MAX.to_string());
        assert_eq!(of(In::Absent), "y0.trips");
    }
}
