//! Networks for images, as the programs that were measured wrote them.

use super::net::Net;
use serde_json::json;

/// How the blocks of a residual network are made.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Block {
    /// Two 3 x 3 convolutions, norms after them.
    Basic,
    /// The same with norms before them (tensorflow/models, official/resnet, v2).
    BasicBefore,
    /// 1 x 1, 3 x 3, 1 x 1, norms before them.
    BottleneckBefore,
    /// 1 x 1, 3 x 3 in 32 groups of 4 channels, 1 x 1, norms after them; with a gate on its channels or not.
    Grouped { gated: bool },
}

/// A residual network for 224 x 224 images whose four stages have so many blocks.
pub(super) fn residual(block: Block, blocks: [u64; 4]) -> String {
    let mut net = Net::default();
    let before = matches!(block, Block::BasicBefore | Block::BottleneckBefore);
    let image = net.input(&[224, 224, 3]);
    let mut x = net.conv(&image, 64, 7, 2);
    if !before {
        x = net.norm_relu(&x);
    }
    x = net.pool(&x, 3, 2);
    for (stage, count) in (0_u32..).zip(blocks) {
        for i in 0..count {
            let stride = if i == 0 && stage > 0 { 2 } else { 1 };
            x = net.block(block, &x, 64 << stage, stride, i == 0);
        }
    }
    if before {
        x = net.norm_relu(&x);
    }
    let x = net.layer("GlobalAveragePooling2D", json!({}), &[&x]);
    let x = net.dense(&x, 1001, "softmax");
    net.model(&[&x])
}

impl Net {
    fn block(&mut self, block: Block, x: &str, filters: u64, stride: u64, is_first: bool) -> String {
        let (out, before) = match block {
            Block::Basic => (filters, false),
            Block::BasicBefore => (filters, true),
            Block::BottleneckBefore => (4 * filters, true),
            Block::Grouped { .. } => (4 * filters, false),
        };
        let ready = if before { self.norm_relu(x) } else { x.to_owned() };
        let projects = is_first && (out != 64 || stride > 1);
        let shortcut = if projects { self.conv(&ready, out, 1, stride) } else { x.to_owned() };
        let shortcut = if projects && !before { self.norm(&shortcut) } else { shortcut };
        // Filters, side, stride and groups of each convolution.
        let convolutions: &[[u64; 4]] = match block {
            Block::Basic | Block::BasicBefore => &[[filters, 3, stride, 1], [filters, 3, 1, 1]],
            Block::BottleneckBefore => &[[filters, 1, 1, 1], [filters, 3, stride, 1], [out, 1, 1, 1]],
            Block::Grouped { .. } => &[[2 * filters, 1, 1, 1], [2 * filters, 3, stride, 32], [out, 1, 1, 1]],
        };
        let mut y = ready;
        for (i, [filters, side, stride, groups]) in convolutions.iter().enumerate() {
            y = self.grouped(&y, *filters, *side, *stride, *groups);
            let is_last = i + 1 == convolutions.len();
            y = match (before, is_last) {
                (true, true) => y,
                (false, true) => self.norm(&y),
                (_, false) => self.norm_relu(&y),
            };
        }
        if block == (Block::Grouped { gated: true }) {
            let gate = self.layer("GlobalAveragePooling2D", json!({ "keepdims": true }), &[&y]);
            let gate = self.dense(&gate, out / 16, "relu");
            let gate = self.dense(&gate, out, "sigmoid");
            y = self.layer("Multiply", json!({}), &[&y, &gate]);
        }
        let sum = self.add(&y, &shortcut);
        if before { sum } else { self.relu(&sum) }
    }
}

/// A VGG network (tf_cnn_benchmarks' models have no dropout) whose five stages have so many convolutions.
pub(super) fn vgg(convolutions: [u64; 5]) -> String {
    let mut net = Net::default();
    let mut x = net.input(&[224, 224, 3]);
    for (filters, count) in [64, 128, 256, 512, 512].into_iter().zip(convolutions) {
        for _ in 0..count {
            let config =
                json!({ "filters": filters, "kernel_size": [3, 3], "padding": "same", "activation": "relu" });
            x = net.layer("Conv2D", config, &[&x]);
        }
        x = net.pool(&x, 2, 2);
    }
    x = net.layer("Flatten", json!({}), &[&x]);
    for _ in 0..2 {
        x = net.dense(&x, 4096, "relu");
    }
    x = net.dense(&x, 1001, "softmax");
    net.model(&[&x])
}

/// tf_cnn_benchmarks' GoogLeNet: nine inception modules, without norms and without the two side heads.
pub(super) fn googlenet() -> String {
    const MODULES: [[u64; 6]; 9] = [
        [64, 96, 128, 16, 32, 32],
        [128, 128, 192, 32, 96, 64],
        [192, 96, 208, 16, 48, 64],
        [160, 112, 224, 24, 64, 64],
        [128, 128, 256, 24, 64, 64],
        [112, 144, 288, 32, 64, 64],
        [256, 160, 320, 32, 128, 128],
        [256, 160, 320, 32, 128, 128],
        [384, 192, 384, 48, 128, 128],
    ];
    let mut net = Net::default();
    let conv = |net: &mut Net, x: &str, filters: u64, side: u64, stride: u64| {
        let config = json!({ "filters": filters, "kernel_size": [side, side], "strides": [stride, stride], "padding": "same",
            "activation": "relu" });
        net.layer("Conv2D", config, &[x])
    };
    let image = net.input(&[224, 224, 3]);
    let mut x = conv(&mut net, &image, 64, 7, 2);
    x = net.pool(&x, 3, 2);
    x = conv(&mut net, &x, 64, 1, 1);
    x = conv(&mut net, &x, 192, 3, 1);
    x = net.pool(&x, 3, 2);
    for (i, [one, three_in, three, five_in, five, pooled]) in MODULES.into_iter().enumerate() {
        if i == 2 || i == 7 {
            x = net.pool(&x, 3, 2);
        }
        let a = conv(&mut net, &x, one, 1, 1);
        let b = conv(&mut net, &x, three_in, 1, 1);
        let b = conv(&mut net, &b, three, 3, 1);
        let c = conv(&mut net, &x, five_in, 1, 1);
        let c = conv(&mut net, &c, five, 5, 1);
        let d = net.pool(&x, 3, 1);
        let d = conv(&mut net, &d, pooled, 1, 1);
        x = net.layer("Concatenate", json!({ "axis": -1 }), &[&a, &b, &c, &d]);
    }
    x = net.layer("GlobalAveragePooling2D", json!({}), &[&x]);
    x = net.dense(&x, 1001, "softmax");
    net.model(&[&x])
}
