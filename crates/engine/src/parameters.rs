//! What each stored tensor is to training: a parameter, a buffer, or a Python number.
//!
//! A file stores all three alike. A floating-point initializer is a parameter unless its use says otherwise: running
//! statistics of a batch norm, a single number, a table that is fed where activations go, the frequencies that positions
//! are multiplied with. Exporters' own constants
//! carry names that no module has (`val_12`, `/layer/Constant_output_0`), but a weight that an exporter transposed does too.

use crate::frozen_norms;
use crate::structure::Structure;
use memfit_graph::ops::rnn::Rnn;
use memfit_graph::{Graph, Inferred, Role, Shape, Variable, is_exporter_name};

/// What a stored tensor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// Trained.
    Parameter,
    /// Trainable, but matched by a freeze pattern.
    Frozen,
    /// State or table that is not trained.
    Buffer,
    /// A Python number: it takes no device memory.
    Number,
}

/// Inputs that hold weights whatever they are called: those of products, which exporters turn around. A norm's may be a
/// constant that stands for an absent one.
const WEIGHTS: &[(&str, &[usize])] = &[
    ("Bilinear", &[2]),
    ("Conv", &[1, 2]),
    ("ConvTranspose", &[1, 2]),
    ("GRU", &[1, 2, 3]),
    ("Gemm", &[1, 2]),
    ("LSTM", &[1, 2, 3]),
    ("Linear", &[1, 2]),
    ("MatMul", &[1]),
    ("RNN", &[1, 2, 3]),
];

/// The kind of each tensor of the graph that is stored in the file, by tensor index, as far as operators and names tell;
/// `None` for the others.
pub(crate) fn by_use(graph: &Graph) -> Vec<Option<Stored>> {
    let mut kinds: Vec<Option<Stored>> = (0..graph.tensors.len()).map(|i| initial(graph, i)).collect();
    for node in &graph.nodes {
        let weights =
            WEIGHTS.iter().find(|(op, _)| *op == node.op.name()).map_or(&[][..], |(_, inputs)| inputs);
        let further = node.op.downcast::<Rnn>().map_or(0..0, |_| 8..node.inputs.len());
        for id in weights.iter().copied().chain(further).filter_map(|i| node.inputs.get(i).copied().flatten())
        {
            if let Some(kind @ Stored::Buffer) = &mut kinds[id.index()]
                && graph.tensor(id).declared.dtype().is_some_and(|d| d.is_float())
            {
                *kind = Stored::Parameter;
            }
        }
        if matches!(node.op.name(), "Add" | "Mul") {
            for id in node.inputs.iter().flatten().filter(|id| is_per_channel(graph, **id)) {
                if let Some(kind @ Stored::Buffer) = &mut kinds[id.index()] {
                    *kind = Stored::Parameter;
                }
            }
        }
        let demote = |kinds: &mut Vec<Option<Stored>>, i: usize| {
            if let Some(Some(id)) = node.inputs.get(i)
                && let Some(kind @ Stored::Parameter) = &mut kinds[id.index()]
            {
                *kind = Stored::Buffer;
            }
        };
        for i in node.op.buffer_inputs() {
            demote(&mut kinds, *i);
        }
    }
    frozen_norms::demote(graph, &mut kinds);
    kinds
}

/// The same with what inference and the format say.
pub(crate) fn by_graph(graph: &Graph, inferred: &Inferred) -> Vec<Option<Stored>> {
    let mut kinds = by_use(graph);
    demote_frequencies(graph, inferred, &mut kinds);
    crate::tables::sort_out(graph, inferred, &mut kinds);
    // What the format says stands above what use and name suggest.
    for (kind, tensor) in kinds.iter_mut().zip(&graph.tensors).filter(|(kind, _)| kind.is_some()) {
        *kind = match tensor.variable {
            Some(Variable::Trainable) => Some(Stored::Parameter),
            Some(Variable::Frozen) => Some(Stored::Frozen),
            Some(Variable::State) => Some(Stored::Buffer),
            None => *kind,
        };
    }
    kinds
}

/// The same with what the user says: globs of names that are not trained.
pub(crate) fn frozen(
    mut kinds: Vec<Option<Stored>>,
    graph: &Graph,
    freeze: &[String],
) -> Vec<Option<Stored>> {
    for (kind, tensor) in kinds.iter_mut().zip(&graph.tensors).filter(|_| !freeze.is_empty()) {
        if *kind == Some(Stored::Parameter) && freeze.iter().any(|glob| matches(glob, &tensor.name)) {
            *kind = Some(Stored::Frozen);
        }
    }
    kinds
}

/// Whether rows of a stored tensor are looked up: it is an embedding's table, which some optimizers treat in a way of their own.
pub(crate) fn is_table(graph: &Graph, structure: &Structure, i: usize) -> bool {
    if structure.is_keras {
        return is_table_of_keras(&graph.tensors[i].name);
    }
    let first = structure.first_use[i].and_then(|node| graph.nodes.get(node as usize));
    first.is_some_and(|node| node.op.name() == "Gather" && node.inputs[0].is_some_and(|id| id.index() == i))
}

/// The same by the name of a variable, which is what Keras asks (keras/src/optimizers/muon.py, `_should_use_adamw`).
pub(crate) fn is_table_of_keras(path: &str) -> bool {
    path.to_ascii_lowercase().contains("embedding")
}

/// How many axes have more than one element, as far as is known.
pub(crate) fn wide_axes(shape: &Shape) -> usize {
    shape.dims().iter().filter(|d| d.known() != Some(1)).count()
}

/// One float a channel, which a layer scale or a shift is, however an exporter turned and named it. Three are the colours
/// that an image is normalized with.
fn is_per_channel(graph: &Graph, id: memfit_graph::TensorId) -> bool {
    let declared = &graph.tensor(id).declared;
    let elements = declared.shape().filter(|s| wide_axes(s) == 1).and_then(|s| s.elements());
    declared.dtype().is_some_and(|d| d.is_float()) && elements.is_some_and(|n| n > 4)
}

/// Rotary and sinusoidal frequencies: stored, but multiplied with positions, which are integers cast to floats. A module
/// registers them as a buffer.
fn demote_frequencies(graph: &Graph, inferred: &Inferred, kinds: &mut [Option<Stored>]) {
    let mut positions = vec![false; graph.tensors.len()];
    // What each tensor is a view of, where that is stored in the file.
    let mut stored: Vec<Option<usize>> = (0..kinds.len()).map(|i| kinds[i].map(|_| i)).collect();
    for node in &graph.nodes {
        let input = |i: usize| node.inputs.get(i).copied().flatten().map(|id| id.index());
        let (Some(first), Some(Some(output))) = (input(0), node.outputs.first()) else { continue };
        match node.op.name() {
            "Cast" if inferred.types[first].dtype().is_some_and(|d| d.is_integer()) => {
                positions[output.index()] = true
            }
            "Cast" | "Unsqueeze" | "Squeeze" | "Reshape" | "Expand" | "Transpose" | "Identity" => {
                positions[output.index()] = positions[first];
                stored[output.index()] = stored[first];
            }
            "Mul" | "MatMul" => {
                let Some(second) = input(1) else { continue };
                // A linear layer over integer features has its weight on the right.
                let swapped = (node.op.name() == "Mul").then_some((second, first));
                for (table, by) in [Some((first, second)), swapped].into_iter().flatten() {
                    if let (Some(at), true) = (stored[table], positions[by])
                        && kinds[at] == Some(Stored::Parameter)
                    {
                        kinds[at] = Some(Stored::Buffer);
                    }
                }
            }
            _ => {}
        }
    }
}

fn initial(graph: &Graph, i: usize) -> Option<Stored> {
    let tensor = &graph.tensors[i];
    if !matches!(tensor.role, Role::Initializer | Role::Constant) {
        return None;
    }
    let elements = tensor.declared.shape().and_then(|s| s.elements());
    let rank = tensor.declared.shape().map_or(0, |s| s.rank());
    let is_float = tensor.declared.dtype().is_some_and(|d| d.is_float());
    Some(match (elements, is_float) {
        (Some(1), true) if tensor.role == Role::Initializer && is_module_name(&tensor.name) => {
            Stored::Parameter
        }
        (Some(1), _) if rank == 0 || tensor.role == Role::Constant || is_float => Stored::Number,
        (_, true) if tensor.role == Role::Initializer && !is_exporter_name(&tensor.name) => Stored::Parameter,
        _ => Stored::Buffer,
    })
}

/// A name that a module path gives: `layer1.0.conv1.weight`.
fn is_module_name(name: &str) -> bool {
    !is_exporter_name(name) && !name.contains("::") && !name.contains('/') && name.contains('.')
}

/// Whether a glob with `*` and `?` matches the whole text.
pub fn matches(glob: &str, text: &str) -> bool {
    let (glob, text): (Vec<char>, Vec<char>) = (glob.chars().collect(), text.chars().collect());
    let (mut g, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        match glob.get(g) {
            Some('*') => {
                star = Some((g, t));
                g += 1;
            }
            Some(c) if *c == '?' || *c == text[t] => {
                g += 1;
                t += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    g = at + 1;
                    t = from + 1;
                    star = Some((at, t));
                }
                None => return false,
            },
        }
    }
    glob[g..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_graph::{DType, Type};

    #[test]
    fn globs() {
        assert!(matches("encoder.*", "encoder.layer.0.weight"));
        assert!(matches("*.bias", "a.b.bias"));
        assert!(!matches("*.bias", "a.b.weight"));
        assert!(matches("l?.*w*", "l1.x.w"));
        assert!(matches("**", ""));
        assert!(!matches("", "a"));
    }

    #[test]
    fn names_and_sizes_tell_numbers_from_parameters() {
        let mut g = Graph::default();
        let mut add = |name: &str, shape: &[u64]| {
            g.add_tensor(name, Type::tensor(DType::Float32, Shape::from(shape)), Role::Initializer);
        };
        add("fc.weight", &[10, 20]);
        add("logit.scale", &[]);
        add("val_3", &[256, 64]);
        add("unsqueeze_14", &[1, 64]);
        add("pos_embed", &[1, 64]);
        add("onnx::Mul_7", &[]);
        let inferred = memfit_graph::infer(&g, &memfit_graph::Binding::default()).unwrap();
        let kinds = frozen(by_graph(&g, &inferred), &g, &["fc.*".into()]);
        let kinds: Vec<Stored> = kinds.into_iter().flatten().collect();
        assert_eq!(
            kinds,
            [
                Stored::Frozen,
                Stored::Parameter,
                Stored::Buffer,
                Stored::Buffer,
                Stored::Parameter,
                Stored::Number,
            ]
        );
    }

    #[test]
    fn what_the_format_says_stands() {
        use memfit_graph::Variable;
        let mut g = Graph::default();
        let mut add = |name: &str, variable| {
            let ty = Type::tensor(DType::Float32, Shape::from([1]));
            let id = g.add_tensor(name, ty, Role::Initializer);
            g.tensors[id.index()].variable = Some(variable);
        };
        add("dense/bias", Variable::Trainable);
        add("val_3", Variable::Trainable);
        add("dense/kernel", Variable::Frozen);
        add("norm/moving_mean", Variable::State);
        let inferred = memfit_graph::infer(&g, &memfit_graph::Binding::default()).unwrap();
        let kinds = frozen(by_graph(&g, &inferred), &g, &["val*".into()]);
        let kinds: Vec<_> = kinds.into_iter().flatten().collect();
        assert_eq!(kinds, [Stored::Parameter, Stored::Frozen, Stored::Frozen, Stored::Buffer]);
    }

    #[test]
    fn frequencies_are_no_parameters() {
        use memfit_graph::{Attribute, Attributes, Binding, infer};
        let mut g = Graph::default();
        let x = g.add_tensor("ids", Type::tensor(DType::Int64, Shape::from([2, 5, 1])), Role::Input);
        g.inputs = vec![x];
        let table =
            g.add_tensor("m.inv_freq", Type::tensor(DType::Float32, Shape::from([32])), Role::Initializer);
        let scale =
            g.add_tensor("m.scale", Type::tensor(DType::Float32, Shape::from([32])), Role::Initializer);
        let p = g.push("Cast", Attributes::from([("to", Attribute::Int(1))]), &[x], "p").unwrap();
        let angles = g.push("Mul", Attributes::default(), &[p, table], "angles").unwrap();
        g.push("Mul", Attributes::default(), &[angles, scale], "y").unwrap();
        let inferred = infer(&g, &Binding::default()).unwrap();
        let kinds = by_graph(&g, &inferred);
        assert_eq!(
            (kinds[table.index()], kinds[scale.index()]),
            (Some(Stored::Buffer), Some(Stored::Parameter))
        );
    }
}
