//! What a model's code computes twice and a file holds once.
//!
//! Both exporters merge equal expressions (torch/onnx, utils.py: `_jit_pass_cse`; onnxscript, `CommonSubexpressionEliminationPass`).
//! In PyTorch each is a tensor of its own, and what reads it keeps its own. Two kinds are told from what is left:
//!
//! - a function that several modules begin with on the same tensor (`F.leaky_relu(x)` in the parallel blocks of HiFi-GAN, the
//!   ReLU of each branch of a NASNet cell; a mask that each layer compares, `adj > 0`). It stands in the first one, and what is
//!   at the same place of another module reads it;
//! - the difference from the mean in a norm by hand, which is squared for the variance and divided by its root:
//!   `s = (x - u).pow(2).mean(1); x = (x - u) / torch.sqrt(s + eps)` (ConvNeXt, SAM, BERT's first port, Conv-TasNet).

use super::Pass;
use super::rewriter::Rewriter;
use memfit_graph::{NodeId, TensorId};

pub(super) const PASS: Pass = Pass { name: "merged expressions", run };

/// Functions of one tensor that modules begin with.
const FUNCTIONS: &[&str] = &[
    "Elu",
    "Equal",
    "Gelu",
    "Greater",
    "HardSwish",
    "LeakyRelu",
    "Less",
    "Mish",
    "Relu",
    "Sigmoid",
    "Softplus",
    "Swish",
    "Tanh",
];

fn run(rw: &mut Rewriter<'_>, id: NodeId) -> bool {
    let Some(result) = rw.output(id).filter(|t| !rw.is_graph_output(*t) && rw.use_count(*t) > 1) else {
        return false;
    };
    let readers: Vec<NodeId> = rw.readers(result).collect();
    // Who reads it again, and in which module.
    let again: Vec<(NodeId, String)> = if FUNCTIONS.contains(&rw.node(id).op.name()) {
        let elsewhere = |reader: &NodeId| Some((*reader, elsewhere(rw, id, readers[0], *reader)?.to_owned()));
        readers.iter().filter_map(elsewhere).collect()
    } else if is_centred(rw, id, &readers) {
        readers.into_iter().filter(|reader| !rw.is(*reader, "Pow")).map(|n| (n, String::new())).collect()
    } else {
        return false;
    };
    let (op, inputs, ty) = (rw.node(id).op.clone(), rw.node(id).inputs.clone(), rw.ty(result).clone());
    let mut made: Option<(&str, TensorId)> = None;
    for (reader, module) in &again {
        let copy = match made {
            Some((of, copy)) if of == module => copy,
            _ => rw.insert_before(*reader, op.clone(), inputs.clone(), ty.clone()),
        };
        made = Some((module, copy));
        rw.reread(*reader, result, copy);
    }
    !again.is_empty()
}

/// The module in which `reader` has the place that `first` has in the module that `id` runs in, where that is another one.
fn elsewhere<'r>(rw: &'r Rewriter<'_>, id: NodeId, first: NodeId, reader: NodeId) -> Option<&'r str> {
    let scope = |n: NodeId| &*rw.node(n).scope;
    // A module of its own runs in its parent, a function where it is called.
    let [own, place, other] = [id, first, reader].map(scope);
    let module = if within(place, own).is_some() { own } else { parent(own) };
    let place = within(place, module)?;
    let other_module = other.strip_suffix(place).unwrap_or_default();
    // Without a place inside, modules are alike that differ in their numbers.
    let name = |path: &str| path.replace(|c: char| c.is_ascii_digit(), "");
    let is_alike = !module.is_empty()
        && !other_module.is_empty()
        && within(other_module, module).is_none()
        && within(module, other_module).is_none()
        && (!place.is_empty() || name(module) == name(other))
        && rw.is(reader, rw.node(first).op.name());
    is_alike.then_some(other_module)
}

/// What is left of a module path inside of a module.
fn within<'p>(path: &'p str, module: &str) -> Option<&'p str> {
    path.strip_prefix(module).filter(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn parent(scope: &str) -> &str {
    scope.rfind('.').map_or("", |end| &scope[..end])
}

/// `x - mean(x)` that is squared for a mean, and read again.
fn is_centred(rw: &Rewriter<'_>, id: NodeId, readers: &[NodeId]) -> bool {
    let mean = rw.input(id, 1).filter(|_| rw.is(id, "Sub")).and_then(|t| rw.made_by(t, "ReduceMean"));
    let is_variance = |pow: &&NodeId| {
        let square = rw.is(**pow, "Pow") && rw.input(**pow, 1).is_some_and(|t| rw.is_scalar(t, 2.0));
        let next = rw.output(**pow).filter(|_| square).and_then(|t| rw.sole_reader(t));
        next.is_some_and(|n| rw.is(n, "ReduceMean"))
    };
    mean.is_some() && readers.iter().filter(is_variance).count() == 1
}

#[cfg(test)]
mod tests {
    use crate::recompose::testing::Sketch;

    /// How many LeakyRelu are left of one that two convolutions read, where each node stands.
    fn left(scopes: [&str; 4]) -> usize {
        let mut s = Sketch::default();
        let x = s.input("x", &[2, 8, 8, 8]);
        let w = [s.weight("v", &[8, 8, 1, 1]), s.weight("w", &[8, 8, 1, 1])];
        let y = s.push("LeakyRelu", &[x]);
        let (a, b) = (s.push("Conv", &[y, w[0]]), s.push("Conv", &[y, w[1]]));
        let y = s.push("Add", &[a, b]);
        for (node, scope) in s.graph.nodes.iter_mut().zip(scopes) {
            node.scope = scope.into();
        }
        s.recompose(y).iter().filter(|op| **op == "LeakyRelu").count()
    }

    #[test]
    fn what_two_modules_begin_with_runs_in_each() {
        assert_eq!(left(["blocks.0", "blocks.0.convs.0", "blocks.1.convs.0", ""]), 2);
        assert_eq!(left(["cell.left.act", "cell.left.conv", "cell.right.conv", "cell"]), 2);
        // Read at another place, by the module itself, or made before both.
        assert_eq!(left(["blocks.0", "blocks.0.convs.0", "blocks.1.convs.1", ""]), 1);
        assert_eq!(left(["blocks.0", "blocks.0", "blocks.1", ""]), 2);
        assert_eq!(left(["blocks.0", "blocks.0", "head", ""]), 1);
        assert_eq!(left(["block.act", "block.a", "block.b", "block"]), 1);
        assert_eq!(left(["stem.act", "heads.0.conv", "heads.1.conv", ""]), 1);
        assert_eq!(left(["", "", "", ""]), 1);
    }

    #[test]
    fn each_module_of_a_list_makes_its_own() {
        let mut s = Sketch::default();
        let (x, e) = (s.input("x", &[2, 8]), s.input("e", &[2, 8]));
        let zero = s.scalar(0.0);
        let mask = s.push("Greater", &[x, zero]);
        let heads: Vec<_> = (0..4).map(|_| s.push("Where", &[mask, e, zero])).collect();
        let y = s.push_with("Concat", [("axis", memfit_graph::Attribute::Int(1))].into(), &heads);
        for (node, scope) in
            s.graph.nodes.iter_mut().zip(["heads.0", "heads.0", "heads.1", "heads.2", "heads.3"])
        {
            node.scope = scope.into();
        }
        assert_eq!(s.recompose(y).iter().filter(|op| **op == "Greater").count(), 4);
    }

    #[test]
    fn the_difference_from_the_mean_is_made_for_the_variance_and_for_the_result() {
        for (power, count) in [(2.0, 2), (4.0, 1)] {
            let mut s = Sketch::default();
            let (x, axes, power) = (s.input("x", &[2, 8, 4, 4]), s.ints(&[1]), s.scalar(power));
            let mean = s.push("ReduceMean", &[x, axes]);
            let centred = s.push("Sub", &[x, mean]);
            let square = s.push("Pow", &[centred, power]);
            let variance = s.push("ReduceMean", &[square, axes]);
            let root = s.push("Sqrt", &[variance]);
            let y = s.push("Div", &[centred, root]);
            assert_eq!(s.recompose(y).iter().filter(|op| **op == "Sub").count(), count);
        }
    }
}
