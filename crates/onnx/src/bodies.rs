//! Bodies of control-flow operators: graphs of their own that also read tensors of the graphs around them.

use crate::builder::Builder;
use crate::frame::{Captures, Frame};
use crate::import::Import;
use crate::{model, nodes, paths};
use memfit_graph::{Graph, Problem};
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
    captures: &mut Captures,
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
        model::add_initializer(&mut inner, tensor, cx);
    }
    for tensor in &proto.sparse_initializer {
        model::add_sparse_initializer(&mut inner, tensor, cx);
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
            graph.captures.push((captures.place(from), id));
        }
    }
    graph
}

/// The nodes that a node counts for: itself and those of its bodies.
pub(crate) fn count(node: &NodeProto) -> u64 {
    let bodies = node.attribute.iter().flat_map(|a| a.g.iter().chain(&a.graphs));
    1 + bodies.flat_map(|g| &g.node).map(count).sum::<u64>()
}

#[cfg(test)]
#[path = "../tests/common/build.rs"]
mod build;

#[cfg(test)]
mod tests {
    use super::build::{body as attribute, graph, info, int64s, node};
    use super::*;
    use crate::import::Opsets;
    use onnx_protobuf::NodeProto;

    /// Reads a body that belongs to a graph with the tensors `x` and `w`.
    fn read(proto: &GraphProto) -> (Graph, Vec<String>, Builder) {
        let opsets = Opsets::from([(String::new(), 17)]);
        let (mut outer, mut cx) = (Builder::default(), Import::default());
        outer.input(&info("x", "2"), &mut cx);
        outer.input(&info("w", "2"), &mut cx);
        let mut captures = Captures::default();
        let owner = Owner { name: "If_0", scope: &"block".into() };
        let body = body(&mut outer, &mut Frame::root(&opsets), proto, &owner, &mut captures, &mut cx);
        let names = captures.ids.iter().map(|id| outer.graph.tensor(*id).name.to_string()).collect();
        assert_eq!(cx.into_problems(), []);
        (body, names, outer)
    }

    fn captured(graph: &Graph) -> Vec<(usize, &str)> {
        graph.captures.iter().map(|(slot, id)| (*slot, &*graph.tensor(*id).name)).collect()
    }

    fn wrapping(inner: GraphProto) -> NodeProto {
        node("Unheard", "c", "r", vec![attribute("body", inner)])
    }

    #[test]
    fn what_a_body_lacks_comes_from_around_it() {
        // `i` and `k` are the body's own, `x` and `w` are read from outside, `x` as a mere output.
        let nodes = vec![node("Add", "i k", "a", vec![]), node("Add", "a w", "b", vec![])];
        let proto =
            graph(nodes, vec![info("i", "2")], vec![info("b", ""), info("x", "")], vec![int64s("k", &[1])]);
        let (body, names, _) = read(&proto);
        assert_eq!(names, ["w", "x"]);
        assert_eq!(captured(&body), [(0, "w"), (1, "x")]);
        assert_eq!(body.inputs.len(), 1);
        assert_eq!(&*body.nodes[0].scope, "block");
    }

    #[test]
    fn a_body_in_a_body_reads_through_both() {
        let innermost = graph(vec![node("Add", "x a", "z", vec![])], vec![], vec![info("z", "")], vec![]);
        let middle = graph(
            vec![node("Relu", "w", "a", vec![]), wrapping(innermost)],
            vec![info("c", "")],
            vec![info("r", "")],
            vec![],
        );
        let (body, names, _) = read(&middle);
        assert_eq!(names, ["w", "x"]);
        assert_eq!(captured(&body), [(0, "w"), (1, "x")]);
        let inner: Vec<&str> = body.nodes[1].captures.iter().map(|id| &*body.tensor(*id).name).collect();
        assert_eq!(inner, ["x", "a"]);
    }

    #[test]
    fn a_name_that_nobody_makes_is_the_outermost_graphs_problem() {
        let proto = graph(vec![node("Relu", "nowhere", "b", vec![])], vec![], vec![info("b", "")], vec![]);
        let (body, names, _) = read(&proto);
        assert_eq!((names, captured(&body)), (vec!["nowhere".to_owned()], vec![(0, "nowhere")]));
    }
}
