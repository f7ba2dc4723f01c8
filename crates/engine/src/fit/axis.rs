//! What a search makes larger: the batch, a named size such as a sequence's length, or the side of an image.

use super::images::{Axes, images};
use memfit_graph::{Binding, Dim, Graph, Problem, TensorId, Type, batch_symbol};

/// Sides are multiples of this: most networks for images halve them five times.
const IMAGE_STEP: u64 = 32;

/// What a search makes larger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Samples in a batch.
    Batch,
    /// A size that the model leaves open, by its name.
    Symbol(String),
    /// How many tokens each sample has: an open size that is called so, else the second dim of every input of integers.
    Sequence,
    /// The height and the width of every image that the model takes.
    Image,
}

impl Axis {
    /// What a person calls it: `batch`, `image`, `seq`, or an open size's own name.
    pub fn parse(text: &str) -> Axis {
        match text {
            "batch" => Axis::Batch,
            "image" => Axis::Image,
            "seq" | "sequence" => Axis::Sequence,
            name => Axis::Symbol(name.into()),
        }
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        match self {
            Axis::Batch => "batch",
            Axis::Symbol(name) => name,
            Axis::Image => "image",
            Axis::Sequence => "seq",
        }
    }

    /// Sizes are multiples of this.
    pub fn step(&self) -> u64 {
        match self {
            Axis::Batch | Axis::Symbol(_) | Axis::Sequence => 1,
            Axis::Image => IMAGE_STEP,
        }
    }

    /// Whether the model has such an axis.
    pub(crate) fn check(&self, graph: &Graph) -> Result<(), Problem> {
        let absent = |message: &str| Err(Problem::new("--max", message));
        match self {
            Axis::Batch => Ok(()),
            Axis::Image if images(graph).is_empty() => {
                absent("the model takes no images: no input has batch, channels, height and width")
            }
            Axis::Image => Ok(()),
            Axis::Sequence if sequence_symbol(graph).is_none() && tokens(graph).is_empty() => absent(
                "the model takes no sequences: no size is called so, and no input of integers has two dims",
            ),
            Axis::Sequence => Ok(()),
            Axis::Symbol(name) => {
                let known = symbols(graph);
                if known.iter().any(|symbol| symbol == name) {
                    return Ok(());
                }
                let message = format!("the model has no size called {name}");
                let hint = match known.join(", ") {
                    names if names.is_empty() => "its sizes are fixed; export it with dynamic axes".into(),
                    names => format!("its named sizes are: {names}"),
                };
                Err(Problem::new("--max", message).hint(hint))
            }
        }
    }

    /// The size that the axis has under a binding, where it is known.
    pub(crate) fn size(&self, graph: &Graph, binding: &Binding) -> Option<u64> {
        let of_first = |inputs: Vec<Axes>| {
            let (id, axes) = inputs.first()?;
            let (tensor, axis) = (graph.tensor(*id), *axes.first()?);
            let given = binding.shapes.get(&*tensor.name).and_then(|shape| shape.get(axis).copied());
            let bound = |name: &str| binding.symbols.get(name).copied();
            given.or_else(|| tensor.declared.shape()?.dims().get(axis)?.bind(&bound).known())
        };
        let of_symbol = |name: &str| {
            let inputs = graph.inputs.iter().map(|id| graph.tensor(*id));
            let mut given = inputs.filter_map(|tensor| {
                let at = tensor.declared.shape()?.dims().iter().position(|d| *d == Dim::symbol(name))?;
                binding.shapes.get(&*tensor.name)?.get(at).copied()
            });
            given.next().or_else(|| binding.symbols.get(name).copied())
        };
        match self {
            Axis::Batch => binding.batch,
            Axis::Symbol(name) => of_symbol(name),
            Axis::Image => of_first(images(graph)),
            Axis::Sequence => match sequence_symbol(graph) {
                Some(symbol) => of_symbol(&symbol),
                None => of_first(tokens(graph)),
            },
        }
    }

    /// The binding with this axis at `n`.
    pub fn bind(&self, graph: &Graph, base: &Binding, n: u64) -> Binding {
        let mut binding = base.clone();
        match self {
            Axis::Batch => {
                binding.batch = Some(n);
                match batch_symbol(graph) {
                    // Where the symbol has no size of its own, the batch is its size.
                    Some(symbol) if binding.symbols.contains_key(&symbol) => {
                        set(graph, &mut binding, symbol, n);
                    }
                    Some(symbol) => in_given(graph, &mut binding, &symbol, n),
                    None => binding.shapes.values_mut().filter_map(|s| s.first_mut()).for_each(|d| *d = n),
                }
            }
            Axis::Symbol(name) => set(graph, &mut binding, name.clone(), n),
            Axis::Image => resize(graph, &mut binding, images(graph), n),
            Axis::Sequence => match sequence_symbol(graph) {
                Some(symbol) => set(graph, &mut binding, symbol, n),
                None => resize(graph, &mut binding, tokens(graph), n),
            },
        }
        binding
    }
}

/// Gives an open size `n`.
fn set(graph: &Graph, binding: &mut Binding, symbol: String, n: u64) {
    in_given(graph, binding, &symbol, n);
    binding.symbols.insert(symbol, n);
}

/// Gives an open size `n` in the shapes of inputs that were given whole, which a size by its name alone would not change.
fn in_given(graph: &Graph, binding: &mut Binding, symbol: &str, n: u64) {
    let Binding { shapes, symbols, .. } = binding;
    let bound = |name: &str| if name == symbol { Some(n) } else { symbols.get(name).copied() };
    for tensor in graph.inputs.iter().map(|id| graph.tensor(*id)) {
        let (Some(declared), Some(given)) = (tensor.declared.shape(), shapes.get_mut(&*tensor.name)) else {
            continue;
        };
        for (dim, given) in declared.dims().iter().zip(given) {
            if let (true, Some(n)) = (dim.symbols().any(|name| name == symbol), dim.bind(&bound).known()) {
                *given = n;
            }
        }
    }
}

/// Gives inputs `n` on some axes.
fn resize(graph: &Graph, binding: &mut Binding, inputs: Vec<Axes>, n: u64) {
    for (id, axes) in inputs {
        if let Some(shape) = shape_with(graph, binding, id, &axes, n) {
            binding.shapes.insert(graph.tensor(id).name.to_string(), shape);
        }
    }
}

/// Inputs of integers or flags with batch and length.
fn tokens(graph: &Graph) -> Vec<Axes> {
    let is_tokens = |ty: &Type| {
        ty.dtype().is_some_and(|d| !d.is_float()) && ty.shape().is_some_and(|shape| shape.rank() == 2)
    };
    let inputs = graph.inputs.iter().filter(|id| is_tokens(&graph.tensor(**id).declared));
    inputs.map(|id| (*id, vec![1])).collect()
}

/// The open size that is called after a sequence.
fn sequence_symbol(graph: &Graph) -> Option<String> {
    let batch = batch_symbol(graph);
    let says = |name: &String| {
        let lower = name.to_ascii_lowercase();
        Some(name) != batch.as_ref() && (lower.contains("seq") || lower.contains("len"))
    };
    symbols(graph).into_iter().find(says)
}

/// The input's shape with `n` on some axes, where its other dims are known.
fn shape_with(graph: &Graph, binding: &Binding, id: TensorId, axes: &[usize], n: u64) -> Option<Vec<u64>> {
    let tensor = graph.tensor(id);
    let symbol = batch_symbol(graph);
    let bound = |name: &str| {
        let batch = binding.batch.filter(|_| symbol.as_deref() == Some(name));
        binding.symbols.get(name).copied().or(batch)
    };
    let mut shape: Vec<Option<u64>> = match binding.shapes.get(&*tensor.name) {
        Some(given) => given.iter().copied().map(Some).collect(),
        None => {
            let dims = tensor.declared.shape()?.dims().iter();
            let mut shape: Vec<Option<u64>> = dims.map(|d| d.bind(&bound).known()).collect();
            if let (None, Some(batch), Some(first)) = (&symbol, binding.batch, shape.first_mut()) {
                *first = Some(batch);
            }
            shape
        }
    };
    for axis in axes {
        *shape.get_mut(*axis)? = Some(n);
    }
    shape.into_iter().collect()
}

/// The names of the sizes that the inputs leave open.
fn symbols(graph: &Graph) -> Vec<String> {
    let shapes = graph.inputs.iter().filter_map(|id| graph.tensor(*id).declared.shape());
    let mut names: Vec<String> =
        shapes.flat_map(|s| s.dims()).flat_map(Dim::symbols).map(Into::into).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_graph::{DType, Role, Shape};

    fn graph(dims: &[Dim]) -> Graph {
        let mut g = Graph::default();
        let shape: Shape = dims.iter().cloned().collect();
        g.inputs = vec![g.add_tensor("x", Type::tensor(DType::Float32, shape), Role::Input)];
        g
    }

    #[test]
    fn an_axis_replaces_its_own_sizes_alone() {
        let open = graph(&[Dim::symbol("batch"), Dim::Known(3), Dim::Known(224), Dim::Known(224)]);
        let base = Binding { batch: Some(8), ..Binding::default() };
        assert_eq!(Axis::Image.bind(&open, &base, 64).shapes["x"], [8, 3, 64, 64]);
        assert_eq!(Axis::Batch.bind(&open, &base, 64).batch, Some(64));
        let given = Binding { shapes: [("x".into(), vec![1, 3, 32, 32])].into(), ..Binding::default() };
        assert_eq!(Axis::Batch.bind(&open, &given, 64).shapes["x"], [64, 3, 32, 32]);
        let fixed = graph(&[1, 3, 224, 224].map(Dim::Known));
        assert_eq!(Axis::Image.bind(&fixed, &base, 96).shapes["x"], [8, 3, 96, 96]);
    }

    #[test]
    fn a_sequence_is_a_size_called_so_or_the_second_of_tokens() {
        let open = graph(&[Dim::symbol("batch"), Dim::symbol("seq_len"), Dim::Known(8)]);
        assert_eq!(Axis::Sequence.bind(&open, &Binding::default(), 9).symbols["seq_len"], 9);
        let mut fixed = Graph::default();
        let ids = Type::tensor(DType::Int64, [Dim::symbol("batch"), Dim::Known(128)].into_iter().collect());
        fixed.inputs = vec![fixed.add_tensor("ids", ids, Role::Input)];
        let base = Binding { batch: Some(4), ..Binding::default() };
        assert_eq!(Axis::Sequence.bind(&fixed, &base, 300).shapes["ids"], [4, 300]);
    }

    #[test]
    fn an_open_size_changes_in_shapes_that_were_given_whole() {
        let open = graph(&[Dim::symbol("batch"), Dim::symbol("seq_len")]);
        let given = Binding { shapes: [("x".into(), vec![2, 128])].into(), ..Binding::default() };
        for axis in [Axis::Sequence, Axis::Symbol("seq_len".into())] {
            assert_eq!(axis.size(&open, &given), Some(128));
            let bound = axis.bind(&open, &given, 9);
            assert_eq!((&bound.shapes["x"][..], bound.symbols["seq_len"]), (&[2, 9][..], 9));
        }
        assert_eq!(Axis::Batch.bind(&open, &given, 9).shapes["x"], [9, 128]);
    }

    #[test]
    fn an_axis_that_is_not_there_is_told_with_those_that_are() {
        let text = graph(&[Dim::symbol("batch"), Dim::symbol("tokens")]);
        assert!(Axis::parse("seq").check(&text).is_err() && Axis::Image.check(&text).is_err());
        let hint = Axis::parse("sequenze").check(&text).unwrap_err().hint.unwrap();
        assert!(hint.contains("batch, tokens"), "{hint}");
    }
}
