//! Writes out the iterations of a `Loop` or `Scan` whose number is known.
//!
//! A framework runs the body again and again, and for backward keeps what each iteration made; so does a graph that holds the
//! body as often. Bodies that run too often, or how often is not known before sizes are given, stay as they are.

use crate::inline::Splice;
use crate::ops::if_::If;
use crate::ops::loop_::Loop;
use crate::ops::scan::Scan;
use crate::{Attribute, Attributes, DType, Dim, Graph, Inferred, Node, Role, Shape, TensorId, Type, Value};
use std::sync::Arc;

/// How many iterations of one loop are written out.
const MOST_ITERATIONS: u64 = 512;

/// How many nodes a loop may become.
const MOST_NODES: u64 = 1 << 14;

/// How many nodes a graph may have for another loop in it to be written out: loops nest.
const MOST_NODES_OF_ALL: usize = 1 << 16;

/// A loop with all that its iterations need.
struct Plan<'n> {
    body: &'n Graph,
    trips: u64,
    /// The first state, by body input; iteration and condition of a Loop are constants of each iteration.
    states: Vec<Option<TensorId>>,
    /// For a Loop, that it hands an iteration number and a condition to its body.
    counts: bool,
    /// What a Scan slices, and how.
    sliced: Vec<(TensorId, Along)>,
    /// How each further output is stacked.
    stacked: Vec<Along>,
}

/// An axis, and whether it is walked from its end.
#[derive(Clone, Copy, Debug, Default)]
struct Along {
    axis: i64,
    backwards: bool,
}

impl Along {
    /// The `k`th of a Scan's axes and directions; both may be left out.
    fn of(axes: &[i64], directions: &[i64], k: usize) -> Along {
        Along { axis: axes.get(k).copied().unwrap_or(0), backwards: directions.get(k) == Some(&1) }
    }
}

impl Graph {
    /// Whether a loop or a branch is left that sizes may decide.
    pub fn has_bodies(&self) -> bool {
        self.nodes.iter().any(|n| is_loop(n) || n.op.downcast::<If>().is_some())
    }

    /// Replaces each Loop and Scan whose number of iterations `inferred` knows; whether there was one.
    pub fn unroll_loops(&mut self, inferred: &Inferred) -> bool {
        if !self.nodes.iter().any(is_loop) {
            return false;
        }
        let mut replaced = false;
        for node in std::mem::take(&mut self.nodes) {
            let room = self.nodes.len() < MOST_NODES_OF_ALL;
            let plan = of_loop(&node, inferred).or_else(|| of_scan(&node, inferred)).filter(|_| room);
            match plan {
                Some(plan) => {
                    replaced = true;
                    self.write_out(&node, &plan);
                }
                None => self.nodes.push(node),
            }
        }
        replaced
    }

    fn write_out(&mut self, node: &Node, plan: &Plan<'_>) {
        let mut splice = Splice::new(node, plan.body);
        let mut states = plan.states.clone();
        let mut slices: Vec<Vec<Option<TensorId>>> = vec![Vec::new(); plan.stacked.len()];
        for trip in 0..plan.trips {
            let count = i64::try_from(trip).unwrap_or(i64::MAX);
            let mut inputs = Vec::new();
            if plan.counts {
                let name = |what: &str| format!("{}/{what}_{trip}", node.name);
                inputs.push(Some(self.add_constant(name("iteration"), Value::scalar(DType::Int64, count))));
                inputs.push(Some(self.add_constant(name("condition"), Value::scalar(DType::Bool, 1))));
            }
            inputs.extend(states.iter().copied());
            for (k, (t, Along { axis, backwards })) in plan.sliced.iter().enumerate() {
                let at = format!("{}/slice_{trip}_{k}", node.name);
                let index = if *backwards { -1 - count } else { count };
                let index = self.add_constant(format!("{at}_index"), Value::scalar(DType::Int64, index));
                inputs.push(self.make(node, "Gather", Some(("axis", *axis)), &[*t, index], &at, None));
            }
            let outputs = splice.iteration(self, Some(trip), &inputs, &[]);
            let mut outputs = outputs.into_iter().skip(usize::from(plan.counts));
            states = outputs.by_ref().take(states.len()).collect();
            slices.iter_mut().zip(outputs).for_each(|(all, slice)| all.push(slice));
        }
        for (state, outer) in states.iter().zip(&node.outputs) {
            if let (Some(state), Some(outer)) = (state, outer) {
                self.make(node, "Identity", None, &[*state], &node.name, Some(*outer));
            }
        }
        let stacked = node.outputs.iter().skip(states.len());
        for ((all, Along { axis, backwards }), outer) in slices.into_iter().zip(&plan.stacked).zip(stacked) {
            let (Some(outer), Some(mut all)) = (outer, all.into_iter().collect::<Option<Vec<_>>>()) else {
                continue;
            };
            if *backwards {
                all.reverse();
            }
            let axes = self.add_constant(format!("{}/axes", node.name), Value::vector(DType::Int64, [*axis]));
            let name = |k: usize| format!("{}/stacked_{}_{k}", node.name, outer.0);
            let wide: Vec<TensorId> = all
                .iter()
                .enumerate()
                .filter_map(|(k, t)| self.make(node, "Unsqueeze", None, &[*t, axes], &name(k), None))
                .collect();
            self.make(node, "Concat", Some(("axis", *axis)), &wide, &name(wide.len()), Some(*outer));
        }
    }

    /// Adds a node in the place of `node`, which makes `output` or a new tensor.
    fn make(
        &mut self,
        node: &Node,
        op: &str,
        attribute: Option<(&'static str, i64)>,
        inputs: &[TensorId],
        name: &str,
        output: Option<TensorId>,
    ) -> Option<TensorId> {
        let attributes = attribute.map(|(name, n)| Attributes::from([(name, Attribute::Int(n))]));
        let op = crate::find_op("", op, i64::MAX)?.build(attributes.unwrap_or_default(), i64::MAX).ok()?;
        let output = output.unwrap_or_else(|| self.add_tensor(name, Type::Unknown, Role::Intermediate));
        self.add_node(name, op, inputs.iter().copied().map(Some).collect(), vec![Some(output)]);
        self.nodes.last_mut()?.scope = Arc::clone(&node.scope);
        Some(output)
    }
}

fn is_loop(node: &Node) -> bool {
    node.op.downcast::<Loop>().is_some() || node.op.downcast::<Scan>().is_some()
}

fn of_loop<'n>(node: &'n Node, inferred: &Inferred) -> Option<Plan<'n>> {
    let body = &node.op.downcast::<Loop>()?.body;
    let input = |i: usize| node.inputs.get(i).copied().flatten();
    let number = |t: TensorId| inferred.value(t)?.single()?.as_i64();
    let trips = u64::try_from(number(input(0)?)?).ok()?;
    if input(1).is_some_and(|t| number(t) != Some(1)) || !goes_on(body) {
        return None;
    }
    let states: Vec<_> = node.inputs.iter().skip(2).copied().collect();
    let stacked = vec![Along::default(); body.outputs.len().checked_sub(1 + states.len())?];
    fits(Plan { body, trips, states, counts: true, sliced: Vec::new(), stacked })
}

fn of_scan<'n>(node: &'n Node, inferred: &Inferred) -> Option<Plan<'n>> {
    let scan = node.op.downcast::<Scan>()?;
    let count = node.inputs.len().checked_sub(scan.scanned)?;
    let (states, scanned) = node.inputs.split_at_checked(count)?;
    let along = |k: usize| Along::of(&scan.input_axes, &scan.input_directions, k);
    let sliced: Vec<(TensorId, Along)> =
        scanned.iter().enumerate().map(|(k, t)| Some(((*t)?, along(k)))).collect::<Option<_>>()?;
    let (first, Along { axis, .. }) = *sliced.first()?;
    let shape: &Shape = inferred.shape(first)?;
    let trips = shape.axis(axis).and_then(|at| shape.dims().get(at)).and_then(Dim::known)?;
    // Before opset 9 there is a batch axis of its own.
    if scan.batched {
        return None;
    }
    let stacked = (0..scan.body.outputs.len().checked_sub(count)?)
        .map(|k| Along::of(&scan.output_axes, &scan.output_directions, k))
        .collect();
    fits(Plan { body: &scan.body, trips, states: states.to_vec(), counts: false, sliced, stacked })
}

/// The plan, where it is not too long.
fn fits(plan: Plan<'_>) -> Option<Plan<'_>> {
    // Each turn takes its slices and hands on its results.
    let turn = plan.body.nodes.len() + plan.sliced.len() + plan.stacked.len() + 2;
    let nodes = plan.trips.checked_mul(turn as u64)?;
    let inputs = plan.states.len() + plan.sliced.len() + if plan.counts { 2 } else { 0 };
    let runs = (1..=MOST_ITERATIONS).contains(&plan.trips) && nodes <= MOST_NODES;
    (runs && inputs == plan.body.inputs.len()).then_some(plan)
}

/// Whether a loop's body hands on that it goes on: its own condition, or a constant.
fn goes_on(body: &Graph) -> bool {
    let (Some(given), Some(mut t)) = (body.inputs.get(1).copied(), body.outputs.first().copied()) else {
        return false;
    };
    let producers = body.producers();
    for _ in 0..4 {
        if t == given || body.tensor(t).value.as_ref().and_then(|v| v.single()?.as_i64()) == Some(1) {
            return true;
        }
        let node = producers[t.index()].map(|n| &body.nodes[n.index()]);
        let source = node
            .filter(|n| matches!(n.op.name(), "Identity" | "Cast"))
            .and_then(|n| n.inputs.first().copied());
        let Some(Some(source)) = source else { return false };
        t = source;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Binding, find_op, infer};

    /// v = v * w, three times, with each result stacked.
    fn graph(trips: i64) -> Graph {
        let mut body = Graph::default();
        let input = |g: &mut Graph, name: &str| {
            let id = g.add_tensor(name, Type::Unknown, Role::Input);
            g.inputs.push(id);
            id
        };
        let _iteration = input(&mut body, "i");
        let condition = input(&mut body, "c");
        let v = input(&mut body, "v");
        let w = body.add_tensor("w", Type::tensor(DType::Float32, Shape::from([3])), Role::Initializer);
        let v = body.push("Mul", Attributes::default(), &[v, w], "product").unwrap();
        body.outputs = vec![condition, v, v];
        let mut g = Graph::default();
        let x = g.add_tensor("x", Type::tensor(DType::Float32, Shape::from([2, 3])), Role::Input);
        g.inputs = vec![x];
        let m = g.add_constant("m", Value::scalar(DType::Int64, trips));
        let attributes = Attributes::from([("body", Attribute::Graph(Box::new(body)))]);
        let op = find_op("", "Loop", 13).unwrap().build(attributes, 13).unwrap();
        let out = ["last", "all"].map(|name| g.add_tensor(name, Type::Unknown, Role::Intermediate));
        g.add_node("loop", op, vec![Some(m), None, Some(x)], out.map(Some).to_vec());
        g.outputs = out.to_vec();
        g
    }

    #[test]
    fn each_iteration_is_there_and_they_share_their_weights() {
        let mut g = graph(3);
        let before = infer(&g, &Binding::default()).unwrap();
        assert!(g.unroll_loops(&before));
        let names: Vec<&str> = g.nodes.iter().map(|n| n.op.name()).collect();
        assert_eq!(names.iter().filter(|n| **n == "Mul").count(), 3);
        assert_eq!(g.tensors.iter().filter(|t| t.name.ends_with("/w")).count(), 1);
        let after = infer(&g, &Binding::default()).unwrap();
        for output in &g.outputs {
            assert_eq!(after.shape(*output), before.shape(*output));
        }
        assert!(!g.unroll_loops(&after));
    }

    #[test]
    fn what_runs_too_often_or_never_stays() {
        for trips in [0, 100_000] {
            let mut g = graph(trips);
            let inferred = infer(&g, &Binding::default()).unwrap();
            assert!(!g.unroll_loops(&inferred));
        }
    }

    /// h = h + x, of slices of x along its middle axis, with tanh of each h stacked.
    fn scan(directions: &[(&'static str, i64)]) -> Graph {
        let mut body = Graph::default();
        let ids = ["h", "x"].map(|name| body.add_tensor(name, Type::Unknown, Role::Input));
        body.inputs = ids.to_vec();
        let h = body.push("Add", Attributes::default(), &ids, "sum").unwrap();
        let y = body.push("Tanh", Attributes::default(), &[h], "y").unwrap();
        body.outputs = vec![h, y];
        let mut g = Graph::default();
        let input = |g: &mut Graph, name: &str, shape: &[u64]| {
            let id = g.add_tensor(name, Type::tensor(DType::Float32, Shape::from(shape)), Role::Input);
            g.inputs.push(id);
            id
        };
        let (h, x) = (input(&mut g, "h", &[2, 4]), input(&mut g, "x", &[2, 5, 4]));
        let mut attributes = Attributes::from([
            ("body", Attribute::Graph(Box::new(body))),
            ("num_scan_inputs", Attribute::Int(1)),
            ("scan_input_axes", Attribute::Ints(vec![1])),
            ("scan_output_axes", Attribute::Ints(vec![1])),
        ]);
        attributes
            .0
            .extend(directions.iter().map(|(name, d)| ((*name).to_owned(), Attribute::Ints(vec![*d]))));
        let op = find_op("", "Scan", 11).unwrap().build(attributes, 11).unwrap();
        let out = ["last", "all"].map(|name| g.add_tensor(name, Type::Unknown, Role::Intermediate));
        g.add_node("scan", op, vec![Some(h), Some(x)], out.map(Some).to_vec());
        g.outputs = out.to_vec();
        g
    }

    #[test]
    fn a_scan_takes_a_slice_at_a_time() {
        let mut g = scan(&[]);
        let before = infer(&g, &Binding::default()).unwrap();
        assert!(g.unroll_loops(&before));
        let after = infer(&g, &Binding::default()).unwrap();
        assert_eq!(after.shape(g.outputs[1]).unwrap().known().unwrap(), [2, 5, 4]);
        assert_eq!(after.shape(g.outputs[0]), before.shape(g.outputs[0]));
    }

    #[test]
    fn a_scan_may_read_and_write_from_the_end() {
        for (directions, first_slice, first_is_last) in [
            (&[][..], 0, false),
            (&[("scan_input_directions", 1)][..], -1, false),
            (&[("scan_output_directions", 1)][..], 0, true),
        ] {
            let mut g = scan(directions);
            let inferred = infer(&g, &Binding::default()).unwrap();
            assert!(g.unroll_loops(&inferred));
            let node = |name: &str| g.nodes.iter().find(|n| n.op.name() == name).unwrap();
            let index = g.tensor(node("Gather").inputs[1].unwrap()).value.clone();
            assert_eq!(index.unwrap().single().unwrap().as_i64(), Some(first_slice));
            // What the first iteration made is what the first Tanh made.
            let made = node("Tanh").outputs[0];
            let widened = g.nodes.iter().find(|n| n.op.name() == "Unsqueeze" && n.inputs[0] == made).unwrap();
            let at = node("Concat").inputs.iter().position(|t| *t == widened.outputs[0]);
            assert_eq!(at, Some(if first_is_last { 4 } else { 0 }));
        }
    }
}
