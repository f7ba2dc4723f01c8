//! Local functions put in place of their calls.

#![allow(clippy::unwrap_used)]

#[path = "common/build.rs"]
mod build;

use build::{bytes, call, function, graph, info, int, model, node, reference};
use memfit_graph::{Binding, Graph, infer};
use memfit_onnx::import;
use onnx_protobuf::attribute_proto::AttributeType;
use onnx_protobuf::{FunctionProto, GraphProto, NodeProto};

fn imported(nodes: Vec<NodeProto>, functions: Vec<FunctionProto>) -> Graph {
    let inputs = vec![info("x", "2 3"), info("z", "2 3")];
    import(&bytes(&model(graph(nodes, inputs, vec![info("y", "")], vec![]), functions))).unwrap().graph
}

fn shape(graph: &Graph, name: &str) -> String {
    infer(graph, &Binding::default()).unwrap().shape(graph.find(name).unwrap()).unwrap().to_string()
}

fn with(node: NodeProto, attributes: Vec<onnx_protobuf::AttributeProto>) -> NodeProto {
    NodeProto { attribute: attributes, ..node }
}

#[test]
fn attributes_come_from_the_call_or_the_default() {
    let join = || node("Concat", "a b", "c", vec![reference("axis", "along", AttributeType::INT)]);
    let mut f = function("Join", "a b", "c", vec![join()]);
    f.attribute_proto.push(int("along", 0));
    let default = imported(vec![call("local", "Join", "x z", "y")], vec![f.clone()]);
    assert_eq!(shape(&default, "y"), "4x3");
    let given = with(call("local", "Join", "x z", "y"), vec![int("along", 1)]);
    assert_eq!(shape(&imported(vec![given.clone()], vec![f]), "y"), "2x6");
    // One without default that the call leaves out is absent inside too.
    let f = function("Join", "a b", "c", vec![join()]);
    let main =
        graph(vec![call("local", "Join", "x z", "y")], vec![info("x", "2"), info("z", "2")], vec![], vec![]);
    let problem = &import(&bytes(&model(main, vec![f]))).unwrap_err()[0];
    assert!(problem.message.contains("axis"), "{problem}");
    assert_eq!(problem.place, "Join_0/Concat_0");
}

#[test]
fn names_inside_are_the_functions_own() {
    // Both calls have an inner tensor `t`, and so has the graph around them.
    let outer =
        function("Outer", "a", "b", vec![call("local", "Inner", "a", "t"), node("Relu", "t", "b", vec![])]);
    let inner =
        function("Inner", "a", "b", vec![node("Relu", "a", "t", vec![]), node("Relu", "t", "b", vec![])]);
    let nodes = vec![call("local", "Outer", "x", "t"), call("local", "Outer", "t", "y")];
    let g = imported(nodes, vec![outer, inner]);
    let names: Vec<&str> = g.nodes.iter().map(|n| &*n.name).collect();
    assert_eq!(
        names,
        [
            "Outer_0/Inner_0/Relu_0",
            "Outer_0/Inner_0/Relu_1",
            "Outer_0/Relu_1",
            "Outer_1/Inner_0/Relu_0",
            "Outer_1/Inner_0/Relu_1",
            "Outer_1/Relu_1"
        ]
    );
    assert_eq!(shape(&g, "y"), "2x3");
    let mut tensors: Vec<&str> = g.tensors.iter().map(|t| &*t.name).collect();
    let all = tensors.len();
    tensors.sort_unstable();
    tensors.dedup();
    assert_eq!(tensors.len(), all);
}

#[test]
fn an_input_left_out_is_absent_inside() {
    let f = function("F", "a low", "b", vec![node("Clip", "a low", "b", vec![])]);
    let g = imported(vec![call("local", "F", "x", "y")], vec![f]);
    assert_eq!(g.nodes[0].inputs[1], None);
}

#[test]
fn an_output_may_be_an_input() {
    let f = function("F", "a", "a b", vec![node("Relu", "a", "b", vec![])]);
    let g = imported(vec![call("local", "F", "x", "y unused")], vec![f]);
    assert_eq!(shape(&g, "y"), "2x3");
}

#[test]
fn an_overload_is_another_function() {
    let plain = function("F", "a", "b", vec![node("Relu", "a", "b", vec![])]);
    let flat = function("F", "a", "b", vec![node("Flatten", "a", "b", vec![int("axis", 0)])]);
    let flat = FunctionProto { overload: "flat".into(), ..flat };
    let nodes = vec![NodeProto { overload: "flat".into(), ..call("local", "F", "x", "y") }];
    assert_eq!(shape(&imported(nodes, vec![plain, flat]), "y"), "1x6");
}

#[test]
fn a_function_has_its_own_operator_versions() {
    // Squeeze takes its axes from an attribute before version 13, from an input since.
    let squeeze = node("Squeeze", "a", "b", vec![build::ints("axes", &[0])]);
    let mut f = function("F", "a", "b", vec![squeeze]);
    f.opset_import[0].version = 11;
    let input = vec![info("x", "1 3 1")];
    let main: GraphProto = graph(vec![call("local", "F", "x", "y")], input, vec![info("y", "")], vec![]);
    let g = import(&bytes(&model(main, vec![f]))).unwrap().graph;
    assert_eq!(shape(&g, "y"), "3x1");
}

#[test]
fn all_nodes_of_the_file_are_counted_once() {
    let f = function("F", "a", "b", vec![node("Relu", "a", "t", vec![]), node("Relu", "t", "b", vec![])]);
    let nodes = vec![call("local", "F", "x", "t"), call("local", "F", "t", "y")];
    let main = graph(nodes, vec![info("x", "2")], vec![info("y", "")], vec![]);
    let model = import(&bytes(&model(main, vec![f]))).unwrap();
    assert_eq!((model.operators, model.graph.nodes.len()), (4, 4));
}
