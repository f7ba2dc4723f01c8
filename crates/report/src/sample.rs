//! A small hand-made estimate for the formats' tests; its numbers hold together as a real one's do.

use memfit_engine::devices::{Device, context};
use memfit_engine::{
    Breakdown, Category, Estimate, Fit, Framework, LayerRow, LiveTensor, ModelSummary, Peak, Phase, Plan,
    Shortage, Timeline, Verdict,
};
use memfit_graph::Bytes;

/// Text without its styles.
pub(crate) fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            chars.by_ref().find(|c| *c == 'm');
        } else {
            out.push(c);
        }
    }
    out
}

/// Two convolutions, a head, the loss and the inputs, with the peak in backward.
pub(crate) fn estimate() -> Estimate {
    let layers = vec![
        row("(inputs)", "", [8, 3, 32, 32], 0, |b| b.inputs = Bytes(98_304 + 512)),
        row("features.0", "Conv", [8, 64, 32, 32], 1_792, |b| {
            b.activations = Bytes(2_097_152);
            b.activation_gradients = Bytes(2_097_152);
        }),
        row("features.1", "Relu", [8, 64, 32, 32], 0, |b| b.activations = Bytes(2_097_152)),
        row("features.2", "Conv", [8, 128, 32, 32], 73_856, |b| {
            b.activations = Bytes(4_194_304);
            b.workspace = Bytes(1_000_448);
        }),
        row("head.fc", "Gemm", [8, 10, 1, 1], 1_290, |b| b.transients = Bytes(1024)),
    ];
    let mut breakdown =
        Breakdown { allocator: Bytes(3_000_320), context: Bytes(400 << 20), ..Breakdown::default() };
    for layer in &layers {
        for (category, bytes) in layer.at_peak.categories() {
            breakdown.add(category, bytes);
        }
    }
    let allocated = breakdown.allocated();
    let reserved = allocated + breakdown.allocator;
    let device = reserved + breakdown.context;
    let live = |label: &str, layer: &str, category, bytes| LiveTensor {
        label: label.into(),
        layer: layer.into(),
        category,
        bytes: Bytes(bytes),
    };
    Estimate {
        model: ModelSummary {
            name: "small_cnn".into(),
            format: "onnx".into(),
            parameters_trainable: 76_938,
            parameters_frozen: 0,
            buffers: 256,
            operators: 12,
        },
        plan: Plan::default(),
        batch_size: Some(8),
        peak: Peak {
            allocated,
            reserved,
            device,
            device_low: device.saturating_sub(Bytes::mib(20)),
            device_high: device + Bytes::mib(40),
            phase: Phase::Backward,
            layer: "features.2".into(),
        },
        breakdown,
        context: context::context(&Device::unknown(), Framework::Pytorch),
        fit: None,
        saved_for_backward: layers.iter().map(|l| l.saved_bytes).sum(),
        scenario: None,
        layers,
        largest: vec![
            live("/features.2/Conv_output_0", "features.2", Category::Activation, 4_194_304),
            live("/features.0/Conv_output_0", "features.0", Category::Activation, 2_097_152),
            live("threshold_backward", "features.0", Category::ActivationGradient, 2_097_152),
        ],
        timeline: Timeline::default(),
        unknown: Vec::new(),
        assumptions: vec!["the loss is cross-entropy over 10 classes: output `logits` has shape 8x10".into()],
        warnings: Vec::new(),
    }
}

fn row(name: &str, op: &str, shape: [u64; 4], parameters: u64, own: impl FnOnce(&mut Breakdown)) -> LayerRow {
    let bytes = Bytes(parameters * 4);
    let block = bytes.round_up(512);
    let mut at_peak =
        Breakdown { parameters: block, gradients: block, optimizer: block * 2, ..Breakdown::default() };
    own(&mut at_peak);
    LayerRow {
        name: name.into(),
        op: op.into(),
        output_shapes: [shape.into()].into_iter().collect(),
        parameters,
        parameter_bytes: bytes,
        gradient_bytes: bytes,
        optimizer_bytes: bytes * 2,
        saved_bytes: at_peak.activations,
        workspace_bytes: at_peak.workspace,
        at_peak,
    }
}

/// A card on which the step fails.
pub(crate) fn fit() -> Fit {
    Fit {
        gpu: "rtx-3060".into(),
        capacity: Bytes::mib(12_288),
        usable: Bytes::mib(10),
        reserved: Bytes::mib(15),
        verdict: Verdict::DoesNotFit,
        retries: 1,
        shortage: Some(Shortage {
            tensor: "threshold_backward".into(),
            layer: "features.0".into(),
            phase: Phase::Backward,
            request: Bytes::mib(2),
            free: Bytes::mib(3),
            unusable: Bytes::mib(3),
            largest_free: Bytes::mib(1),
        }),
        preallocated: None,
        kept: Bytes::mib(490),
        system: Bytes::ZERO,
        others: Vec::new(),
    }
}
