//! GLU and LogSigmoid: kernels that both exporters write as a few nodes around a Sigmoid.
//!
//! A model may write the same pieces itself, and they run as they stand. What tells them apart for GLU: the legacy exporter gives
//! the halves no sizes (torch/onnx, symbolic_opset9.py, `glu`), while `chunk` and `split` always come with theirs; the
//! dynamo exporter names a result after PyTorch's function. The logarithm of a sigmoid looks alike in legacy files; it is
//! taken for the function, which is what PyTorch's documentation tells to use.

use super::Pass;
use super::rewriter::Rewriter;
use memfit_graph::ops::glu::Glu;
use memfit_graph::ops::log_sigmoid::LogSigmoid;
use memfit_graph::ops::split::Split;
use memfit_graph::{NodeId, Op, TensorId};
use std::sync::Arc;

pub(super) const PASS: Pass = Pass { name: "sigmoid inside of a function", run };

fn run(rw: &mut Rewriter<'_>, id: NodeId) -> bool {
    let Some((op, x)) = glu(rw, id).or_else(|| log_sigmoid(rw, id)) else { return false };
    rw.rewrite(id, op, vec![Some(x)]);
    true
}

/// The first half times the sigmoid of the second.
fn glu(rw: &Rewriter<'_>, id: NodeId) -> Option<(Arc<dyn Op>, TensorId)> {
    if !rw.is(id, "Mul") {
        return None;
    }
    let (sigmoid, first) = rw.operands(id, |t| rw.made_for_one(t, "Sigmoid"))?;
    let second = rw.input(sigmoid, 0)?;
    let split = rw.made_for_one(second, "Split")?;
    let halves = rw.node(split).outputs == [Some(first), Some(second)] && rw.sole_reader(first) == Some(id);
    let of_function = if rw.is_legacy(id) {
        rw.input(split, 1).is_none()
    } else {
        rw.is_named_after(rw.output(id)?, "glu")
    };
    let op = rw.op::<Split>(split).filter(|op| op.sizes.is_none())?;
    (halves && of_function).then_some(())?;
    Some((Arc::new(Glu { axis: op.axis }), rw.input(split, 0)?))
}

/// The logarithm of a sigmoid.
fn log_sigmoid(rw: &Rewriter<'_>, id: NodeId) -> Option<(Arc<dyn Op>, TensorId)> {
    if !rw.is(id, "Log") || !(rw.is_legacy(id) || rw.is_named_after(rw.output(id)?, "log_sigmoid")) {
        return None;
    }
    let sigmoid = rw.made_for_one(rw.input(id, 0)?, "Sigmoid")?;
    Some((Arc::new(LogSigmoid), rw.input(sigmoid, 0)?))
}

#[cfg(test)]
mod tests {
    use crate::recompose::testing::Sketch;
    use memfit_graph::{Attribute, Attributes, Role, TensorId, Type};

    /// Names every node as an exporter does, the last one's result `result`.
    fn names(s: &mut Sketch, y: TensorId, legacy: bool, result: &str) -> Vec<String> {
        for node in &mut s.graph.nodes {
            node.name = format!("{}{}", if legacy { "/" } else { "node_" }, node.name).into();
        }
        s.graph.tensors[y.index()].name = result.into();
        let y = s.push("Relu", &[y]);
        s.recompose(y).into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn halves_without_sizes_or_with_the_functions_name() {
        for (legacy, sized, result, found) in [
            (true, false, "/Mul_output_0", true),
            (true, true, "/Mul_output_0", false),
            (false, false, "glu_2", true),
            (false, false, "mul_2", false),
        ] {
            let mut s = Sketch::default();
            let x = s.input("x", &[2, 8, 5]);
            let sizes = s.ints(&[4, 4]);
            let axis = Attributes::from([("axis", Attribute::Int(1))]);
            let inputs = if sized { vec![x, sizes] } else { vec![x] };
            let a = s.push_with("Split", axis, &inputs);
            let b = s.graph.add_tensor("second", Type::Unknown, Role::Intermediate);
            s.graph.nodes[0].outputs.push(Some(b));
            let gate = s.push("Sigmoid", &[b]);
            let y = s.push("Mul", &[a, gate]);
            let names = names(&mut s, y, legacy, result);
            assert_eq!(names.contains(&"Glu".to_owned()), found, "{names:?} {result}");
        }
    }

    #[test]
    fn the_logarithm_of_a_sigmoid() {
        for (legacy, result, found) in
            [(true, "/Log_output_0", true), (false, "log_sigmoid", true), (false, "log", false)]
        {
            let mut s = Sketch::default();
            let x = s.input("x", &[2, 8]);
            let p = s.push("Sigmoid", &[x]);
            let y = s.push("Log", &[p]);
            let names = names(&mut s, y, legacy, result);
            assert_eq!(names.contains(&"LogSigmoid".to_owned()), found, "{names:?}");
        }
    }
}
