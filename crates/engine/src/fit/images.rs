//! The inputs of a model that are images, and which of their axes are height and width.
//!
//! No file says so of an input; the operators that read it do. ONNX' convolutions, pools and norms have the channels behind the batch
//! (onnx/docs/Operators.md); a layer of Keras has a `data_format` (keras/src/layers/convolutional/base_conv.py), and converters from
//! TensorFlow write a Transpose before the first convolution.

use memfit_graph::ops::transpose::Transpose;
use memfit_graph::{Graph, Node, TensorId};

/// An input, and those of its axes that are of a kind.
pub(super) type Axes = (TensorId, Vec<usize>);

/// Inputs of floats with a batch, channels, a height and a width, and perhaps a depth before these; with the axes of height and width.
pub(super) fn images(graph: &Graph) -> Vec<Axes> {
    let rank = |id: TensorId| {
        let ty = &graph.tensor(id).declared;
        ty.dtype().filter(|d| d.is_float()).and(ty.shape()).map_or(0, |shape| shape.rank())
    };
    let inputs = graph.inputs.iter().map(|id| (*id, rank(*id))).filter(|(_, rank)| [4, 5].contains(rank));
    inputs.map(|(id, rank)| (id, spatial(graph, id, rank))).collect()
}

/// Height and width of an input.
fn spatial(graph: &Graph, input: TensorId, rank: usize) -> Vec<usize> {
    // Axis `i` of what is read is axis `order[i]` of the input.
    let mut order: Vec<usize> = (0..rank).collect();
    let (mut read, mut last) = (input, false);
    for node in &graph.nodes {
        // A size that is asked for says nothing of what it is.
        if !node.inputs.contains(&Some(read)) || node.op.name() == "Shape" {
            continue;
        }
        if let Some(told) = node.op.channels_last() {
            last = told;
            break;
        }
        if let Some(transpose) = node.op.downcast::<Transpose>() {
            let Ok(by) = transpose.permutation(rank) else { break };
            order = by.into_iter().map(|axis| order[axis]).collect();
        } else if !keeps_axes(node) {
            break;
        }
        let Some(Some(made)) = node.outputs.first() else { break };
        read = *made;
    }
    let mut axes = if last { order[rank - 3..rank - 1].to_vec() } else { order[rank - 2..].to_vec() };
    axes.sort_unstable();
    axes
}

/// Whether an operator that says nothing of channels leaves every axis where it is, as what prepares an image does.
fn keeps_axes(node: &Node) -> bool {
    let name = node.op.name();
    name.starts_with("keras.")
        || ["Add", "Cast", "Clip", "Concat", "Div", "Identity", "Mul", "Pad", "Slice", "Sub"].contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_graph::{Attribute, Attributes, DType, Role, Shape, Type};

    fn graph<const N: usize>(dims: [u64; N]) -> (Graph, TensorId) {
        let mut g = Graph::default();
        let x = g.add_tensor("x", Type::tensor(DType::Float32, Shape::from(dims)), Role::Input);
        g.inputs = vec![x];
        (g, x)
    }

    fn turned(g: &mut Graph, x: TensorId, perm: &[i64]) -> TensorId {
        let perm = Attributes::from([("perm", Attribute::Ints(perm.to_vec()))]);
        g.push("Transpose", perm, &[x], "turned").unwrap()
    }

    #[test]
    fn height_and_width_come_last_unless_a_transpose_puts_them_there() {
        let (mut g, x) = graph([1, 224, 224, 3]);
        assert_eq!(images(&g), [(x, vec![2, 3])]);
        let small = g.push("Mul", Attributes::default(), &[x, x], "small").unwrap();
        turned(&mut g, small, &[0, 3, 1, 2]);
        assert_eq!(images(&g), [(x, vec![1, 2])]);
    }

    #[test]
    fn a_volume_keeps_its_depth_and_what_turns_later_says_nothing() {
        let (mut g, x) = graph([1, 3, 16, 112, 112]);
        assert_eq!(images(&g), [(x, vec![3, 4])]);
        let y = g.push("Relu", Attributes::default(), &[x], "y").unwrap();
        turned(&mut g, y, &[0, 2, 3, 4, 1]);
        assert_eq!(images(&g), [(x, vec![3, 4])]);
        assert!(images(&graph([1, 3]).0).is_empty());
    }
}
