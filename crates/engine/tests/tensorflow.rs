//! TensorFlow's step of a small network, made by hand, against what TensorFlow itself allocates.
#![allow(clippy::unwrap_used, reason = "a failed unwrap in a test is a failed test")]

use memfit_engine::{Framework, Model, Plan};
use memfit_graph::{Attribute, Attributes, Binding, Bytes, DType, Graph, Role, Shape, TensorId, Type};

fn weight(g: &mut Graph, name: &str, shape: &[u64]) -> TensorId {
    g.add_tensor(name, Type::tensor(DType::Float32, Shape::from(shape)), Role::Initializer)
}

/// Convolutions, pools and dense layers as in LeNet.
fn lenet() -> Graph {
    let mut g = Graph::default();
    let x = g.add_tensor("x", Type::tensor(DType::Float32, Shape::from([16, 1, 28, 28])), Role::Input);
    g.inputs = vec![x];
    let pool = || {
        Attributes::from([
            ("kernel_shape", Attribute::Ints(vec![2, 2])),
            ("strides", Attribute::Ints(vec![2, 2])),
        ])
    };
    let mut at = x;
    for (i, (shape, pads)) in [([6, 1, 5, 5], 2), ([16, 6, 5, 5], 0)].into_iter().enumerate() {
        let w = weight(&mut g, &format!("conv{i}.weight"), &shape);
        let b = weight(&mut g, &format!("conv{i}.bias"), &[shape[0]]);
        let pads = Attributes::from([("pads", Attribute::Ints(vec![pads; 4]))]);
        at = g.push("Conv", pads, &[at, w, b], &format!("conv{i}")).unwrap();
        at = g.push("Relu", Attributes::default(), &[at], &format!("relu{i}")).unwrap();
        at = g.push("MaxPool", pool(), &[at], &format!("pool{i}")).unwrap();
    }
    at = g.push("Flatten", Attributes::default(), &[at], "flat").unwrap();
    for (i, [inner, out]) in [[400, 120], [120, 84], [84, 10]].into_iter().enumerate() {
        let w = weight(&mut g, &format!("fc{i}.weight"), &[inner, out]);
        let b = weight(&mut g, &format!("fc{i}.bias"), &[out]);
        at = g.push("Gemm", Attributes::default(), &[at, w, b], &format!("fc{i}")).unwrap();
        let activation = if i < 2 { "Relu" } else { "Softmax" };
        at = g.push(activation, Attributes::default(), &[at], &format!("act{i}")).unwrap();
    }
    g.outputs = vec![at];
    g
}

fn estimate(optimizer: &str) -> memfit_engine::Estimate {
    let plan = Plan { framework: Framework::Tensorflow, optimizer: optimizer.into(), ..Plan::default() };
    Model::new(lenet(), "lenet", "onnx", 0).estimate(&Binding::default(), &plan).unwrap()
}

#[test]
fn lenet_holds_what_tensorflow_allocates() {
    // TensorFlow 2.21 with Keras 3.15, batch 16, without kernels' scratch memory.
    let estimate = estimate("sgd");
    assert_eq!(estimate.timeline.step_peak(), Bytes(997_984));
    assert!(estimate.unknown.is_empty(), "{:?}", estimate.unknown);
    assert_eq!(estimate.breakdown.allocated(), estimate.peak.allocated);
}

#[test]
fn weights_gradients_wait_where_the_walk_begins_at_the_input() {
    // With Adam grappler's walk begins at the first convolution, so that gradients of inputs run before those of weights, and no
    // weight's gradient is there at the peak. TensorFlow's trace says 907,504: 48 bytes of it are the optimizer's scalars.
    assert_eq!(estimate("adam").timeline.step_peak(), Bytes(907_456));
}
