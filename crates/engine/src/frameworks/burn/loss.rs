//! The loss in Burn's primitives: burn-nn's `CrossEntropyLoss` (log-softmax, gather, mean), `MseLoss` and
//! `BinaryCrossEntropyLoss` on logits.

use super::builder::{Calls, Refusal};
use super::program::{Binary, Fill, Kind, Prim, Slot, Source, SourceKind, Unary};
use crate::Loss;

/// Computes the loss of one output.
pub(super) fn write(l: &mut Calls<'_>, loss: Loss, output: Slot) -> Result<Slot, Refusal> {
    let output = l.precise(output);
    match loss {
        Loss::CrossEntropy => cross_entropy(l, output),
        Loss::Mse => {
            let target = target(l, Kind::FLOAT, l.shape(output), Fill::Uniform(-1.0, 1.0));
            let difference = l.binary(Binary::Sub, output, target)?;
            let square = l.scalar(Binary::Pow, difference, 2.0);
            Ok(mean(l, square))
        }
        Loss::Bce => {
            let target = target(l, Kind::Int, l.shape(output), Fill::Uniform(0.0, 2.0));
            let target = l.convert(target, Kind::FLOAT);
            let rest = l.unary(Unary::Neg, target);
            let rest = l.scalar(Binary::Add, rest, 1.0);
            let rest = l.binary(Binary::Mul, rest, output)?;
            let log = l.unary(Unary::LogSigmoid, output);
            let loss = l.binary(Binary::Sub, rest, log)?;
            Ok(mean(l, loss))
        }
        Loss::Auto | Loss::None => Ok(mean(l, output)),
    }
}

fn mean(l: &mut Calls<'_>, x: Slot) -> Slot {
    l.call(Prim::Mean, &[x], Kind::FLOAT, vec![1])
}

fn target(l: &mut Calls<'_>, kind: Kind, shape: Vec<usize>, fill: Fill) -> Slot {
    let slot = l.program.slot(kind, shape);
    let (name, layer) = ("target".into(), l.layer);
    l.program.add_source(Source { slot, kind: SourceKind::Target, name, tensor: None, fill, layer });
    slot
}

/// Classes are on the last axis of `[batch, tokens, classes]` and on axis 1 of anything else; Burn's loss takes rows of classes.
fn cross_entropy(l: &mut Calls<'_>, logits: Slot) -> Result<Slot, Refusal> {
    let shape = l.shape(logits);
    let logits = match shape.len() {
        0 | 1 => return Err("one output number for all classes".into()),
        2 => logits,
        3 => l.reshape(logits, vec![shape[0] * shape[1], shape[2]]),
        rank => {
            let axes: Vec<usize> = [0].into_iter().chain(2..rank).chain([1]).collect();
            let turned = l.permute(logits, axes);
            let rows = l.program.ty(turned).elements() / shape[1].max(1);
            l.reshape(turned, vec![rows, shape[1]])
        }
    };
    let [rows, classes] = l.shape(logits)[..] else { return Err("no classes".into()) };
    let target = target(l, Kind::Int, vec![rows], Fill::Uniform(0.0, classes as f64));
    let indices = l.reshape(target, vec![rows, 1]);
    let log = l.softmax(logits, 1, true)?;
    let picked = l.call(Prim::Gather(1), &[log, indices], Kind::FLOAT, vec![rows, 1]);
    let picked = l.reshape(picked, vec![rows]);
    let mean = mean(l, picked);
    Ok(l.unary(Unary::Neg, mean))
}
