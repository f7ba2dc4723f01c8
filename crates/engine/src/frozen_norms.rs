//! Norms whose statistics and affine parameters are all buffers: FrozenBatchNorm2d of torchvision (ops/misc.py), detectron2
//! (layers/batch_norm.py) and DETR (models/backbone.py).
//!
//! They have a batch norm's names (`weight`, `bias`, `running_mean`, `running_var`) and reckon with arithmetic, so that no
//! operator of the file tells what is trained. A batch norm's statistics are read by its operator; where arithmetic reads them,
//! the four are buffers. The dynamo exporter reckons scale and shift before: a product (`mul_40`) and a difference (`sub_14`) of
//! what is stored, where a parameter that it turns around is called after its view.

use crate::parameters::Stored;
use memfit_graph::{Graph, Node, Role, TensorId};
use std::collections::BTreeSet;

const STATISTICS: [&str; 2] = [".running_mean", ".running_var"];
const AFFINE: [&str; 2] = [".weight", ".bias"];

/// Makes buffers of them.
pub(crate) fn demote(graph: &Graph, kinds: &mut [Option<Stored>]) {
    let mut modules = BTreeSet::new();
    // The scale in each product.
    let mut scales: Vec<Option<TensorId>> = vec![None; graph.tensors.len()];
    let mut buffers = Vec::new();
    for node in &graph.nodes {
        for (_, id) in inputs(node).filter(|(i, _)| !node.op.buffer_inputs().contains(i)) {
            modules.extend(module(&graph.tensor(id).name, STATISTICS));
        }
        match (node.op.name(), node.outputs.first()) {
            ("Mul", Some(Some(product))) => scales[product.index()] = reckoned(graph, node, "mul"),
            ("Add", _) => {
                let scale = inputs(node).find_map(|(_, id)| scales[id.index()]);
                buffers.extend(scale.zip(reckoned(graph, node, "sub")).into_iter().flat_map(<[_; 2]>::from));
            }
            _ => {}
        }
    }
    let is_theirs = |name: &str| {
        [STATISTICS, AFFINE].into_iter().any(|parts| module(name, parts).is_some_and(|m| modules.contains(m)))
    };
    let named = graph.tensors.iter().enumerate().filter(|(_, tensor)| is_theirs(&tensor.name));
    for id in named.map(|(i, _)| i).chain(buffers.iter().map(|id| id.index())) {
        if let Some(kind @ Stored::Parameter) = &mut kinds[id] {
            *kind = Stored::Buffer;
        }
    }
}

/// The module whose tensor this is, by one of its names.
fn module<'n>(name: &'n str, parts: [&str; 2]) -> Option<&'n str> {
    parts.into_iter().find_map(|part| name.strip_suffix(part))
}

fn inputs(node: &Node) -> impl Iterator<Item = (usize, TensorId)> + '_ {
    node.inputs.iter().enumerate().filter_map(|(i, id)| Some((i, (*id)?)))
}

/// The operand that an exporter reckoned with this function.
fn reckoned(graph: &Graph, node: &Node, function: &str) -> Option<TensorId> {
    inputs(node).map(|(_, id)| id).find(|id| {
        let tensor = graph.tensor(*id);
        let number = tensor.name.strip_prefix(function).unwrap_or("no number");
        tensor.role == Role::Initializer && number.chars().all(|c| c == '_' || c.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_graph::{Attributes, DType, Shape, Type};

    fn stored(g: &mut Graph, name: &str) -> TensorId {
        g.add_tensor(name, Type::tensor(DType::Float32, Shape::from([1, 16, 1, 1])), Role::Initializer)
    }

    fn image(g: &mut Graph) -> TensorId {
        let x = g.add_tensor("x", Type::tensor(DType::Float32, Shape::from([2, 16, 8, 8])), Role::Input);
        g.inputs = vec![x];
        x
    }

    #[test]
    fn statistics_that_arithmetic_reads_are_of_a_frozen_norm() {
        let mut g = Graph::default();
        let x = image(&mut g);
        let names = ["running_mean", "running_var", "weight", "bias"];
        let [mean, variance, weight, _] = names.map(|part| stored(&mut g, &format!("bn1.{part}")));
        let other = stored(&mut g, "bn2.weight");
        let mut y = x;
        for (op, by) in [("Sub", mean), ("Div", variance), ("Mul", weight), ("Mul", other)] {
            y = g.push(op, Attributes::default(), &[y, by], op).unwrap();
        }
        let kinds: Vec<_> = crate::parameters::by_use(&g).into_iter().flatten().collect();
        let buffers = [Stored::Buffer; 4].into_iter();
        assert_eq!(kinds, buffers.chain([Stored::Parameter]).collect::<Vec<_>>());
    }

    #[test]
    fn scale_and_shift_reckoned_before_are_one() {
        for (scale, shift, kind) in [
            ("mul_40", "sub_14", Stored::Buffer),
            ("view_3", "view_4", Stored::Parameter),
            ("mul_40", "view_4", Stored::Parameter),
        ] {
            let mut g = Graph::default();
            let x = image(&mut g);
            let (scale, shift) = (stored(&mut g, scale), stored(&mut g, shift));
            let y = g.push("Mul", Attributes::default(), &[x, scale], "y").unwrap();
            g.push("Add", Attributes::default(), &[y, shift], "z").unwrap();
            let kinds: Vec<_> = crate::parameters::by_use(&g).into_iter().flatten().collect();
            assert_eq!(kinds, [kind; 2], "{scale:?} {shift:?}");
        }
    }
}
