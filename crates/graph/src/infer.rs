//! Shape, dtype and constant inference over a whole graph.
//!
//! One pass in topological order; each operator refines its outputs through an [`Infer`] context. All problems are
//! collected, not the first only. A file exported with a fixed batch is inferred twice: as exported, then with the new
//! batch, so that an operator with a baked size (`Reshape` to `[1, 12, 64]`) can see which of its axes carried it.

use crate::{DType, Dim, Graph, Node, Num, OpError, Problem, Role, Shape, TensorType, Type, Value};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The numbers that a user gives to what a model leaves open.
#[derive(Clone, Debug, Default)]
pub struct Binding {
    /// Symbols by name: `batch=8`, `seq=512`.
    pub symbols: BTreeMap<String, u64>,
    /// Whole input shapes by input name.
    pub shapes: BTreeMap<String, Vec<u64>>,
    /// The batch axis of every input.
    pub batch: Option<u64>,
    /// Elements of inputs that shapes depend on.
    pub values: BTreeMap<String, Value>,
    /// Whole types of inputs that are no dense tensors: sequences, optionals.
    pub types: BTreeMap<String, Type>,
}

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
    let rebatched = inputs.iter().zip(&exported).any(|(new, old)| new.0 != old.0);
    let (symbols, fuel) = (&binding.symbols, Cell::new(BODY_WORK));
    let before = rebatched.then(|| run(graph, &exported, &[], symbols, None, 0, &fuel).0);
    fuel.set(BODY_WORK);
    let (mut inferred, problems) = run(graph, &inputs, &[], symbols, before.as_ref(), 0, &fuel);
    inferred.batch = batch_size(graph, &inputs);
    if problems.is_empty() { Ok(inferred) } else { Err(problems) }
}

/// The bound type with every size that the file fixes put back.
fn exported_type(declared: &Type, bound: &Type) -> Type {
    let (Some(old), Some(new)) = (declared.shape(), bound.shape()) else { return bound.clone() };
    if old.rank() != new.rank() {
        return bound.clone();
    }
    let dims = old.dims().iter().zip(new.dims());
    let dims = dims.map(|(old, new)| if old.known().is_some() { old.clone() } else { new.clone() });
    Type::tensor(bound.dtype().unwrap_or(DType::Undefined), dims.collect())
}

/// The types of the graph's inputs with the user's numbers in them.
fn bound_inputs(graph: &Graph, binding: &Binding) -> Result<Vec<Known>, Vec<Problem>> {
    let mut problems = Vec::new();
    let names: Vec<&str> = graph.inputs.iter().map(|id| &*graph.tensor(*id).name).collect();
    for name in binding.shapes.keys().chain(binding.values.keys()).chain(binding.types.keys()) {
        if !names.contains(&name.as_str()) {
            problems.push(
                Problem::new(name.as_str(), "the model has no input of this name")
                    .hint(format!("its inputs are: {}", names.join(", "))),
            );
        }
    }
    let mut symbols = binding.symbols.clone();
    for id in &graph.inputs {
        let tensor = graph.tensor(*id);
        let (Some(given), Some(declared)) = (binding.shapes.get(&*tensor.name), tensor.declared.shape())
        else {
            continue;
        };
        if given.len() != declared.rank() {
            let message = format!(
                "the given shape has {} dims, the model's {declared} has {}",
                given.len(),
                declared.rank()
            );
            problems.push(Problem::new(&*tensor.name, message));
            continue;
        }
        for (n, dim) in given.iter().zip(declared.dims()) {
            if let Some(symbol) = lone_symbol(dim) {
                symbols.entry(symbol.to_owned()).or_insert(*n);
            }
        }
    }
    if let (Some(batch), Some(symbol)) = (binding.batch, batch_symbol(graph)) {
        symbols.entry(symbol).or_insert(batch);
    }
    let all_fixed = batch_symbol(graph).is_none();
    let mut types = Vec::new();
    for id in &graph.inputs {
        let tensor = graph.tensor(*id);
        let mut ty = bind_type(&tensor.declared, &symbols);
        if let (Some(given), Some(dtype)) = (binding.shapes.get(&*tensor.name), ty.dtype()) {
            ty = Type::tensor(dtype, Shape::from(&given[..]));
        } else if let (Some(batch), true, Type::Tensor(TensorType { shape: Some(shape), .. })) =
            (binding.batch, all_fixed, &mut ty)
            && let Some(first) = shape.dims_mut().first_mut()
        {
            *first = Dim::Known(batch);
        }
        if let Some(given) = binding.types.get(&*tensor.name) {
            ty = given.clone();
        }
        types.push((ty, binding.values.get(&*tensor.name).cloned().map(Arc::new)));
    }
    if problems.is_empty() { Ok(types) } else { Err(problems) }
}

/// The size that stands where the batch's symbol does, else the leading dim of the first input that has one.
fn batch_size(graph: &Graph, inputs: &[Known]) -> Option<u64> {
    let symbol = batch_symbol(graph).map(|name| Dim::symbol(&name));
    let mut shapes = graph.inputs.iter().zip(inputs).filter_map(|(id, (bound, _))| {
        Some((graph.tensor(*id).declared.shape()?.dims(), bound.shape()?.dims()))
    });
    let axis = |declared: &[Dim]| match &symbol {
        Some(symbol) => declared.iter().position(|d| d == symbol),
        None => (!declared.is_empty()).then_some(0),
    };
    shapes.find_map(|(declared, bound)| bound.get(axis(declared)?)?.known())
}

/// The symbol that stands for the batch: one whose name says so, else the first dim of the first input that has one.
pub(crate) fn batch_symbol(graph: &Graph) -> Option<String> {
    let shapes = || graph.inputs.iter().filter_map(|id| graph.tensor(*id).declared.shape());
    let symbols = || shapes().flat_map(|s| s.dims()).filter_map(lone_symbol);
    let says_batch = |s: &&str| {
        let s = s.to_ascii_lowercase();
        s.contains("batch") || matches!(&*s, "n" | "b" | "bs")
    };
    let leading = || shapes().filter_map(|s| s.dims().first()).find_map(lone_symbol);
    symbols().find(says_batch).or_else(leading).map(str::to_owned)
}

fn lone_symbol(dim: &Dim) -> Option<&str> {
    dim.known().is_none().then(|| dim.symbols().next()).flatten()
}

fn bind_type(ty: &Type, symbols: &BTreeMap<String, u64>) -> Type {
    let Type::Tensor(TensorType { dtype, shape: Some(shape) }) = ty else { return ty.clone() };
    let dims = shape.dims().iter().map(|d| d.bind(&|name| symbols.get(name).copied()));
    Type::tensor(*dtype, dims.collect())
}

/// A type with the elements, where they could be folded.
type Known = (Type, Option<Arc<Value>>);

/// How many nodes and tensors of bodies are visited in one inference. Beyond it a body's outputs stay as declared, so that
/// loops within loops end.
const BODY_WORK: u64 = 1 << 20;

/// Infers one graph or body. `captured` are the outer graph's values that a body reads.
fn run(
    graph: &Graph,
    inputs: &[Known],
    captured: &[Known],
    symbols: &BTreeMap<String, u64>,
    before: Option<&Inferred>,
    depth: u32,
    fuel: &Cell<u64>,
) -> (Inferred, Vec<Problem>) {
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
    for node in &graph.nodes {
        let mut cx = Infer::new(graph, node, &inferred, before, depth, fuel);
        let result = node.op.infer(&mut cx);
        let outputs = std::mem::take(&mut cx.outputs);
        match result {
            Ok(()) => {
                for (id, (ty, value)) in node.outputs.iter().zip(outputs) {
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
                if before.is_some() {
                    problem = problem
                        .hint("it has the exported batch size baked in; export with a dynamic batch axis");
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

/// A node that was inferred before, with the shapes of its first input and output: in the file as exported (`old`), and with
/// the new batch.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Step<'a> {
    pub op: &'a str,
    pub old_input: Option<&'a Shape>,
    pub new_input: Option<&'a Shape>,
    pub old_output: Option<&'a Shape>,
    pub new_output: Option<&'a Shape>,
}

/// What one operator sees while its outputs are inferred.
pub struct Infer<'a> {
    graph: &'a Graph,
    node: &'a Node,
    inferred: &'a Inferred,
    before: Option<&'a Inferred>,
    depth: u32,
    fuel: &'a Cell<u64>,
    outputs: Vec<(Type, Option<Value>)>,
}

impl<'a> Infer<'a> {
    /// Bodies nested deeper than this are an error.
    const MAX_DEPTH: u32 = 32;

    fn new(
        graph: &'a Graph,
        node: &'a Node,
        inferred: &'a Inferred,
        before: Option<&'a Inferred>,
        depth: u32,
        fuel: &'a Cell<u64>,
    ) -> Self {
        Infer {
            graph,
            node,
            inferred,
            before,
            depth,
            fuel,
            outputs: vec![(Type::Unknown, None); node.outputs.len()],
        }
    }

    /// How many inputs the node has, omitted ones included.
    pub fn input_count(&self) -> usize {
        self.node.inputs.len()
    }

    /// How many outputs the node has, unused ones included.
    pub fn output_count(&self) -> usize {
        self.node.outputs.len()
    }

    /// Whether input `i` is given.
    pub fn has(&self, i: usize) -> bool {
        matches!(self.node.inputs.get(i), Some(Some(_)))
    }

    /// Whether output `j` is used.
    pub fn wants(&self, j: usize) -> bool {
        matches!(self.node.outputs.get(j), Some(Some(_)))
    }

    /// The type of input `i`; unknown where it is omitted.
    pub fn ty(&self, i: usize) -> &'a Type {
        match self.node.inputs.get(i) {
            Some(Some(id)) => &self.inferred.types[id.index()],
            _ => &Type::Unknown,
        }
    }

    /// The type of input `i`, which the operator cannot do without.
    pub fn require(&self, i: usize) -> Result<&'a Type, OpError> {
        if self.has(i) { Ok(self.ty(i)) } else { Err(OpError::MissingInput { index: i }) }
    }

    /// The shape of input `i`, where its rank is known.
    pub fn shape(&self, i: usize) -> Option<&'a Shape> {
        self.ty(i).shape()
    }

    /// The shape of input `i`, where its rank is known; an error where it has another rank than `rank`.
    pub fn shape_of_rank(&self, i: usize, rank: usize) -> Result<Option<&'a Shape>, OpError> {
        match self.shape(i) {
            Some(s) if s.rank() != rank => {
                Err(OpError::input(i, format!("rank {rank}"), format!("shape {s}")))
            }
            shape => Ok(shape),
        }
    }

    /// The dtype of input `i`; undefined where it is not known.
    pub fn dtype(&self, i: usize) -> DType {
        self.ty(i).dtype().unwrap_or(DType::Undefined)
    }

    /// The folded elements of input `i`.
    pub fn value(&self, i: usize) -> Option<&'a Value> {
        match self.node.inputs.get(i) {
            Some(Some(id)) => self.inferred.value(*id),
            _ => None,
        }
    }

    /// The elements of input `i` as integers, where all are known.
    pub fn ints(&self, i: usize) -> Option<Vec<i64>> {
        self.value(i)?.ints()
    }

    /// Sets output `j` to a tensor of `dtype`, with `shape` where its rank is known.
    pub fn set(&mut self, j: usize, dtype: DType, shape: Option<Shape>) {
        self.set_type(j, Type::Tensor(TensorType { dtype, shape }));
    }

    /// Sets the type of output `j`.
    pub fn set_type(&mut self, j: usize, ty: Type) {
        if let Some(slot) = self.outputs.get_mut(j) {
            slot.0 = ty;
        }
    }

    /// Sets output `j` to a folded value, its type included.
    pub fn set_value(&mut self, j: usize, value: Value) {
        if let Some(slot) = self.outputs.get_mut(j) {
            *slot = (Type::tensor(value.dtype, value.dims()), Some(value));
        }
    }

    /// Passes the type and value of input `i` on to output `j`.
    pub fn forward(&mut self, i: usize, j: usize) {
        let (ty, value) = (self.ty(i).clone(), self.value(i).cloned());
        if let Some(slot) = self.outputs.get_mut(j) {
            *slot = (ty, value);
        }
    }

    /// A dim that depends on the data, named after the first output and `label`, never above `upper`.
    pub fn fresh_dim(&self, label: &str, upper: Option<u64>) -> Dim {
        let name = self.node.outputs.iter().flatten().next().map_or("", |id| &self.graph.tensor(*id).name);
        Dim::unknown(&format!("{name}.{label}"), upper)
    }

    /// The shapes that input `i` and output `j` had in the file as exported, when a fixed batch is being replaced.
    pub fn before(&self, i: usize, j: usize) -> Option<(&'a Shape, &'a Shape)> {
        let before = self.before?;
        let input = before.shape((*self.node.inputs.get(i)?)?)?;
        let output = before.shape((*self.node.outputs.get(j)?)?)?;
        Some((input, output))
    }

    /// The folded elements that input `i` had in the file as exported, when a fixed batch is being replaced.
    pub fn value_before(&self, i: usize) -> Option<&'a Value> {
        self.before?.value((*self.node.inputs.get(i)?)?)
    }

    /// The exported batch size and the one that replaces it: the first size that differs among the model's inputs.
    pub fn batch(&self) -> Option<(u64, u64)> {
        let before = self.before?;
        let dims = |id: &crate::TensorId| Some((before.shape(*id)?.dims(), self.inferred.shape(*id)?.dims()));
        let pairs = self.graph.inputs.iter().filter_map(dims).flat_map(|(old, new)| old.iter().zip(new));
        pairs.filter_map(|(old, new)| Some((old.known()?, new.known()?))).find(|(old, new)| old != new)
    }

    /// The new batch where `size`, a number baked into the file, can only be the exported batch: no other size of the model's
    /// inputs is the same.
    pub fn rebatched(&self, size: u64) -> Option<u64> {
        let (old, new) = self.batch().filter(|(old, _)| *old == size)?;
        let dims =
            |id: &crate::TensorId| Some((self.before?.shape(*id)?.dims(), self.inferred.shape(*id)?.dims()));
        let pairs = self.graph.inputs.iter().filter_map(dims).flat_map(|(old, new)| old.iter().zip(new));
        let same = |(was, is): (&Dim, &Dim)| was.known() == Some(old) && is.known() != Some(new);
        (!pairs.into_iter().any(same)).then_some(new)
    }

    /// The nodes that made input `i`, the nearest first, each through its first input, while a fixed batch is being replaced.
    pub fn history(&self, i: usize) -> impl Iterator<Item = Step<'a>> + use<'a> {
        let (graph, before, inferred) = (self.graph, self.before, self.inferred);
        let mut tensor = self.node.inputs.get(i).copied().flatten();
        // Nodes are sorted, so each is looked for before the one that reads from it.
        let mut until = graph.nodes.iter().position(|n| std::ptr::eq(n, self.node)).unwrap_or(0);
        std::iter::from_fn(move || {
            let (before, output) = (before?, tensor?);
            until = graph.nodes[..until].iter().rposition(|n| n.outputs.contains(&Some(output)))?;
            let node = &graph.nodes[until];
            tensor = node.inputs.first().copied().flatten();
            let old_input = tensor.and_then(|id| before.shape(id));
            let new_input = tensor.and_then(|id| inferred.shape(id));
            let (old_output, new_output) = (before.shape(output), inferred.shape(output));
            Some(Step { op: node.op.name(), old_input, new_input, old_output, new_output })
        })
    }

    /// Whether a body can be inferred `times` times, leaving as much work for others.
    pub fn affords(&self, body: &Graph, times: u64) -> bool {
        Infer::work(body).checked_mul(times).is_some_and(|work| work <= self.fuel.get() / 2)
    }

    /// What one inference of a body costs, without bodies inside of it.
    fn work(body: &Graph) -> u64 {
        (body.nodes.len() + body.tensors.len() + 1) as u64
    }

    /// Infers a body with these inputs; gives its outputs' types and elements.
    ///
    /// # Errors
    /// All problems of the body, as one [`OpError::Body`].
    pub fn body(
        &self,
        body: &Graph,
        inputs: &[(Type, Option<Value>)],
    ) -> Result<Vec<(Type, Option<Value>)>, OpError> {
        if self.depth >= Self::MAX_DEPTH {
            return Err(OpError::overflow("the nesting of bodies"));
        }
        let capture = |id: &crate::TensorId| {
            (self.inferred.types[id.index()].clone(), self.inferred.values[id.index()].clone())
        };
        let captured: Vec<_> = self.node.captures.iter().map(capture).collect();
        let inputs: Vec<Known> =
            inputs.iter().map(|(ty, value)| (ty.clone(), value.clone().map(Arc::new))).collect();
        let declared = |id: &crate::TensorId| (body.tensor(*id).declared.clone(), None);
        let Some(left) = self.fuel.get().checked_sub(Infer::work(body)) else {
            return Ok(body.outputs.iter().map(declared).collect());
        };
        self.fuel.set(left);
        let none = BTreeMap::new();
        let (inferred, problems) = run(body, &inputs, &captured, &none, None, self.depth + 1, self.fuel);
        if !problems.is_empty() {
            return Err(OpError::Body(problems));
        }
        let output = |id: &crate::TensorId| {
            (inferred.types[id.index()].clone(), inferred.values[id.index()].as_deref().cloned())
        };
        Ok(body.outputs.iter().map(output).collect())
    }

    /// The elements of input `i` as dims, where each is a size.
    pub fn dims(&self, i: usize) -> Option<Vec<Dim>> {
        self.value(i)?.data.iter().map(Num::as_dim).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attribute, Attributes, TensorId};

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
