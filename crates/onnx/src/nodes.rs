//! `NodeProto` as a node: its operator, its edges, and what its bodies read from around them.

use crate::attributes;
use crate::bodies::Owner;
use crate::builder::Builder;
use crate::frame::{Bound, Captures, Frame};
use crate::import::Import;
use crate::tensor::Stored;
use crate::{bodies, functions, scope};
use memfit_graph::{
    Attribute, Attributes, DType, Num, Op, Problem, TensorAttribute, TensorId, UnknownOp, Value, find_op,
};
use onnx_protobuf::NodeProto;
use onnx_protobuf::attribute_proto::AttributeType;
use protobuf::Message;
use std::sync::Arc;

/// Adds a node, or the nodes of the function that it calls, or the constant that it is.
pub(crate) fn add(builder: &mut Builder, frame: &mut Frame<'_>, proto: &NodeProto, cx: &mut Import) {
    if !cx.count_node() {
        return;
    }
    let name = frame.node_name(&proto.name, &proto.op_type);
    let names = (proto.input.len() + proto.output.len() + 1) as u64;
    cx.count_repeated(proto.compute_size() + names * frame.prefix.len() as u64);
    if cx.stopped() {
        return;
    }
    let problem = |message: String| {
        let mut problem = Problem::new(name.as_str(), message);
        problem.op.clone_from(&proto.op_type);
        problem
    };
    if proto.op_type.is_empty() {
        cx.problem(problem("expected an operator type, found none".into()));
        return;
    }
    let own_scope = scope::of(proto).map_or_else(|| Arc::clone(&frame.scope), Arc::from);
    let bound = bind(builder, frame, proto, &Owner { name: &name, scope: &own_scope }, cx);
    let inputs: Vec<Option<TensorId>> = proto.input.iter().map(|n| resolve(builder, frame, n)).collect();
    let outputs: Vec<Option<TensorId>> = proto.output.iter().map(|n| resolve(builder, frame, n)).collect();
    let is_default = matches!(proto.domain.as_str(), "" | "ai.onnx");
    if is_default && proto.op_type == "Constant" {
        if let Some(id) = outputs.first().copied().flatten() {
            builder.made_by_node(id, &name, "Constant", cx);
            match constant(&bound) {
                Some(stored) => builder.constant(id, stored),
                None => cx.problem(problem("expected a value, found none that is a tensor".into())),
            }
        }
        return;
    }
    let version = frame.version(&proto.domain, cx);
    let known = find_op(&proto.domain, &proto.op_type, version);
    if known.is_none() {
        let call =
            functions::Call { proto, name: &name, scope: &own_scope, inputs: &inputs, outputs: &outputs };
        if functions::inline(builder, call, &bound, cx) {
            return;
        }
    }
    let (attributes, captures) = merge(bound, builder.depth, |p| cx.problem(problem(p)));
    let op: Arc<dyn Op> = match known.map(|spec| spec.build(attributes, version)) {
        Some(Ok(op)) => op,
        Some(Err(error)) => {
            cx.problem(problem(error.to_string()));
            unknown(proto, is_default)
        }
        None => unknown(proto, is_default),
    };
    for id in outputs.iter().flatten() {
        builder.made_by_node(*id, &name, op.name(), cx);
    }
    let id = builder.graph.add_node(name, op, inputs, outputs);
    let node = &mut builder.graph.nodes[id.index()];
    (node.scope, node.captures) = (own_scope, captures);
}

fn unknown(proto: &NodeProto, is_default: bool) -> Arc<dyn Op> {
    let name = if is_default { proto.op_type.clone() } else { format!("{}.{}", proto.domain, proto.op_type) };
    Arc::new(UnknownOp { name })
}

/// The tensor that a name stands for in this frame; `None` where it is omitted.
pub(crate) fn resolve(builder: &mut Builder, frame: &mut Frame<'_>, name: &str) -> Option<TensorId> {
    if name.is_empty() {
        return None;
    }
    match &mut frame.names {
        Some(names) => match names.get(name) {
            Some(id) => *id,
            None => {
                let id = builder.inlined(&format!("{}/{name}", frame.prefix));
                names.insert(name.to_owned(), Some(id));
                Some(id)
            }
        },
        None if frame.absent.contains(name) && !builder.knows(name) => None,
        None => Some(builder.named(name)),
    }
}

/// The attributes of a node, references to attributes of the enclosing function resolved.
fn bind(
    builder: &mut Builder,
    frame: &mut Frame<'_>,
    proto: &NodeProto,
    owner: &Owner<'_>,
    cx: &mut Import,
) -> Vec<(String, Bound)> {
    let mut all = Vec::with_capacity(proto.attribute.len());
    for a in &proto.attribute {
        if !a.ref_attr_name.is_empty() {
            // One that the call does not give is as absent here as there.
            if let Some(given) = frame.attributes.get(&a.ref_attr_name) {
                cx.count_repeated(given.bytes);
                all.push((a.name.clone(), given.clone()));
            }
            continue;
        }
        let (depth, bytes) = (builder.depth, a.compute_size());
        let mut bound = Bound { attribute: Attribute::Other, captures: Captures::default(), depth, bytes };
        match attributes::kind(a) {
            AttributeType::GRAPH => {
                if let Some(g) = a.g.as_ref() {
                    let body = bodies::body(builder, frame, g, owner, &mut bound.captures, cx);
                    bound.attribute = Attribute::Graph(Box::new(body));
                }
            }
            AttributeType::GRAPHS => {
                let graphs = a.graphs.iter();
                let bodies = graphs.map(|g| bodies::body(builder, frame, g, owner, &mut bound.captures, cx));
                bound.attribute = Attribute::Graphs(bodies.collect());
            }
            _ => {
                let mut problems = Vec::new();
                bound.attribute = attributes::plain(owner.name, a, &mut problems);
                cx.problems(problems);
            }
        }
        all.push((a.name.clone(), bound));
    }
    all
}

/// The attributes as an operator takes them, with the captures of all bodies in one list.
fn merge(
    bound: Vec<(String, Bound)>,
    depth: u32,
    mut problem: impl FnMut(String),
) -> (Attributes, Vec<TensorId>) {
    let (mut attributes, mut all) = (Attributes::default(), Captures::default());
    for (name, Bound { mut attribute, captures, depth: origin, .. }) in bound {
        if origin != depth && !captures.ids.is_empty() {
            problem(format!("its body `{name}` is a function's attribute, used inside another body"));
            continue;
        }
        let slots: Vec<usize> = captures.ids.into_iter().map(|id| all.place(id)).collect();
        let bodies = match &mut attribute {
            Attribute::Graph(body) => std::slice::from_mut(&mut **body),
            Attribute::Graphs(bodies) => &mut bodies[..],
            _ => &mut [],
        };
        for (slot, _) in bodies.iter_mut().flat_map(|b| &mut b.captures) {
            *slot = slots.get(*slot).copied().unwrap_or(*slot);
        }
        attributes.0.insert(name, attribute);
    }
    (attributes, all.ids)
}

/// The tensor that a `Constant` node stands for, in any of its forms.
fn constant(bound: &[(String, Bound)]) -> Option<Stored> {
    let vector = |dtype, data: Vec<Num>| {
        let shape = vec![data.len() as u64];
        let value = (data.len() as u64 <= Value::MAX_ELEMENTS).then(|| Value::vector(dtype, data));
        Stored { dtype, shape, value }
    };
    let scalar = |dtype, n: Num| Stored { dtype, shape: vec![], value: Some(Value::scalar(dtype, n)) };
    let text = |shape| Stored { dtype: DType::String, shape, value: None };
    bound.iter().find_map(|(_, b)| match &b.attribute {
        Attribute::Tensor(TensorAttribute { dtype, shape, value }) => {
            Some(Stored { dtype: *dtype, shape: shape.clone(), value: value.clone() })
        }
        Attribute::Int(n) => Some(scalar(DType::Int64, Num::Int(*n))),
        Attribute::Ints(n) => Some(vector(DType::Int64, n.iter().copied().map(Num::Int).collect())),
        Attribute::Float(x) => Some(scalar(DType::Float32, Num::Float(*x))),
        Attribute::Floats(x) => Some(vector(DType::Float32, x.iter().copied().map(Num::Float).collect())),
        Attribute::Text(_) => Some(text(vec![])),
        Attribute::Texts(t) => Some(text(vec![t.len() as u64])),
        Attribute::Graph(_) | Attribute::Graphs(_) | Attribute::Other => None,
    })
}
