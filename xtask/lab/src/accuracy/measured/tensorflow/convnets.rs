//! Networks for images, as the programs that were measured wrote them.

use super::net::Net;
use serde_json::json;

/// How the blocks of a residual network are made.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Block {
    /// Two 3 x 3 convolutions, norms before them.
    BasicBefore,
    /// 1 x 1, 3 x 3, 1 x 1, norms before them.
    BottleneckBefore,
    /// 1 x 1, 3 x 3 in 32 groups of 4 channels, 1 x 1, norms after them; with a gate on its channels or not.
    Grouped { gated: bool },
}

impl Block {
    /// Whether norms come before convolutions: tensorflow/models' official/resnet, v2. It pads what a strided convolution reads
    /// (`conv2d_fixed_padding`), and the first block of every stage projects its input.
    fn is_v2(self) -> bool {
        matches!(self, Block::BasicBefore | Block::BottleneckBefore)
    }
}

/// A residual network for 224 x 224 images whose four stages have so many blocks.
pub(super) fn residual(block: Block, blocks: [u64; 4]) -> String {
    let mut net = Net::default();
    let image = net.input(&[224, 224, 3]);
    let mut x = net.block_conv(block, &image, [64, 7, 2, 1]);
    if !block.is_v2() {
        x = net.norm_relu(&x);
    }
    x = net.pool(&x, 3, 2);
    for (stage, count) in (0_u32..).zip(blocks) {
        for i in 0..count {
            let stride = if i == 0 && stage > 0 { 2 } else { 1 };
            x = net.block(block, &x, 64 << stage, stride, i == 0);
        }
    }
    if block.is_v2() {
        x = net.norm_relu(&x);
    }
    let x = net.layer("GlobalAveragePooling2D", json!({}), &[&x]);
    let x = net.dense(&x, 1001, "softmax");
    net.model(&[&x])
}

impl Net {
    /// A convolution of a block, by its filters, side, stride and groups.
    fn block_conv(&mut self, block: Block, x: &str, [filters, side, stride, groups]: [u64; 4]) -> String {
        if block.is_v2() && stride > 1 {
            self.padded_conv(x, filters, side, stride)
        } else {
            self.grouped(x, filters, side, stride, groups)
        }
    }

    fn block(&mut self, block: Block, x: &str, filters: u64, stride: u64, is_first: bool) -> String {
        let out = if block == Block::BasicBefore { filters } else { 4 * filters };
        let before = block.is_v2();
        let ready = if before { self.norm_relu(x) } else { x.to_owned() };
        let shortcut =
            if is_first { self.block_conv(block, &ready, [out, 1, stride, 1]) } else { x.to_owned() };
        let shortcut = if is_first && !before { self.norm(&shortcut) } else { shortcut };
        let convolutions: &[[u64; 4]] = match block {
            Block::BasicBefore => &[[filters, 3, stride, 1], [filters, 3, 1, 1]],
            Block::BottleneckBefore => &[[filters, 1, 1, 1], [filters, 3, stride, 1], [out, 1, 1, 1]],
            Block::Grouped { .. } => &[[2 * filters, 1, 1, 1], [2 * filters, 3, stride, 32], [out, 1, 1, 1]],
        };
        let mut y = ready;
        for (i, convolution) in convolutions.iter().enumerate() {
            y = self.block_conv(block, &y, *convolution);
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

/// The residual network of Hewlett Packard's cookbook (`residual_unit` in its convnet_builder.py): norms after the convolutions, a
/// padded copy before every 3 x 3 one, the stride of a stage in the last of them that is so large.
pub(super) fn cookbook_residual(is_deep: bool, blocks: [u64; 4]) -> String {
    let mut net = Net::default();
    let image = net.input(&[224, 224, 3]);
    let x = net.padded_conv(&image, 64, 7, 2);
    let x = net.norm_relu(&x);
    let config = json!({ "pool_size": [3, 3], "strides": [2, 2], "padding": "valid" });
    let mut x = net.layer("MaxPooling2D", config, &[&x]);
    for (stage, count) in (0_u32..).zip(blocks) {
        let filters: u64 = 64 << stage;
        let out = if is_deep { 4 * filters } else { filters };
        for i in 0..count {
            let stride = if i == 0 && stage > 0 { 2 } else { 1 };
            let mut shortcut = x.clone();
            if i == 0 {
                shortcut = net.padded_conv(&x, out, 1, stride);
                shortcut = net.norm(&shortcut);
            }
            let convolutions: &[[u64; 3]] = if is_deep {
                &[[filters, 1, 1], [filters, 3, stride], [out, 1, 1]]
            } else {
                &[[filters, 3, 1], [filters, 3, stride]]
            };
            for (i, [filters, side, stride]) in convolutions.iter().enumerate() {
                let y = net.padded_conv(&x, *filters, *side, *stride);
                let is_last = i + 1 == convolutions.len();
                x = if is_last { net.norm(&y) } else { net.norm_relu(&y) };
            }
            let sum = net.add(&shortcut, &x);
            x = net.relu(&sum);
        }
    }
    let x = net.layer("GlobalAveragePooling2D", json!({}), &[&x]);
    let x = net.dense(&x, 1001, "softmax");
    net.model(&[&x])
}

/// A VGG network whose five stages have so many convolutions.
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
        x = net.layer("Dropout", json!({ "rate": 0.5 }), &[&x]);
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
