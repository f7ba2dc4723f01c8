//! `F.leaky_relu(x)`, which leaves its input as it is, beside `nn.LeakyReLU(inplace=True)`.
//!
//! A file does not tell whether an activation wrote over its input. Code that makes a module of it writes `inplace=True`
//! (darknet, DCGAN, ESRGAN, nnU-Net, timm); code that calls the function does not (HiFi-GAN, StyleGAN, GAT), and then
//! backward reads the input (`leaky_relu_backward(grad, self, slope, false)`, derivatives.yaml). The scope tells the two
//! apart: a module of its own has nothing else in it, a function runs in the scope of the module that calls it.

use super::rewriter::Rewriter;
use memfit_graph::NodeId;
use memfit_graph::ops::activation::Activation;
use std::collections::HashSet;
use std::sync::Arc;

const NAME: &str = "LeakyRelu";

/// Has the functions keep their inputs.
pub(super) fn mark(rw: &mut Rewriter<'_>) {
    let (activations, others): (Vec<NodeId>, Vec<NodeId>) =
        rw.node_ids().into_iter().partition(|id| rw.is(*id, NAME));
    if activations.is_empty() {
        return;
    }
    let functions: Vec<NodeId> = {
        let scope = |id: NodeId| &*rw.node(id).scope;
        let mut shared: HashSet<&str> = others.iter().map(|id| scope(*id)).collect();
        let inner = activations.iter().chain(&others).map(|id| scope(*id));
        shared.extend(inner.flat_map(callers).collect::<Vec<_>>());
        // A file without module paths says nothing.
        let told = shared.iter().any(|scope| !scope.is_empty());
        activations.iter().copied().filter(|id| told && shared.contains(scope(*id))).collect()
    };
    for id in functions {
        let Some(mut op) = rw.op::<Activation>(id).copied() else { continue };
        op.out_of_place = true;
        let inputs = rw.node(id).inputs.clone();
        rw.rewrite(id, Arc::new(op), inputs);
    }
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
            let y = s.push(NAME, &[y]);
            let y = s.push("Tanh", &[y]);
            for (node, scope) in s.graph.nodes.iter_mut().zip(scopes) {
                node.scope = scope.into();
            }
            assert_eq!(s.recompose(y), ["Tanh", NAME, "Tanh"]);
            let op: &Activation = s.graph.nodes[1].op.downcast().unwrap();
            assert_eq!(op.out_of_place, expected, "{scopes:?}");
        }
    }

    #[test]
    fn modules_around_a_module() {
        assert_eq!(callers("a.b.c").collect::<Vec<_>>(), ["a.b", "a", ""]);
        assert_eq!(callers("").count(), 0);
    }
}
