//! Which values of a graph are Python numbers on the host.
//!
//! A file computes sizes with operators (`Shape`, `Gather`, `Concat`, `Reshape`); the framework computes them in Python and
//! passes them as arguments. So a tensor is on the device only if an operator reads it as data: one that only ever
//! reaches shapes, axes and the like, or whose own shape is all that is asked for, takes no memory, and neither does a
//! single number made of sizes and constants, whoever reads it.

use crate::Structure;
use crate::parameters::{Stored, frozen};
use memfit_graph::{Graph, Inferred, Node, Role, TensorId};

/// Inputs that are arguments rather than data: shapes, axes, bounds, and tensors whose shape or dtype alone counts. In order.
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

/// How a node reads its inputs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reads {
    /// Inputs that are arguments.
    arguments: &'static [usize],
    /// An input that is an argument where it is a single number: one row or column, `x[:, 0]`.
    number: Option<usize>,
    /// An input that is an argument where it is made of sizes: slices that are read or assigned, whose indices the exporter
    /// spells out.
    indices: Option<usize>,
    /// An input of which only the shape or the dtype is read.
    facts: Option<usize>,
    /// Whether the result follows from the inputs.
    is_function: bool,
}

impl Reads {
    /// How this node does.
    pub(crate) fn of(node: &Node) -> Reads {
        let op = node.op.name();
        let arguments = match ARGUMENTS.binary_search_by_key(&op, |(name, _)| name) {
            _ if op.starts_with("Reduce") => &[1],
            Ok(at) => ARGUMENTS[at].1,
            Err(_) => &[][..],
        };
        let facts = match op {
            "Shape" | "Size" => Some(0),
            "CastLike" => Some(1),
            _ => None,
        };
        Reads {
            arguments,
            number: (op == "Gather").then_some(1),
            indices: matches!(op, "GatherND" | "ScatterND").then_some(1),
            facts,
            is_function: !op.starts_with("Random") && op != "Bernoulli" && node.captures.is_empty(),
        }
    }
}

/// By tensor index, what it is where it is stored, and whether it is on the host: a stored one that is, is a number.
pub(crate) fn stored(
    graph: &Graph,
    structure: &Structure,
    inferred: &Inferred,
    freeze: &[String],
) -> (Vec<Option<Stored>>, Vec<bool>) {
    let mut kinds = frozen(structure.kinds.clone(), graph, freeze);
    let host = tensors(graph, structure, inferred, &kinds);
    // A variable of Keras has its place, as the count of what `adapt` saw.
    let numbers =
        host.iter().zip(&graph.tensors).map(|(on_host, tensor)| *on_host && tensor.variable.is_none());
    for (kind, is_number) in kinds.iter_mut().zip(numbers) {
        if is_number && kind.is_some() {
            *kind = Some(Stored::Number);
        }
    }
    (kinds, host)
}

/// By tensor index, whether it is on the host. `kinds` is what each stored tensor is.
fn tensors(graph: &Graph, structure: &Structure, inferred: &Inferred, kinds: &[Option<Stored>]) -> Vec<bool> {
    let sizes = made_of_sizes(graph, structure, inferred, kinds);
    let single = |t: TensorId| inferred.shape(t).and_then(|s| s.elements()) == Some(1);
    let mut data = vec![false; graph.tensors.len()];
    graph.inputs.iter().chain(&graph.outputs).for_each(|id| data[id.index()] = true);
    for (node, reads) in graph.nodes.iter().zip(&structure.reads).rev() {
        let idle = !node.outputs.is_empty() && node.outputs.iter().flatten().all(|id| !data[id.index()]);
        if idle {
            continue;
        }
        for (i, id) in node.inputs.iter().enumerate() {
            let Some(id) = *id else { continue };
            let index = id.index();
            let is_number = || sizes[index] && single(id);
            if data[index] || is_number() || reads.as_argument(i, id, inferred, &sizes) {
                continue;
            }
            data[index] = true;
        }
        node.captures.iter().for_each(|id| data[id.index()] = true);
    }
    data.into_iter().map(|data| !data).collect()
}

impl Reads {
    /// Whether input `i`, this tensor, is read as an argument.
    fn as_argument(&self, i: usize, id: TensorId, inferred: &Inferred, sizes: &[bool]) -> bool {
        self.arguments.contains(&i)
            || (self.number == Some(i) && inferred.shape(id).is_some_and(|s| s.rank() == 0))
            || (self.indices == Some(i) && sizes[id.index()])
    }
}

/// By tensor index, whether it is made of nothing but sizes and constants.
fn made_of_sizes(
    graph: &Graph,
    structure: &Structure,
    inferred: &Inferred,
    kinds: &[Option<Stored>],
) -> Vec<bool> {
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
    for (node, reads) in graph.nodes.iter().zip(&structure.reads) {
        let mut inputs = (0..).zip(&node.inputs).filter_map(|(i, id)| Some((i, (*id)?)));
        let made = reads.is_function && inputs.all(|(i, id)| sizes[id.index()] || reads.facts == Some(i));
        // A parameter of one number is folded like any other number, and is trained all the same.
        let is_float = |id: TensorId| inferred.dtype(id).is_float();
        let trained = node.inputs.iter().flatten().any(|id| is_float(*id) && !sizes[id.index()]);
        for id in node.outputs.iter().flatten() {
            let known = inferred.value(*id).is_some_and(|v| v.is_known()) && !(trained && is_float(*id));
            sizes[id.index()] = made || known;
        }
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_graph::{Attribute, Attributes, Binding, DType, Shape, Type, Value, infer};

    #[test]
    fn operators_with_arguments_are_in_order() {
        assert!(ARGUMENTS.is_sorted_by_key(|(name, _)| name));
    }

    #[test]
    fn a_slope_that_is_turned_is_a_tensor() {
        let mut g = Graph::default();
        let x = g.add_tensor("x", Type::tensor(DType::Float32, Shape::from([2, 3, 4])), Role::Input);
        g.inputs = vec![x];
        let slope =
            g.add_tensor("act.weight", Type::tensor(DType::Float32, Shape::from([1])), Role::Initializer);
        g.tensors[slope.index()].value = Some(std::sync::Arc::new(Value::vector(DType::Float32, [0.25])));
        let axes = g.add_constant("axes", Value::vector(DType::Int64, [1_i64, 2]));
        let turned = g.push("Unsqueeze", Attributes::default(), &[slope, axes], "turned").unwrap();
        let y = g.push("PRelu", Attributes::default(), &[x, turned], "y").unwrap();
        g.outputs = vec![y];
        let inferred = infer(&g, &Binding::default()).unwrap();
        assert!(inferred.value(turned).is_some());
        let (kinds, host) = stored(&g, &Structure::new(&g, Some(&inferred)), &inferred, &[]);
        assert_eq!(kinds[slope.index()], Some(Stored::Parameter));
        assert!(!host[turned.index()] && !host[slope.index()]);
    }

    #[test]
    fn what_another_tensor_is_made_like_is_a_tensor() {
        let mut g = Graph::default();
        let x = g.add_tensor("x", Type::tensor(DType::Float32, Shape::from([2, 6])), Role::Input);
        g.inputs = vec![x];
        let [zero, one] =
            [0_i64, 1].map(|n| g.add_constant(format!("c{n}"), Value::vector(DType::Int64, [n])));
        let column = g.push("Slice", Attributes::default(), &[x, zero, one, one], "column").unwrap();
        let sizes = g.push("Shape", Attributes::default(), &[column], "sizes").unwrap();
        let ones = g.push("ConstantOfShape", Attributes::default(), &[sizes], "ones").unwrap();
        let axis = [("axis", Attribute::Int(1))].into();
        g.outputs = vec![g.push("Concat", axis, &[x, ones], "y").unwrap()];
        for (inputs, expected) in [(vec![Some(sizes)], true), (vec![None, Some(column)], false)] {
            g.nodes[2].inputs = inputs;
            let inferred = infer(&g, &Binding::default()).unwrap();
            let (_, host) = stored(&g, &Structure::new(&g, Some(&inferred)), &inferred, &[]);
            assert_eq!(host[column.index()], expected);
        }
    }

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
        let structure = Structure::new(&g, Some(&inferred));
        let (_, host) = stored(&g, &structure, &inferred, &[]);
        assert!([shape, length, float, root, one].iter().all(|t| host[t.index()]));
        assert!([x, positions, rows, table, y].iter().all(|t| !host[t.index()]));
    }
}
