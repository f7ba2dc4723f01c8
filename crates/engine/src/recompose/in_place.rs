//! Activations and sums that write over their input, and those that do not.
//!
//! A file does not tell. Code that makes a module of one writes `nn.LeakyReLU(0.2, inplace=True)` (darknet, DCGAN, ESRGAN,
//! nnU-Net, timm); code that calls the function `F.leaky_relu(x)` does not (HiFi-GAN, StyleGAN, GAT), and then backward reads
//! the input (`leaky_relu_backward(grad, self, slope, false)`, derivatives.yaml). The scope tells the two
//! apart: a module of its own has nothing else in it, a function runs in the scope of the module that calls it.
//! A module whose slope is the default's was made without arguments (`nn.LeakyReLU()`, as in variational autoencoders), and writes
//! over nothing. What passes `inplace` and leaves or gives that slope is nnU-Net and MONAI, behind instance norms, and timm's
//! norms, which have their activation inside.
//!
//! A ReLU costs the same either way, but for one place: after an instance norm, whose result is a view, and what writes over
//! a view copies gradients in backward. Modules do that there (CycleGAN, StarGAN, RAFT: `nn.ReLU(inplace=True)`).
//!
//! The sum of a residual block, a batch norm's result plus the shortcut before the ReLU, is in place in the libraries'
//! code (`out += identity` in torchvision, detectron2 and HRNet, `x += shortcut` in timm). It matters where autocast has left the
//! shortcut in float32, after an upsampling for one: the sum stays in half precision.

use super::rewriter::Rewriter;
use memfit_graph::NodeId;
use memfit_graph::ops::activation::Activation;
use memfit_graph::ops::arithmetic::Arithmetic;
use memfit_graph::ops::relu::Relu;
use std::collections::HashSet;
use std::sync::Arc;

/// Marks the sums of residual blocks.
pub(super) fn mark_sums(rw: &mut Rewriter<'_>) {
    for id in rw.node_ids() {
        if rw.op::<Arithmetic>(id) != Some(&Arithmetic::Add) {
            continue;
        }
        let is_norm = rw.input(id, 0).is_some_and(|x| rw.made_for_one(x, "BatchNormalization").is_some());
        let next = || rw.output(id).and_then(|y| rw.sole_reader(y));
        if is_norm && next().is_some_and(|next| rw.is(next, "Relu")) {
            let inputs = rw.node(id).inputs.clone();
            rw.rewrite(id, Arc::new(Arithmetic::AddTo), inputs);
        }
    }
}

/// Has the functions keep their inputs, and modules write over an instance norm's result.
pub(super) fn mark(rw: &mut Rewriter<'_>) {
    let is_either = |id: NodeId| rw.is(id, "LeakyRelu") || rw.is(id, "Relu");
    let (activations, others): (Vec<NodeId>, Vec<NodeId>) =
        rw.node_ids().into_iter().partition(|id| is_either(*id));
    let matters = |id: &NodeId| {
        let normalized =
            || rw.input(*id, 0).is_some_and(|x| rw.made_for_one(x, "InstanceNormalization").is_some());
        rw.is(*id, "LeakyRelu") || normalized()
    };
    let chosen: Vec<NodeId> = activations.iter().copied().filter(matters).collect();
    // A file without module paths says nothing.
    if chosen.is_empty() || others.iter().all(|id| rw.node(*id).scope.is_empty()) {
        return;
    }
    let keeps_input: Vec<bool> = {
        let scope = |id: &NodeId| &*rw.node(*id).scope;
        let inner = activations.iter().chain(&others).map(scope);
        let shared: HashSet<&str> = others.iter().map(scope).chain(inner.flat_map(callers)).collect();
        chosen.iter().map(|id| shared.contains(scope(id)) || is_default(rw, *id)).collect()
    };
    for (id, keeps_input) in chosen.into_iter().zip(keeps_input) {
        let inputs = rw.node(id).inputs.clone();
        match rw.op::<Activation>(id).copied() {
            Some(mut op) if keeps_input => {
                op.out_of_place = true;
                rw.rewrite(id, Arc::new(op), inputs);
            }
            None if !keeps_input => rw.rewrite(id, Arc::new(Relu { in_place: true }), inputs),
            _ => {}
        }
    }
}

/// Whether this is `nn.LeakyReLU()`: the slope is the default's, and the input is neither an instance norm's result nor that of the
/// module around it.
fn is_default(rw: &Rewriter<'_>, id: NodeId) -> bool {
    const SLOPE: f64 = 0.01;
    let slope = rw.op::<Activation>(id).map(|op| op.alpha.unwrap_or(SLOPE));
    let producer = rw.input(id, 0).and_then(|x| rw.producer(x));
    let writes_over = producer.is_some_and(|producer| {
        let outer = &*rw.node(producer).scope;
        rw.is(producer, "InstanceNormalization")
            || (!outer.is_empty() && callers(&rw.node(id).scope).any(|module| module == outer))
    });
    slope.is_some_and(|slope| (slope - SLOPE).abs() < 1e-6) && !writes_over
}

/// The modules around one, the innermost first.
fn callers(scope: &str) -> impl Iterator<Item = &str> {
    let outer = |s: &&str| s.rfind('.').map(|end| &scope[..end]).or((!s.is_empty()).then_some(""));
    std::iter::successors(Some(scope), move |s| outer(s)).skip(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recompose::testing::Sketch;
    use memfit_graph::Attribute;

    #[test]
    fn a_function_runs_where_other_things_run_and_a_module_by_itself() {
        for (scopes, expected) in [
            (["block.conv", "block", "block.out"], true),
            (["conv", "", "out"], true),
            (["block.conv", "block.act", "block.out"], false),
            (["0", "1", "2"], false),
            (["", "", ""], false),
        ] {
            let mut s = Sketch::default();
            let x = s.input("x", &[2, 8]);
            let y = s.push("Tanh", &[x]);
            let y = s.push_with("LeakyRelu", [("alpha", Attribute::Float(0.2))].into(), &[y]);
            let y = s.push("Tanh", &[y]);
            for (node, scope) in s.graph.nodes.iter_mut().zip(scopes) {
                node.scope = scope.into();
            }
            assert_eq!(s.recompose(y), ["Tanh", "LeakyRelu", "Tanh"]);
            let op: &Activation = s.graph.nodes[1].op.downcast().unwrap();
            assert_eq!(op.out_of_place, expected, "{scopes:?}");
        }
    }

    #[test]
    fn a_module_made_without_arguments_writes_over_nothing() {
        let cases = [
            ("BatchNormalization", "block.act", 0.01, true),
            ("BatchNormalization", "block.act", 0.1, false),
            ("BatchNormalization", "block.norm.act", 0.01, false),
            ("InstanceNormalization", "block.act", 0.01, false),
        ];
        for (norm, scope, slope, expected) in cases {
            let mut s = Sketch::default();
            let (x, w) = (s.input("x", &[2, 8, 4, 4]), s.weight("w", &[8]));
            let weights = if norm == "BatchNormalization" { &[x, w, w, w, w][..] } else { &[x, w, w] };
            let y = s.push(norm, weights);
            let y = s.push_with("LeakyRelu", [("alpha", Attribute::Float(slope))].into(), &[y]);
            let y = s.push("Tanh", &[y]);
            for (node, scope) in s.graph.nodes.iter_mut().zip(["block.norm", scope, "out"]) {
                node.scope = scope.into();
            }
            assert_eq!(s.recompose(y).len(), 3);
            let op: &Activation = s.graph.nodes[1].op.downcast().unwrap();
            assert_eq!(op.out_of_place, expected, "{norm} {scope} {slope}");
        }
    }

    #[test]
    fn a_module_writes_over_the_result_of_an_instance_norm() {
        for (scope, norm, expected) in [("act", true, true), ("", true, false), ("act", false, false)] {
            let mut s = Sketch::default();
            let (x, w) = (s.input("x", &[2, 8, 4, 4]), s.weight("w", &[8]));
            let y = if norm { s.push("InstanceNormalization", &[x, w, w]) } else { s.push("Tanh", &[x]) };
            let y = s.push("Relu", &[y]);
            let y = s.push("Tanh", &[y]);
            for (node, scope) in s.graph.nodes.iter_mut().zip(["norm", scope, ""]) {
                node.scope = scope.into();
            }
            assert_eq!(s.recompose(y).len(), 3);
            let op: &Relu = s.graph.nodes[1].op.downcast().unwrap();
            assert_eq!(op.in_place, expected, "{scope} {norm}");
        }
    }

    #[test]
    fn a_batch_norm_and_a_shortcut_meet_in_place_before_a_relu() {
        for (norm, act, expected) in [(0, "Relu", true), (1, "Relu", false), (0, "Tanh", false)] {
            let mut s = Sketch::default();
            let (x, w) = (s.input("x", &[2, 8, 4, 4]), s.weight("w", &[8]));
            let y = s.push("BatchNormalization", &[x, w, w, w, w]);
            let operands = if norm == 0 { [y, x] } else { [x, y] };
            let y = s.push("Add", &operands);
            let y = s.push(act, &[y]);
            assert_eq!(s.recompose(y), ["BatchNormalization", "Add", act]);
            let op = s.graph.nodes[1].op.downcast::<Arithmetic>();
            assert_eq!(op == Some(&Arithmetic::AddTo), expected);
        }
    }

    #[test]
    fn modules_around_a_module() {
        assert_eq!(callers("a.b.c").collect::<Vec<_>>(), ["a.b", "a", ""]);
        assert_eq!(callers("").count(), 0);
    }
}
