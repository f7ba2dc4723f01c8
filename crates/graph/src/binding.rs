//! The numbers that a user gives to what a model leaves open, and what becomes of its inputs under them.

use crate::infer::Known;
use crate::{DType, Dim, Graph, Problem, Shape, TensorType, Type, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The numbers that a user gives to what a model leaves open.
#[derive(Clone, Debug, Default, PartialEq)]
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

/// The bound type with every size that the file fixes put back.
pub(crate) fn exported_type(declared: &Type, bound: &Type) -> Type {
    let (Some(old), Some(new)) = (declared.shape(), bound.shape()) else { return bound.clone() };
    if old.rank() != new.rank() {
        return bound.clone();
    }
    let dims = old.dims().iter().zip(new.dims());
    let dims = dims.map(|(old, new)| if old.known().is_some() { old.clone() } else { new.clone() });
    Type::tensor(bound.dtype().unwrap_or(DType::Undefined), dims.collect())
}

/// The inputs on the way from the sizes that the file fixes to those of the user: each time one size has given way to another
/// wherever it stands. The last are the bound inputs.
pub(crate) fn replacements(exported: &[Known], bound: &[Known]) -> Vec<Vec<Known>> {
    /// More sizes than these change together.
    const MAX: usize = 8;
    let mut steps: Vec<Vec<Known>> = Vec::new();
    while steps.len() + 1 < MAX {
        let current = steps.last().map_or(exported, |s| &s[..]);
        let Some(pair) = current.iter().zip(bound).find_map(|(old, new)| changes(&old.0, &new.0).next())
        else {
            break;
        };
        let replaced =
            current.iter().zip(bound).map(|(old, new)| (replaced(&old.0, &new.0, pair), new.1.clone()));
        steps.push(replaced.collect());
    }
    if steps.last().is_none_or(|last| last[..] != *bound) {
        steps.push(bound.to_vec());
    }
    steps
}

/// The sizes that differ between two types, each with what replaces it.
fn changes<'a>(old: &'a Type, new: &'a Type) -> impl Iterator<Item = (u64, u64)> + use<'a> {
    let dims = |ty: &'a Type| ty.shape().map(Shape::dims).unwrap_or_default();
    let pairs = dims(old).iter().zip(dims(new)).filter(move |_| dims(old).len() == dims(new).len());
    pairs.filter_map(|(old, new)| Some((old.known()?, new.known()?))).filter(|(old, new)| old != new)
}

/// `old` with one of the sizes that differ from `new` replaced by the other.
fn replaced(old: &Type, new: &Type, (from, to): (u64, u64)) -> Type {
    let (Type::Tensor(TensorType { dtype, shape: Some(shape) }), Some(target)) = (old, new.shape()) else {
        return new.clone();
    };
    if shape.rank() != target.rank() {
        return new.clone();
    }
    let is = |old: &Dim, new: &Dim| old.known() == Some(from) && new.known() == Some(to);
    let dims = shape.dims().iter().zip(target.dims());
    Type::tensor(
        *dtype,
        dims.map(|(old, new)| if is(old, new) { new.clone() } else { old.clone() }).collect(),
    )
}

/// The types of the graph's inputs with the user's numbers in them.
pub(crate) fn bound_inputs(graph: &Graph, binding: &Binding) -> Result<Vec<Known>, Vec<Problem>> {
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
pub(crate) fn batch_size(graph: &Graph, inputs: &[Known]) -> Option<u64> {
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
pub fn batch_symbol(graph: &Graph) -> Option<String> {
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

pub(crate) fn bind_type(ty: &Type, symbols: &BTreeMap<String, u64>) -> Type {
    let Type::Tensor(TensorType { dtype, shape: Some(shape) }) = ty else { return ty.clone() };
    let dims = shape.dims().iter().map(|d| d.bind(&|name| symbols.get(name).copied()));
    Type::tensor(*dtype, dims.collect())
}
