//! Attention and its projections on Keras' PyTorch backend.

use super::Torch;
use crate::activation::Activation;
use memfit_graph::ops::{Sdpa, Traced, scaled_dot_product_attention};
use memfit_graph::{Call, DType, Grad, OutDtype, Place, Saved, elements};

impl Torch<'_, '_> {
    /// Attention of `[batch, length, heads, size]` values: the fused kernel, or scores that are there as a tensor. The mask are truth values.
    /// Gives the scores behind it, which the caller names.
    pub fn attend(&mut self, [q, k, v]: [&Traced; 3], options: &Sdpa, drops: bool) -> Option<[Traced; 2]> {
        let heads_first = [0, 2, 1, 3];
        if !options.composed {
            // backend/torch/nn.py, `dot_product_attention`: what flash attention does not take is copied, heads first.
            let mut options = options.clone();
            let dtype = self.dtype();
            if let Some(mask) = options.mask.take() {
                let call = Call::new("where").input(mask.operand, Grad::None);
                let call = call.output(&mask.shape, OutDtype::Is(dtype), Place::New);
                options.mask = Some(Traced::of(self.l, call, &mask.shape, &[]));
                options.mask_dtype = Some(dtype);
            }
            let is_flash = dtype.is_half() && options.mask.is_none();
            let [q, k, v] = [q, k, v].map(|x| {
                if is_flash {
                    return x.clone();
                }
                let turned = x.permute(self.l, &heads_first);
                self.contiguous(&turned).permute(self.l, &heads_first)
            });
            let y = scaled_dot_product_attention(self.l, [&q, &k, &v], dtype, &options)?;
            return Some([y.clone(), y]);
        }
        // The factor is a tensor of one number, which the product keeps.
        let factor = Call::new("scalar_tensor").output(&[], OutDtype::Is(DType::Float32), Place::New);
        let factor = self.l.call(factor);
        let call = Call::new("mul").input(q.operand, Grad::Pointwise).input(factor, Grad::None);
        let call = call.output(&q.shape, OutDtype::Like(0), Place::Pointwise).saves([Saved::Input(1)]);
        let scaled = Traced::of(self.l, call, &q.shape, &[q]);
        let q = scaled.permute(self.l, &heads_first);
        let keys = k.permute(self.l, &[0, 2, 3, 1]);
        let scores = self.matmul(&q, &keys);
        let mut weights = match &options.mask {
            // layers/activations/softmax.py: what is masked is chosen before and after, and names hold both scores.
            Some(mask) => {
                let chosen = self.choose(mask, &[&scores]);
                let weights = self.activate(&Activation::Softmax, &chosen);
                let weights = self.choose(mask, &[&weights]);
                self.holding(&weights, &[&scores, &chosen])
            }
            None => self.activate(&Activation::Softmax, &scores),
        };
        let named = weights.clone();
        if drops {
            weights = self.dropout(&weights);
        }
        let values = v.permute(self.l, &heads_first);
        let y = self.matmul(&weights, &values);
        let y = self.holding(&y, &[&scaled, &weights]);
        Some([y.permute(self.l, &heads_first), named])
    }

    /// A projection by `torch.einsum` over the last `summed` axes, with a bias of its own.
    pub fn project(&mut self, x: &Traced, k: usize, summed: usize, with_bias: bool) -> Traced {
        let kernel = self.weight(k);
        let y = self.contract(x, &kernel, summed);
        if !with_bias {
            return y;
        }
        let bias = self.weight(k + 1);
        self.add(&y, &bias)
    }

    /// `torch.einsum` over the last `summed` axes of `x` and the first of `kernel`.
    pub fn contract(&mut self, x: &Traced, kernel: &Traced, summed: usize) -> Traced {
        let (rows, columns) = kernel.shape.split_at(summed.min(kernel.rank()));
        let outer = &x.shape[..x.rank().saturating_sub(summed)];
        let flat = x.reshape(self.l, &[elements(outer), elements(rows)]);
        let matrix = kernel.reshape(self.l, &[elements(rows), elements(columns)]);
        self.matmul(&flat, &matrix).reshape(self.l, &[outer, columns].concat())
    }
}
