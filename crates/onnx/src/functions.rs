//! Local functions: a node that calls one is replaced by the function's nodes.
//!
//! Inside, names are the function's own; its inputs and outputs are the call's, and attributes that refer to the
//! function's take the call's value or the function's default.

use crate::attributes;
use crate::builder::Builder;
use crate::frame::{Bound, Captures, Frame};
use crate::import::{Import, add_opset};
use crate::nodes;
use memfit_graph::{Attributes, Problem, TensorId, find_op};
use onnx_protobuf::{FunctionProto, NodeProto};
use protobuf::Message;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

/// Functions that call functions, at most this deep.
const MAX_DEPTH: usize = 64;

/// A function's domain, name and overload.
pub(crate) type Key = (String, String, String);

/// A node that may call a function.
pub(crate) struct Call<'c> {
    pub(crate) proto: &'c NodeProto,
    pub(crate) name: &'c str,
    pub(crate) scope: &'c Arc<str>,
    pub(crate) inputs: &'c [Option<TensorId>],
    pub(crate) outputs: &'c [Option<TensorId>],
}

fn domain(name: &str) -> String {
    if name == "ai.onnx" { String::new() } else { name.to_owned() }
}

/// Takes a function of the model.
pub(crate) fn define(function: FunctionProto, cx: &mut Import) {
    let key = (domain(&function.domain), function.name.clone(), function.overload.clone());
    if let Some(twice) = cx.functions.insert(key, Rc::new(function)) {
        cx.problem(Problem::new(&*twice.name, "expected one function of this name and domain, found two"));
    }
}

/// Puts a function's nodes in place of a call. `false` where there is no such function.
pub(crate) fn inline(
    builder: &mut Builder,
    call: Call<'_>,
    attributes: &[(String, Bound)],
    cx: &mut Import,
) -> bool {
    let key = (domain(&call.proto.domain), call.proto.op_type.clone(), call.proto.overload.clone());
    let Some(function) = cx.functions.get(&key).map(Rc::clone) else { return false };
    let problem = |message: String| {
        let mut problem = Problem::new(call.name, message);
        problem.op.clone_from(&call.proto.op_type);
        problem
    };
    if cx.calls.contains(&key) || cx.calls.len() >= MAX_DEPTH {
        let calls = cx.calls.iter().map(|(_, name, _)| name.as_str()).collect::<Vec<_>>().join(" → ");
        let message =
            format!("expected functions that end, found one that calls itself: {calls} → {}", key.1);
        cx.problem(problem(message));
        return true;
    }
    if call.inputs.len() > function.input.len() || call.outputs.len() > function.output.len() {
        let message = format!(
            "expected at most {} inputs and {} outputs, as its function has, found {} and {}",
            function.input.len(),
            function.output.len(),
            call.inputs.len(),
            call.outputs.len()
        );
        cx.problem(problem(message));
        return true;
    }
    // Seen before it happens: functions that each call the next twice need two to the power of their number.
    if cx.calls.is_empty() && !cx.allows(expanded(&key, 1, cx, &mut HashMap::new())) {
        return true;
    }
    // What the function does not import it takes from the model.
    let mut opsets = cx.opsets.clone();
    function.opset_import.iter().for_each(|import| add_opset(&mut opsets, import));
    let mut frame = Frame::root(&opsets);
    frame.attributes = Rc::new(bound_attributes(builder, &function, attributes, call.name, cx));
    frame.prefix = call.name.to_owned();
    frame.scope = Arc::clone(call.scope);
    let mut names: HashMap<String, Option<TensorId>> = HashMap::new();
    for (i, name) in function.input.iter().enumerate() {
        names.insert(name.clone(), call.inputs.get(i).copied().flatten());
    }
    let mut passed = Vec::new();
    for (name, id) in function.output.iter().zip(call.outputs) {
        match (names.get(name), id) {
            (Some(source), Some(id)) => passed.push((*source, *id)),
            (None, Some(id)) => {
                names.insert(name.clone(), Some(*id));
            }
            (_, None) => {}
        }
    }
    frame.names = Some(names);
    cx.calls.push(key);
    for node in &function.node {
        nodes::add(builder, &mut frame, node, cx);
    }
    cx.calls.pop();
    for (from, to) in passed {
        pass_on(builder, from, to, &call, cx);
    }
    true
}

/// How many nodes a call of a function becomes. Calls beyond the limit of depth count nothing; inlining reports them.
fn expanded(key: &Key, depth: usize, cx: &Import, known: &mut HashMap<Key, u64>) -> u64 {
    let Some(function) = cx.functions.get(key).filter(|_| depth <= MAX_DEPTH) else { return 0 };
    if let Some(n) = known.get(key) {
        return *n;
    }
    // Until it is counted, for one that calls itself.
    known.insert(key.clone(), 0);
    let nodes = function.node.iter();
    let total = nodes.fold(0_u64, |n, node| n.saturating_add(expanded_node(node, depth, cx, known)));
    known.insert(key.clone(), total);
    total
}

fn expanded_node(node: &NodeProto, depth: usize, cx: &Import, known: &mut HashMap<Key, u64>) -> u64 {
    let key = (domain(&node.domain), node.op_type.clone(), node.overload.clone());
    let called =
        if find_op(&key.0, &key.1, i64::MAX).is_some() { 0 } else { expanded(&key, depth + 1, cx, known) };
    let bodies = node.attribute.iter().flat_map(|a| a.g.iter().chain(&a.graphs));
    let inside = bodies.flat_map(|g| &g.node);
    inside.fold(called.saturating_add(1), |n, inner| n.saturating_add(expanded_node(inner, depth, cx, known)))
}

/// The function's attributes in this call: given, or by default.
fn bound_attributes(
    builder: &Builder,
    function: &FunctionProto,
    given: &[(String, Bound)],
    place: &str,
    cx: &mut Import,
) -> HashMap<String, Bound> {
    let mut all = HashMap::new();
    for default in &function.attribute_proto {
        let mut problems = Vec::new();
        let attribute = attributes::plain(place, default, &mut problems);
        cx.problems(problems);
        let bytes = default.compute_size();
        let bound = Bound { attribute, captures: Captures::default(), depth: builder.depth, bytes };
        all.insert(default.name.clone(), bound);
    }
    all.extend(given.iter().cloned());
    all
}

/// An output of a function that is one of its inputs.
fn pass_on(builder: &mut Builder, from: Option<TensorId>, to: TensorId, call: &Call<'_>, cx: &mut Import) {
    let identity = find_op("", "Identity", i64::MAX).map(|spec| spec.build(Attributes::default(), i64::MAX));
    let Some(Ok(op)) = identity else { return };
    builder.made_by_node(to, call.name, "Identity", cx);
    let id = builder.graph.add_node(format!("{}/Identity", call.name), op, vec![from], vec![Some(to)]);
    builder.graph.nodes[id.index()].scope = Arc::clone(call.scope);
}
