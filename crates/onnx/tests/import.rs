//! What an imported graph looks like: roles, types, constants, names, and weights that stay unread.

#![allow(clippy::unwrap_used)]

#[path = "common/build.rs"]
mod build;

use build::{bytes, file, graph, info, int64s, ints, model, node, stored, typed};
use memfit_graph::{Dim, Graph, Num, Role, Type};
use memfit_onnx::{Model, import};
use onnx_protobuf::{SparseTensorProto, StringStringEntryProto, TypeProto, type_proto};
use std::io::{self, Read, Seek, SeekFrom};

fn tensor<'g>(graph: &'g Graph, name: &str) -> &'g memfit_graph::Tensor {
    graph.tensor(graph.find(name).unwrap())
}

fn names(graph: &Graph, ids: &[memfit_graph::TensorId]) -> Vec<String> {
    ids.iter().map(|id| graph.tensor(*id).name.to_string()).collect()
}

fn small() -> Vec<u8> {
    let nodes = vec![
        node("Reshape", "x target", "flat", vec![]),
        node("MatMul", "flat w", "y", vec![]),
        node("com.Unheard", "y", "z", vec![]),
    ];
    let inputs = vec![info("x", "batch 3 ?"), info("w", "8 4")];
    let target = int64s("target", &[-1, 8]);
    let w = stored("w", 1, &[8, 4], &[0; 128]);
    file(nodes, inputs, vec![info("z", "batch 4")], vec![w, target])
}

#[test]
fn a_structure_has_no_weights_in_it() {
    let w = stored("w", 1, &[64, 64], &[0; 16_384]);
    let nodes = vec![node("MatMul", "x w", "y", vec![])];
    let bytes = file(nodes, vec![info("x", "batch 64")], vec![info("y", "batch 64")], vec![w]);
    let read: u64 = import(&bytes).unwrap().structure.iter().map(|part| part.end - part.start).sum();
    assert_eq!(read, bytes.len() as u64 - 16_384);
}

#[test]
fn a_graph_has_roles_types_and_names() {
    let bytes = small();
    let Model { graph, producer, opset, ir_version, operators, warnings, structure } =
        import(&bytes).unwrap();
    // Its weights are small enough to be constants, so that all of it was read.
    assert_eq!(structure, vec![0..bytes.len() as u64]);
    assert_eq!((producer.as_str(), opset, ir_version, operators, warnings.len()), ("test 1", 17, 8, 3, 0));
    // An initializer that is listed as an input is not fed.
    assert_eq!(names(&graph, &graph.inputs), ["x"]);
    assert_eq!(names(&graph, &graph.outputs), ["z"]);
    assert_eq!(tensor(&graph, "w").role, Role::Initializer);
    assert_eq!(tensor(&graph, "flat").role, Role::Intermediate);
    assert_eq!(tensor(&graph, "x").declared.shape().unwrap().to_string(), "batchx3xx.dim2");
    assert_eq!(tensor(&graph, "target").value.as_ref().unwrap().ints().unwrap(), [-1, 8]);
    let made_up: Vec<&str> = graph.nodes.iter().map(|n| &*n.name).collect();
    assert_eq!(made_up, ["Reshape_0", "MatMul_1", "com.Unheard_2"]);
    assert_eq!(graph.nodes[2].op.name(), "com.Unheard");
}

#[test]
fn every_form_of_constant_becomes_a_constant_tensor() {
    use onnx_protobuf::AttributeProto;
    use onnx_protobuf::attribute_proto::AttributeType as A;
    let of =
        |name: &str, kind: A| AttributeProto { name: name.into(), type_: kind.into(), ..Default::default() };
    let sparse = SparseTensorProto {
        values: Some(stored("", 6, &[2], &[7, 0, 0, 0, 9, 0, 0, 0])).into(),
        indices: Some(int64s("", &[1, 3])).into(),
        dims: vec![4],
        ..Default::default()
    };
    let forms = [
        build::tensor("value", int64s("", &[5])),
        build::int("value_int", 3),
        ints("value_ints", &[1, 2]),
        AttributeProto { f: 0.5, ..of("value_float", A::FLOAT) },
        AttributeProto { floats: vec![0.5, 2.0], ..of("value_floats", A::FLOATS) },
        AttributeProto { s: b"a".to_vec(), ..of("value_string", A::STRING) },
        AttributeProto { strings: vec![b"a".to_vec()], ..of("value_strings", A::STRINGS) },
        AttributeProto { sparse_tensor: Some(sparse).into(), ..of("sparse_value", A::SPARSE_TENSOR) },
    ];
    let constants = forms.iter().enumerate();
    let nodes = constants.map(|(i, a)| node("Constant", "", &format!("c{i}"), vec![a.clone()])).collect();
    let outputs = (0..forms.len()).map(|i| info(&format!("c{i}"), "")).collect();
    let graph = import(&file(nodes, vec![], outputs, vec![])).unwrap().graph;
    assert!(graph.nodes.is_empty());
    let said: Vec<String> = graph
        .tensors
        .iter()
        .map(|t| {
            assert_eq!(t.role, Role::Constant);
            let value = t.value.as_ref().map(|v| v.floats().unwrap());
            format!("{} {} {value:?}", t.declared.dtype().unwrap(), t.declared.shape().unwrap())
        })
        .collect();
    assert_eq!(
        said,
        [
            "int64 1 Some([5.0])",
            "int64 scalar Some([3.0])",
            "int64 2 Some([1.0, 2.0])",
            "float32 scalar Some([0.5])",
            "float32 2 Some([0.5, 2.0])",
            "string scalar None",
            "string 1 None",
            "int32 4 Some([0.0, 7.0, 0.0, 9.0])",
        ]
    );
}

#[test]
fn inputs_may_be_sparse_optional_sequences_and_maps() {
    let of = |value| TypeProto { value: Some(value), ..Default::default() };
    let inner = || Some(build::tensor_type(1, "2 n")).into();
    let sequence = of(type_proto::Value::SequenceType(type_proto::Sequence {
        elem_type: inner(),
        ..Default::default()
    }));
    let optional = of(type_proto::Value::OptionalType(type_proto::Optional {
        elem_type: Some(sequence.clone()).into(),
        ..Default::default()
    }));
    let map = of(type_proto::Value::MapType(type_proto::Map {
        key_type: 7,
        value_type: inner(),
        ..Default::default()
    }));
    let inputs = vec![typed("seq", sequence), typed("opt", optional), typed("map", map)];
    let mut g = graph(vec![node("Relu", "s", "y", vec![])], inputs, vec![info("y", "")], vec![]);
    g.sparse_initializer.push(SparseTensorProto {
        values: Some(stored("s", 1, &[1], &[0, 0, 0, 0])).into(),
        indices: Some(int64s("", &[0])).into(),
        dims: vec![5, 5],
        ..Default::default()
    });
    let graph = import(&bytes(&model(g, vec![]))).unwrap().graph;
    let item = Type::Tensor(memfit_graph::TensorType {
        dtype: memfit_graph::DType::Float32,
        shape: Some([Dim::Known(2), Dim::symbol("n")].into_iter().collect()),
    });
    let sequence = Type::Sequence { element: Box::new(item.clone()), items: None };
    assert_eq!(tensor(&graph, "seq").declared, sequence);
    assert_eq!(tensor(&graph, "opt").declared, Type::Optional { element: Box::new(sequence), present: None });
    assert_eq!(tensor(&graph, "map").declared, Type::Map(Box::new(item)));
    assert!(
        matches!(&tensor(&graph, "s").declared, Type::Sparse(t) if t.shape.as_ref().unwrap().to_string() == "5x5")
    );
}

#[test]
fn what_is_odd_is_a_warning() {
    let main =
        graph(vec![build::call("vendor", "F", "x", "y")], vec![info("x", "2")], vec![info("y", "2")], vec![]);
    let mut odd = model(main, vec![]);
    odd.opset_import[0].version = 900;
    odd.training_info.push(Default::default());
    let warnings = import(&bytes(&odd)).unwrap().warnings;
    let said: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    let expected =
        ["operators of version 900", "training steps are left out", "version of the operators of vendor"];
    assert!(said.len() == 3 && said.iter().zip(expected).all(|(s, e)| s.contains(e)), "{said:?}");
    odd.opset_import[0].version = 6;
    assert!(import(&bytes(&odd)).unwrap().warnings[0].message.contains("before 7"));
}

#[test]
fn external_data_may_be_absent() {
    let mut w = stored("w", 7, &[2], &[]);
    w.data_location = onnx_protobuf::tensor_proto::DataLocation::EXTERNAL.into();
    let location =
        StringStringEntryProto { key: "location".into(), value: "gone.bin".into(), ..Default::default() };
    w.external_data.push(location);
    let model = file(vec![node("Relu", "w", "y", vec![])], vec![], vec![info("y", "")], vec![w]);
    let graph = import(&model).unwrap().graph;
    assert_eq!(tensor(&graph, "w").value, None);
    assert_eq!(tensor(&graph, "w").declared.shape().unwrap().to_string(), "2");
}

#[test]
fn only_small_constants_are_kept() {
    let floats = |n: usize| stored(&format!("f{n}"), 1, &[n as i64], &vec![0; n * 4]);
    let integers = |n: usize| int64s(&format!("i{n}"), &vec![1; n]);
    let stored = vec![floats(64), floats(65), floats(100_000), integers(4096), integers(4097)];
    let all = "f64 f65 f100000 i4096 i4097";
    let model = file(vec![node("Sum", all, "y", vec![])], vec![], vec![info("y", "")], stored);
    let graph = import(&model).unwrap().graph;
    let kept: Vec<bool> = all.split(' ').map(|name| tensor(&graph, name).value.is_some()).collect();
    assert_eq!(kept, [true, false, false, true, false]);
    let first = &tensor(&graph, "i4096").value.as_ref().unwrap().data[0];
    assert_eq!(first, &Num::Int(1));
}

/// A file with a hole in it, which reads as zeros; it counts what is read of it.
struct Holey {
    head: Vec<u8>,
    hole: u64,
    tail: Vec<u8>,
    at: u64,
    read: u64,
}

impl Read for Holey {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let (head, tail) = (self.head.len() as u64, self.head.len() as u64 + self.hole);
        for (n, byte) in out.iter_mut().enumerate() {
            *byte = match self.at {
                at if at < head => self.head[at as usize],
                at if at < tail => 0,
                at => match self.tail.get((at - tail) as usize) {
                    Some(byte) => *byte,
                    None => return Ok(n),
                },
            };
            self.at += 1;
            self.read += 1;
        }
        Ok(out.len())
    }
}

impl Seek for Holey {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let len = self.head.len() as u64 + self.hole + self.tail.len() as u64;
        self.at = match to {
            SeekFrom::Start(at) => at,
            SeekFrom::End(n) => len.saturating_add_signed(n),
            SeekFrom::Current(n) => self.at.saturating_add_signed(n),
        };
        Ok(self.at)
    }
}

#[test]
fn weights_are_not_read() {
    // The length fields of model, graph and tensor take as many bytes for 4 GiB as for 1 GiB: patch a smaller file.
    let varint = |mut n: u64| {
        let mut out = Vec::new();
        while n >= 0x80 {
            out.push(n as u8 | 0x80);
            n >>= 7;
        }
        out.push(n as u8);
        out
    };
    let field = |number: u8, content: &[u8]| {
        [&[number << 3 | 2][..], &varint(content.len() as u64), content].concat()
    };
    let hole = 4 << 30;
    let relu = protobuf::Message::write_to_bytes(&node("Relu", "w", "y", vec![])).unwrap();
    let output = protobuf::Message::write_to_bytes(&info("y", "")).unwrap();
    let opset = field(8, &[8, 0x10, 17][1..]);
    let graph_tail = field(12, &output);
    let tensor_head =
        [&[8][..], &varint(1 << 30), &[0x10, 1], &field(8, b"w"), &[9 << 3 | 2], &varint(hole)].concat();
    let tensor_len = tensor_head.len() as u64 + hole;
    let graph_head = [field(1, &relu), vec![5 << 3 | 2], varint(tensor_len), tensor_head].concat();
    let graph_len = graph_head.len() as u64 + hole + graph_tail.len() as u64;
    let head = [&[8, 8, 7 << 3 | 2][..], &varint(graph_len), &graph_head].concat();
    let mut file = Holey { head, hole, tail: [graph_tail, opset].concat(), at: 0, read: 0 };
    let graph = memfit_onnx::import_from(&mut file).unwrap().graph;
    assert_eq!(tensor(&graph, "w").declared.shape().unwrap().to_string(), "1073741824");
    assert!(file.read < 64 << 10, "{} bytes were read", file.read);
}
