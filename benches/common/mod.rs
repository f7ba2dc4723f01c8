//! What the benches share.

use memfit_engine::Model;
use memfit_keras::Options;

/// How long the transformers are.
#[allow(dead_code)]
pub(crate) const NODES: [usize; 4] = [1250, 2500, 5000, 10000];

/// ResNet-50 as PyTorch exports it for training, where the repository has it.
#[allow(dead_code)]
pub(crate) fn resnet50() -> Option<Vec<u8>> {
    std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/models/resnet50.ts_train.onnx")).ok()
}

/// A small model with attention in Keras' own archive, where the repository has it.
#[allow(dead_code)]
pub(crate) fn keras_archive() -> Option<Vec<u8>> {
    std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/models/keras/transformer_block.keras")).ok()
}

/// The model in a Keras file.
#[allow(dead_code)]
pub(crate) fn keras(bytes: &[u8]) -> Model {
    let imported =
        memfit_keras::import(bytes, &Options::default()).unwrap_or_else(|problems| panic!("{problems:?}"));
    let operators = imported.graph.nodes.len() as u64;
    Model::new(imported.graph, "bench", "keras", operators)
}

/// The model in an ONNX file.
#[allow(dead_code)]
pub(crate) fn model(bytes: &[u8]) -> Model {
    let imported = memfit_onnx::import(bytes).unwrap_or_else(|problems| panic!("{problems:?}"));
    Model::new(imported.graph, "bench", "onnx", imported.operators)
}
