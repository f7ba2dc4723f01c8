//! `x * f(x)` that the framework runs as one kernel: SiLU, Hardswish, Mish.
//!
//! `silu` is Sigmoid and Mul in both exporters; `hardswish` is HardSigmoid and Mul before opset 14; `mish` is
//! Softplus, Tanh and Mul in the TorchScript exporter. Each keeps x alone (derivatives.yaml: `silu_backward`,
//! `hardswish_backward`, `mish_backward`), where the product would keep both factors and f its result.

use super::Pass;
use super::rewriter::{Rewriter, build};
use memfit_graph::{Attribute, NodeId, Op, TensorId};
use std::sync::Arc;

pub(super) const PASS: Pass = Pass { name: "gated activation", run };

fn run(rw: &mut Rewriter<'_>, id: NodeId) -> bool {
    if !rw.is(id, "Mul") {
        return false;
    }
    let Some(((op, x), other)) = rw.operands(id, |t| gate(rw, t)) else { return false };
    if x != other {
        return false;
    }
    rw.rewrite(id, op, vec![Some(x)]);
    true
}

/// The whole operator whose gate `t` is, and the gate's argument.
fn gate(rw: &Rewriter<'_>, t: TensorId) -> Option<(Arc<dyn Op>, TensorId)> {
    rw.sole_reader(t)?;
    let node = rw.producer(t)?;
    let x = rw.input(node, 0)?;
    let op = match rw.node(node).op.name() {
        "Sigmoid" => build("Swish", [("alpha", Attribute::Float(1.0))]),
        "HardSigmoid" => build("HardSwish", []),
        "Tanh" => {
            let softplus = rw.made_for_one(x, "Softplus")?;
            return Some((build("Mish", [])?, rw.input(softplus, 0)?));
        }
        _ => None,
    };
    Some((op?, x))
}

#[cfg(test)]
mod tests {
    use crate::recompose::testing::Sketch;

    #[test]
    fn a_gate_on_its_own_argument() {
        for (gate, whole) in [(&["Sigmoid"][..], "Swish"), (&["Softplus", "Tanh"], "Mish")] {
            let mut s = Sketch::default();
            let x = s.input("x", &[2, 8]);
            let f = gate.iter().fold(x, |t, op| s.push(op, &[t]));
            let y = s.push("Mul", &[x, f]);
            assert_eq!(s.recompose(y), [whole]);
        }
    }

    #[test]
    fn a_gate_on_something_else_or_read_twice() {
        let mut s = Sketch::default();
        let x = s.input("x", &[2, 8]);
        let z = s.input("z", &[2, 8]);
        let f = s.push("Sigmoid", &[x]);
        let y = s.push("Mul", &[z, f]);
        let y2 = s.push("Mul", &[x, f]);
        let y = s.push("Add", &[y, y2]);
        assert_eq!(s.recompose(y), ["Sigmoid", "Mul", "Mul", "Add"]);
    }
}
