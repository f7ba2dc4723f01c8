//! The loss as PyTorch computes it.
//!
//! Cross-entropy is `log_softmax` (keeps its output) and `nll_loss` (keeps its input, in float32 under autocast, the targets, one
//! scalar); the logits of a causal language model are cast up to float32 first.

use super::strides::Dims;
use super::tape::{Tape, TensorRef};
use crate::Loss;
use crate::losses::Classes;
use memfit_graph::{Autocast, Call, DType, Grad, Operand, OutDtype, Place, Saved, View};
use smallvec::smallvec;

/// Computes the loss of one output; gives the scalar.
pub(super) fn run(
    tape: &mut Tape,
    loss: Loss,
    output: TensorRef,
    target: Option<TensorRef>,
    classes: Classes,
) -> TensorRef {
    match (loss, target) {
        (Loss::CrossEntropy, Some(target)) => cross_entropy(tape, output, target, classes),
        (Loss::Mse, Some(target)) => pairwise(tape, "mse_loss", Autocast::Fp32, output, target),
        (Loss::Bce, Some(target)) => {
            pairwise(tape, "binary_cross_entropy_with_logits", Autocast::Fp32, output, target)
        }
        _ => mean(tape, output),
    }
}

fn cross_entropy(tape: &mut Tape, logits: TensorRef, target: TensorRef, classes: Classes) -> TensorRef {
    let shape: Dims = tape.shape(logits).into();
    let mut logits = logits;
    let mut owned = Vec::new();
    if classes.upcast && tape.tensor(logits).dtype.is_half() {
        logits = tape.cast(logits, DType::Float32);
        owned.push(logits);
    }
    if shape.len() == 3 && classes.axis == 2 {
        let flat = [shape[0].saturating_mul(shape[1]), shape[2]];
        let view = Call::new("view").input(Operand::Input(0), Grad::Unview).output(
            &flat,
            OutDtype::Like(0),
            Place::View(0, View::Reshape),
        );
        logits = tape.run(&view, &[logits])[0];
        owned.push(logits);
    }
    let shape: Dims = tape.shape(logits).into();
    // cross_entropy_loss asks for its input's dtype, so autocast leaves the softmax as it is (LossNLL.cpp).
    let log_softmax = Call::new("_log_softmax")
        .input(Operand::Input(0), Grad::New)
        .output(&shape, OutDtype::Promoted, Place::New)
        .saves([Saved::Output(0)]);
    let log_probabilities = tape.run(&log_softmax, &[logits])[0];
    let name = if shape.len() > 2 { "nll_loss2d_forward" } else { "nll_loss_forward" };
    let nll = Call::new(name)
        .autocast(Autocast::Fp32)
        .input(Operand::Input(0), Grad::New)
        .input(Operand::Input(1), Grad::None)
        .output(&[], OutDtype::Like(0), Place::New)
        .output(&[], OutDtype::Like(0), Place::New)
        .saves([Saved::Input(0), Saved::Input(1), Saved::Output(1)]);
    let results = tape.run(&nll, &[log_probabilities, target]);
    for t in owned.into_iter().chain([log_probabilities, results[1]]) {
        tape.release(t);
    }
    results[0]
}

fn pairwise(
    tape: &mut Tape,
    name: &'static str,
    autocast: Autocast,
    output: TensorRef,
    target: TensorRef,
) -> TensorRef {
    let call = Call::new(name)
        .autocast(autocast)
        .input(Operand::Input(0), Grad::Pointwise)
        .input(Operand::Input(1), Grad::None)
        .output(&[], OutDtype::Promoted, Place::New)
        .saves([Saved::Input(0), Saved::Input(1)]);
    // The gradient has the output's shape although the loss is a scalar.
    let call = Call { grads: smallvec![Grad::New, Grad::None], ..call };
    tape.run(&call, &[output, target])[0]
}

/// `output.mean()`, which half precision is no reason to cast for, nor autocast.
fn mean(tape: &mut Tape, output: TensorRef) -> TensorRef {
    let call =
        Call::new("mean").input(Operand::Input(0), Grad::New).output(&[], OutDtype::Promoted, Place::New);
    tape.run(&call, &[output])[0]
}
