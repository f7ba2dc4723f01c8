//! Functions of one tensor that exporters write out and PyTorch runs as one kernel.
//!
//! - `torch.square(F.relu(x))`, the activation of Primer, RWKV, Persimmon and Nemotron (transformers, activations.py, `relu2`): the
//!   TorchScript exporter writes a product of the tensor with itself (torch/onnx, symbolic_opset9.py, `square`). PyTorch runs
//!   `pow`, which autocast does in float32. Other such products may be a model's own `x * x`.
//! - `torch.log1p(x)`: the logarithm of a sum in which the one comes first there (symbolic_opset9.py, `log1p`), as it does in no
//!   model's own `torch.log(1 + x)`, and which the dynamo exporter names after the function. It keeps `x` (derivatives.yaml:
//!   `log1p`), of which the sum is another tensor.

use super::Pass;
use super::rewriter::Rewriter;
use memfit_graph::ops::pow::Pow;
use memfit_graph::ops::unary::LOG1P;
use memfit_graph::{DType, NodeId, TensorId, Value};
use std::sync::Arc;

pub(super) const PASS: Pass = Pass { name: "functions written out", run };

fn run(rw: &mut Rewriter<'_>, id: NodeId) -> bool {
    let (op, inputs) = if let Some(x) = squared(rw, id) {
        let two = rw.add_value(Value::scalar(DType::Float32, 2.0));
        (Arc::new(Pow) as _, vec![Some(x), Some(two)])
    } else if let Some(x) = one_more(rw, id) {
        (Arc::new(LOG1P) as _, vec![Some(x)])
    } else {
        return false;
    };
    rw.rewrite(id, op, inputs);
    true
}

fn squared(rw: &Rewriter<'_>, id: NodeId) -> Option<TensorId> {
    let [Some(x), Some(again)] = rw.node(id).inputs[..] else { return None };
    let is_square = rw.is(id, "Mul") && x == again && rw.is_legacy(id);
    rw.made_by(x, "Relu").filter(|_| is_square).map(|_| x)
}

/// What `log1p` reads.
fn one_more(rw: &Rewriter<'_>, id: NodeId) -> Option<TensorId> {
    let sum = rw.made_for_one(rw.input(id, 0).filter(|_| rw.is(id, "Log"))?, "Add")?;
    let (first, x) = (rw.input(sum, 0)?, rw.times(sum, 1.0)?);
    let is_own = if rw.is_legacy(id) { first != x } else { rw.is_named_after(rw.output(id)?, "log1p") };
    is_own.then_some(x)
}

#[cfg(test)]
mod tests {
    use crate::recompose::testing::Sketch;

    #[test]
    fn the_square_of_a_relu_is_a_power() {
        for (function, expected) in [("Relu", "Pow"), ("Tanh", "Mul")] {
            let mut s = Sketch::default();
            let x = s.input("x", &[2, 8]);
            let y = s.push(function, &[x]);
            let z = s.push("Mul", &[y, y]);
            let node = s.graph.nodes.last_mut().unwrap();
            node.name = "/act/Mul".into();
            assert_eq!(s.recompose(z), [function, expected]);
        }
    }

    #[test]
    fn the_logarithm_of_one_and_a_tensor_is_log1p_where_an_exporter_wrote_it() {
        for (name, comes_first, count) in
            [("/Log", true, 1), ("/Log", false, 2), ("node_log", true, 2), ("log1p", false, 1)]
        {
            let mut s = Sketch::default();
            let (x, one) = (s.input("x", &[2, 8]), s.scalar(1.0));
            let terms = if comes_first { [one, x] } else { [x, one] };
            let y = s.push("Add", &terms);
            let z = s.push("Log", &[y]);
            s.graph.nodes.last_mut().unwrap().name = name.into();
            s.graph.tensors[z.index()].name = name.into();
            let ops = s.recompose(z);
            assert_eq!((ops.len(), ops[count - 1]), (count, if count == 1 { "Log1p" } else { "Log" }));
        }
    }
}
