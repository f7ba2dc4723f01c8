//! Whether every tensor of a graph has a size that can be added up.

use memfit_graph::{Bytes, DType, Graph, Inferred, Problem, TensorId, times};

/// A tensor larger than this (1 PiB) is refused: sums over a step of such tensors stay far below 2^64, and no machine holds one.
const LARGEST_TENSOR: Bytes = Bytes(1 << 50);

/// Every tensor must have a size, at least an upper bound.
pub(crate) fn check(graph: &Graph, inferred: &Inferred) -> Result<(), Vec<Problem>> {
    let unknown = |id: &TensorId| {
        let shape = inferred.shape(*id)?;
        shape.upper().is_none().then_some((*id, shape))
    };
    let problems: Vec<Problem> = graph
        .inputs
        .iter()
        .filter_map(unknown)
        .map(|(id, shape)| {
            let name = &*graph.tensor(id).name;
            let symbols: Vec<&str> =
                shape.dims().iter().filter(|d| d.upper().is_none()).flat_map(|d| d.symbols()).collect();
            Problem::new(name, format!("the size of {} in {shape} is not known", symbols.join(", "))).hint(
                format!(
                    "give it with --set {}=N, -b N or --input {name}:…",
                    symbols.first().unwrap_or(&"NAME")
                ),
            )
        })
        .collect();
    if problems.is_empty() { check_range(graph, inferred) } else { Err(problems) }
}

/// No tensor is so large that sums of sizes could leave 64 bits.
fn check_range(graph: &Graph, inferred: &Inferred) -> Result<(), Vec<Problem>> {
    let too_large = |(tensor, ty): &(&memfit_graph::Tensor, &memfit_graph::Type)| {
        let shape = ty.shape()?;
        let elements = shape.dims().iter().try_fold(1_u64, |n, d| Some(times(n, d.upper()?)))?;
        let bytes = ty.dtype().unwrap_or(DType::Float32).size_of(elements);
        if bytes <= LARGEST_TENSOR {
            return None;
        }
        let dims: Vec<String> = shape.upper()?.iter().map(u64::to_string).collect();
        let message = format!("expected at most 1 PiB, found a shape of {}", dims.join("x"));
        Some(Problem::new(&*tensor.name, message).hint("give a smaller batch or smaller inputs"))
    };
    let mut tensors = graph.tensors.iter().zip(&inferred.types);
    tensors.find_map(|t| too_large(&t)).map_or(Ok(()), |problem| Err(vec![problem]))
}
