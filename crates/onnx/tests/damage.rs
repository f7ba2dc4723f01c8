//! Damaged files never make the importer panic, and cost what an intact one costs.

#![allow(clippy::unwrap_used)]

#[path = "common/build.rs"]
mod build;
mod common;

use build::{body, bytes, call, function, graph, info, int, int64s, model, node, reference, stored};
use memfit_graph::{Binding, infer};
use onnx_protobuf::attribute_proto::AttributeType;
use proptest::prelude::*;
use std::path::PathBuf;
use std::sync::LazyLock;

/// A model with something of everything.
fn everything() -> Vec<u8> {
    let branch = |op: &str| graph(vec![node(op, "x", "r", vec![])], vec![], vec![info("r", "")], vec![]);
    let axis = reference("axis", "along", AttributeType::INT);
    let mut join = function("Join", "a b", "c", vec![node("Concat", "a b", "c", vec![axis])]);
    join.attribute_proto.push(int("along", 1));
    let nodes = vec![
        node("Constant", "", "k", vec![build::tensor("value", int64s("", &[0, -1]))]),
        node("Reshape", "x k", "flat", vec![]),
        node(
            "If",
            "cond",
            "z",
            vec![body("then_branch", branch("Relu")), body("else_branch", branch("Neg"))],
        ),
        call("local", "Join", "flat w", "y"),
        node("Conv", "image w4", "c", vec![build::ints("pads", &[1, 1, 1, 1])]),
    ];
    let inputs = vec![info("x", "batch 4"), info("cond", ""), info("image", "batch 3 8 8")];
    let stored = vec![stored("w", 1, &[2, 4], &[0; 32]), stored("w4", 10, &[6, 3, 3, 3], &[0; 324])];
    let outputs = vec![info("y", "batch 8"), info("z", "?"), info("c", "")];
    bytes(&model(graph(nodes, inputs, outputs, stored), vec![join]))
}

/// The same, and small real files where the reference corpus is there.
static SAMPLES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let small = |path: &PathBuf| std::fs::metadata(path).is_ok_and(|m| m.len() < 40_000);
    let models = common::files("corpus/onnx", ".onnx").into_iter().filter(small).step_by(8);
    let operators = common::files("corpus/operators", ".onnx").into_iter().filter(small);
    let files = models.chain(operators).map(|path| std::fs::read(path).unwrap());
    std::iter::once(everything()).chain(files).collect()
});

/// Imports, and infers what was imported: an operator has to bear whatever a file can say.
fn use_up(file: &[u8]) {
    let Ok(model) = memfit_onnx::import(file) else { return };
    for batch in [None, Some(3)] {
        let _ = infer(&model.graph, &Binding { batch, ..Binding::default() });
    }
}

#[test]
fn truncated_files_are_refused() {
    for whole in SAMPLES.iter().step_by(40) {
        assert!(memfit_onnx::import(whole).is_ok());
        let cuts = (0..whole.len()).step_by(if whole.len() < 4096 { 1 } else { 997 });
        // A cut between the parts behind the graph (operator versions, functions) leaves a file that is whole again.
        let accepted = cuts.filter(|cut| memfit_onnx::import(&whole[..*cut]).is_ok()).count();
        assert!(accepted <= 3, "{accepted} of {} cuts", whole.len());
    }
    for path in common::files("corpus/onnx", ".onnx").into_iter().step_by(16) {
        let whole = std::fs::read(path).unwrap();
        for cut in (4096..whole.len()).step_by(4096) {
            memfit_onnx::import(&whole[..cut]).unwrap_err();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn flipped_bytes_never_panic(
        which: prop::sample::Index,
        flips in prop::collection::vec(any::<(prop::sample::Index, u8)>(), 1..8),
    ) {
        let mut file = which.get(&SAMPLES).clone();
        for (at, byte) in flips {
            let at = at.index(file.len());
            file[at] = byte;
        }
        use_up(&file);
    }

    #[test]
    fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = memfit_onnx::import(&noise);
        // The same as the content of a graph.
        let mut file = vec![8, 8, 0x3a, noise.len() as u8];
        file.extend(&noise);
        use_up(&file);
    }
}
