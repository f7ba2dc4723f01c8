//! What `inspect` shows of a model: every tensor with its type, without a word about training.

pub mod json;
pub mod text;

use memfit_graph::{Graph, Inferred};
use std::collections::BTreeMap;

/// A graph with what is known of it.
#[derive(Clone, Copy, Debug)]
pub struct Inspection<'a> {
    /// The model's name.
    pub name: &'a str,
    /// `onnx` or `keras`.
    pub format: &'a str,
    /// What wrote the file, as the file says it.
    pub producer: &'a str,
    /// The opset of the default domain, where the format has one.
    pub opset: Option<i64>,
    /// Nodes in the file, bodies included.
    pub operators: u64,
    /// The graph.
    pub graph: &'a Graph,
    /// The type of every tensor.
    pub inferred: &'a Inferred,
    /// What the importer warns about.
    pub warnings: &'a [String],
}

impl Inspection<'_> {
    /// How often each operator type occurs in the graph, by name.
    fn histogram(&self) -> BTreeMap<&str, u64> {
        let mut histogram = BTreeMap::new();
        for node in &self.graph.nodes {
            *histogram.entry(node.op.name()).or_default() += 1;
        }
        histogram
    }

    /// The operator types that memfit has no rule for, by name.
    fn unknown(&self) -> Vec<&str> {
        let unknown = |n: &&memfit_graph::Node| n.op.downcast::<memfit_graph::UnknownOp>().is_some();
        let names = self.graph.nodes.iter().filter(unknown).map(|n| n.op.name());
        names.collect::<std::collections::BTreeSet<_>>().into_iter().collect()
    }
}
