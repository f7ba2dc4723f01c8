//! Small parameters with equal values, of which the dynamo exporter keeps one for all modules.
//!
//! The biases and norms of a model that has not been trained are zeros and ones; onnxscript's optimizer lets all nodes read
//! the first of equal initializers with up to 1,024 elements (onnx_ir 0.1, passes/common/initializer_deduplication.py,
//! `DeduplicateInitializersPass`). A module that reads such a vector under another module's name, while that one reads it too,
//! has one of its own. A module that is called twice has one name, and larger parameters are never merged, so what is tied stays so.

use super::Pass;
use super::rewriter::Rewriter;
use memfit_graph::{NodeId, Role, TensorId};

pub(super) const PASS: Pass = Pass { name: "deduplicated", run };

/// The most elements of a merged tensor.
const LARGEST: u64 = 1024;

fn run(rw: &mut Rewriter<'_>, id: NodeId) -> bool {
    let inputs = rw.node(id).inputs.clone();
    let mut found = false;
    for t in inputs.into_iter().flatten() {
        let Some(name) = own_name(rw, id, t) else { continue };
        let own = rw.copy(t, name);
        rw.reread(id, t, own);
        found = true;
    }
    found
}

/// What the node's module would call the vector that it reads, where that bears another's name.
fn own_name(rw: &Rewriter<'_>, id: NodeId, t: TensorId) -> Option<String> {
    let tensor = rw.graph.tensor(t);
    let [elements] = rw.shape(t)?.dims() else { return None };
    let is_small = elements.known().is_some_and(|n| n <= LARGEST);
    if tensor.role != Role::Initializer || !rw.dtype(t).is_float() || !is_small || rw.is_legacy(id) {
        return None;
    }
    let (module, part) = tensor.name.rsplit_once('.')?;
    let scope = |reader: NodeId| &*rw.node(reader).scope;
    // Code of a module may well read what belongs to one inside of it.
    let is_inside =
        |of: &str| module.strip_prefix(of).is_some_and(|rest| rest.starts_with('.') || rest.is_empty());
    let is_anothers =
        !scope(id).is_empty() && !is_inside(scope(id)) && rw.readers(t).any(|n| scope(n) == module);
    is_anothers.then(|| format!("{}.{part}", scope(id)))
}

#[cfg(test)]
mod tests {
    use crate::recompose::testing::Sketch;

    /// The names of the vectors that two products read, under these scopes.
    fn read(size: u64, scopes: [&str; 2]) -> Vec<String> {
        let mut s = Sketch::default();
        let (x, gamma) = (s.input("x", &[2, size]), s.weight("blocks.0.gamma", &[size]));
        let y = s.push("Mul", &[x, gamma]);
        let y = s.push("Mul", &[y, gamma]);
        for (node, scope) in s.graph.nodes.iter_mut().zip(scopes) {
            node.scope = scope.into();
        }
        s.recompose(y);
        [0, 1].map(|node| s.inputs_of(node)[1].to_owned()).to_vec()
    }

    #[test]
    fn each_module_has_its_own() {
        let one = ["blocks.0.gamma"; 2];
        assert_eq!(read(8, ["blocks.0", "blocks.1"]), ["blocks.0.gamma", "blocks.1.gamma"]);
        assert_eq!(read(8, ["blocks.0"; 2]), one, "a module that is called twice");
        assert_eq!(read(8, ["a", "b"]), one, "the owner does not read it");
        assert_eq!(read(8, ["blocks.0", "blocks"]), one, "what is inside of it");
        assert_eq!(read(2048, ["blocks.0", "blocks.1"]), one, "too large to be merged");
    }
}
