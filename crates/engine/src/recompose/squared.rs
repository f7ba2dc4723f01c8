//! `torch.square(F.relu(x))`, the activation of Primer, RWKV, Persimmon and Nemotron (transformers, activations.py, `relu2`).
//!
//! The TorchScript exporter writes a product of the tensor with itself (torch/onnx, symbolic_opset9.py, `square`). PyTorch runs
//! `pow`, which autocast does in float32. Other such products may be a model's own `x * x`.

use super::Pass;
use super::rewriter::Rewriter;
use memfit_graph::ops::pow::Pow;
use memfit_graph::{DType, NodeId, Value};
use std::sync::Arc;

pub(super) const PASS: Pass = Pass { name: "square", run };

fn run(rw: &mut Rewriter<'_>, id: NodeId) -> bool {
    let [Some(x), Some(again)] = rw.node(id).inputs[..] else { return false };
    if !rw.is(id, "Mul") || x != again || !rw.is_legacy(id) || rw.made_by(x, "Relu").is_none() {
        return false;
    }
    let two = rw.add_value(Value::scalar(DType::Float32, 2.0));
    rw.rewrite(id, Arc::new(Pow), vec![Some(x), Some(two)]);
    true
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
}
