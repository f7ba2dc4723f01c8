//! `torch.nn.functional.gelu`, exact and with tanh.
//!
//! The TorchScript exporter writes `0.5 * (x * (1 + erf(x / √2)))`, the dynamo exporter before opset 20
//! `x * (0.5 * (1 + erf(x / √2)))`. The tanh form is `1 + tanh(√(2/π) * (x + 0.044715 x³))` in the same place. Model
//! code that composes GELU itself (`gelu_new` of transformers, `x * 0.5 * (1 + …)`) halves x first: the framework runs
//! that in pieces, and so it stays in pieces. `0.5 x * erfc(-x / √2)` is what tf2onnx makes of TensorFlow's kernel.
//!
//! `x * 0.5 * (1 + tanh(√(2/π) x * (1 + 0.044715 x x)))` is how Megatron-LM writes the tanh form (fusions/fused_bias_gelu.py; also
//! BLOOM in transformers, `GeLUFunction`): inside of an autograd function of its own that keeps x alone and computes the rest again.
//! Transformers' `gelu_fast`, which does run in pieces, leaves the same nodes; it is the rarer of the two.

use super::Pass;
use super::rewriter::{Rewriter, build};
use memfit_graph::{Attribute, NodeId, TensorId};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI, SQRT_2};

pub(super) const PASS: Pass = Pass { name: "gelu", run };

fn run(rw: &mut Rewriter<'_>, id: NodeId) -> bool {
    let matched = match rw.node(id).op.name() {
        "Erf" => exact(rw, id).map(|(x, end)| (x, end, "none")),
        "Erfc" => complementary(rw, id).map(|(x, end)| (x, end, "none")),
        "Tanh" => tanh(rw, id).or_else(|| megatron(rw, id)).map(|(x, end)| (x, end, "tanh")),
        _ => None,
    };
    let Some((x, end, approximate)) = matched else { return false };
    let Some(op) = build("Gelu", [("approximate", Attribute::Text(approximate.into()))]) else {
        return false;
    };
    rw.rewrite(end, op, vec![Some(x)]);
    true
}

/// `x / √2` or `x * (1 / √2)`: gives x.
fn over_root_two(rw: &Rewriter<'_>, t: TensorId) -> Option<TensorId> {
    let node = rw.producer(t)?;
    let (x, c) = (rw.input(node, 0)?, rw.input(node, 1)?);
    match rw.node(node).op.name() {
        "Div" => rw.is_scalar(c, SQRT_2).then_some(x),
        "Mul" => rw.times(node, FRAC_1_SQRT_2),
        _ => None,
    }
}

fn exact(rw: &Rewriter<'_>, erf: NodeId) -> Option<(TensorId, NodeId)> {
    let x = over_root_two(rw, rw.input(erf, 0)?)?;
    Some((x, gate(rw, x, rw.output(erf)?)?))
}

/// From `f` on: `(f + 1)`, times x and a half, where x itself is not halved. Gives the last node.
fn gate(rw: &Rewriter<'_>, x: TensorId, f: TensorId) -> Option<NodeId> {
    let add = rw.sole_reader(f).filter(|n| rw.is(*n, "Add"))?;
    rw.other(add, f).filter(|one| rw.is_scalar(*one, 1.0))?;
    let sum = rw.output(add)?;
    let first = rw.sole_reader(sum).filter(|n| rw.is(*n, "Mul"))?;
    let product = rw.output(first)?;
    let second = rw.sole_reader(product).filter(|n| rw.is(*n, "Mul"))?;
    let (a, b) = (rw.other(first, sum)?, rw.other(second, product)?);
    let half = |t: TensorId| rw.is_scalar(t, 0.5);
    ((a == x && half(b)) || (half(a) && b == x)).then_some(second)
}

fn complementary(rw: &Rewriter<'_>, erfc: NodeId) -> Option<(TensorId, NodeId)> {
    let scaled = rw.made_by(rw.input(erfc, 0)?, "Mul")?;
    let x = match rw.times(scaled, -FRAC_1_SQRT_2) {
        Some(x) => x,
        None => rw.input(rw.made_by(rw.times(scaled, FRAC_1_SQRT_2)?, "Neg")?, 0)?,
    };
    let f = rw.output(erfc)?;
    let end = rw.sole_reader(f).filter(|n| rw.is(*n, "Mul"))?;
    let half = rw.made_by(rw.other(end, f)?, "Mul")?;
    (rw.times(half, 0.5)? == x).then_some((x, end))
}

fn tanh(rw: &Rewriter<'_>, tanh: NodeId) -> Option<(TensorId, NodeId)> {
    let scaled = rw.made_by(rw.input(tanh, 0)?, "Mul")?;
    let sum = rw.made_by(rw.times(scaled, FRAC_2_PI.sqrt())?, "Add")?;
    let (a, b) = (rw.input(sum, 0)?, rw.input(sum, 1)?);
    let cube_of = |t: TensorId| cube(rw, rw.times(rw.made_by(t, "Mul")?, 0.044715)?);
    let x = [(a, b), (b, a)].into_iter().find(|(x, t)| cube_of(*t) == Some(*x))?.0;
    Some((x, gate(rw, x, rw.output(tanh)?)?))
}

fn megatron(rw: &Rewriter<'_>, tanh: NodeId) -> Option<(TensorId, NodeId)> {
    let times_of = |t: TensorId, c: f64| rw.times(rw.made_by(t, "Mul")?, c);
    let argument = rw.made_by(rw.input(tanh, 0)?, "Mul")?;
    let (x, bent) = rw.operands(argument, |t| times_of(t, FRAC_2_PI.sqrt()))?;
    let bent = rw.made_by(bent, "Add")?;
    let one = |t: TensorId| rw.is_scalar(t, 1.0).then_some(t);
    let (_, square) = rw.operands(bent, one)?;
    let (scaled, other) = rw.operands(rw.made_by(square, "Mul")?, |t| times_of(t, 0.044715))?;
    let add = rw.sole_reader(rw.output(tanh)?).filter(|n| rw.is(*n, "Add"))?;
    rw.operands(add, one)?;
    let sum = rw.output(add)?;
    let end = rw.sole_reader(sum).filter(|n| rw.is(*n, "Mul"))?;
    let halved = times_of(rw.other(end, sum)?, 0.5)?;
    (scaled == x && other == x && halved == x).then_some((x, end))
}

/// `x³` as a power or as `x * (x * x)`: gives x.
fn cube(rw: &Rewriter<'_>, t: TensorId) -> Option<TensorId> {
    if let Some(pow) = rw.made_by(t, "Pow") {
        return rw.input(pow, 1).filter(|e| rw.is_scalar(*e, 3.0)).and_then(|_| rw.input(pow, 0));
    }
    let outer = rw.made_by(t, "Mul")?;
    let square = |t: TensorId| {
        let inner = rw.made_by(t, "Mul")?;
        rw.input(inner, 0).filter(|x| rw.input(inner, 1) == Some(*x))
    };
    let (x, other) = rw.operands(outer, square)?;
    (x == other).then_some(x)
}

#[cfg(test)]
mod tests {
    use crate::recompose::testing::Sketch;
    use memfit_graph::TensorId;

    fn one_plus_erf(s: &mut Sketch, x: TensorId) -> TensorId {
        let root = s.scalar(1.414_213_538_169_860_8);
        let y = s.push("Div", &[x, root]);
        let y = s.push("Erf", &[y]);
        let one = s.scalar(1.0);
        s.push("Add", &[y, one])
    }

    #[test]
    fn both_exporters_exact_forms() {
        for late_half in [true, false] {
            let mut s = Sketch::default();
            let x = s.input("x", &[2, 8]);
            let (gate, half) = (one_plus_erf(&mut s, x), s.scalar(0.5));
            let y = s.push("Mul", &[if late_half { x } else { half }, gate]);
            let y = s.push("Mul", &[y, if late_half { half } else { x }]);
            assert_eq!(s.recompose(y), ["Gelu"]);
            assert_eq!(s.inputs_of(0), ["x"]);
        }
    }

    #[test]
    fn what_a_model_composes_itself_stays_in_pieces() {
        let mut s = Sketch::default();
        let x = s.input("x", &[2, 8]);
        let (gate, half) = (one_plus_erf(&mut s, x), s.scalar(0.5));
        let y = s.push("Mul", &[x, half]);
        let y = s.push("Mul", &[y, gate]);
        assert_eq!(s.recompose(y).len(), 5);
    }

    #[test]
    fn an_autograd_function_keeps_its_input_alone() {
        let mut s = Sketch::default();
        let x = s.input("x", &[2, 8]);
        let (k, b, one, half) = (s.scalar(0.044_715), s.scalar(0.797_884_56), s.scalar(1.0), s.scalar(0.5));
        let halved = s.push("Mul", &[x, half]);
        let scaled = s.push("Mul", &[x, b]);
        let y = s.push("Mul", &[x, k]);
        let y = s.push("Mul", &[y, x]);
        let y = s.push("Add", &[y, one]);
        let y = s.push("Mul", &[scaled, y]);
        let y = s.push("Tanh", &[y]);
        let y = s.push("Add", &[y, one]);
        let y = s.push("Mul", &[halved, y]);
        assert_eq!(s.recompose(y), ["Gelu"]);
        assert_eq!(s.inputs_of(0), ["x"]);
    }

    #[test]
    fn the_tanh_form_with_a_cube_of_products() {
        let mut s = Sketch::default();
        let x = s.input("x", &[2, 8]);
        let (k, b, one, half) = (s.scalar(0.044_715), s.scalar(0.797_884_56), s.scalar(1.0), s.scalar(0.5));
        let y = s.push("Mul", &[x, x]);
        let y = s.push("Mul", &[x, y]);
        let y = s.push("Mul", &[k, y]);
        let y = s.push("Add", &[x, y]);
        let y = s.push("Mul", &[b, y]);
        let y = s.push("Tanh", &[y]);
        let y = s.push("Add", &[one, y]);
        let y = s.push("Mul", &[x, y]);
        let y = s.push("Mul", &[half, y]);
        assert_eq!(s.recompose(y), ["Gelu"]);
    }
}
