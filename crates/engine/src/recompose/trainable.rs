//! What of a file can't be trained, which a look at the numbers would not tell.
//!
//! Weights that were quantised for inference are integers: they have no gradient and count as buffers. A file without any weight
//! that trains (trees, linear models of ai.onnx.ml, which hold theirs in attributes) has no backward and no optimizer
//! state, so that its "step" is forward alone, and nearly any batch fits.

use super::Finding;
use super::rewriter::Rewriter;
use crate::parameters::{Stored, by_use};
use memfit_graph::{DType, Role, TensorId, Variable, order};

/// Says so.
pub(super) fn find(rw: &Rewriter<'_>) -> Vec<Finding> {
    let nodes = rw.node_ids();
    let inputs = nodes.iter().flat_map(|id| rw.node(*id).inputs.iter().flatten());
    let read = order::set(inputs.map(|t| t.index()));
    let mut findings = Vec::new();
    let quantised: Vec<String> = (0..)
        .map(TensorId)
        .zip(&rw.graph.tensors)
        .filter(|(id, t)| t.role == Role::Initializer && read.contains(&id.index()) && is_quantised(rw, *id))
        .map(|(_, t)| t.name.to_string())
        .collect();
    if !quantised.is_empty() {
        let message = format!(
            "{} weights are integers, quantised for inference: they have no gradient and count as buffers; to train, give \
             the model as it was before",
            quantised.len()
        );
        findings.push(Finding { kind: "quantised-weights", message, layers: quantised });
    }
    let kinds = by_use(rw.graph);
    let trains = |i: &usize| match rw.graph.tensors[*i].variable {
        Some(variable) => variable == Variable::Trainable,
        None => kinds[*i] == Some(Stored::Parameter),
    };
    if !nodes.is_empty() && !read.iter().any(trains) {
        let message = "nothing in this file is trained: there is neither backward nor optimizer state, and the step is forward \
                       alone";
        findings.push(Finding { kind: "nothing-trains", message: message.to_owned(), layers: Vec::new() });
    }
    findings
}

/// Whether a stored tensor is a matrix or more of small integers.
fn is_quantised(rw: &Rewriter<'_>, id: TensorId) -> bool {
    let small = matches!(rw.dtype(id), DType::Int4 | DType::Uint4 | DType::Int8 | DType::Uint8);
    small && rw.rank(id).is_some_and(|rank| rank > 1)
}

#[cfg(test)]
mod tests {
    use crate::recompose::testing::Sketch;
    use memfit_graph::{DType, Role, Shape, Type};

    fn kinds(s: &Sketch) -> Vec<&str> {
        s.report.findings.iter().map(|f| f.kind).collect()
    }

    #[test]
    fn a_model_without_weights_trains_nothing() {
        let mut s = Sketch::default();
        let (x, w) = (s.input("x", &[2, 8]), s.weight("w", &[8, 4]));
        let y = s.push("MatMul", &[x, w]);
        s.recompose(y);
        assert!(kinds(&s).is_empty());
        let mut s = Sketch::default();
        let x = s.input("x", &[2, 8]);
        let y = s.push("Relu", &[x]);
        s.recompose(y);
        assert_eq!(kinds(&s), ["nothing-trains"]);
    }

    #[test]
    fn integer_weights_are_told() {
        let mut s = Sketch::default();
        let x = s.input("x", &[2, 8]);
        let ty = Type::tensor(DType::Int8, Shape::from([8, 4]));
        let w = s.graph.add_tensor("w", ty, Role::Initializer);
        let scale = s.scalar(0.5);
        let w = s.push("DequantizeLinear", &[w, scale]);
        let y = s.push("MatMul", &[x, w]);
        s.recompose(y);
        assert_eq!(kinds(&s), ["quantised-weights", "nothing-trains"]);
        assert_eq!(s.report.findings[0].layers, ["w"]);
    }
}
