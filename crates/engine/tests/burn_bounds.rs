//! What Burn's profile takes and what it refuses of files that ask for more than a machine holds: what is only counted takes neither
//! memory nor time, so that a test which made it would not end.
#![cfg(feature = "burn")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap in a test is a failed test")]

use memfit_engine::{Framework, Loss, Model, Plan};
use memfit_graph::{Attribute, Attributes, Binding, DType, Graph, Role, Shape, TensorId, Type, Value};

fn float(g: &mut Graph, name: &str, shape: &[u64], role: Role) -> TensorId {
    let id = g.add_tensor(name, Type::tensor(DType::Float32, Shape::from(shape)), role);
    if role == Role::Input {
        g.inputs.push(id);
    }
    id
}

fn ints(g: &mut Graph, name: &str, values: &[i64]) -> TensorId {
    g.add_constant(name, Value::vector(DType::Int64, values.iter().copied()))
}

/// The peak of a graph of one operator, or why there is none.
fn peak(g: Graph, y: TensorId) -> Result<u64, String> {
    let mut g = g;
    g.outputs = vec![y];
    let model = Model::new(g, "m", "onnx", 1);
    let plan =
        Plan { framework: Framework::Burn, optimizer: "sgd".into(), loss: Loss::None, ..Plan::default() };
    let made = model.estimate(&Binding::default(), &plan);
    made.map(|estimate| estimate.peak.allocated.0).map_err(|problems| problems[0].message.clone())
}

fn resized(mode: &str, from: u64, to: i64) -> Result<u64, String> {
    let mut g = Graph::default();
    let x = float(&mut g, "x", &[1, 1, 2, from], Role::Input);
    let (none, sizes) = (ints(&mut g, "none", &[]), ints(&mut g, "sizes", &[1, 1, 2, to]));
    let attributes = Attributes::from([("mode", Attribute::Text(mode.into()))]);
    let y = g.push("Resize", attributes, &[x, none, none, sizes], "y").unwrap();
    peak(g, y)
}

#[test]
fn tables_of_resizing_are_counted_and_not_made() {
    let (from, to) = (1_u64 << 20, 1_i64 << 22);
    let table = 4 * from * to.unsigned_abs();
    assert!((table..2 * table).contains(&resized("cubic", from, to).unwrap()));
    for mode in ["nearest", "linear", "cubic"] {
        let problem = resized(mode, 2, 1 << 40).unwrap_err();
        assert!(problem.contains("an axis of 1099511627776 elements"), "{problem}");
    }
}

#[test]
fn shares_of_means_are_counted_and_not_made() {
    let mut g = Graph::default();
    let x = float(&mut g, "x", &[1, 1, 1 << 16, 1 << 16], Role::Input);
    let attributes = Attributes::from([
        ("kernel_shape", Attribute::Ints(vec![2, 2])),
        ("pads", Attribute::Ints(vec![1, 1, 0, 0])),
    ]);
    let y = g.push("AveragePool", attributes, &[x], "y").unwrap();
    assert!(peak(g, y).unwrap() > 3 * (4 << 32));
}

#[test]
fn rows_that_a_scatter_picks_are_counted_and_not_made() {
    let mut g = Graph::default();
    let x = float(&mut g, "x", &[1 << 33, 1], Role::Input);
    let updates = float(&mut g, "updates", &[1, 1], Role::Input);
    let at = g.add_constant("at", Value::filled(DType::Int64, &[1, 1], 5.into()).unwrap());
    let y = g.push("ScatterND", Attributes::default(), &[x, at, updates], "y").unwrap();
    assert!(peak(g, y).unwrap() > 3 * (4 << 33));
}

#[test]
fn copies_that_are_joined_are_limited() {
    let tiled = |times: i64| {
        let mut g = Graph::default();
        let x = float(&mut g, "x", &[1], Role::Input);
        let times = ints(&mut g, "times", &[times]);
        let y = g.push("Tile", Attributes::default(), &[x, times], "y").unwrap();
        peak(g, y)
    };
    assert!(tiled(1 << 10).is_ok());
    assert!(tiled(1 << 40).unwrap_err().contains("1099511627776 copies to join"));
}

#[test]
fn steps_that_are_written_out_are_limited() {
    let lstm = |steps: u64| {
        let mut g = Graph::default();
        let x = float(&mut g, "x", &[steps, 1, 4], Role::Input);
        let w = float(&mut g, "w", &[1, 16, 4], Role::Initializer);
        let r = float(&mut g, "r", &[1, 16, 4], Role::Initializer);
        let attributes = Attributes::from([("hidden_size", Attribute::Int(4))]);
        let y = g.push("LSTM", attributes, &[x, w, r], "y").unwrap();
        peak(g, y)
    };
    assert!(lstm(1 << 10).is_ok());
    for steps in [0, 1 << 20, 100_000_000] {
        let problem = lstm(steps).unwrap_err();
        assert!(problem.contains("steps"), "{problem}");
    }
}
