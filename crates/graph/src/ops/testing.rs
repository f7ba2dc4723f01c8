//! A one-node graph for the tests of operators.

use crate::{
    Attributes, Binding, Call, DType, Graph, Inferred, Lowering, OutState, Role, Shape, TensorState, Type,
    Value, find_op, infer,
};

/// One input of the node under test.
#[derive(Clone)]
pub(super) enum In {
    /// Omitted.
    Absent,
    /// Of this type.
    Typed(Type),
    /// A constant.
    Value(Value),
}

/// A float32 input of these dims.
pub(super) fn float(dims: &[u64]) -> In {
    In::Typed(Type::tensor(DType::Float32, Shape::from(dims)))
}

/// A float32 input with dims given as text: a number or a symbol.
pub(super) fn symbolic(dims: &[&str]) -> In {
    let dim = |d: &&str| d.parse().map_or_else(|_| crate::Dim::symbol(d), crate::Dim::Known);
    In::Typed(Type::tensor(DType::Float32, dims.iter().map(dim).collect()))
}

/// A constant int64 vector.
pub(super) fn ints(elements: &[i64]) -> In {
    In::Value(Value::vector(DType::Int64, elements.iter().copied()))
}

/// A constant int64 scalar.
pub(super) fn int(element: i64) -> In {
    In::Value(Value::scalar(DType::Int64, element))
}

/// The types and elements of the outputs of one node, as opset `version` defines it.
pub(super) fn run(
    op: &str,
    version: i64,
    attributes: Attributes,
    inputs: &[In],
    outputs: usize,
) -> Result<Vec<(Type, Option<Value>)>, String> {
    let (g, inferred) = graph(op, version, attributes, inputs, outputs, &Binding::default())?;
    let out = |id: &crate::TensorId| (inferred.types[id.index()].clone(), inferred.value(*id).cloned());
    Ok(g.outputs.iter().map(out).collect())
}

fn graph(
    op: &str,
    version: i64,
    attributes: Attributes,
    inputs: &[In],
    outputs: usize,
    binding: &Binding,
) -> Result<(Graph, Inferred), String> {
    let mut g = Graph::default();
    let mut ids = Vec::new();
    for (i, input) in inputs.iter().enumerate() {
        ids.push(match input {
            In::Absent => None,
            In::Typed(ty) => {
                let id = g.add_tensor(format!("x{i}"), ty.clone(), Role::Input);
                g.inputs.push(id);
                Some(id)
            }
            In::Value(value) => Some(g.add_constant(format!("c{i}"), value.clone())),
        });
    }
    let (domain, op) = op.rsplit_once('.').unwrap_or(("", op));
    let built = find_op(domain, op, version).ok_or("unknown operator")?.build(attributes, version);
    let built = built.map_err(|e| e.to_string())?;
    let add = |j| g.add_tensor(format!("y{j}"), Type::Unknown, Role::Intermediate);
    g.outputs = (0..outputs).map(add).collect();
    let outputs = g.outputs.iter().copied().map(Some).collect();
    g.add_node("node", built, ids, outputs);
    let inferred = infer(&g, binding).map_err(|problems| problems[0].to_string())?;
    Ok((g, inferred))
}

/// The shape of the only output; `?` where the rank is not known.
pub(super) fn shape(op: &str, version: i64, attributes: Attributes, inputs: &[In]) -> Result<String, String> {
    let out = run(op, version, attributes, inputs, 1)?;
    Ok(out[0].0.shape().map_or("?".into(), Shape::to_string))
}

/// The elements of the only output, where all are integers.
pub(super) fn folded(op: &str, attributes: Attributes, inputs: &[In]) -> Option<Vec<i64>> {
    run(op, i64::MAX, attributes, inputs, 1).ok()?.remove(0).1?.ints()
}

/// The shape of the only output after the fixed batch of the inputs was replaced.
pub(super) fn rebatched(
    op: &str,
    attributes: Attributes,
    inputs: &[In],
    batch: u64,
) -> Result<String, String> {
    let binding = Binding { batch: Some(batch), ..Binding::default() };
    let (g, inferred) = graph(op, i64::MAX, attributes, inputs, 1, &binding)?;
    Ok(inferred.shape(g.outputs[0]).map_or("?".into(), Shape::to_string))
}

/// The ATen calls for one node in training; inputs without elements need a gradient where they are floats.
pub(super) fn calls(
    op: &str,
    version: i64,
    attributes: Attributes,
    inputs: &[In],
    outputs: usize,
) -> Vec<Call> {
    let (g, inferred) = graph(op, version, attributes, inputs, outputs, &Binding::default()).unwrap();
    let shapes: Vec<Vec<u64>> = (0..g.tensors.len())
        .map(|i| inferred.types[i].shape().and_then(Shape::upper).unwrap_or_default())
        .collect();
    let node = &g.nodes[0];
    let state = |id: &Option<crate::TensorId>| {
        id.map(|id| TensorState {
            shape: &shapes[id.index()],
            dtype: inferred.dtype(id),
            requires_grad: inferred.dtype(id).is_float() && inferred.value(id).is_none(),
            is_initializer: g.tensor(id).role == Role::Initializer,
        })
    };
    let out = |id: &Option<crate::TensorId>| {
        id.map(|id| OutState { shape: &shapes[id.index()], dtype: inferred.dtype(id) })
    };
    let values: Vec<Option<&Value>> =
        node.inputs.iter().map(|id| id.and_then(|id| inferred.value(id))).collect();
    let (inputs, outputs): (Vec<_>, Vec<_>) =
        (node.inputs.iter().map(state).collect(), node.outputs.iter().map(out).collect());
    let mut lowering = Lowering::new(&inputs, &outputs, None, true).with_values(&values);
    node.op.pytorch(&mut lowering);
    let (calls, _, modelled) = lowering.into_parts();
    assert!(modelled, "{op} is not modelled");
    calls
}
