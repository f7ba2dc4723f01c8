//! Networks of published TensorFlow measurements that no file lies ready of, as Keras 2 would write them: its layers run the fused
//! kernels that TensorFlow 1.x had.

use serde_json::{Value, json};

/// A functional model as it grows.
#[derive(Default)]
pub(super) struct Net {
    layers: Vec<Value>,
}

impl Net {
    pub(super) fn input(&mut self, shape: &[u64]) -> String {
        let mut full = vec![Value::Null];
        full.extend(shape.iter().map(|d| json!(d)));
        self.layer("InputLayer", json!({ "batch_input_shape": full, "dtype": "float32" }), &[])
    }

    /// Adds a layer; gives its name.
    pub(super) fn layer(&mut self, class: &str, mut config: Value, from: &[&str]) -> String {
        let name = format!("{}_{}", class.to_lowercase(), self.layers.len());
        config["name"] = json!(name);
        let calls: Vec<Value> = from.iter().map(|from| json!([from, 0, 0, {}])).collect();
        let nodes = if calls.is_empty() { json!([]) } else { json!([calls]) };
        self.layers
            .push(json!({ "class_name": class, "config": config, "name": name, "inbound_nodes": nodes }));
        name
    }

    pub(super) fn grouped(&mut self, x: &str, filters: u64, side: u64, stride: u64, groups: u64) -> String {
        let config = json!({ "filters": filters, "kernel_size": [side, side], "strides": [stride, stride], "padding": "same",
            "groups": groups, "use_bias": false });
        self.layer("Conv2D", config, &[x])
    }

    /// A convolution over a copy of `x` with zeros around it (`tf.pad`, then padding VALID).
    pub(super) fn padded_conv(&mut self, x: &str, filters: u64, side: u64, stride: u64) -> String {
        let zeros = side / 2;
        let padded = match zeros {
            0 => x.to_owned(),
            _ => self.layer("ZeroPadding2D", json!({ "padding": zeros }), &[x]),
        };
        let config = json!({ "filters": filters, "kernel_size": [side, side], "strides": [stride, stride], "padding": "valid",
            "use_bias": false });
        self.layer("Conv2D", config, &[&padded])
    }

    pub(super) fn norm(&mut self, x: &str) -> String {
        self.layer("BatchNormalization", json!({ "axis": [3] }), &[x])
    }

    pub(super) fn relu(&mut self, x: &str) -> String {
        self.layer("Activation", json!({ "activation": "relu" }), &[x])
    }

    pub(super) fn norm_relu(&mut self, x: &str) -> String {
        let x = self.norm(x);
        self.relu(&x)
    }

    pub(super) fn pool(&mut self, x: &str, side: u64, stride: u64) -> String {
        let config = json!({ "pool_size": [side, side], "strides": [stride, stride], "padding": "same" });
        self.layer("MaxPooling2D", config, &[x])
    }

    pub(super) fn dense(&mut self, x: &str, units: u64, activation: &str) -> String {
        self.layer("Dense", json!({ "units": units, "activation": activation }), &[x])
    }

    pub(super) fn add(&mut self, x: &str, y: &str) -> String {
        self.layer("Add", json!({}), &[x, y])
    }

    /// The config of the model that gives `outputs`.
    pub(super) fn model(self, outputs: &[&str]) -> String {
        let inputs = self.layers.iter().filter(|l| l["class_name"] == "InputLayer");
        let inputs: Vec<Value> = inputs.map(|l| json!([l["name"], 0, 0])).collect();
        let outputs: Vec<Value> = outputs.iter().map(|name| json!([name, 0, 0])).collect();
        let config =
            json!({ "name": "net", "layers": self.layers, "input_layers": inputs, "output_layers": outputs });
        // These programs step by TensorFlow 1's kernels, as Keras did before 2.11.
        json!({ "class_name": "Functional", "config": config, "keras_version": "2.10.0", "backend": "tensorflow" })
            .to_string()
    }
}
