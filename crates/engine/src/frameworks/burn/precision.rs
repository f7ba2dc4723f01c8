//! Casts. Burn has no autocast: tensors of two precisions cannot go together, and nothing is cast that the model's code does not cast.
//!
//! In `fp16` and `bf16` everything is of that dtype, state of the optimizer too, as in a Burn model whose floats are. In `mixed-fp16`
//! and `mixed-bf16` everything is stored in float32 and this is where the casts are, as PyTorch's autocast puts them
//! (aten/src/ATen/autocast_mode.h) and a user of Burn would write them by hand: products and convolutions read half precision, weights
//! and biases cast at each use; exponentials, logarithms, powers, softmax, norms, sums, resizing and losses read float32; of two tensors
//! the less precise one is cast. Unlike there, attention's softmax reads float32 too, being a function apart, and means do.

use super::builder::Calls;
use super::program::{Binary, Float, Kind, Prim, Program, Slot, Unary};
use crate::Precision;

impl Program {
    /// One without calls.
    pub(super) fn of(precision: Precision) -> Program {
        let (stored, products) = match precision {
            Precision::Fp32 => (Float::F32, Float::F32),
            Precision::Fp16 => (Float::F16, Float::F16),
            Precision::Bf16 => (Float::Bf16, Float::Bf16),
            Precision::MixedFp16 => (Float::F32, Float::F16),
            Precision::MixedBf16 => (Float::F32, Float::Bf16),
        };
        Program { stored, products, ..Program::default() }
    }
}

/// What a function asks of its floats.
enum Wants {
    Products,
    Precise,
    Alike,
    Nothing,
}

fn wants(prim: &Prim) -> Wants {
    match prim {
        Prim::MatMul | Prim::Linear | Prim::Conv { .. } | Prim::ConvTranspose { .. } => Wants::Products,
        Prim::Unary(Unary::Exp | Unary::Log | Unary::Log1p | Unary::Recip)
        | Prim::Binary(Binary::Pow)
        | Prim::PowScalar(_)
        | Prim::Sum
        | Prim::Mean
        | Prim::SumDim(_)
        | Prim::MeanDim(_)
        | Prim::CumSum(_)
        | Prim::Interpolate { .. } => Wants::Precise,
        Prim::Binary(_) | Prim::Compare(_) | Prim::MaskWhere | Prim::Cat(_) => Wants::Alike,
        _ => Wants::Nothing,
    }
}

impl Calls<'_> {
    /// A function's inputs, cast to what it asks for.
    pub(super) fn cast_for(&mut self, prim: &Prim, inputs: &[Slot]) -> Vec<Slot> {
        let to = match wants(prim) {
            Wants::Products => self.program.products,
            Wants::Precise => self.program.stored,
            Wants::Alike => self.widest(inputs),
            Wants::Nothing => return inputs.to_vec(),
        };
        inputs.iter().map(|slot| self.cast(*slot, to)).collect()
    }

    /// In the precision of what is stored.
    pub(super) fn precise(&mut self, x: Slot) -> Slot {
        self.cast(x, self.program.stored)
    }

    /// In the precision of products.
    pub(super) fn product_input(&mut self, x: Slot) -> Slot {
        self.cast(x, self.program.products)
    }

    /// As precise as the most precise of them.
    pub(super) fn alike<const N: usize>(&mut self, inputs: [Slot; N]) -> [Slot; N] {
        let to = self.widest(&inputs);
        inputs.map(|slot| self.cast(slot, to))
    }

    /// How precise floats are; as what is stored, where it holds none.
    pub(super) fn float(&self, x: Slot) -> Float {
        match self.kind(x) {
            Kind::Float(float) => float,
            _ => self.program.stored,
        }
    }

    fn widest(&self, inputs: &[Slot]) -> Float {
        let stored = self.program.stored;
        let is_stored = |slot: &&Slot| self.kind(**slot) == Kind::Float(stored);
        inputs.iter().find(is_stored).map_or(self.program.products, |_| stored)
    }

    /// Floats in another precision; anything else as it is.
    pub(super) fn cast(&mut self, x: Slot, to: Float) -> Slot {
        match self.kind(x) {
            Kind::Float(from) if from != to => {
                let shape = self.shape(x);
                self.call(Prim::Convert, &[x], Kind::Float(to), shape)
            }
            _ => x,
        }
    }
}
