//! What a script compares a model's outputs with: the file does not say it.
//!
//! So it is chosen from the outputs' shapes and named among the assumptions. Where classes lie, and whether logits are cast up to float32
//! first, follows from the last layers.

use crate::tables::is_square;
use crate::{Loss, Structure};
use memfit_graph::ops::scaled_dot_product::ScaledDotProductAttention;
use memfit_graph::ops::transpose::Transpose;
use memfit_graph::{DType, Graph, Role, Tensor, TensorId, elements};

/// The loss that a script would use for these outputs, with a sentence that says why.
pub(crate) fn choose(outputs: &[Vec<u64>], inputs: &[(Vec<u64>, DType)]) -> (Loss, String) {
    let Some(output) = outputs.first() else {
        return (Loss::None, "loss: no output follows from a trained parameter".into());
    };
    let same_as_input = inputs.iter().any(|(shape, dtype)| dtype.is_float() && shape == output);
    let per_sample = elements(output.get(1..).unwrap_or_default());
    let image_in = inputs.iter().any(|(shape, _)| shape.len() == 4 && shape[2] > 1);
    let (loss, why) = match output[..] {
        _ if same_as_input => {
            (Loss::Mse, "the output has the shape of an input: mean squared error against it")
        }
        _ if per_sample <= 1 => (Loss::Bce, "one number per sample: binary cross-entropy with logits"),
        [_, 1, _, _] => (Loss::Bce, "one number per pixel: binary cross-entropy with logits"),
        [_, 3, _, _] if image_in => (Loss::Mse, "an image of another size: mean squared error"),
        [_, 3, _, _] => (Loss::None, "a generated image: the mean of the output"),
        [_, channels, height, _] if channels > height.saturating_mul(2) => {
            (Loss::None, "a feature map: the mean of the output")
        }
        _ => (Loss::CrossEntropy, "softmax cross-entropy over the classes"),
    };
    (loss, format!("loss: {why}"))
}

/// How many of the outputs are heads like the first: a classifier's auxiliary ones are compared with the same classes.
pub(crate) fn alike(outputs: &[Vec<u64>]) -> usize {
    let Some(first) = outputs.first() else { return 0 };
    outputs.iter().take_while(|s| s.len() == first.len() && s.last() == first.last()).count()
}

/// The axis on which classes lie where nothing says otherwise: `[batch, tokens, classes]`, `[batch, classes, …]`.
pub(crate) fn usual_class_axis(rank: usize) -> usize {
    if rank == 3 { 2 } else { 1 }
}

/// The classes of an output.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Classes {
    /// The axis on which they lie.
    pub(crate) axis: usize,
    /// Whether their logits are cast up to float32 first.
    pub(crate) upcast: bool,
}

/// Where an output of this shape has its classes, and whether it is the logits of a causal language model: a score for each row of
/// its table at each position.
pub(crate) fn classes(graph: &Graph, structure: &Structure, output: TensorId, shape: &[u64]) -> Classes {
    // Keras' losses have them last.
    let axis = if structure.is_keras {
        shape.len().saturating_sub(1)
    } else {
        class_axis(graph, output, shape.len())
    };
    let is_logits = |rows: u64| axis == 2 && shape.len() == 3 && shape[2] == rows;
    Classes { axis, upcast: structure.causal_vocabulary.is_some_and(is_logits) }
}

/// The axis of a model's output on which its classes lie. A linear layer writes them last, a convolution on axis 1; models turn
/// the former's around for `F.cross_entropy`, which wants them there.
fn class_axis(graph: &Graph, output: TensorId, rank: usize) -> usize {
    let (mut t, mut axis) = (output, usual_class_axis(rank));
    if rank != 3 {
        return axis;
    }
    for node in graph.nodes.iter().rev() {
        if !node.outputs.contains(&Some(t)) {
            continue;
        }
        let made = |id: &&TensorId| graph.tensor(**id).role == Role::Intermediate;
        let Some(source) = node.inputs.iter().flatten().find(made) else { break };
        match node.op.name() {
            "Transpose"
                if node.op.downcast::<Transpose>().and_then(|t| t.permutation(3).ok())
                    == Some(vec![0, 2, 1]) =>
            {
                axis = 3 - axis;
            }
            "Add" | "Cast" | "Identity" | "LogSoftmax" | "Softmax" => {}
            "Conv" | "ConvTranspose" => return 3 - axis,
            _ => break,
        }
        t = *source;
    }
    axis
}

/// The shape of the targets that the loss reads and their dtype, for classes on `class_axis`; `None` where it reads none of its own.
pub(crate) fn target(loss: Loss, output: &[u64], class_axis: usize) -> Option<(Vec<u64>, DType)> {
    match loss {
        Loss::CrossEntropy => {
            let mut shape = output.to_vec();
            if shape.len() > 1 && class_axis < shape.len() {
                shape.remove(class_axis);
            }
            Some((shape, DType::Int64))
        }
        Loss::Mse | Loss::Bce => Some((output.to_vec(), DType::Float32)),
        Loss::Auto | Loss::None => None,
    }
}

/// How many tokens a causal language model knows, where a model is one: one embedded sequence, read without looking ahead. Either its
/// attention is masked (a file of a fixed length may hold nothing of that but a stored mask, whose values are not read), or
/// it has none at all and carries a state from token to token in operations of its own, as Mamba and RWKV do. transformers
/// casts the logits of these up to float32 (loss/loss_utils.py, `ForCausalLMLoss`, 5.x), and of no others.
pub(crate) fn causal_vocabulary(graph: &Graph) -> Option<u64> {
    // The input that each tensor is a view of, and the table whose rows each input chooses first.
    let mut views = vec![None; graph.tensors.len()];
    graph.inputs.iter().for_each(|id| views[id.index()] = Some(*id));
    let mut tables = vec![None; graph.tensors.len()];
    for node in &graph.nodes {
        let input = |i: usize| node.inputs.get(i).copied().flatten();
        let view = |i: usize| views[input(i)?.index()];
        match node.op.name() {
            "Gather" => {
                if let (Some(of), Some(table)) = (view(1), input(0)) {
                    tables[of.index()].get_or_insert(table);
                }
            }
            "Reshape" | "Cast" | "Unsqueeze" | "Squeeze" => {
                if let Some(of) = view(0) {
                    node.outputs.iter().flatten().for_each(|id| views[id.index()] = Some(of));
                }
            }
            _ => {}
        }
    }
    let mut tables = tables.into_iter().flatten();
    let (Some(table), None) = (tables.next(), tables.next()) else { return None };
    let is_signal = |id: &TensorId| {
        let declared = &graph.tensor(*id).declared;
        declared.dtype().is_some_and(|d| d.is_float()) && declared.shape().is_some_and(|s| s.rank() > 2)
    };
    let looks_back = graph.nodes.iter().any(|n| {
        let fused = n.op.downcast::<ScaledDotProductAttention>().is_some_and(|a| a.is_causal);
        fused || matches!(n.op.name(), "LessOrEqual" | "Trilu")
    });
    // What looks at all positions at once, and the recurrent layers of PyTorch's own, which scripts train on logits as they are.
    let mixes = ["Softmax", "ScaledDotProductAttention", "LSTM", "GRU", "RNN", "DFT"];
    let carries_state = || !graph.nodes.iter().any(|n| mixes.contains(&n.op.name()));
    // Truth values, or zeros and ones for all heads of all samples.
    let is_stored_mask = |tensor: &Tensor| {
        let shape = tensor.declared.shape().filter(|shape| is_square(shape));
        let is_mask = shape.is_some_and(|shape| match tensor.declared.dtype() {
            Some(DType::Bool) => true,
            Some(dtype) => dtype.is_float() && shape.rank() == 4,
            None => false,
        });
        matches!(tensor.role, Role::Initializer | Role::Constant) && is_mask
    };
    let looks_back = looks_back || graph.tensors.iter().any(is_stored_mask) || carries_state();
    let is_one = looks_back && !graph.inputs.iter().any(is_signal);
    graph.tensor(table).declared.shape().filter(|_| is_one)?.upper()?.first().copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_graph::{Attribute, Attributes, Shape, Type};

    #[test]
    fn the_outputs_shape_chooses_the_loss() {
        let image = || (vec![8, 3, 64, 64], DType::Float32);
        let chosen = |out: &[u64], inputs: &[(Vec<u64>, DType)]| choose(&[out.to_vec()], inputs).0;
        assert_eq!(chosen(&[8, 1000], &[image()]), Loss::CrossEntropy);
        assert_eq!(chosen(&[8, 21, 64, 64], &[image()]), Loss::CrossEntropy);
        assert_eq!(chosen(&[8, 256, 32, 32], &[image()]), Loss::None);
        assert_eq!(chosen(&[8, 3, 64, 64], &[image()]), Loss::Mse);
        assert_eq!(chosen(&[8, 1, 1, 1], &[image()]), Loss::Bce);
        assert_eq!(chosen(&[8, 128, 30522], &[(vec![8, 128], DType::Int64)]), Loss::CrossEntropy);
        assert_eq!(chosen(&[8, 3, 64, 64], &[(vec![8, 100, 1, 1], DType::Float32)]), Loss::None);
    }

    #[test]
    fn a_stored_mask_over_pairs_of_positions_looks_back() {
        let model = |mask: &[u64], dtype, attends: bool| {
            let mut graph = Graph::default();
            let mut add = |name: &str, shape: &[u64], dtype, role| {
                graph.add_tensor(name, Type::tensor(dtype, Shape::from(shape)), role)
            };
            let ids = add("ids", &[2, 96], DType::Int64, Role::Input);
            let table = add("table", &[4000, 64], DType::Float32, Role::Initializer);
            add("mask", mask, dtype, Role::Initializer);
            graph.inputs = vec![ids];
            let x = graph.push("Gather", Attributes::default(), &[table, ids], "embedded").unwrap();
            if attends {
                graph.push("Softmax", Attributes::default(), &[x], "p").unwrap();
            }
            causal_vocabulary(&graph) == Some(4000)
        };
        assert!(model(&[1], DType::Float32, false) && !model(&[1], DType::Float32, true));
        let model = |mask: &[u64], dtype| model(mask, dtype, true);
        assert!(model(&[1, 1, 96, 96], DType::Bool) && model(&[96, 96], DType::Bool));
        assert!(model(&[1, 1, 96, 96], DType::Float32) && !model(&[96, 96], DType::Float32));
        for mask in [&[1, 1, 1, 96][..], &[4, 4, 96, 96], &[1, 1]] {
            assert!(!model(mask, DType::Bool), "{mask:?}");
        }
    }

    #[test]
    fn targets_are_one_class_per_position() {
        let of = |loss, output: &[u64]| target(loss, output, usual_class_axis(output.len()));
        assert_eq!(of(Loss::CrossEntropy, &[8, 128, 1000]), Some((vec![8, 128], DType::Int64)));
        assert_eq!(of(Loss::CrossEntropy, &[8, 21, 64, 64]), Some((vec![8, 64, 64], DType::Int64)));
        assert_eq!(of(Loss::None, &[8, 3]), None);
    }

    #[test]
    fn the_last_layer_says_where_classes_lie() {
        let axis = |layer: &str, turned: bool| {
            let mut g = Graph::default();
            let x = g.add_tensor("x", Type::Unknown, Role::Input);
            let mut y = g.push("Relu", Attributes::default(), &[x], "x").unwrap();
            y = g.push(layer, Attributes::default(), &[y, x], "y").unwrap();
            if turned {
                let perm = Attributes::from([("perm", Attribute::Ints(vec![0, 2, 1]))]);
                y = g.push("Transpose", perm, &[y], "turned").unwrap();
            }
            class_axis(&g, y, 3)
        };
        assert_eq!((axis("MatMul", false), axis("MatMul", true)), (2, 1));
        assert_eq!((axis("Conv", false), axis("Conv", true)), (1, 2));
    }
}
