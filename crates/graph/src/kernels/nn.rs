//! Kernels of neural networks: convolutions, pools, softmax and its losses, batch norm, random masks
//! (tensorflow/python/ops/nn_grad.py, nn_fused_batch_norm_grad).
//!
//! A convolution's gradients read its operands; a max pool's reads input and output, an average pool's the shape alone;
//! softmax's reads the output; the fused losses compute the gradient of their logits in forward and keep it.

use super::build::{first, incoming, new};
use super::{Flow, Gradient, Kernel, Wire};
use crate::DType;

/// The gradient kernels of each convolution: for the input, for the filter.
const CONVOLUTIONS: &[(&str, &str, &str)] = &[
    ("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"),
    ("Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2"),
    ("DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropInput", "DepthwiseConv2dNativeBackpropFilter"),
    // A transposed convolution runs as the gradient of one.
    ("Conv2DBackpropInput", "Conv2D", "Conv2DBackpropFilter"),
    ("Conv3DBackpropInputV2", "Conv3D", "Conv3DBackpropFilterV2"),
];

fn convolution_gradient(
    flow: &mut Flow,
    kernel: &Kernel,
    _: Wire,
    grads: &[Option<Wire>],
) -> Vec<Option<Wire>> {
    let (Some(dy), [x, w]) = (incoming(grads), &kernel.inputs[..]) else { return vec![None, None] };
    let names = CONVOLUTIONS.iter().find(|(name, _, _)| *name == kernel.name);
    let Some((_, input, filter)) = names else { return vec![None, None] };
    let (x_shape, w_shape) = (flow.shape(*x).to_vec(), flow.shape(*w).to_vec());
    let (x_dtype, w_dtype) = (flow.dtype(*x), flow.dtype(*w));
    let dx = flow.make(input, &[*w, dy], &x_shape, x_dtype, None);
    let dw = flow.make(filter, &[*x, dy], &w_shape, w_dtype, None);
    vec![Some(dx), Some(dw)]
}

fn bias_gradient(flow: &mut Flow, kernel: &Kernel, _: Wire, grads: &[Option<Wire>]) -> Vec<Option<Wire>> {
    let (Some(dy), [_, bias]) = (incoming(grads), &kernel.inputs[..]) else { return vec![None, None] };
    let (shape, dtype) = (flow.shape(*bias).to_vec(), flow.dtype(*bias));
    let db = flow.make("BiasAddGrad", &[dy], &shape, dtype, None);
    vec![Some(dy), Some(db)]
}

fn pool_gradient(flow: &mut Flow, kernel: &Kernel, y: Wire, grads: &[Option<Wire>]) -> Vec<Option<Wire>> {
    let (Some(dy), Some(x)) = (incoming(grads), kernel.inputs.first().copied()) else { return vec![None] };
    let (shape, dtype) = (flow.shape(x).to_vec(), flow.dtype(x));
    first(match kernel.name {
        "MaxPool" => flow.make("MaxPoolGrad", &[x, y, dy], &shape, dtype, None),
        "MaxPool3D" => flow.make("MaxPool3DGrad", &[x, y, dy], &shape, dtype, None),
        "AvgPool3D" => flow.make("AvgPool3DGrad", &[dy], &shape, dtype, None),
        _ => flow.make("AvgPoolGrad", &[dy], &shape, dtype, None),
    })
}

fn resize_gradient(flow: &mut Flow, kernel: &Kernel, _: Wire, grads: &[Option<Wire>]) -> Vec<Option<Wire>> {
    let (Some(dy), Some(x)) = (incoming(grads), kernel.inputs.first().copied()) else { return vec![None] };
    let (shape, dtype) = (flow.shape(x).to_vec(), flow.dtype(x));
    let name = if kernel.name == "ResizeBicubic" { "ResizeBicubicGrad" } else { "ResizeBilinearGrad" };
    first(flow.make(name, &[dy, x], &shape, dtype, None))
}

/// `(dy - sum(dy * y)) * y`.
fn softmax_gradient(flow: &mut Flow, _: &Kernel, y: Wire, grads: &[Option<Wire>]) -> Vec<Option<Wire>> {
    let Some(dy) = incoming(grads) else { return vec![None] };
    let mut rows = flow.shape(y).to_vec();
    rows.last_mut().into_iter().for_each(|d| *d = 1);
    let weighted = flow.binary("Mul", dy, y);
    let sum = flow.reduce("Sum", weighted, &rows);
    let centred = flow.binary("Sub", dy, sum);
    first(flow.binary("Mul", centred, y))
}

/// `dy - sum(dy) * exp(y)`.
fn log_softmax_gradient(flow: &mut Flow, _: &Kernel, y: Wire, grads: &[Option<Wire>]) -> Vec<Option<Wire>> {
    let Some(dy) = incoming(grads) else { return vec![None] };
    let mut rows = flow.shape(y).to_vec();
    rows.last_mut().into_iter().for_each(|d| *d = 1);
    let softmax = flow.unary("Exp", y);
    let sum = flow.reduce("Sum", dy, &rows);
    let share = flow.binary("Mul", softmax, sum);
    first(flow.binary("Sub", dy, share))
}

/// The gradient was made in forward; it is scaled by the loss's.
fn fused_loss_gradient(flow: &mut Flow, _: &Kernel, y: Wire, grads: &[Option<Wire>]) -> Vec<Option<Wire>> {
    let Some(dy) = incoming(grads) else { return vec![None, None] };
    let made = flow.output(y, 1);
    let mut rows = flow.shape(made).to_vec();
    rows.last_mut().into_iter().for_each(|d| *d = 1);
    let expanded = flow.view("ExpandDims", dy, &rows);
    vec![Some(flow.binary("Mul", made, expanded)), None]
}

/// Reads x, scale and the three reserve outputs, or the statistics that it was given; makes the gradients of x, scale and offset
/// (nn_grad.py, `_BaseFusedBatchNormGrad`).
fn batch_norm_gradient(
    flow: &mut Flow,
    kernel: &Kernel,
    y: Wire,
    grads: &[Option<Wire>],
) -> Vec<Option<Wire>> {
    let (Some(dy), [x, scale, _, given @ ..]) = (incoming(grads), &kernel.inputs[..]) else {
        return Vec::new();
    };
    let (shape, channels) = (flow.shape(*x).to_vec(), flow.shape(*scale).to_vec());
    let dtype = flow.dtype(*x);
    let reserved: Vec<Wire> = (3..6).map(|i| flow.output(y, i)).collect();
    let statistics = if given.is_empty() { &reserved } else { given };
    let inputs = [&[dy, *x, *scale], statistics].concat();
    let made = vec![new(&shape, dtype), new(&channels, DType::Float32), new(&channels, DType::Float32)];
    let dx = flow.push("FusedBatchNormGradV3", &inputs, made, None);
    vec![Some(dx), Some(flow.output(dx, 1)), Some(flow.output(dx, 2)), None, None]
}

/// One gradient for each input, in a new buffer, that reads all inputs, the output and its gradient: a bound for kernels
/// whose rule is not known.
fn bound_gradient(flow: &mut Flow, kernel: &Kernel, y: Wire, grads: &[Option<Wire>]) -> Vec<Option<Wire>> {
    let outputs = (0..).zip(&kernel.outputs).map(|(i, _)| flow.output(y, i));
    let reads: Vec<Wire> =
        kernel.inputs.iter().copied().chain(outputs).chain(grads.iter().flatten().copied()).collect();
    let one = |x: &Wire| {
        let (shape, dtype) = (flow.shape(*x).to_vec(), flow.dtype(*x));
        dtype.is_float().then(|| flow.make("UnknownGrad", &reads, &shape, dtype, None))
    };
    kernel.inputs.iter().map(one).collect()
}

/// The bound for a kernel whose rule is not known.
pub(super) const BOUND: Gradient = bound_gradient;

impl Flow {
    /// A convolution by TensorFlow's name: `Conv2D`, `DepthwiseConv2dNative`, `Conv2DBackpropInput` (transposed)…
    pub fn convolution(&mut self, name: &'static str, x: Wire, filter: Wire, shape: &[u64]) -> Wire {
        let dtype = self.dtype(x);
        self.make(name, &[x, filter], shape, dtype, Some(convolution_gradient))
    }

    /// A bias of the last axis, or of the channels.
    pub fn bias_add(&mut self, x: Wire, bias: Wire) -> Wire {
        let (shape, dtype) = (self.shape(x).to_vec(), self.dtype(x));
        self.reuse("BiasAdd", &[x, bias], &shape, dtype, Some(bias_gradient))
    }

    /// A pool by TensorFlow's name.
    pub fn pool(&mut self, name: &'static str, x: Wire, shape: &[u64]) -> Wire {
        let dtype = self.dtype(x);
        self.make(name, &[x], shape, dtype, Some(pool_gradient))
    }

    /// An image in another size. All but the nearest neighbour write float32 whatever they read, and their gradient reads the
    /// image for its size and dtype (image_grad.py).
    pub fn resized(&mut self, name: &'static str, x: Wire, shape: &[u64]) -> Wire {
        self.make(name, &[x], shape, DType::Float32, Some(resize_gradient))
    }

    /// Softmax over the last axis.
    pub fn softmax(&mut self, x: Wire) -> Wire {
        let (shape, dtype) = (self.shape(x).to_vec(), self.dtype(x));
        self.reuse("Softmax", &[x], &shape, dtype, Some(softmax_gradient))
    }

    /// The logarithm of softmax over the last axis.
    pub fn log_softmax(&mut self, x: Wire) -> Wire {
        let (shape, dtype) = (self.shape(x).to_vec(), self.dtype(x));
        self.reuse("LogSoftmax", &[x], &shape, dtype, Some(log_softmax_gradient))
    }

    /// A fused softmax loss of rows: the loss of each, and the gradient of the logits.
    pub fn softmax_loss(&mut self, name: &'static str, logits: Wire, labels: Option<Wire>) -> Wire {
        let (shape, dtype) = (self.shape(logits).to_vec(), self.dtype(logits));
        let rows = shape.get(..shape.len().saturating_sub(1)).unwrap_or_default();
        let gradient = super::Made { place: super::Place::Reuse, ..new(&shape, dtype) };
        let inputs: Vec<Wire> = [Some(logits), labels].into_iter().flatten().collect();
        self.push(name, &inputs, vec![new(rows, dtype), gradient], Some(fused_loss_gradient))
    }

    /// `FusedBatchNormV3`, in training or with the statistics that are given: y, mean and variance, three reserve outputs.
    pub fn fused_batch_norm(&mut self, x: Wire, scale: Wire, offset: Wire, given: &[Wire]) -> Wire {
        let (shape, channels) = (self.shape(x).to_vec(), self.shape(scale).to_vec());
        let statistics = || new(&channels, DType::Float32);
        let made = vec![
            new(&shape, self.dtype(x)),
            statistics(),
            statistics(),
            statistics(),
            statistics(),
            new(&[0], DType::Float32),
        ];
        self.push("FusedBatchNormV3", &[&[x, scale, offset], given].concat(), made, Some(batch_norm_gradient))
    }

    /// `tf.nn.experimental.stateless_dropout`: uniform numbers, a boolean mask, a product with a scalar, a selection. The mask
    /// depends on the seed alone, so it is drawn before anything else runs.
    pub fn dropout(&mut self, x: Wire, noise: &[u64]) -> Wire {
        let dtype = self.dtype(x);
        let uniform = self.make("StatelessRandomUniformV2", &[], noise, dtype, None);
        let mask = self.test("GreaterEqual", uniform);
        let scaled = self.scaled("Mul", x);
        self.select(mask, scaled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernels that the gradient of the last kernel adds, with what the first of them reads.
    fn gradient_of(flow: &mut Flow, y: Wire) -> (Vec<&'static str>, Vec<Wire>) {
        let kernel = flow.kernel(y).clone();
        let (shape, start) = (flow.shape(y).to_vec(), flow.kernels.len());
        let dy = flow.make("Incoming", &[], &shape, DType::Float32, None);
        kernel.gradient.unwrap()(flow, &kernel, y, &[Some(dy)]);
        let made = &flow.kernels[start + 1..];
        (made.iter().map(|k| k.name).collect(), made[0].inputs.clone())
    }

    #[test]
    fn a_frozen_norm_reads_its_input_and_the_statistics_it_was_given() {
        let mut flow = Flow::default();
        let x = flow.make("X", &[], &[8, 4, 4, 16], DType::Float32, None);
        let [scale, offset, mean, variance] =
            [0; 4].map(|_| flow.make("Vector", &[], &[16], DType::Float32, None));
        let y = flow.fused_batch_norm(x, scale, offset, &[mean, variance]);
        let (names, reads) = gradient_of(&mut flow, y);
        assert_eq!(names, ["FusedBatchNormGradV3"]);
        assert_eq!(reads[1..], [x, scale, mean, variance]);
        let y = flow.fused_batch_norm(x, scale, offset, &[]);
        let (_, reads) = gradient_of(&mut flow, y);
        assert_eq!(reads[3..], [3, 4, 5].map(|i| flow.output(y, i)));
    }

    #[test]
    fn rows_along_another_axis_are_turned_and_turned_back() {
        let mut flow = Flow::default();
        let x = flow.make("X", &[], &[8, 6, 16], DType::Float32, None);
        let y = flow.gathered(x, &[8, 3, 16]);
        assert_eq!(gradient_of(&mut flow, y).0, ["Transpose", "UnsortedSegmentSum", "Transpose"]);
    }

    #[test]
    fn the_slope_of_softplus_does_not_wait_for_the_gradient() {
        for (name, waits) in [("Softplus", false), ("RealDiv", false), ("Log", true)] {
            let mut flow = Flow::default();
            let x = flow.make("X", &[], &[8], DType::Float32, None);
            let y = flow.unary(name, x);
            let (_, reads) = gradient_of(&mut flow, y);
            assert!(reads.iter().all(|read| *read == x), "{name}");
            assert_eq!(!flow.kernels[3].after.is_empty(), waits, "{name}");
        }
    }
}
