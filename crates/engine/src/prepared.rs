//! A graph made ready to be run: branches and loops written out, what exporters broke put back together.
//!
//! Most of it is done once for all sizes. How often a loop runs may depend on a size that is given later, on a length or on
//! an input that holds the number; such a graph is made ready again for the sizes of each estimate.

use crate::{Plan, Structure, recompose};
use memfit_graph::{Binding, Graph, Inferred, Problem, infer};
use std::sync::OnceLock;

/// A graph as the framework runs it, with what was done to get there.
#[derive(Clone)]
pub(crate) struct Prepared {
    pub(crate) graph: Graph,
    pub(crate) structure: Structure,
    pub(crate) report: recompose::Report,
}

/// What was prepared with options that are not the usual ones, in the order in which it was first asked for.
#[derive(Default)]
pub(crate) struct Variants(OnceLock<Box<(recompose::Options, Prepared, Variants)>>);

impl Variants {
    /// The graph prepared with these options, made where it is not there yet.
    pub(crate) fn of(
        &self,
        options: recompose::Options,
        make: impl Fn(recompose::Options) -> Prepared,
    ) -> &Prepared {
        let first = || Box::new((options, make(options), Variants::default()));
        let (made_with, prepared, others) = &**self.0.get_or_init(first);
        if *made_with == options { prepared } else { others.of(options, make) }
    }
}

/// Writes out the branches and loops that these sizes decide. Gives what is inferred of the graph then, and whether there was
/// one; a model whose shapes contradict each other says so when it is estimated.
fn write_out(graph: &mut Graph, binding: &Binding) -> (Result<Inferred, Vec<Problem>>, bool) {
    let mut inferred = infer(graph, binding);
    let mut found = false;
    while inferred.as_ref().is_ok_and(|known| graph.inline_branches(known) || graph.unroll_loops(known)) {
        found = true;
        inferred = infer(graph, binding);
    }
    (inferred, found)
}

/// A file's graph with what it decides by itself written out, and what is inferred of it.
fn of_file(source: &Graph) -> (Graph, Result<Inferred, Vec<Problem>>) {
    let mut graph = source.clone();
    graph.store_generated_weights();
    if graph.has_bodies()
        && let Ok(known) = infer(&graph, &Binding::default())
    {
        recompose::loops(&mut graph, &known);
    }
    let (inferred, _) = write_out(&mut graph, &Binding::default());
    (graph, inferred)
}

/// The graph put back as the framework runs it.
fn recomposed(
    mut graph: Graph,
    inferred: Result<Inferred, Vec<Problem>>,
    options: recompose::Options,
) -> Prepared {
    let report = match inferred {
        Ok(inferred) => recompose::recompose(&mut graph, &inferred, &options),
        Err(_) => recompose::Report::default(),
    };
    let structure = Structure::new(&graph, infer(&graph, &Binding::default()).ok().as_ref());
    Prepared { graph, structure, report }
}

/// What is the same for all sizes.
pub(crate) fn prepare(source: &Graph, options: recompose::Options) -> Prepared {
    let (graph, inferred) = of_file(source);
    recomposed(graph, inferred, options)
}

/// The same where sizes decide more branches and loops than the file alone; `None` where they do not.
pub(crate) fn prepare_for(
    source: &Graph,
    binding: &Binding,
    options: recompose::Options,
) -> Option<Prepared> {
    let (mut graph, _) = of_file(source);
    if !graph.has_bodies() || !write_out(&mut graph, binding).1 {
        return None;
    }
    let inferred = infer(&graph, &Binding::default());
    Some(recomposed(graph, inferred, options))
}

/// What of a plan decides how a graph is prepared.
pub(crate) fn options(plan: &Plan) -> recompose::Options {
    recompose::Options {
        assume_batchnorm: plan.assume_batchnorm,
        assume_dropout: plan.assume_dropout,
        composed_attention: plan.composed_attention,
        tied_embeddings: plan.tied_embeddings,
    }
}

#[cfg(test)]
mod tests {
    use crate::{Model, Plan};
    use memfit_graph::{
        Attribute, Attributes, Binding, DType, Graph, Role, Shape, TensorId, Type, Value, find_op,
    };

    fn input(g: &mut Graph, name: &str, ty: Type) -> TensorId {
        let id = g.add_tensor(name, ty, Role::Input);
        g.inputs.push(id);
        id
    }

    /// x = tanh(x), as often as an input says.
    fn counted() -> Model {
        let mut body = Graph::default();
        let [_, condition, x] = ["i", "c", "x"].map(|name| input(&mut body, name, Type::Unknown));
        let y = body.push("Tanh", Attributes::default(), &[x], "y").unwrap();
        body.outputs = vec![condition, y];
        let mut g = Graph::default();
        let float = |dims: &[u64]| Type::tensor(DType::Float32, Shape::from(dims));
        let x = input(&mut g, "x", float(&[2, 128]));
        let n = input(&mut g, "n", Type::tensor(DType::Int64, Shape::scalar()));
        let w = g.add_tensor("w", float(&[128, 128]), Role::Initializer);
        let h = g.push("MatMul", Attributes::default(), &[x, w], "h").unwrap();
        let attributes = Attributes::from([("body", Attribute::Graph(Box::new(body)))]);
        let op = find_op("", "Loop", 13).unwrap().build(attributes, 13).unwrap();
        let last = g.add_tensor("last", Type::Unknown, Role::Intermediate);
        g.add_node("loop", op, vec![Some(n), None, Some(h)], vec![Some(last)]);
        g.outputs = vec![last];
        Model::new(g, "m", "onnx", 2)
    }

    #[test]
    fn each_set_of_options_has_a_graph_of_its_own() {
        let model = counted();
        let flags = [false, true];
        let mut plans = Vec::new();
        for assume_batchnorm in flags {
            for assume_dropout in flags {
                for composed_attention in flags {
                    for tied_embeddings in [None, Some(false), Some(true)] {
                        let plan = Plan { assume_batchnorm, assume_dropout, ..Plan::default() };
                        plans.push(Plan { composed_attention, tied_embeddings, ..plan });
                    }
                }
            }
        }
        let graph = |plan: &Plan| std::ptr::from_ref(model.recomposed(plan));
        let graphs: Vec<_> = plans.iter().map(graph).collect();
        assert!((1..graphs.len()).all(|i| !graphs[..i].contains(&graphs[i])));
        // Asked for again it is not made again.
        assert!(plans.iter().rev().map(graph).eq(graphs.iter().rev().copied()));
    }

    #[test]
    fn a_loop_runs_as_often_as_an_input_that_is_given_later_says() {
        let model = counted();
        let saved = |n: i64| {
            let values = [("n".to_owned(), Value::scalar(DType::Int64, n))].into();
            let binding = Binding { values, ..Binding::default() };
            let estimate = model.estimate(&binding, &Plan::default()).unwrap();
            assert!(estimate.unknown.is_empty(), "{:?}", estimate.unknown);
            // What a real step runs is what is estimated.
            let setting = model.setting(&binding, &Plan::default()).unwrap();
            assert_eq!(
                setting.graph.nodes.iter().filter(|node| node.op.name() == "Tanh").count(),
                n as usize
            );
            estimate.saved_for_backward.0
        };
        // Each tanh keeps its result.
        assert_eq!(saved(7) - saved(4), 3 * 2 * 128 * 4);
        assert_eq!(model.estimate(&Binding::default(), &Plan::default()).unwrap().unknown, ["Loop"]);
    }
}
