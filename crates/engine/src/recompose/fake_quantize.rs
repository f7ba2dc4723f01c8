//! Quantisation that is imitated while a model trains: QuantizeLinear and DequantizeLinear in a row.
//!
//! A file that was quantised for inference holds the pair at every activation. Integers have no gradient, so taken
//! literally nothing before the last pair would be trained; `torch.ao.quantization` trains such a model with one
//! `fake_quantize` in its place.

use super::Pass;
use super::rewriter::Rewriter;
use memfit_graph::NodeId;
use memfit_graph::ops::fake_quantize::FakeQuantize;
use memfit_graph::ops::quantize::{Quantize, QuantizeKind};
use std::sync::Arc;

pub(super) const PASS: Pass = Pass { name: "fake quantisation", run };

fn run(rw: &mut Rewriter<'_>, id: NodeId) -> bool {
    let is = |rw: &Rewriter<'_>, id, kind| rw.op::<Quantize>(id).is_some_and(|q| q.kind == kind);
    if rw.is_dead(id) || !is(rw, id, QuantizeKind::From) {
        return false;
    }
    let (Some(integers), Some(result)) = (rw.input(id, 0), rw.output(id)) else { return false };
    let Some(quantize) = rw.producer(integers).filter(|q| is(rw, *q, QuantizeKind::To)) else { return false };
    let (Some(x), Some(scale)) = (rw.input(quantize, 0), rw.input(quantize, 1)) else { return false };
    if rw.dtype(x) != rw.dtype(result) {
        return false;
    }
    rw.rewrite(id, Arc::new(FakeQuantize), vec![Some(x), Some(scale)]);
    true
}

#[cfg(test)]
mod tests {
    use crate::recompose::testing::Sketch;

    #[test]
    fn a_pair_becomes_one_and_an_integer_weight_stays() {
        let mut s = Sketch::default();
        let x = s.input("x", &[2, 8]);
        let scale = s.scalar(0.1);
        let q = s.push("QuantizeLinear", &[x, scale]);
        let y = s.push("DequantizeLinear", &[q, scale]);
        let y = s.push("Relu", &[y]);
        assert_eq!(s.recompose(y), ["FakeQuantize", "Relu"]);

        let mut s = Sketch::default();
        let x = s.input("x", &[2, 8]);
        let w = s.weight("w", &[2, 8]);
        let scale = s.scalar(0.1);
        let w = s.push("DequantizeLinear", &[w, scale]);
        let y = s.push("Mul", &[x, w]);
        assert_eq!(s.recompose(y), ["DequantizeLinear", "Mul"]);
    }
}
