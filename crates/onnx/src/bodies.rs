//! Bodies of control-flow operators: graphs of their own that also read tensors of the graphs around them.

use crate::builder::Builder;
use crate::frame::Frame;
use crate::import::{self, Import};
use crate::{nodes, paths};
use memfit_graph::{Graph, Problem, TensorId};
use onnx_protobuf::{GraphProto, NodeProto};
use std::sync::Arc;

/// Bodies nested deeper than this are a problem; inference has the same limit.
const MAX_DEPTH: u32 = 32;

/// The node that a body belongs to.
pub(crate) struct Owner<'n> {
    pub(crate) name: &'n str,
    pub(crate) scope: &'n Arc<str>,
}

/// Reads a body. The tensors it reads from around it go to `captures`, and the body's own list
/// refers to them by position.
pub(crate) fn body(
    outer: &mut Builder,
    frame: &mut Frame<'_>,
    proto: &GraphProto,
    owner: &Owner<'_>,
    captures: &mut Vec<TensorId>,
    cx: &mut Import,
) -> Graph {
    if outer.depth >= MAX_DEPTH {
        let message = format!("expected bodies nested at most {MAX_DEPTH} deep, found more");
        cx.problem(Problem::new(owner.name, message));
        return Graph::default();
    }
    let mut inner = Builder::nested(outer.depth + 1);
    let mut surroundings = frame.body();
    surroundings.scope = if &**owner.scope == paths::UNKNOWN { "".into() } else { Arc::clone(owner.scope) };
    inner.graph.name.clone_from(&proto.name);
    for info in &proto.input {
        inner.input(info, cx);
    }
    for tensor in &proto.initializer {
        import::add_initializer(&mut inner, tensor, cx);
    }
    for tensor in &proto.sparse_initializer {
        import::add_sparse_initializer(&mut inner, tensor, cx);
    }
    for node in &proto.node {
        nodes::add(&mut inner, &mut surroundings, node, cx);
    }
    for info in &proto.output {
        inner.output(info, cx);
    }
    for info in &proto.value_info {
        inner.value_info(info.clone(), cx);
    }
    let (mut graph, free) = inner.finish(cx);
    for (name, id) in free {
        if let Some(from) = nodes::resolve(outer, frame, &name) {
            let known = captures.iter().position(|c| *c == from);
            let slot = known.unwrap_or_else(|| {
                captures.push(from);
                captures.len() - 1
            });
            graph.captures.push((slot, id));
        }
    }
    graph
}

/// The nodes that a node counts for: itself and those of its bodies.
pub(crate) fn count(node: &NodeProto) -> u64 {
    let bodies = node.attribute.iter().flat_map(|a| a.g.iter().chain(&a.graphs));
    1 + bodies.flat_map(|g| &g.node).map(count).sum::<u64>()
}
