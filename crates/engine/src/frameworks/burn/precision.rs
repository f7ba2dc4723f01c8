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
        Prim::Binary(_)
        | Prim::Compare(_)
        | Prim::MaskWhere
        | Prim::Cat(_)
        | Prim::SelectAdd(_)
        | Prim::ScatterAdd(_) => Wants::Alike,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frameworks::burn::{Backend, predict, program};
    use crate::{Framework, Loss, Plan};
    use memfit_graph::{Attributes, Binding, Bytes, DType, Graph, Role, Shape, Type, infer};

    /// A layer, a norm over its outputs, a softmax.
    fn layers() -> Graph {
        let mut g = Graph::default();
        let float = |shape: &[u64]| Type::tensor(DType::Float32, Shape::from(shape));
        let x = g.add_tensor("x", float(&[4, 8]), Role::Input);
        g.inputs = vec![x];
        let mut weight = |name: &str, shape: &[u64]| g.add_tensor(name, float(shape), Role::Initializer);
        let layer = [weight("a.weight", &[8, 16]), weight("a.bias", &[16])];
        let norm = [weight("n.weight", &[16]), weight("n.bias", &[16])];
        let y = g.push("Gemm", Attributes::default(), &[x, layer[0], layer[1]], "y").unwrap();
        let y = g.push("Relu", Attributes::default(), &[y], "r").unwrap();
        let y = g.push("LayerNormalization", Attributes::default(), &[y, norm[0], norm[1]], "n").unwrap();
        let y = g.push("Softmax", Attributes::default(), &[y], "s").unwrap();
        g.outputs = vec![y];
        g
    }

    fn written(precision: Precision) -> Program {
        let g = layers();
        let plan = Plan {
            framework: Framework::Burn,
            optimizer: "adam".into(),
            loss: Loss::None,
            precision,
            ..Plan::default()
        };
        program(&g, &infer(&g, &Binding::default()).unwrap(), &plan).unwrap()
    }

    /// The kind of what a function makes, where it first stands.
    fn made(program: &Program, prim: &Prim) -> Kind {
        let instr = program.instrs.iter().find(|instr| instr.prim == *prim).unwrap();
        program.ty(instr.output).kind
    }

    #[test]
    fn in_half_precision_alone_nothing_is_cast_and_everything_is_half() {
        for (precision, float) in [(Precision::Fp16, Float::F16), (Precision::Bf16, Float::Bf16)] {
            let program = written(precision);
            assert!(program.slots.iter().all(|ty| ty.kind == Kind::Float(float)));
            assert!(program.instrs.iter().all(|instr| instr.prim != Prim::Convert));
            let [half, full] =
                [program, written(Precision::Fp32)].map(|program| predict(&program, Backend::WGPU).steady);
            assert_eq!(half.0 * 2, full.0);
        }
    }

    #[test]
    fn products_are_half_and_norms_softmax_and_loss_are_not() {
        let program = written(Precision::MixedBf16);
        let half = Kind::Float(Float::Bf16);
        assert_eq!(made(&program, &Prim::Linear), half);
        assert_eq!(made(&program, &Prim::Unary(Unary::Relu)), half);
        for prim in [Prim::MeanDim(1), Prim::Unary(Unary::Exp), Prim::SumDim(1), Prim::Mean] {
            assert_eq!(made(&program, &prim), Kind::FLOAT, "{prim:?}");
        }
        // Input, weight and bias down, what the norm reads up.
        let casts = program.instrs.iter().filter(|instr| instr.prim == Prim::Convert);
        assert_eq!(
            casts.map(|i| program.ty(i.output).kind).collect::<Vec<_>>(),
            [half, half, half, Kind::FLOAT]
        );
        // What is held between steps is as precise as without.
        let [mixed, full] =
            [program, written(Precision::Fp32)].map(|program| predict(&program, Backend::WGPU).steady);
        assert_eq!(mixed, full);
    }

    #[test]
    fn a_gradient_has_the_precision_of_what_it_is_of() {
        // The layer's gradients are made in half precision and cast to those of the stored weights, which are all there before the update.
        let parameters = Bytes(4 * (8 * 16 + 16 + 16 + 16));
        let p = predict(&written(Precision::MixedFp16), Backend::WGPU);
        assert!(p.phases[2] >= p.steady + parameters);
    }

    #[test]
    fn bounds_are_those_of_the_types() {
        let of = |float: Float| float.bounds();
        assert_eq!(of(Float::F16), [-65_504.0, 6.103_515_625e-5]);
        assert_eq!(of(Float::Bf16)[0], f64::from(f32::from_bits(0xff7f_0000)));
        assert_eq!(of(Float::F32)[1], f64::from(f32::MIN_POSITIVE));
    }
}
