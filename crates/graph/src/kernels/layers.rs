//! What Keras composes of kernels: norms, activations, dropout, attention scores. Keras 3 (3.15, src/backend/tensorflow and
//! src/layers) runs no fused kernel for them, so the pieces are kept for backward one by one.

use super::build::incoming;
use super::{Flow, Kernel, Wire};
use crate::DType;

/// `tf.nn.silu` recomputes the sigmoid in backward: `dy * s * (1 + x * (1 - s))` (nn_impl.py, `swish`).
fn silu_gradient(flow: &mut Flow, kernel: &Kernel, _: Wire, grads: &[Option<Wire>]) -> Vec<Option<Wire>> {
    let (Some(dy), Some(x)) = (incoming(grads), kernel.inputs.first().copied()) else { return vec![None] };
    let sigmoid = flow.unary("Sigmoid", x);
    flow.wait(sigmoid, dy);
    let rest = flow.shifted("Sub", sigmoid);
    let product = flow.binary("Mul", x, rest);
    let slope = flow.shifted("AddV2", product);
    let derivative = flow.binary("Mul", sigmoid, slope);
    vec![Some(flow.binary("Mul", dy, derivative))]
}

impl Flow {
    /// A tensor that no gradient flows through.
    pub fn stop(&mut self, x: Wire) -> Wire {
        let made = super::Made { place: super::Place::Alias, ..self.made(x).clone() };
        self.push("StopGradient", &[x], vec![made], None)
    }

    /// `tf.nn.moments`: the mean, and the mean of squared differences from it, over all axes but those of `shape` that are not
    /// one.
    pub fn moments(&mut self, x: Wire, shape: &[u64]) -> (Wire, Wire) {
        self.within("moments", |flow| {
            let mean = flow.reduce("Mean", x, shape);
            let constant = flow.stop(mean);
            let difference = flow.binary("SquaredDifference", x, constant);
            let variance = flow.reduce("Mean", difference, shape);
            (mean, variance)
        })
    }

    /// Keras 3's `BatchNormalization`: `x * (rsqrt(var + eps) * gamma) + (beta - mean * …)`
    /// (`tf.nn.batch_normalization`). `per_channel` is the shape of a statistic that broadcasts against `x`.
    pub fn normalize(
        &mut self,
        x: Wire,
        (mean, variance): (Wire, Wire),
        scale: Option<Wire>,
        offset: Option<Wire>,
    ) -> Wire {
        self.within("batchnorm", |flow| {
            let shifted = flow.shifted("AddV2", variance);
            let mut inverse = flow.unary("Rsqrt", shifted);
            if let Some(scale) = scale {
                inverse = flow.binary("Mul", inverse, scale);
            }
            let scaled = flow.binary("Mul", x, inverse);
            let centre = flow.binary("Mul", mean, inverse);
            let offset = match offset {
                Some(offset) => flow.binary("Sub", offset, centre),
                None => flow.scaled("Neg", centre),
            };
            flow.binary("AddV2", scaled, offset)
        })
    }

    /// Keras 3's layer norm (`ops.nn._layer_normalization`): the scale is multiplied into the inverse deviation, which makes
    /// it as large as the input.
    pub fn layer_norm(&mut self, x: Wire, rows: &[u64], scale: Option<Wire>, offset: Option<Wire>) -> Wire {
        let (mean, variance) = self.moments(x, rows);
        let shifted = self.shifted("AddV2", variance);
        let mut inverse = self.unary("Rsqrt", shifted);
        if let Some(scale) = scale {
            inverse = self.binary("Mul", inverse, scale);
        }
        let negative = self.scaled("Neg", mean);
        let mut rest = self.binary("Mul", negative, inverse);
        if let Some(offset) = offset {
            rest = self.binary("AddV2", rest, offset);
        }
        let scaled = self.binary("Mul", x, inverse);
        self.binary("AddV2", scaled, rest)
    }

    /// `x * rsqrt(mean(x²) + eps) * scale` (`ops.nn.rms_normalization`).
    pub fn rms_norm(&mut self, x: Wire, rows: &[u64], scale: Option<Wire>) -> Wire {
        let square = self.unary("Square", x);
        let mean = self.reduce("Mean", square, rows);
        self.divided_by_root(x, mean, scale)
    }

    /// `tf.math.reduce_variance`, over the axes that are one in `rows`.
    pub fn variance(&mut self, x: Wire, rows: &[u64], shape: &[u64]) -> Wire {
        let mean = self.reduce("Mean", x, rows);
        let difference = self.binary("Sub", x, mean);
        let square = self.unary("Square", difference);
        self.reduce("Mean", square, shape)
    }

    /// `tf.reduce_logsumexp`, over the axes that are one in `rows`.
    pub fn log_sum_exp(&mut self, x: Wire, rows: &[u64], shape: &[u64]) -> Wire {
        let most = self.reduce("Max", x, rows);
        let most = self.stop(most);
        let difference = self.binary("Sub", x, most);
        let exponent = self.unary("Exp", difference);
        let sum = self.reduce("Sum", exponent, shape);
        let log = self.unary("Log", sum);
        let most = self.view("Reshape", most, shape);
        self.binary("AddV2", log, most)
    }

    /// `x * rsqrt(y + eps) * scale`.
    pub fn divided_by_root(&mut self, x: Wire, y: Wire, scale: Option<Wire>) -> Wire {
        let shifted = self.shifted("AddV2", y);
        let inverse = self.unary("Rsqrt", shifted);
        let y = self.binary("Mul", x, inverse);
        match scale {
            Some(scale) => self.binary("Mul", y, scale),
            None => y,
        }
    }

    /// `tf.nn.gelu`: `0.5 x erfc(-x / √2)`, or with tanh `0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³)))`.
    pub fn gelu(&mut self, x: Wire, approximate: bool) -> Wire {
        self.within("Gelu", |flow| {
            let half = flow.scaled("Mul", x);
            if !approximate {
                let negative = flow.unary("Neg", x);
                let scaled = flow.scaled("Mul", negative);
                let erfc = flow.unary("Erfc", scaled);
                return flow.binary("Mul", half, erfc);
            }
            let cube = flow.unary("Pow", x);
            let scaled = flow.scaled("Mul", cube);
            let sum = flow.binary("AddV2", x, scaled);
            let inner = flow.scaled("Mul", sum);
            let tanh = flow.unary("Tanh", inner);
            let shifted = flow.shifted("AddV2", tanh);
            flow.binary("Mul", half, shifted)
        })
    }

    /// `tf.nn.silu`, which keeps its input alone.
    pub fn silu(&mut self, x: Wire) -> Wire {
        let (shape, dtype) = (self.shape(x).to_vec(), self.dtype(x));
        self.reuse("Silu", &[x], &shape, dtype, Some(silu_gradient))
    }

    /// An activation by the name that Keras gives it. One that is not known is taken for one that keeps its input.
    pub fn activation(&mut self, name: &str, x: Wire) -> Wire {
        match name {
            "relu" => self.unary("Relu", x),
            "relu6" => self.unary("Relu6", x),
            "leaky_relu" => self.unary("LeakyRelu", x),
            "elu" => self.unary("Elu", x),
            "selu" => self.unary("Selu", x),
            // max(x, 0) + expm1(min(x, 0))
            "celu" => {
                let positive = self.clip_side("Maximum", x);
                let low = self.clip_side("Minimum", x);
                let negative = self.unary("Expm1", low);
                self.binary("AddV2", positive, negative)
            }
            "sigmoid" => self.unary("Sigmoid", x),
            "log_sigmoid" => {
                let negative = self.unary("Neg", x);
                let y = self.unary("Softplus", negative);
                self.unary("Neg", y)
            }
            "tanh" => self.unary("Tanh", x),
            "softplus" => self.unary("Softplus", x),
            "softsign" => self.unary("Softsign", x),
            "exponential" => self.unary("Exp", x),
            "softmax" => self.softmax(x),
            "log_softmax" => self.log_softmax(x),
            "gelu" => self.gelu(x, false),
            "silu" | "swish" => self.silu(x),
            // x + relu6(x + 3) / 6
            "hard_sigmoid" => self.hard_sigmoid(x),
            "hard_silu" | "hard_swish" => {
                let gate = self.hard_sigmoid(x);
                self.binary("Mul", x, gate)
            }
            "mish" => {
                let soft = self.unary("Softplus", x);
                let tanh = self.unary("Tanh", soft);
                self.binary("Mul", x, tanh)
            }
            "linear" => x,
            _ => self.unary("Softplus", x),
        }
    }

    fn hard_sigmoid(&mut self, x: Wire) -> Wire {
        let shifted = self.shifted("AddV2", x);
        let clipped = self.unary("Relu6", shifted);
        self.scaled("RealDiv", clipped)
    }

    /// `clip_by_value`, which keeps its input for a mask made in backward.
    pub fn clipped(&mut self, x: Wire) -> Wire {
        let low = self.clip_side("Minimum", x);
        self.clip_side("Maximum", low)
    }

    /// The larger or smaller of a tensor and a scalar: its gradient compares the input anew.
    pub fn clip_side(&mut self, name: &'static str, x: Wire) -> Wire {
        fn gradient(flow: &mut Flow, kernel: &Kernel, _: Wire, grads: &[Option<Wire>]) -> Vec<Option<Wire>> {
            let (Some(dy), Some(x)) = (incoming(grads), kernel.inputs.first().copied()) else {
                return vec![None];
            };
            let mask = flow.test("GreaterEqual", x);
            vec![Some(flow.select(mask, dy))]
        }
        let (shape, dtype) = (self.shape(x).to_vec(), self.dtype(x));
        self.reuse(name, &[x], &shape, dtype, Some(gradient))
    }

    /// A dense layer over the last axis: `tf.tensordot` flattens the leading axes around one product.
    pub fn dense(&mut self, x: Wire, kernel: Wire, bias: Option<Wire>) -> Wire {
        let shape = self.shape(x).to_vec();
        let units = self.shape(kernel).last().copied().unwrap_or(1);
        let mut out = shape.clone();
        out.last_mut().into_iter().for_each(|d| *d = units);
        let width = shape.last().copied().unwrap_or(1);
        let rows = self.made(x).elements().checked_div(width).unwrap_or(0);
        let flat = if shape.len() == 2 { x } else { self.view("Reshape", x, &[rows, width]) };
        let product = self.matmul("MatMul", flat, kernel, &[rows, units]);
        let y = self.view("Reshape", product, &out);
        match bias {
            Some(bias) => self.bias_add(y, bias),
            None => y,
        }
    }

    /// A dense layer whose matrix is kept in 8 bits (keras/src/layers/core/dense.py, `_int8_call`): the input is quantised by the largest element of
    /// each row (keras/src/quantizers/quantizers.py, `abs_max_quantize`), whole numbers are multiplied, and both scales taken out again. Its
    /// gradient is of its own: with the matrix as floats, for the input alone.
    pub fn quantized_dense(&mut self, x: Wire, kernel: Wire, scale: Wire) -> Wire {
        fn gradient(flow: &mut Flow, kernel: &Kernel, _: Wire, grads: &[Option<Wire>]) -> Vec<Option<Wire>> {
            let (Some(dy), [_, _, x, matrix, scale]) = (incoming(grads), &kernel.inputs[..]) else {
                return vec![None; kernel.inputs.len()];
            };
            let (shape, dtype) = (flow.shape(*x).to_vec(), flow.dtype(*x));
            let of_matrix = flow.shape(*matrix).to_vec();
            let floats = flow.make("Cast", &[*matrix], &of_matrix, dtype, None);
            let floats = flow.reuse("RealDiv", &[floats, *scale], &of_matrix, dtype, None);
            vec![None, None, Some(flow.make("MatMul", &[dy, floats], &shape, dtype, None)), None, None]
        }
        let (shape, dtype) = (self.shape(x).to_vec(), self.dtype(x));
        let [mut rows, mut out] = [shape.clone(), shape.clone()];
        let units = self.shape(kernel).last().copied().unwrap_or(1);
        rows.last_mut().into_iter().for_each(|d| *d = 1);
        out.last_mut().into_iter().for_each(|d| *d = units);
        let absolute = self.reuse("Abs", &[x], &shape, dtype, None);
        let largest = self.make("Max", &[absolute], &rows, dtype, None);
        let inverse = self.reuse("RealDiv", &[largest], &rows, dtype, None);
        let mut scaled = x;
        for name in ["Mul", "Rint", "Minimum", "Maximum"] {
            let inputs = [scaled, inverse];
            scaled =
                self.reuse(name, if name == "Mul" { &inputs } else { &inputs[..1] }, &shape, dtype, None);
        }
        let whole = self.make("Cast", &[scaled], &shape, DType::Int8, None);
        let product = self.make("MatMul", &[whole, kernel], &out, DType::Int32, None);
        let product = self.make("Cast", &[product], &out, dtype, None);
        let scales = self.make("Mul", &[scale, inverse], &out, dtype, None);
        self.reuse("RealDiv", &[product, scales, x, kernel, scale], &out, dtype, Some(gradient))
    }

    /// Scores of `query` against `key` (`[batch, heads, length, size]`), their softmax with dropout, and the product with
    /// `value`: TensorFlow has no fused attention, so the scores are there as a tensor.
    pub fn attention(
        &mut self,
        (query, key, value): (Wire, Wire, Wire),
        mask: Option<Wire>,
        dropout: bool,
    ) -> Wire {
        let mut shape = self.shape(query).to_vec();
        let keys = self.shape(key).iter().rev().nth(1).copied().unwrap_or(1);
        let width = self.shape(value).last().copied().unwrap_or(1);
        shape.last_mut().into_iter().for_each(|d| *d = keys);
        let scaled = self.scaled("Mul", query);
        let mut scores = self.matmul("BatchMatMulV2", scaled, key, &shape);
        if let Some(mask) = mask {
            scores = self.binary("AddV2", scores, mask);
        }
        let mut weights = self.softmax(scores);
        if dropout {
            weights = self.dropout(weights, &shape.clone());
        }
        shape.last_mut().into_iter().for_each(|d| *d = width);
        self.matmul("BatchMatMulV2", weights, value, &shape)
    }

    /// Float32 for a computation that a mixed policy keeps in it, and back.
    pub fn in_f32(&mut self, x: Wire, run: impl FnOnce(&mut Flow, Wire) -> Wire) -> Wire {
        let dtype = self.dtype(x);
        let wide = if dtype.is_half() { self.cast(x, DType::Float32) } else { x };
        let y = run(self, wide);
        self.cast(y, dtype)
    }
}
