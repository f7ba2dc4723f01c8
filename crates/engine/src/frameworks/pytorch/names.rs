//! How long Python's names keep forward's tensors alive.
//!
//! A tensor lives until its last use or until the last name for it goes, whichever is later. Two names matter. The
//! caller of a module holds the arguments until the call returns (`x = self.block(x)`), however deep inside they are read. A
//! tensor that a `forward` uses several times has a local name there (`identity = x`), which goes when that `forward` returns.
//! Which `forward` that is follows from the module paths of the nodes that read it; where a file has none, only uses count.
//! So has one that waits while another module is called (`low = self.low(x); high = self.high(y); return low + high`), unless
//! arithmetic takes over the name of what arithmetic made (`out = out + branch(x)`, `scores = scores * scale; scores = scores + bias(x)`).
//! A loop that calls one module again and again binds the name of its result anew each time, and so it does with the names of what
//! it reckons from that (the states of `for x in inputs: h, c = cell(x, h, c)`, written out in Python).

use super::keras;
use crate::structure::{Name, is_keras};
use memfit_graph::order::sorted_by_key;
use memfit_graph::{Graph, Node, NodeId, Role, TensorId};

/// The names of a model's code, in the order in which they go.
///
/// In the model's own `forward`, names are rebound in loops over lists of modules: by a sum with the tensor itself
/// (`x = x + y`), and where an item of such a list made the tensor.
pub(crate) fn names(graph: &Graph) -> Vec<Name> {
    if is_keras(graph) {
        return keras::names(graph);
    }
    let mut names = Vec::new();
    if graph.nodes.iter().all(|n| n.scope.is_empty()) {
        return names;
    }
    let (producers, consumers) = (graph.producers(), graph.consumers());
    let turns = turns(graph, &consumers);
    for (id, readers) in (0..).map(TensorId).zip(&consumers) {
        let (Some(producer), Some(last)) = (producers[id.index()], readers.last().copied()) else { continue };
        let scope = |n: NodeId| &*graph.nodes[n.index()].scope;
        let distinct = readers.windows(2).any(|w| w[0] != w[1]);
        let mut waits = false;
        let held_by = if distinct {
            // What runs between two readers runs in the same `forward`, which tells a list of modules from a module.
            let mut common = scope(readers[0]);
            for node in &graph.nodes[readers[0].index()..=last.index()] {
                if common.is_empty() {
                    break;
                }
                common = common_scope(common, &node.scope);
            }
            // The module that got it as an argument holds it too, and so does its caller until it returns.
            let outer = common_scope(scope(producer), common);
            let module = called(outer, common);
            if is_list(module, common) { common } else { module }
        } else {
            // The module that is called with it: one level below where it was made.
            let outer = common_scope(scope(producer), scope(last));
            let module = called(outer, scope(last));
            let is_argument = !module.is_empty() && module != scope(last);
            waits = !is_argument && !is_list(outer, module) && is_named(graph, outer, producer, last);
            if waits { outer } else { module }
        };
        let is_item =
            || scope(producer).split('.').any(|part| part.starts_with(|c: char| c.is_ascii_digit()));
        if held_by.is_empty() && is_item() {
            continue;
        }
        if !distinct && !waits && (held_by.is_empty() || held_by == scope(last)) {
            continue;
        }
        // What is read after that has another name.
        let in_turn = || turns[producer.index()].filter(|again| *again >= last);
        let again = runs_again(graph, &consumers, producer).or_else(in_turn);
        let again = again.map_or(graph.nodes.len(), NodeId::index);
        let end = (last.index()..graph.nodes.len().min(again.saturating_add(1)))
            .take_while(|i| is_within(&graph.nodes[*i].scope, held_by))
            .last();
        if let Some(until) = end.and_then(|end| u32::try_from(end).ok()) {
            let node = &graph.nodes[last.index()];
            let sum = node.outputs.first().copied().flatten().filter(|_| node.op.name() == "Add");
            names.push(Name { until, tensor: id, rebound: sum.filter(|_| held_by.is_empty()) });
        }
    }
    sorted_by_key(names, |name| name.until.into())
}

/// How many nodes after a tensor was made are looked at for a module that is called meanwhile.
const LOOK_AHEAD: usize = 256;

/// Whether a tensor that one node reads has a name in the `forward` of `outer`: another module is called between.
fn is_named(graph: &Graph, outer: &str, producer: NodeId, reader: NodeId) -> bool {
    let node = |id: NodeId| &graph.nodes[id.index()];
    let is_arithmetic = |id: &NodeId| matches!(node(*id).op.name(), "Add" | "Sub" | "Mul" | "Div");
    if [producer, reader].iter().all(is_arithmetic) {
        return false;
    }
    let own = [called(outer, &node(producer).scope), called(outer, &node(reader).scope)];
    let is_own = |scope: &str| own.iter().any(|m| m.len() > outer.len() && is_within(scope, m));
    let between = graph.nodes[producer.index()..reader.index()].iter().skip(1).take(LOOK_AHEAD);
    between.map(|n| &*n.scope).any(|scope| {
        scope.len() > outer.len() && is_within(scope, outer) && !is_list(outer, scope) && !is_own(scope)
    })
}

/// The next node that runs the same operator with the same weight.
fn runs_again(graph: &Graph, consumers: &[Vec<NodeId>], id: NodeId) -> Option<NodeId> {
    let node = &graph.nodes[id.index()];
    let weights = node.inputs.iter().flatten().filter(|t| graph.tensor(**t).role == Role::Initializer);
    let others = weights.flat_map(|t| &consumers[t.index()]).copied();
    others.filter(|n| *n > id && graph.nodes[n.index()].op.name() == node.op.name()).min()
}

/// For each node without a weight the one that runs the same code in the next turn of a loop: as far behind the next run of the layer
/// that ran last before it.
fn turns(graph: &Graph, consumers: &[Vec<NodeId>]) -> Vec<Option<NodeId>> {
    let is_matrix = |t: &TensorId| {
        let tensor = graph.tensor(*t);
        tensor.role == Role::Initializer && tensor.declared.shape().is_some_and(|s| s.rank() > 1)
    };
    let mut layer = None;
    let next = |(i, node): (usize, &Node)| {
        if node.inputs.iter().flatten().any(is_matrix) {
            let id = NodeId(u32::try_from(i).ok()?);
            layer = runs_again(graph, consumers, id).map(|next| (i, next.index()));
            return None;
        }
        let (before, next) = layer?;
        let again = next.checked_add(i - before)?;
        let other = graph.nodes.get(again)?;
        let is_same = node.op.name() == other.op.name()
            && node.scope == other.scope
            && node.inputs.len() == other.inputs.len();
        is_same.then(|| u32::try_from(again).ok().map(NodeId))?
    };
    graph.nodes.iter().enumerate().map(next).collect()
}

/// The longest module path that both lie in.
fn common_scope<'s>(a: &'s str, b: &str) -> &'s str {
    if a == b {
        return a;
    }
    let mut end = 0;
    let (mut left, mut right) = (a.split('.'), b.split('.'));
    while let (Some(x), Some(y)) = (left.next(), right.next()) {
        if x != y {
            break;
        }
        end += x.len() + usize::from(end > 0);
    }
    &a[..end.min(a.len())]
}

/// The module one level below `outer` on the way to `inner`.
fn called<'s>(outer: &str, inner: &'s str) -> &'s str {
    let skip = if outer.is_empty() { 0 } else { outer.len() + 1 };
    match inner.get(skip..).and_then(|rest| rest.find('.')) {
        Some(end) => &inner[..skip + end],
        None => inner,
    }
}

/// Whether the modules between `outer` and `inner` may be items of a list, which is never called.
fn is_list(outer: &str, inner: &str) -> bool {
    let item = inner.strip_prefix(outer).and_then(|rest| rest.strip_prefix('.'));
    item.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

fn is_within(scope: &str, module: &str) -> bool {
    module.is_empty()
        || scope == module
        || scope.strip_prefix(module).is_some_and(|rest| rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_graph::{Attributes, DType, Shape, Type};

    #[test]
    fn paths() {
        assert_eq!(common_scope("a.b.c", "a.b.d"), "a.b");
        assert_eq!(common_scope("ab.c", "a.c"), "");
        assert_eq!(called("a", "a.b.c"), "a.b");
        assert_eq!(called("", "a.b"), "a");
        assert!(is_within("a.b", "a") && !is_within("ab", "a"));
    }

    #[test]
    fn a_state_s_name_is_bound_anew_in_the_next_turn_of_a_loop() {
        let mut g = Graph::default();
        let x = g.add_tensor("x", Type::Unknown, Role::Input);
        let matrix = |g: &mut Graph, name| {
            g.add_tensor(name, Type::tensor(DType::Float32, Shape::from([8, 8])), Role::Initializer)
        };
        let (cell, head) = (matrix(&mut g, "cell.weight"), matrix(&mut g, "head.weight"));
        let push = |g: &mut Graph, op: &str, inputs: &[TensorId], name: &str, scope: &str| {
            let out = g.push(op, Attributes::default(), inputs, name).unwrap();
            g.nodes.last_mut().unwrap().scope = scope.into();
            out
        };
        let mut state = x;
        let mut states = Vec::new();
        for turn in 0..3 {
            let y = push(&mut g, "MatMul", &[state, cell], &format!("y{turn}"), "cell");
            state = push(&mut g, "Tanh", &[y], &format!("h{turn}"), "");
            push(&mut g, "MatMul", &[state, head], &format!("o{turn}"), "head");
            states.push(state);
        }
        let names = names(&g);
        // The head runs last before the states' next layer; each state goes when the next one is there.
        let until = |t: TensorId| names.iter().find(|name| name.tensor == t).map(|name| name.until);
        assert_eq!(until(states[0]), Some(4));
        assert_eq!(until(states[1]), Some(7));
    }

    #[test]
    fn a_tensor_read_twice_lives_as_long_as_its_forward() {
        let mut g = Graph::default();
        let x = g.add_tensor("x", Type::Unknown, Role::Input);
        let push = |g: &mut Graph, op: &str, inputs: &[TensorId], name: &str, scope: &str| {
            let out = g.push(op, Attributes::default(), inputs, name).unwrap();
            g.nodes.last_mut().unwrap().scope = scope.into();
            out
        };
        let a = push(&mut g, "Relu", &[x], "a", "stem");
        let b = push(&mut g, "Relu", &[a], "b", "block.conv");
        let c = push(&mut g, "Add", &[a, b], "c", "block");
        let d = push(&mut g, "Relu", &[c], "d", "block.act");
        push(&mut g, "Relu", &[d], "e", "head");
        // `identity` goes with the block's forward, after its activation.
        let names = names(&g);
        assert!(names.contains(&Name { until: 3, tensor: a, rebound: None }));
        assert!(!names.iter().any(|name| name.tensor == b));
    }

    #[test]
    fn what_waits_for_another_module_has_a_name_unless_arithmetic_takes_it_over() {
        for (first, until) in [("Relu", Some(4)), ("Add", None), ("Mul", None)] {
            let mut g = Graph::default();
            let x = g.add_tensor("x", Type::Unknown, Role::Input);
            let mut push = |op: &str, inputs: &[TensorId], scope: &str| {
                let name = format!("{op}{}", g.tensors.len());
                let out = g.push(op, Attributes::default(), inputs, &name).unwrap();
                g.nodes.last_mut().unwrap().scope = scope.into();
                out
            };
            let inputs = if first == "Relu" { vec![x] } else { vec![x, x] };
            let low = push(first, &inputs, "block.low");
            let high = push("Relu", &[x], "block.high");
            let sum = push("Add", &[low, high], "block");
            let y = push("Relu", &[sum], "block.act");
            push("Neg", &[y], "block");
            push("Neg", &[y], "head");
            let names = names(&g);
            assert_eq!(names.iter().find(|name| name.tensor == low).map(|name| name.until), until);
            assert!(!names.iter().any(|name| name.tensor == high));
        }
    }

    #[test]
    fn a_module_that_is_called_again_binds_the_name_of_its_result_anew() {
        for (weights, until) in [(["w", "w"], 4), (["v", "w"], 5)] {
            let mut g = Graph::default();
            let x = g.add_tensor("x", Type::Unknown, Role::Input);
            let [v, w] = ["v", "w"].map(|name| g.add_tensor(name, Type::Unknown, Role::Initializer));
            let mut push = |op: &str, inputs: &[TensorId], scope: &str| {
                let name = format!("{op}{}", g.tensors.len());
                let out = g.push(op, Attributes::default(), inputs, &name).unwrap();
                g.nodes.last_mut().unwrap().scope = scope.into();
                out
            };
            let weights = weights.map(|name| if name == "v" { v } else { w });
            let first = push("MatMul", &[x, weights[0]], "gate");
            let (a, b) = (push("Tanh", &[first], ""), push("Sigmoid", &[first], ""));
            let h = push("Mul", &[a, b], "");
            push("MatMul", &[h, weights[1]], "gate");
            push("Relu", &[h], "");
            assert!(names(&g).contains(&Name { until, tensor: first, rebound: None }), "{until}");
        }
    }

    #[test]
    fn an_argument_lives_until_the_module_that_was_called_with_it_returns() {
        for (first, second, until) in [("encoder.layers.0", "encoder.norm", 3), ("layers.0", "layers.1", 2)] {
            let mut g = Graph::default();
            let x = g.add_tensor("x", Type::Unknown, Role::Input);
            let mut push = |op: &str, inputs: &[TensorId], name: &str, scope: &str| {
                let out = g.push(op, Attributes::default(), inputs, name).unwrap();
                g.nodes.last_mut().unwrap().scope = scope.into();
                out
            };
            let a = push("Relu", &[x], "a", "embed");
            let b = push("Relu", &[a], "b", &format!("{first}.attention"));
            let c = push("Add", &[a, b], "c", first);
            let d = push("Relu", &[c], "d", second);
            push("Relu", &[d], "e", "head");
            assert!(names(&g).contains(&Name { until, tensor: a, rebound: None }), "{first}");
        }
    }
}
