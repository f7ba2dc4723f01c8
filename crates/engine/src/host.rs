//! Which values of a graph are Python numbers on the host.
//!
//! A file computes sizes with operators (`Shape`, `Gather`, `Concat`, `Reshape`); the framework computes them in Python and
//! passes them as arguments. So a tensor is on the device only if an operator reads it as data: one that only ever
//! reaches shapes, axes and the like, or whose own shape is all that is asked for, takes no memory, and neither does a
//! single number made of sizes and constants, whoever reads it.

use crate::parameters::{Stored, classify};
use memfit_graph::{Graph, Inferred, Node, Role, TensorId};

/// Inputs that are arguments rather than data: shapes, axes, bounds, and tensors whose shape or dtype alone counts.
const ARGUMENTS: &[(&str, &[usize])] = &[
    ("AffineGrid", &[1]),
    ("CastLike", &[1]),
    ("CenterCropPad", &[1]),
    ("Clip", &[1, 2]),
    ("ConstantOfShape", &[0]),
    ("CumSum", &[1]),
    ("Dropout", &[1, 2]),
    ("Expand", &[1]),
    ("EyeLike", &[0]),
    ("Loop", &[0]),
    ("OneHot", &[1, 2]),
    ("Pad", &[1, 2, 3]),
    ("RandomNormalLike", &[0]),
    ("RandomUniformLike", &[0]),
    ("Range", &[0, 1, 2]),
    ("Reshape", &[1]),
    ("Resize", &[1, 2, 3]),
    ("SequenceAt", &[1]),
    ("Shape", &[0]),
    ("Size", &[0]),
    ("Slice", &[1, 2, 3, 4]),
    ("Split", &[1]),
    ("SplitToSequence", &[1]),
    ("Squeeze", &[1]),
    ("Tile", &[1]),
    ("TopK", &[1]),
    ("Trilu", &[1]),
    ("Unsqueeze", &[1]),
    ("Upsample", &[1]),
];

/// By tensor index, what it is where it is stored, and whether it is on the host: a stored one that is, is a number.
pub(crate) fn stored(
    graph: &Graph,
    inferred: &Inferred,
    freeze: &[String],
) -> (Vec<Option<Stored>>, Vec<bool>) {
    let mut kinds = classify(graph, inferred, freeze);
    let host = tensors(graph, inferred, &kinds);
    for (kind, on_host) in kinds.iter_mut().zip(&host) {
        if *on_host && kind.is_some() {
            *kind = Some(Stored::Number);
        }
    }
    (kinds, host)
}

/// By tensor index, whether it is on the host. `kinds` is what each stored tensor is.
fn tensors(graph: &Graph, inferred: &Inferred, kinds: &[Option<Stored>]) -> Vec<bool> {
    let sizes = made_of_sizes(graph, inferred, kinds);
    let single = |t: TensorId| inferred.shape(t).and_then(|s| s.elements()) == Some(1);
    let mut data = vec![false; graph.tensors.len()];
    graph.inputs.iter().chain(&graph.outputs).for_each(|id| data[id.index()] = true);
    for node in graph.nodes.iter().rev() {
        let idle = !node.outputs.is_empty() && node.outputs.iter().flatten().all(|id| !data[id.index()]);
        if idle {
            continue;
        }
        for (i, id) in node.inputs.iter().enumerate() {
            let Some(id) = *id else { continue };
            let number = single(id) && sizes[id.index()];
            if !number && !is_argument(node, i, id, inferred, &sizes) {
                data[id.index()] = true;
            }
        }
        node.captures.iter().for_each(|id| data[id.index()] = true);
    }
    data.into_iter().map(|data| !data).collect()
}

/// Whether a node reads its input `i` as an argument.
fn is_argument(node: &Node, i: usize, id: TensorId, inferred: &Inferred, sizes: &[bool]) -> bool {
    let op = node.op.name();
    match (op, i) {
        // One row or column: `x[:, 0]`.
        ("Gather", 1) => inferred.shape(id).is_some_and(|s| s.rank() == 0),
        // Slices that are read or assigned: the exporter spells their indices out.
        ("GatherND" | "ScatterND", 1) => sizes[id.index()],
        _ if op.starts_with("Reduce") => i == 1,
        _ => ARGUMENTS.iter().any(|(name, inputs)| *name == op && inputs.contains(&i)),
    }
}

/// By tensor index, whether it is made of nothing but sizes and constants.
fn made_of_sizes(graph: &Graph, inferred: &Inferred, kinds: &[Option<Stored>]) -> Vec<bool> {
    let mut sizes: Vec<bool> = graph
        .tensors
        .iter()
        .zip(kinds)
        .map(|(tensor, kind)| match (tensor.role, kind) {
            (Role::Constant, _) | (_, Some(Stored::Number)) => true,
            (Role::Initializer, _) => tensor.declared.dtype().is_some_and(|d| !d.is_float()),
            _ => false,
        })
        .collect();
    for node in &graph.nodes {
        let random = node.op.name().starts_with("Random") || node.op.name() == "Bernoulli";
        let mut inputs = (0..).zip(&node.inputs).filter_map(|(i, id)| Some((i, (*id)?)));
        let all = inputs.all(|(i, id)| {
            sizes[id.index()] || matches!((node.op.name(), i), ("Shape" | "Size", 0) | ("CastLike", 1))
        });
        let made = all && !random && node.captures.is_empty();
        for id in node.outputs.iter().flatten() {
            sizes[id.index()] = made || inferred.value(*id).is_some_and(|v| v.is_known());
        }
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_graph::{Attribute, Attributes, Binding, DType, Shape, Type, Value, infer};

    #[test]
    fn sizes_are_numbers_and_positions_are_tensors() {
        let mut g = Graph::default();
        let x = g.add_tensor("x", Type::tensor(DType::Float32, Shape::from([2, 6])), Role::Input);
        g.inputs = vec![x];
        let constant = |g: &mut Graph, name: &str, value| g.add_constant(name, value);
        let one = constant(&mut g, "one", Value::scalar(DType::Int64, 1_i64));
        let zero = constant(&mut g, "zero", Value::scalar(DType::Int64, 0_i64));
        let table =
            g.add_tensor("table", Type::tensor(DType::Float32, Shape::from([9, 4])), Role::Initializer);
        let none = Attributes::default;
        let shape = g.push("Shape", none(), &[x], "shape").unwrap();
        let length = g.push("Gather", none(), &[shape, one], "length").unwrap();
        let positions = g.push("Range", none(), &[zero, length, one], "positions").unwrap();
        let rows = g.push("Gather", none(), &[table, positions], "rows").unwrap();
        let to = Attributes::from([("to", Attribute::Int(1))]);
        let float = g.push("Cast", to, &[length], "float").unwrap();
        let root = g.push("Sqrt", none(), &[float], "root").unwrap();
        let y = g.push("Div", none(), &[rows, root], "y").unwrap();
        g.outputs = vec![y];
        let inferred = infer(&g, &Binding::default()).unwrap();
        let kinds = crate::parameters::classify(&g, &inferred, &[]);
        let host = tensors(&g, &inferred, &kinds);
        assert!([shape, length, float, root, one].iter().all(|t| host[t.index()]));
        assert!([x, positions, rows, table, y].iter().all(|t| !host[t.index()]));
    }
}
