//! Tables whose use tells what they are, one rule after the other.

use super::*;
use crate::parameters::by_graph;
use memfit_graph::{Attribute, Attributes, Binding, DType, Role, Type, infer};

fn float(g: &mut Graph, name: &str, shape: &[u64], role: Role) -> TensorId {
    let id = g.add_tensor(name, Type::tensor(DType::Float32, Shape::from(shape)), role);
    if role == Role::Input {
        g.inputs.push(id);
    }
    id
}

fn kind(g: &Graph, t: TensorId) -> Stored {
    let inferred = infer(g, &Binding::default()).unwrap();
    by_graph(g, &inferred)[t.index()].unwrap()
}

#[test]
fn coordinates_are_a_buffer_and_learned_queries_are_not() {
    for (columns, expected) in [(2, Stored::Buffer), (64, Stored::Parameter)] {
        let mut g = Graph::default();
        let table = float(&mut g, "attn.table", &[1, 9, columns], Role::Initializer);
        let weight = float(&mut g, "attn.mlp.weight", &[columns, 16], Role::Initializer);
        g.push("MatMul", Attributes::default(), &[table, weight], "y").unwrap();
        assert_eq!(kind(&g, table), expected);
    }
}

#[test]
fn what_inputs_are_normalized_with_is_a_buffer_before_any_layer() {
    for (op, shape, after_layer, expected) in [
        ("Sub", &[16][..], false, Stored::Buffer),
        ("Div", &[1, 16], false, Stored::Buffer),
        ("Sub", &[16], true, Stored::Parameter),
        ("Sub", &[4, 16], false, Stored::Parameter),
        ("Mul", &[16], false, Stored::Parameter),
    ] {
        let mut g = Graph::default();
        let mut x = float(&mut g, "x", &[4, 16], Role::Input);
        g.inputs = vec![x];
        if after_layer {
            let weight = float(&mut g, "fc.weight", &[16, 16], Role::Initializer);
            x = g.push("MatMul", Attributes::default(), &[x, weight], "h").unwrap();
        }
        let stored = float(&mut g, "stored", shape, Role::Initializer);
        g.push(op, Attributes::default(), &[x, stored], "y").unwrap();
        assert_eq!(kind(&g, stored), expected, "{op} {shape:?}");
    }
}

#[test]
fn a_square_with_its_complement_is_a_mask() {
    for (shape, one, expected) in [
        ([1, 1, 8, 8], 1.0, Stored::Buffer),
        ([1, 1, 1, 8], 1.0, Stored::Parameter),
        ([1, 1, 8, 8], 2.0, Stored::Parameter),
    ] {
        let mut g = Graph::default();
        let mask = float(&mut g, "attn.bias", &shape, Role::Initializer);
        let one = g.add_constant("one", memfit_graph::Value::scalar(DType::Float32, one));
        g.push("Sub", Attributes::default(), &[one, mask], "y").unwrap();
        assert_eq!(kind(&g, mask), expected);
    }
}

#[test]
fn masks_of_weights_and_of_scores_are_buffers() {
    for (names, shape, expected) in [
        (["fc.weight_mask", "fc.weight_orig"], [8, 4], [Stored::Buffer, Stored::Parameter]),
        (["w1", "m1"], [8, 4], [Stored::Parameter, Stored::Buffer]),
        (["scale.weight", "gain.weight"], [1, 1], [Stored::Parameter, Stored::Parameter]),
    ] {
        let mut g = Graph::default();
        let [a, b] = names.map(|name| float(&mut g, name, &shape, Role::Initializer));
        g.push("Mul", Attributes::default(), &[a, b], "y").unwrap();
        let tril = float(&mut g, "tril", &[64, 64], Role::Initializer);
        let zero = g.add_constant("zero", memfit_graph::Value::scalar(DType::Float32, 0.0));
        g.push("Equal", Attributes::default(), &[tril, zero], "masked").unwrap();
        let [q, k] = ["q", "k"].map(|name| float(&mut g, name, &[2, 8, 8], Role::Input));
        let scores = g.push("MatMul", Attributes::default(), &[q, k], "scores").unwrap();
        let decay = float(&mut g, "decay", &[2, 8, 8], Role::Initializer);
        g.push("Mul", Attributes::default(), &[scores, decay], "decayed").unwrap();
        assert_eq!([kind(&g, a), kind(&g, b)], expected);
        assert_eq!([kind(&g, tril), kind(&g, decay)], [Stored::Buffer; 2]);
    }
}

#[test]
fn positions_of_a_convolved_signal_are_fixed_unless_its_windows_are_patches() {
    for (stride, length, expected) in [(2, 5, Stored::Frozen), (3, 4, Stored::Parameter)] {
        let mut g = Graph::default();
        let x = float(&mut g, "x", &[1, 8, 12], Role::Input);
        let weight = float(&mut g, "conv.weight", &[16, 8, 3], Role::Initializer);
        let strides = Attributes::from([("strides", Attribute::Ints(vec![stride]))]);
        let y = g.push("Conv", strides, &[x, weight], "convolved").unwrap();
        let y = g
            .push("Transpose", Attributes::from([("perm", Attribute::Ints(vec![0, 2, 1]))]), &[y], "t")
            .unwrap();
        let table = float(&mut g, "positions.weight", &[length, 16], Role::Initializer);
        g.push("Add", Attributes::default(), &[y, table], "y").unwrap();
        assert_eq!(kind(&g, table), expected);
    }
}

#[test]
fn words_that_a_convolution_is_added_to_are_trained() {
    let mut g = Graph::default();
    let ids = g.add_tensor("ids", Type::tensor(DType::Int64, Shape::from([1, 12])), Role::Input);
    g.inputs = vec![ids];
    let table = float(&mut g, "words.weight", &[50, 8], Role::Initializer);
    let rows = g.push("Gather", Attributes::default(), &[table, ids], "rows").unwrap();
    let turned = Attributes::from([("perm", Attribute::Ints(vec![0, 2, 1]))]);
    let x = g.push("Transpose", turned, &[rows], "x").unwrap();
    let weight = float(&mut g, "conv.weight", &[8, 8, 3], Role::Initializer);
    let pads = Attributes::from([("pads", Attribute::Ints(vec![1, 1]))]);
    let y = g.push("Conv", pads, &[x, weight], "convolved").unwrap();
    g.push("Add", Attributes::default(), &[y, x], "y").unwrap();
    assert_eq!(kind(&g, table), Stored::Parameter);
}

#[test]
fn rows_that_rotate_by_position_are_fixed_and_those_of_a_class_are_not() {
    for (index, expected) in [(Role::Initializer, Stored::Frozen), (Role::Input, Stored::Parameter)] {
        let mut g = Graph::default();
        let x = float(&mut g, "x", &[4, 8], Role::Input);
        let table = float(&mut g, "positions.weight", &[9, 16], Role::Initializer);
        let at = g.add_tensor("at", Type::tensor(DType::Int64, Shape::from([4])), index);
        g.inputs = [x, at].into_iter().filter(|id| g.tensor(*id).role == Role::Input).collect();
        let rows = g.push("Gather", Attributes::default(), &[table, at], "rows").unwrap();
        let halves = ["sin", "cos"].map(|name| g.add_tensor(name, Type::Unknown, Role::Intermediate));
        let split = memfit_graph::find_op("", "Split", 18).unwrap();
        let attributes = Attributes::from([("axis", Attribute::Int(1)), ("num_outputs", Attribute::Int(2))]);
        let split = split.build(attributes, 18).unwrap();
        g.add_node("split", split, vec![Some(rows)], halves.map(Some).to_vec());
        g.push("Mul", Attributes::default(), &[x, halves[1]], "y").unwrap();
        assert_eq!(kind(&g, table), expected);
    }
}

#[test]
fn a_row_on_the_logits_is_a_buffer_unless_the_layer_has_its_bias_there() {
    for (shape, expected) in [(&[1, 16][..], Stored::Buffer), (&[16], Stored::Parameter)] {
        let mut g = Graph::default();
        let x = float(&mut g, "x", &[4, 8], Role::Input);
        let weight = float(&mut g, "head.weight", &[8, 16], Role::Initializer);
        let row = float(&mut g, "head.row", shape, Role::Initializer);
        let y = g.push("MatMul", Attributes::default(), &[x, weight], "m").unwrap();
        let y = g.push("Add", Attributes::default(), &[y, row], "y").unwrap();
        g.outputs = vec![y];
        assert_eq!(kind(&g, row), expected);
    }
}

#[test]
fn looked_up_rows_and_an_expanded_token_are_parameters() {
    let mut g = Graph::default();
    let x = float(&mut g, "x", &[1, 4, 8], Role::Input);
    let at = g.add_tensor("at", Type::tensor(DType::Int64, Shape::from([1, 4])), Role::Input);
    g.inputs.push(at);
    let table = float(&mut g, "val_2", &[9, 8], Role::Initializer);
    let token = float(&mut g, "expand", &[1, 1, 8], Role::Initializer);
    let rows = g.push("Gather", Attributes::default(), &[table, at], "rows").unwrap();
    let y = g.push("Add", Attributes::default(), &[x, rows], "sum").unwrap();
    g.push("Concat", Attributes::from([("axis", Attribute::Int(1))]), &[token, y], "y").unwrap();
    assert_eq!((kind(&g, table), kind(&g, token)), (Stored::Parameter, Stored::Parameter));
}
