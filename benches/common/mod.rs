//! What the benches share.

/// How long the transformers are.
pub(crate) const NODES: [usize; 4] = [1250, 2500, 5000, 10000];

/// ResNet-50 as PyTorch exports it for training, where the repository has it.
#[allow(dead_code)]
pub(crate) fn resnet50() -> Option<Vec<u8>> {
    std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/models/resnet50.onnx")).ok()
}
