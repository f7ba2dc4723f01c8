//! Activation functions on Keras' PyTorch backend: each as ATen runs it.
//!
//! keras/src/backend/torch/nn.py, activations/activations.py and layers/activations/*.py (3.15). Most are one kernel, which keeps its
//! input or its result (derivatives.yaml); the others are composed here as they are there. Of a function that is not Keras' own, nothing
//! is known: it counts as a bound.

use super::Torch;
use crate::activation::Activation;
use memfit_graph::ops::Traced;
use memfit_graph::{Autocast, Call, DType, Grad, Operand, OutDtype, Place, Saved, View};

impl Torch<'_, '_> {
    /// An activation function of a layer. Keras hangs the logits on probabilities (activations/activations.py, `_keras_logits`), which
    /// keeps them as long as autograd keeps those for another function.
    pub fn activate(&mut self, function: &Activation, x: &Traced) -> Traced {
        let y = self.apply(function, x);
        if !matches!(function, Activation::Sigmoid | Activation::Softmax) {
            return y;
        }
        let call = Call::new("_keras_logits").input(y.operand, Grad::Pass).input(x.operand, Grad::None);
        let call = call.output(&y.shape, OutDtype::Like(0), Place::View(0, View::Alias));
        Traced::of(self.l, call, &y.shape, &[&y])
    }

    /// The function alone, as an operation between layers.
    pub fn apply(&mut self, function: &Activation, x: &Traced) -> Traced {
        use Activation as A;
        match function {
            A::Linear => x.clone(),
            A::Relu | A::Sigmoid | A::Tanh | A::Exponential => x.pointwise(self.l, "relu", Saved::Output(0)),
            A::Softmax => self.softmax("_softmax", x),
            A::LogSoftmax => self.softmax("_log_softmax", x),
            A::TanhShrink => {
                let tanh = self.activate(&A::Tanh, x);
                self.add(x, &tanh)
            }
            A::Mish => {
                let soft = self.activate(&A::Softplus, x);
                let tanh = self.activate(&A::Tanh, &soft);
                self.mul(x, &tanh)
            }
            A::Softsign => {
                let below = x.pointwise(self.l, "abs", Saved::Input(0)).scale(self.l, "add");
                self.divide(x, &below)
            }
            A::Squareplus => {
                let root = self.square(x).scale(self.l, "add").pointwise(self.l, "sqrt", Saved::Output(0));
                self.add(x, &root).scale(self.l, "div")
            }
            A::SparsePlus => {
                let low = self.test(&[x], &x.shape);
                let zeros = Call::new("zeros_like").output(&x.shape, OutDtype::Like(0), Place::Pointwise);
                let zeros = Traced::of(self.l, zeros.input(x.operand, Grad::None), &x.shape, &[]);
                let high = self.test(&[x], &x.shape);
                let shifted = x.scale(self.l, "add");
                let middle = self.square(&shifted).scale(self.l, "mul");
                let rest = self.choose(&high, &[&middle, x]);
                self.choose(&low, &[&zeros, &rest])
            }
            A::SparseSigmoid => {
                let [low, high] = [(); 2].map(|()| self.test(&[x], &x.shape));
                let middle = x.scale(self.l, "add").scale(self.l, "mul");
                let rest = self.choose(&high, &[&middle]);
                self.choose(&low, &[&rest])
            }
            A::Sparsemax => self.sparsemax(x),
            // A gate halves its input, a threshold has arguments: neither is there without an operation of its own.
            A::Glu | A::Threshold | A::Other(_) => {
                self.l.is_bound();
                let call = Call::new("unknown").input(x.operand, Grad::New);
                let call = call.output(&x.shape, OutDtype::Like(0), Place::New);
                Traced::of(self.l, call.saves([Saved::Input(0), Saved::Output(0)]), &x.shape, &[x])
            }
            _ => x.pointwise(self.l, "gelu", Saved::Input(0)),
        }
    }

    /// ReLU with a slope below zero, an upper limit and a threshold (`ReLU.static_call`).
    pub fn relu(&mut self, x: &Traced, slope: bool, limit: Option<f64>, threshold: bool) -> Traced {
        if slope && limit.is_none() && !threshold {
            return self.activate(&Activation::LeakyRelu, x);
        }
        let negative = slope.then(|| {
            let negative = x.scale(self.l, "neg");
            let negative = if threshold { negative.scale(self.l, "add") } else { negative };
            self.activate(&Activation::Relu, &negative)
        });
        let is_six = limit == Some(6.0) && !threshold;
        let mut y = if threshold {
            let above = self.test(&[x], &x.shape);
            self.choose(&above, &[x])
        } else {
            self.activate(if is_six { &Activation::Relu6 } else { &Activation::Relu }, x)
        };
        if limit.is_some() && !is_six {
            y = y.pointwise(self.l, "clamp", Saved::Input(0));
        }
        let Some(negative) = negative else { return y };
        let scaled = negative.scale(self.l, "mul");
        let call = Call::new("sub_").input(y.operand, Grad::Pass).input(scaled.operand, Grad::Pointwise);
        let call = call.output(&x.shape, OutDtype::Like(0), Place::InPlace(0));
        Traced::of(self.l, call, &x.shape, &[&y, &scaled])
    }

    /// A softmax over several axes: `exp(x - logsumexp(x))`.
    pub fn softmax_over(&mut self, x: &Traced, axes: &[usize]) -> Traced {
        let mut rows = x.shape.clone();
        axes.iter().filter_map(|axis| rows.get_mut(*axis).map(|dim| *dim = 1)).for_each(drop);
        let call =
            Call::new("logsumexp").input(x.operand, Grad::New).saves([Saved::Input(0), Saved::Output(0)]);
        let call = call.output(&rows, OutDtype::Promoted, Place::New);
        let call = call.backward_scratch(&x.shape, OutDtype::Promoted);
        let sum = Traced::of(self.l, call, &rows, &[x]);
        let y = self.add(x, &sum);
        self.activate(&Activation::Exponential, &y)
    }

    /// A projection to the simplex along the last axis: what is sorted, its running sum, and which elements are in.
    fn sparsemax(&mut self, x: &Traced) -> Traced {
        let mut rows = x.shape.clone();
        rows.last_mut().into_iter().for_each(|dim| *dim = 1);
        let call = Call::new("sort")
            .input(x.operand, Grad::New)
            .output(&x.shape, OutDtype::Like(0), Place::New)
            .output(&x.shape, OutDtype::Is(DType::Int64), Place::New)
            .saves([Saved::Output(1)]);
        let sorted = Traced::of(self.l, call, &x.shape, &[x]);
        let call = Call::new("cumsum").input(sorted.operand, Grad::New);
        let call = call.output(&x.shape, OutDtype::Like(0), Place::New);
        let sums = Traced::of(self.l, call, &x.shape, &[&sorted]);
        let bound = sums.scale(self.l, "sub").scale(self.l, "div");
        let above = self.add(&sorted, &bound);
        let support = self.test(&[&above], &x.shape);
        let count = Call::new("sum").input(support.operand, Grad::None);
        let count = count.output(&rows, OutDtype::Is(DType::Int64), Place::New);
        let count = Traced::of(self.l, count, &rows, &[]);
        let inside = self.choose(&support, &[&sums]);
        let total = self.sum(&inside, &rows).scale(self.l, "sub");
        let call = Call::new("div").input(total.operand, Grad::Pointwise).input(count.operand, Grad::None);
        let call = call.output(&rows, OutDtype::Like(0), Place::Pointwise).saves([Saved::Input(1)]);
        let tau = Traced::of(self.l, call, &rows, &[&total]);
        let y = self.add(x, &tau);
        // Names of the Python function hold what it sorted and summed until it returns.
        let call = Call::new("clamp").input(y.operand, Grad::Pointwise).saves([Saved::Input(0)]);
        let call =
            [&sorted, &sums, &inside].iter().fold(call, |call, held| call.input(held.operand, Grad::None));
        Traced::of(self.l, call.output(&x.shape, OutDtype::Like(0), Place::Pointwise), &x.shape, &[&y])
    }

    /// A comparison: one byte an element, without a gradient.
    pub fn test(&mut self, of: &[&Traced], shape: &[u64]) -> Traced {
        let call = of.iter().fold(Call::new("gt"), |call, x| call.input(x.operand, Grad::None));
        Traced::of(self.l, call.output(shape, OutDtype::Is(DType::Bool), Place::Pointwise), shape, &[])
    }

    /// A mask as truth values.
    pub fn condition(&mut self, mask: &Traced) -> Traced {
        let is_bool = matches!(mask.operand, Operand::Input(i) if self.l.dtype(i) == DType::Bool);
        if is_bool { mask.clone() } else { self.test(&[mask], &mask.shape) }
    }

    /// `torch.where` of these, or of one and a number: the condition is kept.
    pub fn choose(&mut self, condition: &Traced, from: &[&Traced]) -> Traced {
        let shape = from.iter().fold(condition.shape.to_vec(), |shape, x| super::broadcast(&shape, &x.shape));
        let call = Call::new("where").input(condition.operand, Grad::None).saves([Saved::Input(0)]);
        let call = from.iter().fold(call, |call, x| call.input(x.operand, Grad::Pointwise));
        Traced::of(self.l, call.output(&shape, OutDtype::Promoted, Place::Pointwise), &shape, from)
    }

    /// `_softmax`: its result is kept.
    pub fn softmax(&mut self, name: &'static str, x: &Traced) -> Traced {
        let call = Call::new(name).autocast(Autocast::Fp32).input(x.operand, Grad::New);
        let call = call.output(&x.shape, OutDtype::Promoted, Place::New).saves([Saved::Output(0)]);
        Traced::of(self.l, call, &x.shape, &[x])
    }
}
