//! Normalisations on Keras' PyTorch backend: batch norm in pieces, layer norm as one function.
//!
//! keras/src/backend/torch/nn.py, `moments` and `batch_normalization` (3.15), and ops/nn.py, `_layer_normalization`.

use super::Torch;
use memfit_graph::ops::Traced;
use memfit_graph::{Autocast, Call, DType, Grad, Operand, OutDtype, Place, Saved};

impl Torch<'_, '_> {
    /// `torch.square`, whose gradient's factor is `2 * x.pow(1)`: two more tensors.
    pub fn square(&mut self, x: &Traced) -> Traced {
        let call = Call::new("pow").input(x.operand, Grad::Pointwise).saves([Saved::Input(0)]);
        let call = call.output(&x.shape, OutDtype::Like(0), Place::Pointwise);
        let scratch = |call: Call| call.backward_scratch(&x.shape, OutDtype::Promoted);
        Traced::of(self.l, scratch(scratch(call)), &x.shape, &[x])
    }

    /// A vector along an axis divided by its length, which is a number at least (keras/src/ops/nn.py, `_normalize`).
    pub fn unit(&mut self, x: &Traced, axis: usize) -> Traced {
        let mut rows = x.shape.clone();
        rows.get_mut(axis).into_iter().for_each(|dim| *dim = 1);
        let square = self.square(x);
        let sum = self.sum(&square, &rows);
        let inverse = sum.pointwise(self.l, "rsqrt", Saved::Output(0));
        let inverse = inverse.pointwise(self.l, "minimum", Saved::Input(0));
        self.mul(x, &inverse)
    }

    /// What was once RMS normalisation in Keras (ops/nn.py, `_layer_normalization` with `rms_scaling`): by the root of the variance, times
    /// variable 0. `var`'s gradient is `2 / n * (self - mean)`, made anew.
    pub fn divided_by_root(&mut self, x: &Traced, rows: &[u64]) -> Traced {
        let call = Call::new("var").input(x.operand, Grad::New).saves([Saved::Input(0)]);
        let call =
            call.output(rows, OutDtype::Promoted, Place::New).backward_scratch(&x.shape, OutDtype::Promoted);
        let variance = Traced::of(self.l, call, rows, &[x]);
        let inverse = variance.scale(self.l, "add").pointwise(self.l, "rsqrt", Saved::Output(0));
        let y = self.mul(x, &inverse);
        let gamma = self.weight(0);
        let gamma = self.wide(&gamma);
        let per_axis: Vec<u64> =
            x.shape.iter().zip(rows).map(|(d, row)| if *row == 1 { *d } else { 1 }).collect();
        let gamma = gamma.reshape(self.l, &per_axis);
        self.mul(&y, &gamma)
    }

    /// `batch_normalization` by the batch's own statistics, in pieces: the square's input is kept.
    pub fn batch_norm(
        &mut self,
        x: &Traced,
        per_channel: &[u64],
        scale: Option<usize>,
        offset: Option<usize>,
    ) -> Traced {
        let square = self.square(x);
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
            let gamma = self.own_weight(k).reshape(self.l, per_channel);
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
        let beta = self.own_weight(k).reshape(self.l, per_channel);
        let call = Call::new("add_").input(y.operand, Grad::Pass).input(beta.operand, Grad::Pass).output(
            &x.shape,
            OutDtype::Like(0),
            Place::InPlace(0),
        );
        Traced::of(self.l, call, &x.shape, &[&y, &beta])
    }

    /// Group norm in pieces, over groups of channels of which `per_group` has one number each and the variables have `channels`: scale and
    /// offset go into the statistics (keras/src/layers/normalization/group_normalization.py).
    pub fn group_norm(
        &mut self,
        x: &Traced,
        per_group: &[u64],
        channels: &[u64],
        [scale, offset]: [Option<usize>; 2],
    ) -> Traced {
        let square = self.square(x);
        let mean = self.mean(x, per_group);
        let squares = self.mean(&square, per_group);
        let mean_square = self.square(&mean);
        let variance = self.add(&squares, &mean_square).scale(self.l, "add");
        let mut factor = variance.pointwise(self.l, "rsqrt", Saved::Output(0));
        let variable = |run: &mut Self, k: usize| {
            let variable = run.weight(k).reshape(run.l, channels);
            run.wide(&variable)
        };
        if let Some(k) = scale {
            let gamma = variable(self, k);
            factor = self.mul(&factor, &gamma);
        }
        let negative = mean.scale(self.l, "neg");
        let mut rest = self.mul(&negative, &factor);
        if let Some(k) = offset {
            let beta = variable(self, k);
            rest = self.add(&rest, &beta);
        }
        let scaled = self.mul(x, &factor);
        self.add(&scaled, &rest)
    }

    /// `native_layer_norm` or `_fused_rms_norm` over the axes that `rows` has one of.
    pub fn layer_norm(&mut self, x: &Traced, rows: &[u64], is_rms: bool) -> Traced {
        let name = if is_rms { "_fused_rms_norm" } else { "native_layer_norm" };
        let mut call = Call::new(name).autocast(Autocast::Fp32).input(x.operand, Grad::New);
        call = call.saves([Saved::Input(0)]);
        for k in 0..self.weights() {
            call = call.input(Operand::Input(self.variables[0] + k), Grad::New).saves([Saved::Input(1 + k)]);
        }
        call = call.output(&x.shape, OutDtype::Promoted, Place::New);
        for output in 1..=if is_rms { 1 } else { 2 } {
            call = call.output(rows, OutDtype::Is(DType::Float32), Place::New).saves([Saved::Output(output)]);
        }
        Traced::of(self.l, call, &x.shape, &[x])
    }
}
