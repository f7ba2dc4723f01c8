//! If. ONNX 1, 11, 13, 16, 19, 21, 23, 24, 25.
//!
//! Exporters write it where a size decides (`squeeze` of an axis that may have one element), so the condition is often known
//! once the sizes are, and then only the branch that runs counts.

use super::bodies::{self, Typed};
use crate::{Graph, Infer, Lowering, Op, OpError, OpSpec};
use std::sync::Arc;

/// One of two bodies without inputs.
#[derive(Clone, Debug)]
pub struct If {
    /// Runs where the condition holds.
    pub then: Graph,
    /// Runs where it does not.
    pub otherwise: Graph,
}

/// How If is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "If",
    since: &[1, 11, 13, 16, 19, 21, 23, 24, 25],
    build: |a, _| {
        let mut take = |name: &str| a.take_graph(name)?.ok_or_else(|| OpError::missing_attribute(name));
        Ok(Arc::new(If { then: take("then_branch")?, otherwise: take("else_branch")? }))
    },
}];

impl Op for If {
    fn name(&self) -> &str {
        "If"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        let condition = cx.value(0).and_then(|v| v.single()?.as_i64());
        let outputs: Vec<Typed> = match condition {
            Some(0) => cx.body(&self.otherwise, &[])?,
            Some(_) => cx.body(&self.then, &[])?,
            // A branch that does not fit the shapes is the one that does not run.
            None => match (cx.body(&self.then, &[]), cx.body(&self.otherwise, &[])) {
                (Ok(a), Ok(b)) => a.iter().zip(&b).map(|(a, b)| bodies::join(a, b)).collect(),
                (Ok(one), Err(_)) | (Err(_), Ok(one)) => one,
                (Err(error), Err(_)) => return Err(error),
            },
        };
        bodies::set_all(cx, outputs);
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        bodies::lower(l, "if");
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{In, float, run};
    use crate::{Attribute, Attributes, DType, Graph, Shape, Type, Value};

    /// A branch that gives a constant vector of so many elements.
    fn branch(elements: i64) -> Attribute {
        let mut g = Graph::default();
        let out = g.add_constant("out", Value::vector(DType::Float32, (0..elements).map(|n| n as f64)));
        g.outputs = vec![out];
        Attribute::Graph(Box::new(g))
    }

    #[test]
    fn a_known_condition_takes_its_branch() {
        let branches = || Attributes::from([("then_branch", branch(2)), ("else_branch", branch(5))]);
        let of = |c| run("If", 13, branches(), &[c], 1).unwrap().remove(0).0;
        assert_eq!(of(In::Value(Value::scalar(DType::Bool, 0))).shape(), Some(&Shape::from([5])));
        let either = of(In::Typed(Type::tensor(DType::Bool, Shape::scalar())));
        assert_eq!(either.shape().unwrap().upper(), Some(vec![5]));
        let lacking = Attributes::from([("then_branch", branch(2))]);
        assert!(run("If", 13, lacking, &[float(&[])], 1).is_err());
    }
}
