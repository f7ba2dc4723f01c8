//! The size of every tensor of a graph, and whether they can be added up.

use crate::Timeline;
use memfit_graph::{Bytes, DType, Graph, Inferred, Node, Problem, TensorId, Type, times};

/// A tensor larger than this (1 PiB) is refused: no machine holds one. An axis of no elements is left out of its size, since what is made
/// of a tensor without elements may have some: the mean over an empty axis has all the others.
pub(crate) const LARGEST_TENSOR: Bytes = Bytes(1 << 50);

/// What all tensors of a graph may be together, and all that one step allocates (1 EiB): sixteen such steps can still be added up in 64 bits.
pub(crate) const LARGEST_STEP: Bytes = Bytes(1 << 60);

/// The same with all that a process holds beside it, any number of models that nobody let go of among them: an allocator may round it up
/// to twice as much.
pub(crate) const LARGEST_PROCESS: Bytes = Bytes(1 << 62);

/// The dims of a graph's tensors.
pub(crate) struct Sizes {
    /// One tensor's after the other's.
    dims: Vec<u64>,
    /// By tensor, where its own are.
    places: Vec<Option<(u32, u32)>>,
}

impl Sizes {
    /// The dims of a tensor, bounds from above where they are open; `None` where there is none.
    pub(crate) fn of(&self, id: TensorId) -> Option<&[u64]> {
        let (start, end) = self.places[id.index()]?;
        Some(&self.dims[start as usize..end as usize])
    }

    /// Whether what a node makes has a size: all that is read of it, where it is a tensor and no list of them.
    pub(crate) fn are_known(&self, node: &Node, uses: &[u32], inferred: &Inferred) -> bool {
        let is_tensor = |ty: &Type| matches!(ty, Type::Unknown | Type::Tensor(_) | Type::Sparse(_));
        let is_read = |id: &&TensorId| uses[id.index()] > 0 && is_tensor(&inferred.types[id.index()]);
        node.outputs.iter().flatten().filter(is_read).all(|id| self.places[id.index()].is_some())
    }
}

/// Gives the size of every tensor. Each must have one, at least an upper bound.
pub(crate) fn of(graph: &Graph, inferred: &Inferred) -> Result<Sizes, Vec<Problem>> {
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
    if problems.is_empty() { in_range(graph, inferred) } else { Err(problems) }
}

/// What no machine holds.
fn too_large(place: &str, message: String) -> Problem {
    Problem::new(place, message).hint("give a smaller batch or smaller inputs")
}

/// A step whose allocations can be added up. What a framework makes beside the graph's own tensors, gradients, copies and scratch memory,
/// is known when its step is written, so that all of it is looked at once then.
pub(crate) fn adds_up(timeline: &Timeline, most: Bytes) -> Result<(), Vec<Problem>> {
    let all = timeline.storages.iter().fold(0_u64, |all, storage| all.saturating_add(storage.bytes.0));
    if all <= most.0 {
        return Ok(());
    }
    let largest = timeline.storages.iter().max_by_key(|storage| storage.bytes);
    let label = largest.and_then(|storage| timeline.labels.get(storage.label as usize));
    let message =
        format!("expected a step that allocates at most {} EiB, found {}", most.0 >> 60, Bytes(all));
    Err(vec![too_large(label.map_or("step", |label| &**label), message)])
}

/// No tensor is so large, and there are not so many, that sums of sizes could leave 64 bits.
fn in_range(graph: &Graph, inferred: &Inferred) -> Result<Sizes, Vec<Problem>> {
    let tensors = graph.tensors.len();
    let mut sizes = Sizes { dims: Vec::with_capacity(4 * tensors), places: Vec::with_capacity(tensors) };
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let mut all = Bytes::ZERO;
    for (tensor, ty) in graph.tensors.iter().zip(&inferred.types) {
        let start = sizes.dims.len();
        let mut elements = Some(1_u64).filter(|_| ty.shape().is_some());
        for dim in ty.shape().map_or(&[][..], |shape| shape.dims()) {
            let Some(dim) = dim.upper() else {
                elements = None;
                break;
            };
            sizes.dims.push(dim);
            elements = elements.map(|all| times(all, dim.max(1)));
        }
        let Some(elements) = elements else {
            sizes.dims.truncate(start);
            sizes.places.push(None);
            continue;
        };
        // Elements of a dtype that nothing says have no size, but can be too many to count as well.
        let bytes = ty.dtype().unwrap_or(DType::Float32).size_of(elements).max(Bytes(elements / 8));
        if bytes > LARGEST_TENSOR {
            let dims: Vec<String> = sizes.dims[start..].iter().map(u64::to_string).collect();
            let message = format!("expected at most 1 PiB, found a shape of {}", dims.join("x"));
            return Err(vec![too_large(&tensor.name, message)]);
        }
        all += bytes;
        if all > LARGEST_STEP {
            let message = "expected at most 1 EiB in all tensors, found more up to this one".to_owned();
            return Err(vec![too_large(&tensor.name, message)]);
        }
        sizes.places.push(Some((number(start), number(sizes.dims.len()))));
    }
    Ok(sizes)
}

#[cfg(test)]
mod tests {
    use crate::devices::Card;
    use crate::{Framework, Model, Plan, Verdict};
    use memfit_graph::{Attributes, Binding, DType, Graph, Role, Shape, TensorId, Type};

    #[test]
    fn no_framework_takes_a_batch_that_no_machine_holds() {
        let mut g = Graph::default();
        let x = g.add_tensor("x", Type::tensor(DType::Float32, Shape::from([1_u64 << 50, 64])), Role::Input);
        let w = g.add_tensor("w", Type::tensor(DType::Float32, Shape::from([64, 64])), Role::Initializer);
        g.inputs = vec![x];
        let y = g.push("MatMul", Attributes::default(), &[x, w], "y").unwrap();
        g.outputs = vec![y];
        let model = Model::new(g, "m", "onnx", 1);
        for framework in [Framework::Pytorch, Framework::Tensorflow, Framework::Burn] {
            let plan = Plan { framework, ..Plan::default() };
            let problems = model.estimate(&Binding::default(), &plan).unwrap_err();
            assert!(problems[0].message.contains("at most 1 PiB"), "{framework:?} {}", problems[0].message);
        }
    }

    const FRAMEWORKS: [Framework; 3] = [Framework::Pytorch, Framework::Tensorflow, Framework::Burn];

    fn float(g: &mut Graph, name: &str, dims: &[u64], role: Role) -> TensorId {
        let id = g.add_tensor(name, Type::tensor(DType::Float32, Shape::from(dims)), role);
        g.inputs.extend(Some(id).filter(|_| role == Role::Input));
        id
    }

    /// What is wrong with a graph under every framework.
    fn refused(graph: Graph, plan: &Plan) -> Vec<String> {
        let model = Model::new(graph, "m", "onnx", 1);
        let refused = |framework| {
            let plan = Plan { framework, ..plan.clone() };
            let problem = model.estimate(&Binding::default(), &plan).unwrap_err().remove(0);
            assert!(problem.hint.is_some(), "{problem}");
            problem.message
        };
        FRAMEWORKS.map(refused).to_vec()
    }

    #[test]
    fn many_legal_tensors_are_not_together_more_than_can_be_added() {
        let mut g = Graph::default();
        let mut x = float(&mut g, "x", &[1 << 24, 1 << 24], Role::Input);
        for i in 0..17_000 {
            x = g.push("Tanh", Attributes::default(), &[x], &format!("h{i}")).unwrap();
        }
        g.outputs = vec![x];
        let told = refused(g, &Plan::default());
        assert!(told.iter().all(|message| message.contains("at most 1 EiB in all tensors")), "{told:?}");
    }

    #[test]
    fn what_is_kept_beside_the_graph_counts() {
        // 700 PiB of weights, which have gradients and state as well.
        let mut g = Graph::default();
        let mut x = float(&mut g, "x", &[1, 1 << 24], Role::Input);
        for i in 0..700 {
            let w = float(&mut g, &format!("w{i}"), &[1 << 24, 1 << 24], Role::Initializer);
            x = g.push("MatMul", Attributes::default(), &[x, w], &format!("h{i}")).unwrap();
        }
        g.outputs = vec![x];
        let told = refused(g, &Plan { optimizer: "adam".into(), ..Plan::default() });
        assert!(told.iter().all(|message| message.contains("allocates at most 1 EiB")), "{told:?}");
    }

    #[test]
    fn a_tensor_without_elements_is_as_large_as_what_may_be_made_of_it() {
        // The mean over the last axis would have 2^80 elements.
        let mut g = Graph::default();
        let x = float(&mut g, "x", &[1 << 40, 1 << 40, 0], Role::Input);
        let w = float(&mut g, "w", &[0], Role::Initializer);
        g.outputs = vec![g.push("LayerNormalization", Attributes::default(), &[x, w], "y").unwrap()];
        let told = refused(g, &Plan::default());
        assert!(told.iter().all(|message| message.contains("at most 1 PiB")), "{told:?}");
    }

    #[test]
    fn a_result_of_unknown_size_is_named_and_nothing_is_safe() {
        let mut g = Graph::default();
        let input = |g: &mut Graph, name: &str, dtype, dims: &[u64]| {
            let id = g.add_tensor(name, Type::tensor(dtype, Shape::from(dims)), Role::Input);
            g.inputs.push(id);
            id
        };
        let x = input(&mut g, "x", DType::Float32, &[8, 64]);
        let sizes = input(&mut g, "sizes", DType::Int64, &[2]);
        let w = g.add_tensor("w", Type::tensor(DType::Float32, Shape::from([64, 64])), Role::Initializer);
        let h = g.push("MatMul", Attributes::default(), &[x, w], "h").unwrap();
        let turned = g.push("Reshape", Attributes::default(), &[h, sizes], "turned").unwrap();
        let y = g.push("Relu", Attributes::default(), &[turned], "y").unwrap();
        g.outputs = vec![y];
        let model = Model::new(g, "m", "onnx", 3);
        for framework in [Framework::Pytorch, Framework::Tensorflow] {
            let plan = Plan { framework, ..Plan::default() };
            let card = Card::find("h100-80gb").unwrap();
            let estimate = model.estimate_on(&Binding::default(), &plan, Some(&card)).unwrap();
            assert_eq!(estimate.unknown, ["Reshape", "Relu"], "{framework:?}");
            assert_eq!(estimate.fit.unwrap().verdict, Verdict::Tight);
        }
    }
}
