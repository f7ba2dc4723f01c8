//! What each stored tensor is to training: a parameter, a buffer, or a Python number.
//!
//! A file stores all three alike. A floating-point initializer is a parameter unless its use says otherwise: running
//! statistics of a batch norm, a single number, a table that is fed where activations go. Exporters' own constants
//! carry names that no module has (`val_12`, `/layer/Constant_output_0`).

use memfit_graph::{Graph, Role};

/// What a stored tensor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// Trained.
    Parameter,
    /// Trainable, but matched by a freeze pattern.
    Frozen,
    /// State or table that is not trained.
    Buffer,
    /// A Python number: it takes no device memory.
    Number,
}

/// The kind of each tensor of the graph that is stored in the file, by tensor index; `None` for the others.
pub(crate) fn classify(graph: &Graph, freeze: &[String]) -> Vec<Option<Stored>> {
    let mut kinds: Vec<Option<Stored>> = (0..graph.tensors.len()).map(|i| initial(graph, i)).collect();
    for node in &graph.nodes {
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
    for (kind, tensor) in kinds.iter_mut().zip(&graph.tensors) {
        if *kind == Some(Stored::Parameter) && freeze.iter().any(|glob| matches(glob, &tensor.name)) {
            *kind = Some(Stored::Frozen);
        }
    }
    kinds
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

/// A name that an exporter makes up for a constant it computed: torch's dynamo exporter writes `val_12`, the legacy
/// one `/encoder/Constant_output_0`.
fn is_exporter_name(name: &str) -> bool {
    let numbered = |prefix: &str| {
        name.strip_prefix(prefix).is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit() || c == '_'))
    };
    numbered("val_")
        || numbered("_val_")
        || numbered("lifted_tensor_")
        || numbered("scalar_tensor_default")
        || (name.starts_with('/') && name.contains("_output_"))
}

/// Whether a glob with `*` and `?` matches the whole text.
pub(crate) fn matches(glob: &str, text: &str) -> bool {
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
    use memfit_graph::{DType, Shape, Type};

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
        add("onnx::Mul_7", &[]);
        let kinds = classify(&g, &["fc.*".into()]);
        let kinds: Vec<Stored> = kinds.into_iter().flatten().collect();
        assert_eq!(kinds, [Stored::Frozen, Stored::Parameter, Stored::Buffer, Stored::Number]);
    }
}
