//! Small graphs for the tests of the passes.

use super::{Options, Report, recompose};
use memfit_graph::{Attribute, Attributes, Binding, DType, Graph, Role, Shape, TensorId, Type, Value, infer};

/// A graph that is drawn node by node.
#[derive(Default)]
pub(super) struct Sketch {
    pub(super) graph: Graph,
    pub(super) report: Report,
    pub(super) options: Options,
}

impl Sketch {
    pub(super) fn input(&mut self, name: &str, shape: &[u64]) -> TensorId {
        let id = self.graph.add_tensor(name, Type::tensor(DType::Float32, Shape::from(shape)), Role::Input);
        self.graph.inputs.push(id);
        id
    }

    pub(super) fn weight(&mut self, name: &str, shape: &[u64]) -> TensorId {
        self.graph.add_tensor(name, Type::tensor(DType::Float32, Shape::from(shape)), Role::Initializer)
    }

    pub(super) fn scalar(&mut self, x: f64) -> TensorId {
        let name = format!("c{}", self.graph.tensors.len());
        self.graph.add_constant(name, Value::scalar(DType::Float32, x))
    }

    pub(super) fn whole(&mut self, n: i64) -> TensorId {
        let name = format!("c{}", self.graph.tensors.len());
        self.graph.add_constant(name, Value::scalar(DType::Int64, n))
    }

    pub(super) fn ints(&mut self, x: &[i64]) -> TensorId {
        let name = format!("c{}", self.graph.tensors.len());
        self.graph.add_constant(name, Value::vector(DType::Int64, x.iter().copied()))
    }

    pub(super) fn push(&mut self, op: &str, inputs: &[TensorId]) -> TensorId {
        self.push_with(op, Attributes::default(), inputs)
    }

    pub(super) fn push_with(&mut self, op: &str, attributes: Attributes, inputs: &[TensorId]) -> TensorId {
        let name = format!("{op}{}", self.graph.tensors.len());
        self.graph.push(op, attributes, inputs, &name).unwrap()
    }

    /// A Cast to float32.
    pub(super) fn cast(&mut self, x: TensorId) -> TensorId {
        self.push_with("Cast", Attributes::from([("to", Attribute::Int(1))]), &[x])
    }

    /// Runs all passes with `output` as the model's output; the names of the operators that are left.
    pub(super) fn recompose(&mut self, output: TensorId) -> Vec<&str> {
        self.graph.outputs = vec![output];
        let inferred = infer(&self.graph, &Binding::default()).unwrap();
        self.report = recompose(&mut self.graph, &inferred, &self.options);
        let after = infer(&self.graph, &Binding::default()).unwrap();
        assert_eq!(
            inferred.types[output.index()],
            after.types[output.index()],
            "the result changed its type"
        );
        self.graph.nodes.iter().map(|n| n.op.name()).collect()
    }

    /// The names of the tensors that a node reads.
    pub(super) fn inputs_of(&self, node: usize) -> Vec<&str> {
        let inputs = self.graph.nodes[node].inputs.iter().flatten();
        inputs.map(|t| &*self.graph.tensor(*t).name).collect()
    }
}
