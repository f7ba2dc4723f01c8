//! Module paths for nodes whose exporter wrote none, from the names of the weights they read.
//!
//! Frameworks name a weight by its module (`encoder.layer.0.attention.self.query.weight`), and most exporters keep
//! that name. A node belongs to the module of the first weight it reads, directly or through nodes that see nothing
//! but weights (a transpose); a product whose own weight was renamed belongs to the module of the bias added to it.
//! What lies between two such nodes belongs to the innermost module that holds both.

use memfit_graph::{Graph, Role};
use std::sync::Arc;

/// Stands for a path that the file does not say, until [`fill`] finds one.
pub(crate) const UNKNOWN: &str = "\0";

/// Gives every node of unknown path one; empty where nothing hints at it. The nodes are sorted.
pub(crate) fn fill(graph: &mut Graph) {
    if graph.nodes.iter().all(|n| &*n.scope != UNKNOWN) {
        return;
    }
    let mut weights: Vec<Option<Arc<str>>> = graph
        .tensors
        .iter()
        .map(|t| (t.role == Role::Initializer).then(|| module_of(&t.name)).flatten())
        .map(|path| path.map(Arc::from))
        .collect();
    let mut stored: Vec<bool> =
        graph.tensors.iter().map(|t| matches!(t.role, Role::Initializer | Role::Constant)).collect();
    let producers = graph.producers();
    for i in 0..graph.nodes.len() {
        let node = &graph.nodes[i];
        let inputs = || node.inputs.iter().flatten().map(|id| id.index());
        let path = inputs().find_map(|t| weights[t].clone());
        let only_weights = inputs().all(|t| stored[t]) && inputs().next().is_some();
        if only_weights {
            for output in node.outputs.iter().flatten() {
                stored[output.index()] = true;
                weights[output.index()].clone_from(&path);
            }
        }
        let Some(path) = path else { continue };
        // The product that a bias is added to: it reads a stored tensor that has lost its name.
        let added_to = (node.op.name() == "Add").then(|| inputs().find(|t| !stored[*t])).flatten();
        let product = added_to.and_then(|t| producers[t]).map(|id| id.index()).filter(|p| {
            let product = &graph.nodes[*p];
            product.op.name() == "MatMul" && product.inputs.iter().flatten().any(|id| stored[id.index()])
        });
        for k in product.into_iter().chain([i]) {
            let scope = &mut graph.nodes[k].scope;
            if &**scope == UNKNOWN {
                *scope = Arc::clone(&path);
            }
        }
    }
    between(graph);
}

/// Fills what is left from the known paths before and after.
fn between(graph: &mut Graph) {
    let mut next: Arc<str> = "".into();
    let mut after = vec![Arc::clone(&next); graph.nodes.len()];
    for (slot, node) in after.iter_mut().zip(&graph.nodes).rev() {
        if &*node.scope != UNKNOWN {
            next = Arc::clone(&node.scope);
        }
        *slot = Arc::clone(&next);
    }
    let mut before: Arc<str> = "".into();
    for (node, after) in graph.nodes.iter_mut().zip(after) {
        if &*node.scope == UNKNOWN {
            node.scope = common(&before, &after).into();
        } else {
            before = Arc::clone(&node.scope);
        }
    }
}

/// The innermost module that holds both.
fn common<'p>(a: &'p str, b: &str) -> &'p str {
    let alike = a.bytes().zip(b.bytes()).take_while(|(one, other)| one == other).count();
    let ends = |path: &str| path.as_bytes().get(alike).is_none_or(|next| *next == b'.');
    // A dot is one byte in any text.
    let len =
        if ends(a) && ends(b) { Some(alike) } else { a.as_bytes()[..alike].iter().rposition(|c| *c == b'.') };
    a.get(..len.unwrap_or(0)).unwrap_or("")
}

/// The module that a weight is named after. Exporters' own names (`onnx::MatMul_12`, `val_3`) have none.
fn module_of(weight: &str) -> Option<&str> {
    let (module, _) = weight.rsplit_once('.')?;
    let is_path = module.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '-'));
    (is_path && module.contains(|c: char| c.is_alphabetic())).then_some(module)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_common_module_ends_at_a_dot() {
        assert_eq!(common("layer.1.attention.self", "layer.1.attention.output"), "layer.1.attention");
        assert_eq!(common("layer.1", "layer.10"), "layer");
        assert_eq!(common("layer.1", "layer.1.dense"), "layer.1");
        assert_eq!(common("conv1", "layer1"), "");
        assert_eq!(common("", "layer1"), "");
        assert_eq!((common("a.é", "a.è"), common("é.b", "é.c"), common("a.b", "a.b")), ("a", "é", "a.b"));
    }

    #[test]
    fn a_weight_is_named_after_its_module() {
        assert_eq!(module_of("layer1.0.conv1.weight"), Some("layer1.0.conv1"));
        assert_eq!(module_of("onnx::Conv_193"), None);
        assert_eq!(module_of("val_101"), None);
        assert_eq!(module_of("3.14"), None);
    }
}
