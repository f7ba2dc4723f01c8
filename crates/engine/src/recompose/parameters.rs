//! Parameters that an exporter renamed when it folded something into them.
//!
//! The transposed copy of a linear weight is `val_14` or `onnx::MatMul_2315`, a weight with a norm folded in
//! `onnx::Conv_193`, a stretched slope `val_27`. What stands where only a parameter stands is one, and gets a name
//! again: that of its sibling (`fc.bias` tells `fc.weight`), else one under the module's path.

use super::rewriter::Rewriter;
use memfit_graph::{NodeId, Role, TensorId, is_exporter_name};
use std::collections::HashSet;
use std::sync::Arc;

/// Where parameters stand: operator, and the inputs with what each one is called.
const SLOTS: &[(&str, &[(usize, &str)])] = &[
    ("Conv", &[(1, "weight"), (2, "bias")]),
    ("ConvTranspose", &[(1, "weight"), (2, "bias")]),
    ("GRU", &[(1, "weight_ih"), (2, "weight_hh"), (3, "bias")]),
    ("Gemm", &[(1, "weight"), (2, "bias")]),
    ("LSTM", &[(1, "weight_ih"), (2, "weight_hh"), (3, "bias")]),
    ("Linear", &[(1, "weight"), (2, "bias")]),
    ("MatMul", &[(0, "weight"), (1, "weight")]),
    ("PRelu", &[(1, "weight")]),
    ("RNN", &[(1, "weight_ih"), (2, "weight_hh"), (3, "bias")]),
];

/// Names them all.
pub(super) fn name(rw: &mut Rewriter<'_>) {
    let mut taken: HashSet<Arc<str>> = rw.graph.tensors.iter().map(|t| t.name.clone()).collect();
    for id in rw.node_ids() {
        let op = rw.node(id).op.name();
        let Some((_, slots)) = SLOTS.iter().find(|(name, _)| *name == op) else { continue };
        for (slot, part) in *slots {
            let Some(t) = rw.input(id, *slot).filter(|t| is_made_up(rw, id, *t)) else { continue };
            let mut name = proper_name(rw, id, slots, *slot, part);
            while taken.contains(&*name) {
                name.push_str(".folded");
            }
            let name: Arc<str> = name.into();
            taken.insert(name.clone());
            rw.graph.tensors[t.index()].name = name;
        }
    }
}

/// A name that an exporter makes up for a stored tensor, be it a weight that it folded something into.
pub(super) fn is_exporters(name: &str) -> bool {
    is_exporter_name(name) || name.starts_with("onnx::")
}

/// Whether an exporter gave this parameter its name.
fn is_made_up(rw: &Rewriter<'_>, id: NodeId, t: TensorId) -> bool {
    let tensor = rw.graph.tensor(t);
    let name = &*tensor.name;
    let after_weight = || {
        let weight = rw.input(id, 1).map(|w| &*rw.graph.tensor(w).name);
        name.strip_suffix("_bias").is_some_and(|stem| Some(stem) == weight)
    };
    tensor.role == Role::Initializer
        && rw.dtype(t).is_float()
        && rw.rank(t) != Some(0)
        && (is_exporters(name) || after_weight())
}

/// The name that the module's own code would give.
fn proper_name(rw: &Rewriter<'_>, id: NodeId, slots: &[(usize, &str)], slot: usize, part: &str) -> String {
    let siblings = slots.iter().filter(|(other, _)| *other != slot);
    let sibling = siblings.filter_map(|(other, kind)| {
        let t = rw.input(id, *other).filter(|t| !is_made_up(rw, id, *t))?;
        Some(format!("{}{part}", rw.graph.tensor(t).name.strip_suffix(kind)?))
    });
    let path = rw.node(id).path();
    sibling.into_iter().next().unwrap_or_else(|| format!("{path}.{part}"))
}

#[cfg(test)]
mod tests {
    use crate::recompose::testing::Sketch;

    #[test]
    fn a_sibling_or_the_path_tells_the_name() {
        let mut s = Sketch::default();
        let x = s.input("x", &[2, 8]);
        let (w, b) = (s.weight("val_1", &[8, 8]), s.weight("attention.in_proj_bias", &[8]));
        let y = s.push("MatMul", &[x, w]);
        let y = s.push("Add", &[y, b]);
        let w = s.weight("onnx::MatMul_7", &[8, 8]);
        let y = s.push("MatMul", &[y, w]);
        s.graph.nodes[2].scope = "head".into();
        s.recompose(y);
        assert_eq!(s.inputs_of(0)[1], "attention.in_proj_weight");
        assert_eq!(s.inputs_of(1)[1], "head.weight");
    }

    #[test]
    fn a_number_and_a_name_of_its_own_stay() {
        let mut s = Sketch::default();
        let x = s.input("x", &[2, 8]);
        let w = s.weight("fc.weight", &[8, 8]);
        let y = s.push("MatMul", &[x, w]);
        let table = s.weight("val_3", &[2, 8]);
        let y = s.push("Mul", &[y, table]);
        s.recompose(y);
        assert_eq!(s.inputs_of(0)[1], "fc.weight");
        assert_eq!(s.inputs_of(1)[1], "val_3");
    }
}
