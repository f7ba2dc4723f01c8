//! Files that are damaged, hostile or no models at all: all problems in one report, never a panic.

#![allow(clippy::unwrap_used)]

#[path = "common/build.rs"]
mod build;

use build::{bytes, call, file, function, graph, info, int64s, model, node, stored};
use memfit_onnx::import;
use onnx_protobuf::NodeProto;

fn problems(bytes: &[u8]) -> Vec<String> {
    import(bytes).unwrap_err().iter().map(ToString::to_string).collect()
}

#[test]
fn all_problems_are_reported_together() {
    let nodes = vec![
        node("Relu", "nowhere", "a", vec![]),
        node("Relu", "x", "a", vec![]),
        node("Concat", "x", "b", vec![]),
        node("Constant", "", "c", vec![]),
        node("", "x", "d", vec![]),
    ];
    let stored = vec![
        stored("short", 1, &[4], &[0; 12]),
        stored("negative", 1, &[-4], &[]),
        stored("huge", 1, &[i64::MAX, 4], &[]),
        stored("ranks", 1, &[1; 100], &[]),
        stored("alien", 99, &[1], &[]),
    ];
    let found = problems(&file(nodes, vec![info("x", "-1 3")], vec![info("e", "")], stored));
    let expected = [
        "Relu_1 (Relu): it makes `a`, which another node already makes",
        "Concat_2 (Concat): attribute `axis`",
        "Constant_3 (Constant): expected a value",
        "_4: expected an operator type",
        "short: expected 16 bytes of data for 4 elements of float32, found 12 bytes",
        "negative: expected a size of axis 0 that is not negative, found -4",
        "huge: expected a size that fits in memory",
        "ranks: expected at most 64 dims, found 100",
        "alien: expected an element type from 0 to 26, found 99",
        "x: expected a size of axis 0 that is not negative, found -1",
        "Relu_0 (Relu): expected an input, an initializer or a node that makes `nowhere`, found none",
        "e: it is an output of the model, but nothing makes it",
    ];
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}\nis not: {expected}");
    }
    assert_eq!(found.len(), expected.len());
}

#[test]
fn a_damaged_initializer_is_told_once() {
    for (data_type, dims) in [(1, [4, 4]), (1, [4, i64::MAX])] {
        let nodes = vec![node("MatMul", "x w", "y", vec![])];
        let found = problems(&file(
            nodes,
            vec![info("x", "2 4")],
            vec![info("y", "")],
            vec![stored("w", data_type, &dims, &[0; 3])],
        ));
        assert!(found.len() == 1 && found[0].starts_with("w: expected"), "{found:?}");
    }
}

#[test]
fn a_path_through_more_modules_than_any_model_has_is_refused() {
    let of = |modules: usize| {
        let mut relu = node("Relu", "x", "y", vec![]);
        relu.name = format!("{}Relu", "/m".repeat(modules) + "/");
        file(vec![relu], vec![info("x", "1")], vec![info("y", "")], vec![])
    };
    assert!(import(&of(200)).is_ok());
    let found = problems(&of(20_000));
    assert!(found.len() == 1 && found[0].contains("at most 256 modules, found 20000"), "{}", found.len());
}

#[test]
fn a_cycle_is_named() {
    let nodes = vec![node("Relu", "b", "a", vec![]), node("Relu", "a", "b", vec![])];
    assert!(problems(&file(nodes, vec![], vec![info("b", "")], vec![]))[0].contains("Relu_0"));
}

#[test]
fn a_node_makes_a_tensor_once() {
    let nodes = vec![node("Split", "x", "a a", vec![]), node("Relu", "a", "y", vec![])];
    let found = problems(&file(nodes, vec![info("x", "4")], vec![info("y", "")], vec![]));
    assert!(found[0].contains("it makes `a`, which another node already makes"), "{found:?}");
}

#[test]
fn a_truncated_file_says_where_it_ends() {
    let whole = file(
        vec![node("Relu", "x", "y", vec![])],
        vec![info("x", "batch 3")],
        vec![info("y", "batch 3")],
        vec![int64s("unused", &[1, 2, 3])],
    );
    assert!(import(&whole).is_ok());
    for cut in 0..whole.len() {
        let found = problems(&whole[..cut]);
        assert_eq!(found.len(), 1, "{found:?}");
        let says = found[0].contains(&format!("ends at byte {cut}")) || found[0].contains("may be cut off");
        assert!(says || cut < 20, "{cut}: {found:?}");
    }
}

#[test]
fn what_is_no_model_is_recognised() {
    let safetensors = [&16_u64.to_le_bytes()[..], b"{\"w\": {}}"].concat();
    for (content, what) in [
        (&b""[..], "an empty file"),
        (b"  \n", "white space"),
        (b"<!DOCTYPE html><html>", "a web page"),
        (b"{\"class_name\": \"Functional\"}", "JSON"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12\n", "a Git LFS pointer"),
        (b"PK\x03\x04\0\0archive/data.pkl", "a PyTorch checkpoint"),
        (b"PK\x03\x04\0\0metadata.json", "a Keras archive"),
        (b"PK\x03\x04\0\0model.onnx", "a zip archive"),
        (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
        (b"\x80\x02}q\0", "a Python pickle"),
        (b"\x1c\0\0\0TFL3", "a TensorFlow Lite model"),
        (b"GGUF\x03\0\0\0", "a GGUF file"),
        (b"\x1f\x8b\x08", "a gzip file"),
        (b"import torch\nprint(torch.ones(3))\n", "text"),
        (&safetensors, "a safetensors file"),
    ] {
        let found = problems(content);
        assert!(found[0].contains(&format!("expected an ONNX model, found {what}")), "{what}: {found:?}");
    }
}

#[test]
fn lengths_are_checked_before_memory_is_taken() {
    // The graph claims 2^60 bytes.
    let found = problems(&[8, 8, 0x3a, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10]);
    assert!(found[0].contains("cut off: it ends at byte 12"), "{found:?}");
    // A group, an overlong number, a field 0.
    for damaged in
        [&[8, 8, 0x3b][..], &[8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], &[0, 0]]
    {
        assert!(problems(damaged)[0].contains("damaged"), "{damaged:?}");
    }
}

#[test]
fn functions_that_never_end_are_a_problem() {
    let nodes = vec![call("local", "F", "x", "y")];
    let f = function("F", "a", "b", vec![call("local", "G", "a", "b")]);
    let g = function("G", "a", "b", vec![call("local", "F", "a", "b")]);
    let main = graph(nodes, vec![info("x", "2")], vec![info("y", "2")], vec![]);
    let found = problems(&bytes(&model(main, vec![f, g])));
    assert!(found[0].contains("F → G → F"), "{found:?}");
}

#[test]
fn functions_that_multiply_are_a_problem() {
    let twice = |i: u32| {
        let inner = format!("F{}", i + 1);
        let nodes = vec![call("local", &inner, "a", "c"), call("local", &inner, "c", "b")];
        function(&format!("F{i}"), "a", "b", nodes)
    };
    let mut functions: Vec<_> = (0..40).map(twice).collect();
    functions.push(function("F40", "a", "b", vec![node("Relu", "a", "b", vec![])]));
    let main = graph(vec![call("local", "F0", "x", "y")], vec![info("x", "2")], vec![info("y", "2")], vec![]);
    let found = problems(&bytes(&model(main, functions)));
    assert!(found.iter().any(|p| p.contains("more than 2000000 nodes")), "{found:?}");
}

#[test]
fn functions_that_repeat_much_are_a_problem() {
    let limit = "once its functions are inlined";
    // A constant, a name and a body, each of some size and repeated often.
    let mut constant = node("Constant", "", "c", vec![build::tensor("value", int64s("", &[1; 4096]))]);
    let calls = |op: &str| (0..20_000).map(|i| call("local", op, "x", &format!("y{i}"))).collect::<Vec<_>>();
    let main = |calls| graph(calls, vec![info("x", "2")], vec![info("y0", "")], vec![]);
    let add = node("Add", "a c", "b", vec![]);
    let f = function("F", "a", "b", vec![constant.clone(), add.clone()]);
    assert!(problems(&bytes(&model(main(calls("F")), vec![f])))[0].contains(limit));
    constant.name = "n".repeat(100_000);
    constant.attribute = vec![build::int("value_int", 1)];
    let f = function("F", "a", "b", vec![constant, add]);
    assert!(problems(&bytes(&model(main(calls("F")), vec![f])))[0].contains(limit));
    let long = |i| NodeProto { name: "n".repeat(1000), ..node("Relu", "x", &format!("r{i}"), vec![]) };
    let branch = (0..100).map(long).collect();
    let branch = build::body("branch", graph(branch, vec![], vec![info("r0", "")], vec![]));
    let kind = onnx_protobuf::attribute_proto::AttributeType::GRAPH;
    let refer = build::reference("then_branch", "branch", kind);
    let nodes = (0..20_000).map(|i| node("Unheard", "a", &format!("b{i}"), vec![refer.clone()]));
    let f = function("F", "a", "b0", nodes.collect());
    let mut once = call("local", "F", "x", "y0");
    once.attribute.push(branch);
    assert!(problems(&bytes(&model(main(vec![once]), vec![f])))[0].contains(limit));
}

#[test]
fn bodies_nested_without_end_are_a_problem() {
    use protobuf::Message;
    let varint = |mut n: usize| {
        let mut out = Vec::new();
        while n >= 0x80 {
            out.push(n as u8 | 0x80);
            n >>= 7;
        }
        out.push(n as u8);
        out
    };
    let field =
        |number: u8, content: &[u8]| [&[number << 3 | 2][..], &varint(content.len()), content].concat();
    let leaf = graph(vec![node("Relu", "x", "y", vec![])], vec![], vec![info("y", "")], vec![]);
    let if_ = node("If", "x", "y", vec![]).write_to_bytes().unwrap();
    let output = field(12, &info("y", "").write_to_bytes().unwrap());
    let otherwise =
        [field(1, b"else_branch"), field(6, &leaf.write_to_bytes().unwrap()), vec![0xa0, 1, 5]].concat();
    for depth in [31, 33, 60, 200, 5000] {
        let mut inner = leaf.write_to_bytes().unwrap();
        for _ in 0..depth {
            // The graph as the attribute of a node of a graph.
            let attribute = [field(1, b"then_branch"), field(6, &inner), vec![0xa0, 1, 5]].concat();
            let node = [if_.clone(), field(5, &attribute), field(5, &otherwise)].concat();
            inner = [field(1, &node), output.clone()].concat();
        }
        let input = field(11, &info("x", "").write_to_bytes().unwrap());
        let file = [vec![8, 8], field(7, &[inner, input].concat()), field(8, &[0x10, 17])].concat();
        match import(&file) {
            Ok(_) => assert!(depth <= 32, "{depth}"),
            Err(found) => {
                let says =
                    |p: &memfit_graph::Problem| p.message.contains("nested") || p.message.contains("damage");
                assert!(depth > 32 && found.iter().any(says), "{depth}: {found:?}");
            }
        }
    }
}
