//! A step that is run eagerly: `compile(run_eagerly=True)`, one kernel after the other as Python calls them.
//!
//! No graph, so nothing is put in another order. A kernel never writes over its input: the Python object of the input is there
//! until the call is over (common_runtime/eager/execute_node.h, `protected_tensors_`). What lives longer than its last reader:
//! outputs of layers, which a functional model's dictionary holds until its call returns (keras/src/ops/function.py,
//! `_run_through_graph`), and gradients, a list until all are applied (keras/src/backend/tensorflow/trainer.py, `train_step`). What
//! backward reads lives because it does: the tape keeps no more than its gradient functions use
//! (eager/pywrap_gradient_exclusions.cc).

use super::dependencies::needed;
use super::{Builder, Wire};
use memfit_graph::kernels::Stage;
use std::collections::BTreeMap;

/// The kernels in the order of the program, and until how many of them have run a wire is held.
pub(super) fn order(
    builder: &Builder<'_>,
    kept: &[Wire],
    gradients: &BTreeMap<u32, Wire>,
) -> (Vec<u32>, Vec<(Wire, usize)>) {
    let flow = &builder.flow;
    let needed = needed(flow, kept);
    let order: Vec<u32> = (0..).zip(&needed).filter(|(_, needed)| **needed).map(|(at, _)| at).collect();
    let is_forward = |at: &u32| flow.kernels[*at as usize].stage == Stage::Forward;
    let forward = order.iter().take_while(|at| is_forward(at)).count();
    let given = builder.given.iter().filter(|wire| needed[wire.kernel as usize]).map(|wire| (*wire, forward));
    let applied = gradients.values().map(|wire| (*wire, order.len()));
    let holds = given.chain(applied).collect();
    (order, holds)
}

#[cfg(test)]
mod tests {
    use crate::{Framework, Model, Plan};
    use memfit_graph::{Attributes, Binding, DType, Graph, Role, Shape, Type};

    /// So many layers of 1024 by 1024.
    fn dense(layers: usize) -> Model {
        let mut g = Graph::default();
        let mut x = g.add_tensor("x", Type::tensor(DType::Float32, Shape::from([8, 1024])), Role::Input);
        g.inputs = vec![x];
        for layer in 0..layers {
            let ty = Type::tensor(DType::Float32, Shape::from([1024, 1024]));
            let w = g.add_tensor(format!("w{layer}"), ty, Role::Initializer);
            let product =
                g.push("MatMul", Attributes::default(), &[x, w], &format!("product{layer}")).unwrap();
            x = g.push("Relu", Attributes::default(), &[product], &format!("y{layer}")).unwrap();
        }
        g.outputs = vec![x];
        Model::new(g, "dense", "onnx", 1)
    }

    #[test]
    fn gradients_wait_until_all_are_applied() {
        let model = dense(8);
        let peak = |eager, clip_norm| {
            let (framework, optimizer) = (Framework::Tensorflow, "sgd".into());
            let plan = Plan { framework, optimizer, eager, clip_norm, ..Plan::default() };
            model.estimate(&Binding::default(), &plan).unwrap().peak.allocated.0
        };
        // In a graph each is applied at once: one or two of 4 MiB are there. Run eagerly it is all eight, and so it is until the
        // norm of all is known.
        for waiting in [peak(true, false), peak(false, true)] {
            let more = (waiting - peak(false, false)) >> 20;
            assert!((22..=28).contains(&more), "{more} MiB");
        }
    }
}
