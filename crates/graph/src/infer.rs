//! Shape, dtype and constant inference over a whole graph.
//!
//! One pass in topological order; each operator refines its outputs through an [`Infer`] context. All problems are
//! collected, not the first only. A file exported with fixed sizes is inferred as exported and then once more for each size
//! that is replaced (the batch, the length of a sequence), so that an operator with a baked size (`Reshape` to `[1, 12, 64]`)
//! can see which of its axes carried it.

use crate::binding::{batch_size, bind_type, bound_inputs, exported_type, replacements};
use crate::resized::{Earlier, obstacle};
use crate::{Binding, DType, Graph, Infer, OpError, Problem, Role, Shape, Type, Value};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is known of every tensor of a graph.
#[derive(Clone, Debug, Default)]
pub struct Inferred {
    /// The type of each tensor, by tensor index.
    pub types: Vec<Type>,
    /// The elements of each tensor that could be folded, by tensor index.
    pub values: Vec<Option<Arc<Value>>>,
    /// Whether a fixed batch was replaced by another.
    pub rebatched: bool,
    /// The batch size, where an input has a batch axis and its size is known.
    pub batch: Option<u64>,
}

impl Inferred {
    /// The shape of a tensor, where its rank is known.
    pub fn shape(&self, id: crate::TensorId) -> Option<&Shape> {
        self.types[id.index()].shape()
    }

    /// The dtype of a tensor.
    pub fn dtype(&self, id: crate::TensorId) -> DType {
        self.types[id.index()].dtype().unwrap_or(DType::Undefined)
    }

    /// The folded elements of a tensor.
    pub fn value(&self, id: crate::TensorId) -> Option<&Value> {
        self.values[id.index()].as_deref()
    }
}

/// Infers the type of every tensor under `binding`.
///
/// # Errors
/// All problems found: names that no input has, and nodes whose shapes do not go together.
pub fn infer(graph: &Graph, binding: &Binding) -> Result<Inferred, Vec<Problem>> {
    let inputs = bound_inputs(graph, binding)?;
    let exported: Vec<Known> = graph
        .inputs
        .iter()
        .zip(&inputs)
        .map(|(id, (new, value))| (exported_type(&graph.tensor(*id).declared, new), value.clone()))
        .collect();
    let symbols = &binding.symbols;
    let rebatched = inputs.iter().zip(&exported).any(|(new, old)| new.0 != old.0);
    let plain = rebatched.then(|| run(graph, &exported, &[], symbols, None, 0, &Cell::new(BODY_WORK)).0);
    let mut before: Option<Inferred> = None;
    let steps = if rebatched { replacements(&exported, &inputs) } else { vec![inputs] };
    for inputs in steps {
        let earlier = plain.as_ref().map(|plain| Earlier { plain, before: before.as_ref().unwrap_or(plain) });
        let (mut inferred, problems) = run(graph, &inputs, &[], symbols, earlier, 0, &Cell::new(BODY_WORK));
        if !problems.is_empty() {
            return Err(problems);
        }
        inferred.batch = batch_size(graph, &inputs);
        before = Some(inferred);
    }
    Ok(before.unwrap_or_default())
}

/// A type with the elements, where they could be folded.
pub(crate) type Known = (Type, Option<Arc<Value>>);

/// How many nodes and tensors of bodies are visited in one inference. Beyond it a body's outputs stay as declared, so that
/// loops within loops end.
const BODY_WORK: u64 = 1 << 20;

/// Infers one graph or body. `captured` are the outer graph's values that a body reads.
pub(crate) fn run(
    graph: &Graph,
    inputs: &[Known],
    captured: &[Known],
    symbols: &BTreeMap<String, u64>,
    earlier: Option<Earlier<'_>>,
    depth: u32,
    fuel: &Cell<u64>,
) -> (Inferred, Vec<Problem>) {
    let before = earlier.map(|e| e.before);
    let mut inferred = Inferred {
        types: Vec::with_capacity(graph.tensors.len()),
        values: graph.tensors.iter().map(|t| t.value.clone()).collect(),
        rebatched: before.is_some(),
        batch: None,
    };
    inferred.types.extend(graph.tensors.iter().map(|t| match t.role {
        Role::Initializer | Role::Constant => t.declared.clone(),
        Role::Input | Role::Intermediate => Type::Unknown,
    }));
    let fed = graph.inputs.iter().zip(inputs);
    let read = graph.captures.iter().filter_map(|(slot, id)| Some((id, captured.get(*slot)?)));
    for (id, (ty, value)) in fed.chain(read) {
        inferred.types[id.index()] = ty.clone();
        inferred.values[id.index()] = value.clone();
    }
    let mut problems = Vec::new();
    let mut outputs = Vec::new();
    for node in &graph.nodes {
        let mut cx = Infer::new(graph, node, &inferred, before, depth, fuel, outputs);
        let result = node.op.infer(&mut cx);
        outputs = cx.outputs;
        let stays = |e: Earlier<'_>| match result {
            Ok(()) => e.stays(node, &inferred, &outputs),
            Err(_) => e.has_followed(node, &inferred),
        };
        let stays = earlier.is_some_and(stays);
        match result {
            _ if stays => {
                for id in node.outputs.iter().flatten() {
                    earlier.into_iter().for_each(|e| e.keep(&mut inferred, *id));
                }
            }
            Ok(()) => {
                for (id, (ty, value)) in node.outputs.iter().zip(outputs.drain(..)) {
                    let Some(id) = id else { continue };
                    // A declared size is the exported batch's, so it says nothing once that is replaced.
                    let declared =
                        if before.is_none() { &graph.tensor(*id).declared } else { &Type::Unknown };
                    inferred.types[id.index()] = refine(ty, declared, symbols);
                    inferred.values[id.index()] = value.map(Arc::new);
                }
            }
            Err(OpError::Body(inner)) => problems.extend(inner),
            Err(error) => {
                let mut problem = Problem::new(&*node.name, error.to_string());
                problem.op = node.op.name().to_owned();
                if let Some(before) = before {
                    problem = problem.hint(obstacle(graph, node, before, &inferred));
                }
                problems.push(problem);
            }
        }
    }
    (inferred, problems)
}

/// What was inferred, completed by what the file declares: inference wins wherever it knows something.
fn refine(inferred: Type, declared: &Type, symbols: &BTreeMap<String, u64>) -> Type {
    match (inferred, declared) {
        (Type::Unknown, declared) => bind_type(declared, symbols),
        (Type::Tensor(mut t), Type::Tensor(d)) => {
            if t.dtype == DType::Undefined {
                t.dtype = d.dtype;
            }
            match (&mut t.shape, &d.shape) {
                (shape @ None, Some(declared)) => {
                    *shape = bind_type(&Type::tensor(d.dtype, declared.clone()), symbols).shape().cloned();
                }
                (Some(shape), Some(declared)) if shape.rank() == declared.rank() => {
                    for (dim, declared) in shape.dims_mut().iter_mut().zip(declared.dims()) {
                        if dim.known().is_none() && declared.known().is_some() {
                            *dim = declared.clone();
                        }
                    }
                }
                _ => {}
            }
            Type::Tensor(t)
        }
        (ty, _) => ty,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attribute, Attributes, Dim, TensorId};

    /// x[batch or fixed, 4] -> Reshape(target) -> y
    fn reshape(first: Dim, target: [i64; 2]) -> (Graph, TensorId) {
        let mut g = Graph::default();
        let shape = [first, Dim::Known(4)].into_iter().collect();
        let x = g.add_tensor("x", Type::tensor(DType::Float32, shape), Role::Input);
        g.inputs.push(x);
        let target = g.add_constant("target", Value::vector(DType::Int64, target));
        let y = g.push("Reshape", Attributes::default(), &[x, target], "y").unwrap();
        (g, y)
    }

    #[test]
    fn a_symbol_is_bound_by_name_by_batch_and_by_shape() {
        let (g, y) = reshape(Dim::symbol("batch"), [-1, 2]);
        let by_batch = Binding { batch: Some(8), ..Binding::default() };
        let by_name = Binding { symbols: [("batch".into(), 8)].into(), ..Binding::default() };
        let by_shape = Binding { shapes: [("x".into(), vec![8, 4])].into(), ..Binding::default() };
        for binding in [by_batch, by_name, by_shape] {
            let inferred = infer(&g, &binding).unwrap();
            assert_eq!((inferred.shape(y), inferred.batch), (Some(&Shape::from([16, 2])), Some(8)));
        }
        let symbolic = infer(&g, &Binding::default()).unwrap();
        assert_eq!(symbolic.shape(y).unwrap().to_string(), "2*batchx2");
    }

    #[test]
    fn a_fixed_batch_is_replaced_through_a_baked_reshape() {
        let (g, y) = reshape(Dim::Known(1), [1, 4]);
        let inferred = infer(&g, &Binding { batch: Some(8), ..Binding::default() }).unwrap();
        assert!(inferred.rebatched && inferred.batch == Some(8));
        assert_eq!(inferred.shape(y), Some(&Shape::from([8, 4])));
    }

    #[test]
    fn a_batch_that_was_replaced_stays_where_another_size_is_replaced_after_it() {
        let mut g = Graph::default();
        let x = g.add_tensor("x", Type::tensor(DType::Float32, Shape::from([1, 4, 8])), Role::Input);
        g.inputs.push(x);
        let axes = g.add_constant("axes", Value::vector(DType::Int64, [2]));
        let pooled = g.push("ReduceMean", Attributes::default(), &[x, axes], "pooled").unwrap();
        let target = g.add_constant("target", Value::vector(DType::Int64, [1, 4]));
        let y = g.push("Reshape", Attributes::default(), &[pooled, target], "y").unwrap();
        let shapes = [("x".to_owned(), vec![16, 4, 6])].into();
        let inferred = infer(&g, &Binding { shapes, ..Binding::default() }).unwrap();
        assert_eq!(inferred.shape(y), Some(&Shape::from([16, 4])));
    }

    #[test]
    fn all_problems_are_reported() {
        let mut g = Graph::default();
        let x = g.add_tensor("x", Type::tensor(DType::Float32, Shape::from([2, 3])), Role::Input);
        let y = g.add_tensor("y", Type::tensor(DType::Float32, Shape::from([4, 5])), Role::Input);
        g.inputs = vec![x, y];
        g.push("Concat", Attributes::from([("axis", Attribute::Int(0))]), &[x, y], "a").unwrap();
        g.push("Concat", Attributes::from([("axis", Attribute::Int(7))]), &[x, x], "b").unwrap();
        let problems = infer(&g, &Binding::default()).unwrap_err();
        assert_eq!(problems.iter().map(|p| &*p.place).collect::<Vec<_>>(), ["a", "b"]);
        let wrong = Binding { shapes: [("z".into(), vec![1])].into(), ..Binding::default() };
        assert!(infer(&g, &wrong).unwrap_err()[0].hint.as_ref().unwrap().contains("x, y"));
    }
}
