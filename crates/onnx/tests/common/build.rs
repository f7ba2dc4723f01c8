//! Small ONNX models, made with the generated structs rather than kept as binary files.

#![allow(dead_code, clippy::unwrap_used, unreachable_pub)]

use onnx_protobuf::attribute_proto::AttributeType;
use onnx_protobuf::tensor_shape_proto::{Dimension, dimension};
use onnx_protobuf::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    TensorShapeProto, TypeProto, ValueInfoProto, type_proto,
};
use protobuf::Message;

/// A dim: a number, or a name where it is not one.
pub fn dim(text: &str) -> Dimension {
    let value = match text.parse() {
        Ok(n) => dimension::Value::DimValue(n),
        Err(_) => dimension::Value::DimParam(text.into()),
    };
    Dimension { value: (text != "?").then_some(value), ..Default::default() }
}

/// A tensor type; the dims are separated by spaces.
pub fn tensor_type(elem_type: i32, dims: &str) -> TypeProto {
    let shape = TensorShapeProto { dim: dims.split_whitespace().map(dim).collect(), ..Default::default() };
    let tensor = type_proto::Tensor { elem_type, shape: Some(shape).into(), ..Default::default() };
    TypeProto { value: Some(type_proto::Value::TensorType(tensor)), ..Default::default() }
}

/// A float input or output.
pub fn info(name: &str, dims: &str) -> ValueInfoProto {
    typed(name, tensor_type(1, dims))
}

/// A value with a type.
pub fn typed(name: &str, ty: TypeProto) -> ValueInfoProto {
    ValueInfoProto { name: name.into(), type_: Some(ty).into(), ..Default::default() }
}

/// A node; names are separated by spaces, `_` is an omitted one.
pub fn node(op: &str, inputs: &str, outputs: &str, attributes: Vec<AttributeProto>) -> NodeProto {
    let names = |text: &str| {
        text.split_whitespace().map(|n| if n == "_" { String::new() } else { n.into() }).collect()
    };
    NodeProto {
        op_type: op.into(),
        input: names(inputs),
        output: names(outputs),
        attribute: attributes,
        ..Default::default()
    }
}

/// A node of another domain.
pub fn call(domain: &str, op: &str, inputs: &str, outputs: &str) -> NodeProto {
    NodeProto { domain: domain.into(), ..node(op, inputs, outputs, vec![]) }
}

fn attribute(name: &str, kind: AttributeType) -> AttributeProto {
    AttributeProto { name: name.into(), type_: kind.into(), ..Default::default() }
}

pub fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto { i, ..attribute(name, AttributeType::INT) }
}

pub fn ints(name: &str, ints: &[i64]) -> AttributeProto {
    AttributeProto { ints: ints.to_vec(), ..attribute(name, AttributeType::INTS) }
}

pub fn text(name: &str, s: &str) -> AttributeProto {
    AttributeProto { s: s.into(), ..attribute(name, AttributeType::STRING) }
}

pub fn tensor(name: &str, t: TensorProto) -> AttributeProto {
    AttributeProto { t: Some(t).into(), ..attribute(name, AttributeType::TENSOR) }
}

pub fn body(name: &str, g: GraphProto) -> AttributeProto {
    AttributeProto { g: Some(g).into(), ..attribute(name, AttributeType::GRAPH) }
}

/// An attribute that refers to one of the enclosing function.
pub fn reference(name: &str, to: &str, kind: AttributeType) -> AttributeProto {
    AttributeProto { ref_attr_name: to.into(), ..attribute(name, kind) }
}

/// A stored tensor with its bytes.
pub fn stored(name: &str, data_type: i32, dims: &[i64], raw: &[u8]) -> TensorProto {
    TensorProto {
        name: name.into(),
        data_type,
        dims: dims.to_vec(),
        raw_data: raw.to_vec(),
        ..Default::default()
    }
}

/// A vector of 64-bit integers.
pub fn int64s(name: &str, values: &[i64]) -> TensorProto {
    let raw: Vec<u8> = values.iter().flat_map(|n| n.to_le_bytes()).collect();
    stored(name, 7, &[values.len() as i64], &raw)
}

/// A graph from its nodes, inputs, outputs and stored tensors.
pub fn graph(
    nodes: Vec<NodeProto>,
    input: Vec<ValueInfoProto>,
    output: Vec<ValueInfoProto>,
    initializer: Vec<TensorProto>,
) -> GraphProto {
    GraphProto { name: "g".into(), node: nodes, input, output, initializer, ..Default::default() }
}

/// A function of the domain `local`.
pub fn function(name: &str, inputs: &str, outputs: &str, nodes: Vec<NodeProto>) -> FunctionProto {
    let names = |text: &str| text.split_whitespace().map(str::to_owned).collect();
    FunctionProto {
        name: name.into(),
        domain: "local".into(),
        input: names(inputs),
        output: names(outputs),
        node: nodes,
        opset_import: vec![opset("", 17), opset("local", 1)],
        ..Default::default()
    }
}

fn opset(domain: &str, version: i64) -> OperatorSetIdProto {
    OperatorSetIdProto { domain: domain.into(), version, ..Default::default() }
}

/// A model around a graph.
pub fn model(graph: GraphProto, functions: Vec<FunctionProto>) -> ModelProto {
    ModelProto {
        ir_version: 8,
        producer_name: "test".into(),
        producer_version: "1".into(),
        opset_import: vec![opset("", 17), opset("local", 1)],
        graph: Some(graph).into(),
        functions,
        ..Default::default()
    }
}

/// The bytes of a model file.
pub fn bytes(model: &ModelProto) -> Vec<u8> {
    model.write_to_bytes().unwrap()
}

/// The bytes of a model that is one graph.
pub fn file(
    nodes: Vec<NodeProto>,
    input: Vec<ValueInfoProto>,
    output: Vec<ValueInfoProto>,
    initializer: Vec<TensorProto>,
) -> Vec<u8> {
    bytes(&model(graph(nodes, input, output, initializer), vec![]))
}
