//! Forms of config that Keras writes or wrote, each in small.

#![allow(clippy::unwrap_used)]

use memfit_graph::{Dim, Graph, Penalty, Variable};
use memfit_keras::{Keras, Model, Options, import};
use serde_json::{Value, json};

fn read(config: Value) -> Model {
    import(config.to_string().as_bytes(), &Options::default()).unwrap_or_else(|p| panic!("{p:?}"))
}

fn shape(graph: &Graph, name: &str) -> String {
    graph.tensor(graph.find(name).unwrap()).declared.shape().unwrap().to_string()
}

fn parameters(graph: &Graph) -> u64 {
    let stored = graph.tensors.iter().filter(|t| t.variable == Some(Variable::Trainable));
    stored.map(|t| t.declared.shape().unwrap().elements().unwrap()).sum()
}

fn input(name: &str, dims: Value) -> Value {
    json!({"class_name": "InputLayer", "name": name, "config": {"name": name, "batch_input_shape": dims}, "inbound_nodes": []})
}

fn functional(layers: Vec<Value>, inputs: Value, outputs: Value) -> Value {
    let config = json!({"name": "f", "layers": layers, "input_layers": inputs, "output_layers": outputs});
    json!({"class_name": "Functional", "config": config, "keras_version": "2.12.0"})
}

#[test]
fn a_sequential_model_of_keras_2_1_is_a_list() {
    let dense = json!({"class_name": "Dense", "config": {"name": "d", "units": 3, "batch_input_shape": [null, 4], "dtype": "float32"}});
    let model = read(json!({"class_name": "Sequential", "config": [dense], "keras_version": "2.1.6"}));
    assert_eq!((model.keras, &*model.producer), (Some(Keras::V2(1)), "keras 2.1.6"));
    assert_eq!((parameters(&model.graph), &*shape(&model.graph, "d")), (15, "batchx3"));
    assert_eq!(&*model.graph.tensor(model.graph.inputs[0]).name, "d_input");
}

#[test]
fn functions_of_tensorflow_between_layers() {
    let lambda = |name: &str, class: &str, function: &str, node: Value| json!({"class_name": class, "name": name, "config": {"name": name, "function": function, "dtype": "float32"}, "inbound_nodes": [node]});
    let slice =
        json!([{"start": null, "stop": null, "step": null}, {"start": 1, "stop": null, "step": null}]);
    let layers = vec![
        input("x", json!([null, 8, 4])),
        lambda("add", "TFOpLambda", "__operators__.add", json!(["x", 0, 0, {"y": 3.0, "name": null}])),
        lambda(
            "cut",
            "SlicingOpLambda",
            "__operators__.getitem",
            json!(["add", 0, 0, {"slice_spec": slice}]),
        ),
        lambda(
            "mean",
            "TFOpLambda",
            "math.reduce_mean",
            json!(["cut", 0, 0, {"axis": -1, "keepdims": true}]),
        ),
        lambda("cat", "TFOpLambda", "concat", json!([["mean", 0, 0, {"axis": 1}], ["mean", 0, 0, {}]])),
        lambda(
            "rev",
            "TFOpLambda",
            "math.subtract",
            json!(["_CONSTANT_VALUE", -1, 1.0, {"y": ["cat", 0, 0]}]),
        ),
    ];
    let model = read(functional(layers, json!([["x", 0, 0]]), json!([["rev", 0, 0]])));
    let shapes = ["add", "cut", "mean", "cat", "rev"].map(|name| shape(&model.graph, name));
    assert_eq!(shapes, ["batchx8x4", "batchx7x4", "batchx7x1", "batchx14x1", "batchx14x1"]);
}

#[test]
fn tensors_among_the_named_arguments_of_keras_2() {
    let attention = json!({"class_name": "MultiHeadAttention", "name": "mha", "config": {"name": "mha", "num_heads": 2, "key_dim": 3, "output_shape": null},
        "inbound_nodes": [[["q", 0, 0, {"value": ["v", 0, 0], "return_attention_scores": true}]]]});
    let layers = vec![input("q", json!([null, 5, 8])), input("v", json!([null, null, 4])), attention];
    let model =
        read(functional(layers, json!([["q", 0, 0], ["v", 0, 0]]), json!([["mha", 0, 0], ["mha", 0, 1]])));
    let kernels = 8 * 6 + 4 * 6 + 4 * 6 + 6 * 8;
    assert_eq!(parameters(&model.graph), kernels + 6 * 3 + 8);
    assert_eq!(shape(&model.graph, "mha"), "batchx5x8");
    assert_eq!(model.graph.tensor(model.graph.inputs[1]).declared.shape().unwrap()[1], Dim::symbol("v_d1"));
}

#[test]
fn a_lambda_gives_what_the_next_layer_was_built_for() {
    let layer =
        |class: &str, config: Value| json!({"module": "keras.layers", "class_name": class, "config": config});
    let mut dense = layer("Dense", json!({"name": "d", "units": 2}));
    dense["build_config"] = json!({"input_shape": [null, 6]});
    let first = layer("InputLayer", json!({"name": "x", "batch_shape": [null, 3, 2]}));
    let lambda = layer("Lambda", json!({"name": "l", "function": {"class_name": "__lambda__"}}));
    let config = json!({"name": "s", "layers": [first, lambda, dense]});
    let model = read(json!({"module": "keras", "class_name": "Sequential", "config": config}));
    assert_eq!((&*shape(&model.graph, "l"), parameters(&model.graph)), ("batchx6", 14));
}

#[test]
fn a_layer_that_stands_in_two_models_has_its_variables_once() {
    let dense = |at: Value| json!({"class_name": "Dense", "name": "d", "config": {"name": "d", "units": 4}, "shared_object_id": 7, "inbound_nodes": at});
    let mut inner = functional(
        vec![input("y", json!([null, 4])), dense(json!([[["y", 0, 0, {}]]]))],
        json!([["y", 0, 0]]),
        json!([["d", 0, 0]]),
    );
    inner["name"] = json!("inner");
    inner["config"]["name"] = json!("inner");
    inner["inbound_nodes"] = json!([[["d", 0, 0, {}]]]);
    let layers = vec![input("x", json!([null, 4])), dense(json!([[["x", 0, 0, {}]]])), inner];
    let model = read(functional(layers, json!(["x", 0, 0]), json!(["inner", 0, 0])));
    assert_eq!((model.graph.nodes.len(), parameters(&model.graph)), (2, 20));
    assert_eq!(&*model.graph.nodes[1].scope, "inner/d");
}

#[test]
fn a_layer_of_a_frozen_model_may_train_in_keras_3_alone() {
    let dense = |name: &str, trainable: bool| json!({"class_name": "Dense", "config": {"name": name, "units": 3, "trainable": trainable}});
    let within =
        json!({"name": "inner", "trainable": false, "layers": [dense("a", false), dense("b", true)]});
    let inner = json!({"class_name": "Sequential", "config": within});
    let model = |version: &str, trainable: bool| {
        let input =
            json!({"class_name": "InputLayer", "config": {"name": "x", "batch_input_shape": [null, 3]}});
        let layers = json!({"name": "m", "trainable": trainable, "layers": [input, inner, dense("c", true)]});
        read(json!({"class_name": "Sequential", "config": layers, "keras_version": version}))
    };
    assert_eq!(parameters(&model("3.15.0", true).graph), 24);
    assert_eq!(parameters(&model("3.15.0", false).graph), 0);
    assert_eq!(parameters(&model("2.15.0", true).graph), 12);
}

#[test]
fn calls_of_models_within_are_counted_as_each_keras_counts_them() {
    let dense = json!({"class_name": "Dense", "name": "d", "config": {"name": "d", "units": 3}, "inbound_nodes": [[["i", 0, 0, {}]]]});
    let tower = |nodes: Value| {
        let inner = functional(
            vec![input("i", json!([null, null, 4])), dense.clone()],
            json!([["i", 0, 0]]),
            json!([["d", 0, 0]]),
        );
        json!({"class_name": "Functional", "name": "t", "config": inner["config"], "inbound_nodes": nodes})
    };
    let inputs = || vec![input("a", json!([null, 5, 4])), input("b", json!([null, 7, 4]))];
    let ends = json!([["a", 0, 0], ["b", 0, 0]]);
    let outputs = |model: Model| {
        let graph = &model.graph;
        let of = |id: &memfit_graph::TensorId| graph.tensor(*id).declared.shape().unwrap().to_string();
        graph.outputs.iter().map(of).collect::<Vec<_>>()
    };

    // Keras 3: the first of two calls is 1 where the model ends, 0 where a layer reads it.
    let called = |layer: &str| json!({"args": [{"class_name": "__keras_tensor__", "config": {"shape": [null, null, 4], "dtype": "float32", "keras_history": [layer, 0, 0]}}], "kwargs": {}});
    let relu =
        json!({"class_name": "ReLU", "name": "r", "config": {"name": "r"}, "inbound_nodes": [called("t")]});
    let layers = [inputs(), vec![tower(json!([called("a"), called("b")])), relu]].concat();
    let model = read(functional(layers.clone(), ends.clone(), json!([["t", 1, 0], ["r", 0, 0]])));
    assert_eq!(outputs(model), ["batchx5x3", "batchx5x3"]);
    let model = read(functional(layers, ends.clone(), json!([["t", 2, 0]])));
    assert_eq!(outputs(model), ["batchx7x3"]);

    // Keras 2: it is 1 for whoever reads it.
    let relu = json!({"class_name": "ReLU", "name": "r", "config": {"name": "r"}, "inbound_nodes": [[["t", 1, 0, {}]]]});
    let called = json!([[["a", 0, 0, {}]], [["b", 0, 0, {}]]]);
    let layers = [inputs(), vec![tower(called), relu]].concat();
    let model = read(functional(layers, ends, json!([["t", 2, 0], ["r", 0, 0]])));
    assert_eq!(outputs(model), ["batchx7x3", "batchx5x3"]);
}

#[test]
fn regularizers_are_read_in_each_form_and_through_wrappers() {
    let of = |name: &str, config: Value| json!({"module": "keras.regularizers", "class_name": name, "config": config});
    let dense = |regularizer: Value| json!({"class_name": "Dense", "config": {"name": "d", "units": 3, "kernel_regularizer": regularizer}});
    let lstm =
        json!({"class_name": "LSTM", "config": {"name": "l", "units": 2, "recurrent_regularizer": "l1l2"}});
    let wrapped =
        json!({"class_name": "TimeDistributed", "config": {"name": "d", "layer": dense(json!("l2"))}});
    let cases = [
        (dense(json!("l2")), "kernel", [false, true]),
        (dense(of("L1L2", json!({"l1": 0.5, "l2": 0.0}))), "kernel", [true, false]),
        (dense(of("L2", json!({"l2": 0.1}))), "bias", [false, false]),
        (dense(Value::Null), "kernel", [false, false]),
        (lstm, "recurrent_kernel", [true, true]),
        (wrapped, "kernel", [false, true]),
    ];
    for (layer, variable, [l1, l2]) in cases {
        let input = json!({"class_name": "InputLayer", "config": {"name": "i", "batch_shape": [null, 5, 4]}});
        let model = read(
            json!({"class_name": "Sequential", "config": {"name": "s", "layers": [input, layer]}, "keras_version": "3.5.0"}),
        );
        let tensors = model.graph.tensors.iter();
        let found =
            tensors.filter(|t| t.variable.is_some()).find(|t| t.name.rsplit('/').next() == Some(variable));
        assert_eq!(found.unwrap().penalty, Penalty { l1, l2 }, "{layer}");
    }
}
