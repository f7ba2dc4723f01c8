//! What Keras 3 runs on its PyTorch backend: the ATen calls of a layer.
//!
//! keras/src/backend/torch/nn.py and numpy.py (3.15). Images of channels last are turned around for every window: a contiguous copy, and
//! for a convolution another one in PyTorch's own channels-last layout, as its kernel is. What is not written here stays a bound.

mod windows;

use crate::activation::Activation;
use crate::layer::Call as LayerCall;
use memfit_graph::ops::matmul::matmul;
use memfit_graph::ops::{Sdpa, Traced, scaled_dot_product_attention};
use memfit_graph::{Autocast, Call, DType, Grad, Lowering, Operand, OutDtype, Place, Saved, elements};

/// The calls of one layer in the making.
pub struct Torch<'r, 'l> {
    /// The layer and what it is called on.
    pub call: &'r LayerCall<'r>,
    /// The list that is written.
    pub l: &'r mut Lowering<'l>,
    tensors: usize,
}

impl<'r, 'l> Torch<'r, 'l> {
    pub(crate) fn new(call: &'r LayerCall<'r>, l: &'r mut Lowering<'l>, tensors: usize) -> Self {
        Torch { call, l, tensors }
    }

    /// A bound from above.
    pub fn not_modelled(&mut self) {
        self.l.not_modelled();
    }

    /// How many tensors the call has.
    pub fn tensors(&self) -> usize {
        self.tensors
    }

    /// How many variables the layer has.
    pub fn weights(&self) -> usize {
        self.l.input_count().saturating_sub(self.tensors)
    }

    /// Whether the layer trains here: batch norm by the batch's statistics, dropout drops.
    pub fn trains(&self) -> bool {
        self.l.training && self.call.facts.trainable
    }

    /// Tensor `i`.
    pub fn x(&mut self, i: usize) -> Traced {
        Traced::input(self.l, i)
    }

    /// Variable `k`.
    pub fn weight(&mut self, k: usize) -> Traced {
        Traced::input(self.l, self.tensors + k)
    }

    /// The dims of the output.
    pub fn out_shape(&self) -> &'l [u64] {
        self.l.out_shape(0)
    }

    /// Makes it the layer's output.
    pub fn finish(&mut self, y: &Traced) {
        y.bind(self.l, 0);
    }

    /// `torch.matmul`.
    pub fn matmul(&mut self, a: &Traced, b: &Traced) -> Traced {
        matmul(self.l, a, b)
    }

    /// A sum, out of place, with broadcasting.
    pub fn add(&mut self, a: &Traced, b: &Traced) -> Traced {
        let shape = broadcast(&a.shape, &b.shape);
        a.add(self.l, b, &shape)
    }

    /// A product.
    pub fn mul(&mut self, a: &Traced, b: &Traced) -> Traced {
        let shape = broadcast(&a.shape, &b.shape);
        a.mul(self.l, b, &shape)
    }

    /// The larger or the smaller of two, of which both are kept.
    pub fn extremum(&mut self, name: &'static str, a: &Traced, b: &Traced) -> Traced {
        let shape = broadcast(&a.shape, &b.shape);
        let call = Call::new(name).input(a.operand, Grad::Pointwise).input(b.operand, Grad::Pointwise);
        let call = call.output(&shape, OutDtype::Promoted, Place::Pointwise);
        Traced::of(self.l, call.saves([Saved::Input(0), Saved::Input(1)]), &shape, &[a, b])
    }

    /// Contiguous: a copy where it is not.
    pub fn contiguous(&mut self, x: &Traced) -> Traced {
        let all = elements(&x.shape);
        x.reshape(self.l, &[all]).reshape(self.l, &x.shape)
    }

    /// An activation function.
    pub fn activate(&mut self, function: &Activation, x: &Traced) -> Traced {
        match function {
            Activation::Linear => x.clone(),
            Activation::Relu | Activation::Sigmoid | Activation::Tanh | Activation::Exponential => {
                x.pointwise(self.l, "relu", Saved::Output(0))
            }
            Activation::Softmax => self.softmax("_softmax", x),
            Activation::LogSoftmax => self.softmax("_log_softmax", x),
            _ => x.pointwise(self.l, "gelu", Saved::Input(0)),
        }
    }

    /// `_softmax`: its result is kept.
    pub fn softmax(&mut self, name: &'static str, x: &Traced) -> Traced {
        let call = Call::new(name).autocast(Autocast::Fp32).input(x.operand, Grad::New);
        let call = call.output(&x.shape, OutDtype::Promoted, Place::New).saves([Saved::Output(0)]);
        Traced::of(self.l, call, &x.shape, &[x])
    }

    /// `native_dropout`: a mask of one byte an element is kept.
    pub fn dropout(&mut self, x: &Traced) -> Traced {
        let call = Call::new("native_dropout")
            .input(x.operand, Grad::New)
            .output(&x.shape, OutDtype::Like(0), Place::Pointwise)
            .output(&x.shape, OutDtype::Is(DType::Bool), Place::Pointwise)
            .saves([Saved::Output(1)]);
        Traced::of(self.l, call, &x.shape, &[x])
    }

    /// A new tensor with the elements of `x` and more around them.
    pub fn pad(&mut self, x: &Traced, shape: &[u64]) -> Traced {
        let call = Call::new("constant_pad_nd").input(x.operand, Grad::New);
        Traced::of(self.l, call.output(shape, OutDtype::Like(0), Place::New), shape, &[x])
    }

    /// A reduction whose input is not kept (`mean`).
    pub fn mean(&mut self, x: &Traced, shape: &[u64]) -> Traced {
        let call = Call::new("mean").input(x.operand, Grad::New);
        Traced::of(self.l, call.output(shape, OutDtype::Promoted, Place::New), shape, &[x])
    }

    /// `amax`: keeps input and output, and finds the places again in backward.
    pub fn amax(&mut self, x: &Traced, shape: &[u64]) -> Traced {
        let call = Call::new("amax")
            .input(x.operand, Grad::New)
            .output(shape, OutDtype::Promoted, Place::New)
            .saves([Saved::Input(0), Saved::Output(0)])
            .backward_scratch(&x.shape, OutDtype::Is(DType::Bool));
        Traced::of(self.l, call, shape, &[x])
    }

    /// Attention of `[batch, length, heads, size]` values: the fused kernel, or scores that are there as a tensor.
    pub fn attend(&mut self, [q, k, v]: [&Traced; 3], options: &Sdpa, drops: bool) -> Option<Traced> {
        if !options.composed {
            return scaled_dot_product_attention(self.l, [q, k, v], DType::Float32, options);
        }
        // The factor is a tensor of one number, which the product keeps.
        let factor = Call::new("scalar_tensor").output(&[], OutDtype::Is(DType::Float32), Place::New);
        let factor = self.l.call(factor);
        let call = Call::new("mul").input(q.operand, Grad::Pointwise).input(factor, Grad::None);
        let call = call.output(&q.shape, OutDtype::Like(0), Place::Pointwise).saves([Saved::Input(1)]);
        let q = Traced::of(self.l, call, &q.shape, &[q]).permute(self.l, &[0, 2, 1, 3]);
        let keys = k.permute(self.l, &[0, 2, 3, 1]);
        let scores = self.matmul(&q, &keys);
        let mut weights = self.softmax("_softmax", &scores);
        if drops {
            weights = self.dropout(&weights);
        }
        let values = v.permute(self.l, &[0, 2, 1, 3]);
        let y = self.matmul(&weights, &values);
        Some(y.permute(self.l, &[0, 2, 1, 3]))
    }

    /// A projection by `torch.einsum` over the last `summed` axes, with a bias of its own.
    pub fn project(&mut self, x: &Traced, k: usize, summed: usize, with_bias: bool) -> Traced {
        let kernel = self.weight(k);
        let (rows, columns) = kernel.shape.split_at(summed.min(kernel.rank()));
        let outer = &x.shape[..x.rank().saturating_sub(summed)];
        let flat = x.reshape(self.l, &[elements(outer), elements(rows)]);
        let matrix = kernel.reshape(self.l, &[elements(rows), elements(columns)]);
        let y = self.matmul(&flat, &matrix).reshape(self.l, &[outer, columns].concat());
        if !with_bias {
            return y;
        }
        let bias = self.weight(k + 1);
        self.add(&y, &bias)
    }

    /// `batch_normalization` by the batch's own statistics, in pieces: the square's input is kept.
    pub fn batch_norm(
        &mut self,
        x: &Traced,
        per_channel: &[u64],
        scale: Option<usize>,
        offset: Option<usize>,
    ) -> Traced {
        let square = x.pointwise(self.l, "pow", Saved::Input(0));
        let mean = self.mean(x, per_channel);
        let squares = self.mean(&square, per_channel);
        let mean_square = mean.pointwise(self.l, "pow", Saved::Input(0));
        let variance = self.add(&squares, &mean_square);
        self.normalized(x, [&mean, &variance], scale, offset)
    }

    /// `batch_normalization` by these statistics: where the factor needs a gradient, a copy is kept of what the in-place product
    /// overwrites.
    pub fn normalized(
        &mut self,
        x: &Traced,
        [mean, variance]: [&Traced; 2],
        scale: Option<usize>,
        offset: Option<usize>,
    ) -> Traced {
        let per_channel = &variance.shape;
        let shifted = variance.scale(self.l, "add");
        let mut factor = shifted.pointwise(self.l, "rsqrt", Saved::Output(0));
        if let Some(k) = scale {
            let gamma = self.weight(k).reshape(self.l, per_channel);
            factor = self.mul(&factor, &gamma);
        }
        let centred = self.add(x, mean);
        let mut call = Call::new("mul_")
            .input(centred.operand, Grad::Pointwise)
            .input(factor.operand, Grad::Pointwise)
            .saves([Saved::InputFor { input: 1, needed_by: 0 }]);
        if factor.requires_grad {
            let kept = Call::new("clone").input(centred.operand, Grad::None);
            let kept = self.l.call(kept.output(&x.shape, OutDtype::Like(0), Place::Pointwise));
            call = call.input(kept, Grad::None).saves([Saved::Input(2)]);
        }
        call = call.output(&x.shape, OutDtype::Like(0), Place::InPlace(0));
        let y = Traced::of(self.l, call, &x.shape, &[&centred, &factor]);
        let Some(k) = offset else { return y };
        let beta = self.weight(k).reshape(self.l, per_channel);
        let call = Call::new("add_").input(y.operand, Grad::Pass).input(beta.operand, Grad::Pass).output(
            &x.shape,
            OutDtype::Like(0),
            Place::InPlace(0),
        );
        Traced::of(self.l, call, &x.shape, &[&y, &beta])
    }

    /// `native_layer_norm` or `_fused_rms_norm` over the axes that `rows` has one of.
    pub fn layer_norm(&mut self, x: &Traced, rows: &[u64], is_rms: bool) -> Traced {
        let name = if is_rms { "_fused_rms_norm" } else { "native_layer_norm" };
        let mut call = Call::new(name).autocast(Autocast::Fp32).input(x.operand, Grad::New);
        call = call.saves([Saved::Input(0)]);
        for k in 0..self.weights() {
            call = call.input(Operand::Input(self.tensors + k), Grad::New).saves([Saved::Input(1 + k)]);
        }
        call = call.output(&x.shape, OutDtype::Promoted, Place::New);
        for output in 1..=if is_rms { 1 } else { 2 } {
            call = call.output(rows, OutDtype::Is(DType::Float32), Place::New).saves([Saved::Output(output)]);
        }
        Traced::of(self.l, call, &x.shape, &[x])
    }

    /// `torch.nn.functional.embedding` of tokens, which are corrected first: a new tensor of integers, which is kept.
    pub fn lookup(&mut self, table: &Traced, tokens: &Traced, shape: &[u64]) -> Traced {
        let call = Call::new("where").input(tokens.operand, Grad::None);
        let call = call.output(&tokens.shape, OutDtype::Is(DType::Int64), Place::New);
        let tokens = Traced::of(self.l, call, &tokens.shape, &[]);
        let call = Call::new("embedding").input(table.operand, Grad::New).input(tokens.operand, Grad::None);
        let call = call.output(shape, OutDtype::Like(0), Place::New).saves([Saved::Input(1)]);
        Traced::of(self.l, call, shape, &[table])
    }
}

/// The dims that both give, aligned from the right.
fn broadcast(a: &[u64], b: &[u64]) -> Vec<u64> {
    let rank = a.len().max(b.len());
    let at = |dims: &[u64], i: usize| (i + dims.len()).checked_sub(rank).map_or(1, |i| dims[i]);
    (0..rank).map(|i| if at(a, i) == 1 { at(b, i) } else { at(a, i) }).collect()
}
