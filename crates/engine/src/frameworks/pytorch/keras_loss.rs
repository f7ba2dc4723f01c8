//! The losses of Keras on its PyTorch backend.
//!
//! keras/src/losses/loss.py, `Loss.__call__` (3.15): output and target are cast to float32, whole numbers too, and what comes of each row is
//! summed. keras/src/backend/torch/nn.py, `sparse_categorical_crossentropy`: classes move to axis 1; probabilities are divided by
//! their sum, clipped, and their logarithm taken, each a tensor that the next one keeps. Logits are told from probabilities by whether
//! Keras has hung the former on the output.

use super::tape::{Tape, TensorRef};
use crate::Loss;
use memfit_graph::{Call, DType, Grad, Operand, OutDtype, Place, Saved, View};

/// Runs calls and holds what they make until the loss is there.
struct Local<'t> {
    tape: &'t mut Tape,
    made: Vec<TensorRef>,
}

impl Local<'_> {
    fn run(&mut self, call: Call, inputs: &[TensorRef]) -> TensorRef {
        let made = self.tape.run(&call, inputs);
        self.made.extend_from_slice(&made);
        made[0]
    }

    fn cast(&mut self, x: TensorRef, to: DType) -> TensorRef {
        if self.tape.tensor(x).dtype == to {
            return x;
        }
        let cast = self.tape.cast(x, to);
        self.made.push(cast);
        cast
    }

    /// A function of one tensor into this shape.
    fn unary(
        &mut self,
        name: &'static str,
        x: TensorRef,
        shape: &[u64],
        grad: Grad,
        saved: &[Saved],
    ) -> TensorRef {
        let place = if grad == Grad::Pointwise { Place::Pointwise } else { Place::New };
        let call = Call::new(name).input(Operand::Input(0), grad).output(shape, OutDtype::Promoted, place);
        let scratch: &[OutDtype] = match name {
            "clamp" => &[OutDtype::Is(DType::Bool); 2],
            "pow" => &[OutDtype::Promoted; 2],
            _ => &[],
        };
        let call = scratch.iter().fold(call, |call, dtype| call.backward_scratch(shape, *dtype));
        self.run(call.saves(saved.iter().copied()), &[x])
    }

    /// A function of output and target that keeps both, with a gradient of this kind for the former.
    fn compared(&mut self, name: &'static str, [x, y]: [TensorRef; 2], shape: &[u64]) -> TensorRef {
        let call = Call::new(name).input(Operand::Input(0), Grad::New).input(Operand::Input(1), Grad::None);
        let call = call.output(shape, OutDtype::Promoted, Place::New);
        self.run(call.saves([Saved::Input(0), Saved::Input(1)]), &[x, y])
    }

    /// The negative logarithm of each row's class.
    fn cross_entropy(&mut self, x: TensorRef, target: TensorRef, are_probabilities: bool) -> TensorRef {
        let target = self.cast(target, DType::Float32);
        let target = self.cast(target, DType::Int64);
        let shape = self.tape.shape(x).to_vec();
        let last = shape.len().saturating_sub(1);
        let order: Vec<usize> = [0, last].into_iter().chain(1..last).take(last + 1).collect();
        let moved: Vec<u64> = order.iter().map(|axis| shape[*axis]).collect();
        let call = Call::new("permute").input(Operand::Input(0), Grad::Unview);
        let view = Place::View(0, View::Permute(order));
        let x = self.run(call.output(&moved, OutDtype::Promoted, view), &[x]);
        let mut x = if are_probabilities {
            let mut rows = moved.clone();
            rows.get_mut(1).into_iter().for_each(|dim| *dim = 1);
            let sum = self.unary("sum", x, &rows, Grad::Expand, &[]);
            let call = Call::new("div")
                .input(Operand::Input(0), Grad::Pointwise)
                .input(Operand::Input(1), Grad::Pointwise)
                .output(&moved, OutDtype::Promoted, Place::Pointwise)
                .saves([Saved::Input(0), Saved::Input(1)])
                .backward_scratch(&moved, OutDtype::Promoted)
                .backward_scratch(&moved, OutDtype::Promoted);
            let x = self.run(call, &[x, sum]);
            let x = self.unary("clamp", x, &moved, Grad::Pointwise, &[Saved::Input(0)]);
            self.unary("log", x, &moved, Grad::Pointwise, &[Saved::Input(0)])
        } else {
            self.unary("_log_softmax", x, &moved, Grad::New, &[Saved::Output(0)])
        };
        // LossNLL.cpp, `nll_loss_nd`: other ranks are made contiguous and seen as images.
        if !matches!(last, 0 | 1 | 3) && !self.tape.layouts.is_contiguous(self.tape.tensor(x).layout) {
            x = self.unary("clone", x, &moved, Grad::Pass, &[]);
        }
        let each = self.tape.shape(target).to_vec();
        let name = if last > 1 { "nll_loss2d_forward" } else { "nll_loss_forward" };
        self.compared(name, [x, target], &each)
    }
}

/// Computes the loss of one output; gives the scalar.
pub(super) fn run(tape: &mut Tape, loss: Loss, output: TensorRef, target: Option<TensorRef>) -> TensorRef {
    let are_probabilities = tape.tensor(output).held.is_some();
    let mut local = Local { tape, made: Vec::new() };
    let x = local.cast(output, DType::Float32);
    let shape = local.tape.shape(x).to_vec();
    let rows = &shape[..shape.len().saturating_sub(1)];
    let each = match (loss, target) {
        (Loss::CrossEntropy, Some(target)) => local.cross_entropy(x, target, are_probabilities),
        (Loss::Mse, Some(target)) => {
            let target = local.cast(target, DType::Float32);
            let call = Call::new("sub")
                .input(Operand::Input(0), Grad::Pointwise)
                .input(Operand::Input(1), Grad::None);
            let difference =
                local.run(call.output(&shape, OutDtype::Promoted, Place::Pointwise), &[x, target]);
            let square = local.unary("pow", difference, &shape, Grad::Pointwise, &[Saved::Input(0)]);
            local.unary("mean", square, rows, Grad::New, &[])
        }
        (Loss::Bce, Some(target)) => {
            let target = local.cast(target, DType::Float32);
            let each = if are_probabilities {
                let x = local.unary("clamp", x, &shape, Grad::Pointwise, &[Saved::Input(0)]);
                local.compared("binary_cross_entropy", [x, target], &shape)
            } else {
                local.compared("binary_cross_entropy_with_logits", [x, target], &shape)
            };
            local.unary("mean", each, rows, Grad::New, &[])
        }
        _ => x,
    };
    let total = local.tape.run(&Call::sum_of_all(Operand::Input(0)), &[each])[0];
    for t in std::mem::take(&mut local.made) {
        tape.release(t);
    }
    total
}
