//! The messages of `onnx.proto`, by the numbers of their fields.

use crate::wire::Message;

const FLOAT: u64 = 1;
const INT64: u64 = 7;

/// A graph under construction. Its weights lie in a file of their own, which does not exist.
#[derive(Default)]
pub(crate) struct Builder {
    graph: Message,
    nodes: usize,
    weights: u64,
}

impl Builder {
    /// How many nodes it has.
    pub(crate) fn nodes(&self) -> usize {
        self.nodes
    }

    /// A weight of floats.
    pub(crate) fn weight(&mut self, dims: &[u64]) -> String {
        let name = format!("w{}", self.weights);
        self.weights += 1;
        let entry = |key: &str, value: &str| Message::default().bytes(1, key).bytes(2, value);
        let tensor = tensor(&name, FLOAT, dims).bytes(13, entry("location", "weights.bin")).number(14, 1);
        self.graph = std::mem::take(&mut self.graph).bytes(5, tensor);
        name
    }

    /// A small constant of integers.
    pub(crate) fn integers(&mut self, values: &[i64]) -> String {
        let raw: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.constant(INT64, &[values.len() as u64], &raw)
    }

    /// A constant of one number.
    pub(crate) fn number(&mut self, value: f32) -> String {
        self.constant(FLOAT, &[], &value.to_le_bytes())
    }

    fn constant(&mut self, dtype: u64, dims: &[u64], raw: &[u8]) -> String {
        let name = format!("c{}", self.weights);
        self.weights += 1;
        self.graph = std::mem::take(&mut self.graph).bytes(5, tensor(&name, dtype, dims).bytes(9, raw));
        name
    }

    /// A node with one output, whose name is given back; `attributes` are lists of integers.
    pub(crate) fn node(&mut self, op: &str, inputs: &[&str], attributes: &[(&str, &[i64])]) -> String {
        let output = format!("t{}", self.nodes);
        self.nodes += 1;
        let mut node = Message::default();
        for input in inputs {
            node = node.bytes(1, input);
        }
        node = node.bytes(2, &output).bytes(3, format!("/{op}_{output}")).bytes(4, op);
        for (name, values) in attributes {
            let mut attribute = Message::default().bytes(1, name).number(20, 7);
            for value in *values {
                attribute = attribute.number(8, *value as u64);
            }
            node = node.bytes(5, attribute);
        }
        self.graph = std::mem::take(&mut self.graph).bytes(1, node);
        output
    }

    /// The model from an input of tokens, batch and sequence open, to an output.
    pub(crate) fn finish(self, output: &str) -> Vec<u8> {
        let dim = |name: &str| Message::default().bytes(2, name);
        let shape = Message::default().bytes(1, dim("batch")).bytes(1, dim("sequence"));
        let value = |name: &str, tensor: Message| {
            Message::default().bytes(1, name).bytes(2, Message::default().bytes(1, tensor))
        };
        let tokens = value("tokens", Message::default().number(1, INT64).bytes(2, shape));
        let output = value(output, Message::default().number(1, FLOAT));
        model(&self.graph.bytes(2, "bench").bytes(11, tokens).bytes(12, output))
    }
}

/// A tensor without its elements.
pub(crate) fn tensor(name: &str, dtype: u64, dims: &[u64]) -> Message {
    let dims = dims.iter().fold(Message::default(), |message, dim| message.number(1, *dim));
    dims.number(2, dtype).bytes(8, name)
}

/// A model around a graph.
pub(crate) fn model(graph: &Message) -> Vec<u8> {
    head().bytes(7, graph).0
}

/// What stands before the graph.
pub(crate) fn head() -> Message {
    let opset = Message::default().bytes(1, "").number(2, 17);
    Message::default().number(1, 8).bytes(2, "memfit-bench").bytes(8, opset)
}
