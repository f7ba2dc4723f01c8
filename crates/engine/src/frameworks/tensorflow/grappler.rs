//! The order of the kernels in the graph once grappler has been over it, by which the executor breaks its ties.
//!
//! Each of grappler's two rounds begins with the pruner, which walks from the kernels that must run to what they read, depth first, and
//! turns the walk around (grappler/utils/transitive_fanin.cc, `SetTransitiveFaninGraph`); each pass ends with a topological
//! sort that leaves kernels which become ready together as they were (grappler/utils/topological_sort.cc). The walk begins at
//! the kernel that must run whose name is last in the alphabet (model_pruner.cc sorts them), and takes a kernel's last input
//! first. So it depends on names, which Keras makes by counting: with Adam the walk begins at the first moment of the
//! variable for which `Mul_{4k+3}` is the last string, once it is through with what forward reads: `adam` stands before `functional` in
//! the alphabet, `sgd` behind it. What it reaches first is put last, and runs first.
//! In between the remapper sorts in another way (grappler/utils/graph_view.cc, `SortTopologically`): depth first from what needs nothing,
//! the last of it first. That is the variable, or the seed of a dropout, whose layer's name is the last in the alphabet, since reads must run
//! too: what comes behind such a layer in forward is reached from there, so that the gradients of its weights stand behind
//! that of its input.
//! TensorFlow 2.21; checked against the partition graphs of traced steps.
//! Of a loop's body there is one copy in the graph, so all steps' copies of a kernel stand where the first step's stands.

use super::constants::{self, Constants};
use super::dependencies::{Waits, has_effect, reads};
use super::names::{self, Names};
use super::{Effect, Flow, Stage, Wire};
use memfit_graph::kernels::Kernel;
use memfit_graph::order::sorted_by_key;
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// Where a kernel stands in the graph: of several that become ready together the last one runs first.
pub(super) struct Positions(Vec<u32>);

impl Positions {
    /// The order in which the kernels were made: the graph optimizers are off.
    pub(super) fn as_made(flow: &Flow) -> Positions {
        Positions(Bodies::of(flow).first)
    }

    /// The order after grappler. `roots` are the kernels from which the walk begins, in its order; `kept` and all other effects
    /// follow.
    pub(super) fn optimized(
        flow: &Flow,
        needed: &[bool],
        names: &Names<'_>,
        roots: &[u32],
        kept: &[Wire],
    ) -> Positions {
        let bodies = Bodies::of(flow);
        let constants = Constants::of(flow);
        let met = walked(flow, names, &bodies, &constants, roots, kept);
        // Constants have the numbers after those of the kernels.
        let met: Vec<u32> = met.into_iter().filter(|at| needed.get(*at as usize) != Some(&false)).collect();
        let walked: Vec<u32> = met.iter().copied().filter(|at| (*at as usize) < needed.len()).collect();
        let remapped = remapped(flow, &sorted(flow, &walked, &bodies), &met, &bodies, &constants);
        let mut positions = vec![u32::MAX; flow.kernels.len()];
        for (i, at) in (0..).zip(sorted(flow, &remapped, &bodies)) {
            positions[at as usize] = i;
        }
        for at in 0..positions.len() {
            positions[at] = positions[bodies.first[at] as usize];
        }
        Positions(positions)
    }

    /// Where a kernel stands.
    pub(super) fn of(&self, kernel: u32) -> u32 {
        self.0[kernel as usize]
    }
}

/// Which copies of a loop's kernels are one in the graph.
struct Bodies {
    /// By kernel, the copy of the step that runs first.
    first: Vec<u32>,
    /// By that copy, the one of the step after it, which reads what the step before it made.
    second: BTreeMap<u32, u32>,
}

impl Bodies {
    fn of(flow: &Flow) -> Bodies {
        // By loop, place in its body and step.
        let mut copies: BTreeMap<Vec<u64>, u32> = BTreeMap::new();
        for (at, kernel) in (0..).zip(&flow.kernels) {
            if let Some(turn) = kernel.turn {
                copies.insert(vec![turn.of.into(), turn.place, turn.step.into(), at.into()], at);
            }
        }
        let mut bodies = Bodies { first: (0..).take(flow.kernels.len()).collect(), second: BTreeMap::new() };
        let mut before: Option<(&[u64], u32)> = None;
        for (key, at) in &copies {
            let first = match before {
                Some((place, first)) if place == &key[..2] => first,
                _ => *at,
            };
            if first != *at {
                bodies.first[*at as usize] = first;
                bodies.second.entry(first).or_insert(*at);
            }
            before = Some((&key[..2], first));
        }
        bodies
    }

    /// What a kernel reads in the graph: at the place of what a step takes from the one before, what the first step begins with too.
    fn reads(&self, flow: &Flow, at: u32) -> SmallVec<[u32; 8]> {
        let first = |at: u32| reads(&flow.kernels[at as usize]).map(|from| self.first[from as usize]);
        let begins = first(at);
        let Some(second) = self.second.get(&at) else { return begins.collect() };
        let (begins, carried): (Vec<u32>, Vec<u32>) = (begins.collect(), first(*second).collect());
        let both = |i| {
            let (a, b) = (begins.get(i).copied(), carried.get(i).copied());
            a.into_iter().chain(b.filter(|b| Some(*b) != a))
        };
        (0..begins.len().max(carried.len())).flat_map(both).collect()
    }
}

/// All that must run, what the walk met last first.
fn walked(
    flow: &Flow,
    names: &Names<'_>,
    bodies: &Bodies,
    constants: &Constants,
    roots: &[u32],
    kept: &[Wire],
) -> Vec<u32> {
    let effects = (0..).zip(&flow.kernels).filter(|(_, kernel)| has_effect(kernel)).map(|(i, _)| i);
    // The stack is emptied from its end.
    let mut stack: Vec<u32> = kept.iter().map(|wire| wire.kernel).chain(effects).collect();
    let last = stack.len();
    stack.extend(roots.iter().rev());
    // What forward reads of variables must run as well, a seed among them: before the optimizer unless that comes later in the alphabet. The
    // optimizer's reads lead to nothing but updates.
    let reads = (0..)
        .zip(&flow.kernels)
        .filter(|(_, kernel)| kernel.stage == Stage::Forward && reads_a_variable(kernel));
    let begin = stack.len();
    stack.extend(reads.map(|(at, _)| at));
    names.sort(flow, &mut stack[begin..]);
    if names.optimizer_is_last {
        stack[last..].rotate_left(begin - last);
    }
    stack.iter_mut().for_each(|at| *at = bodies.first[*at as usize]);
    let kernels = flow.kernels.len();
    let mut met = vec![false; kernels.saturating_add(constants.count as usize)];
    let mut order = Vec::new();
    while let Some(at) = stack.pop() {
        if !std::mem::replace(&mut met[at as usize], true) {
            order.push(at);
            if at as usize >= kernels {
                continue;
            }
            let mut from = bodies.reads(flow, at);
            let kernel = &flow.kernels[at as usize];
            if names::commutes(kernel) {
                let inputs = kernel.inputs.len().min(from.len());
                names.sort(flow, &mut from[..inputs]);
            }
            if let Some(constant) = constants.of[at as usize]
                && let Ok(number) = u32::try_from(kernels)
            {
                let place = constants::place(kernel).min(from.len());
                from.insert(place, number.saturating_add(constant));
            }
            // Steps that are one kernel have no kernel of their own in the graph.
            if kernel.name != "WhileGrad" {
                stack.extend(from);
            }
        }
    }
    order.reverse();
    order
}

/// Whether it reads a variable, or draws numbers from a seed, which is one.
fn reads_a_variable(kernel: &Kernel) -> bool {
    matches!(kernel.effect, Effect::Read(_)) || kernel.name.starts_with("StatelessRandom")
}

/// The order after a topological sort that begins with this one (Kahn's algorithm, first in, first out).
fn sorted(flow: &Flow, order: &[u32], bodies: &Bodies) -> Vec<u32> {
    let order = || order.iter().copied();
    let Waits { readers, number: mut waiting, .. } =
        Waits::of(flow, order(), |from| bodies.first[from as usize]);
    let queue: Vec<u32> = order().filter(|at| waiting[*at as usize] == 0).collect();
    // A variable is read one level below its handle.
    let mut queue =
        sorted_by_key(queue, |at| matches!(flow.kernels[*at as usize].effect, Effect::Read(_)).into());
    let mut next = 0;
    while let Some(at) = queue.get(next).copied() {
        next += 1;
        for reader in &readers[at as usize] {
            let left = &mut waiting[*reader as usize];
            *left -= 1;
            if *left == 0 {
                queue.push(*reader);
            }
        }
    }
    queue
}

/// The order after the remapper's sort: reversed post-order, from the last that needs nothing to the first, the last reader first. `walked` is
/// the order before any sort, in which a variable's handle stands where the last of its kernels does.
fn remapped(flow: &Flow, order: &[u32], walked: &[u32], bodies: &Bodies, constants: &Constants) -> Vec<u32> {
    let Waits { mut readers, number, .. } =
        Waits::of(flow, order.iter().copied(), |from| bodies.first[from as usize]);
    // What a loop's gradient reads of its steps comes through lists, which begin at constants of their own.
    let of = |at: u32| flow.kernels[at as usize].turn.map(|turn| turn.of);
    for (from, list) in (0..).zip(&mut readers) {
        let forward = of(from).filter(|of| of % 2 == 0);
        list.retain(|to| forward.is_none() || of(*to) != forward.map(|of| of | 1));
    }
    let mut of_variable = vec![Vec::new(); flow.variables.len()];
    for at in order {
        let kernel = &flow.kernels[*at as usize];
        if let Some(variable) = kernel.effect.variable() {
            of_variable[variable as usize].push(*at);
        }
        // The gradients of a convolution read the shapes of its inputs: constants, which must not be there before the inputs are
        // (`ConstantFolding::MaterializeShapes`).
        let of = kernel.gradient_of.filter(|_| kernel.name.contains("Backprop"));
        if let Some(conv) = of.map(|of| &flow.kernels[of as usize])
            && matches!(conv.name, "Conv2D" | "Conv3D")
        {
            conv.inputs.iter().for_each(|x| readers[bodies.first[x.kernel as usize] as usize].push(*at));
        }
    }
    let mut of_constant = vec![Vec::new(); constants.count as usize];
    for at in order {
        constants.of[*at as usize].into_iter().for_each(|constant| of_constant[constant as usize].push(*at));
    }
    let mut done = vec![false; flow.kernels.len()];
    let mut reversed = Vec::new();
    for source in walked.iter().rev().map(|source| *source as usize) {
        let Some(kernel) = flow.kernels.get(source) else {
            let constant = source.saturating_sub(flow.kernels.len());
            let begin = of_constant.get_mut(constant).map(std::mem::take).unwrap_or_default();
            visit(begin, &readers, &mut done, &mut reversed);
            continue;
        };
        let begin = match kernel.effect.variable() {
            Some(variable) => std::mem::take(&mut of_variable[variable as usize]),
            None if number[source] == 0 => u32::try_from(source).into_iter().collect(),
            None => continue,
        };
        visit(begin, &readers, &mut done, &mut reversed);
    }
    reversed.reverse();
    reversed
}

/// Puts what is reached from these behind what it reaches, the last of them first.
fn visit(begin: Vec<u32>, readers: &[SmallVec<[u32; 4]>], done: &mut [bool], reversed: &mut Vec<u32>) {
    let mut stack: Vec<(u32, bool)> = begin.into_iter().map(|at| (at, false)).collect();
    while let Some((at, left)) = stack.pop() {
        if done[at as usize] {
            continue;
        }
        if left {
            done[at as usize] = true;
            reversed.push(at);
        } else {
            stack.push((at, true));
            stack.extend(readers[at as usize].iter().map(|to| (*to, false)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_walk_meets_first_stands_last() {
        // A gradient whose two readers end in updates.
        let mut flow = Flow::default();
        let [a, b] = [
            flow.variable(&[2], memfit_graph::DType::Float32, true),
            flow.variable(&[2], memfit_graph::DType::Float32, true),
        ];
        let dy = flow.constant(&[2], memfit_graph::DType::Float32);
        let (to_a, to_b) = (flow.scaled("Mul", dy), flow.scaled("Mul", dy));
        let updates = [(a, to_a), (b, to_b)].map(|(variable, wire)| {
            flow.effect("AssignSubVariableOp", &[wire], Vec::new(), Effect::Update(variable), None).kernel
        });
        let needed = vec![true; flow.kernels.len()];
        for (roots, first) in [([updates[0], updates[1]], to_a), ([updates[1], updates[0]], to_b)] {
            let at = Positions::optimized(&flow, &needed, &Names::of(&flow, "m", &[]), &roots, &[]);
            let last = [to_a, to_b].into_iter().max_by_key(|wire| at.of(wire.kernel));
            assert_eq!(last, Some(first));
        }
    }

    #[test]
    fn gradients_of_weights_stand_last_behind_a_dropout() {
        for (name, last) in [("StatelessRandomUniformV2", "of weights"), ("Fill", "of inputs")] {
            let mut flow = Flow::default();
            let float = memfit_graph::DType::Float32;
            let variable = flow.variable(&[2], float, true);
            flow.layer = 1;
            let x = flow.make(name, &[], &[2], float, None);
            flow.layer = 0;
            let w = flow.read(variable);
            let y = flow.make("MatMul", &[x, w], &[2], float, None);
            flow.stage = Stage::Backward;
            let dy = flow.make("ReluGrad", &[y], &[2], float, None);
            let dx = flow.make("of inputs", &[dy, w], &[2], float, None);
            let dw = flow.make("of weights", &[x, dy], &[2], float, None);
            let layers = ["dense".into(), "dropout".into()];
            let names = Names::of(&flow, "sequential", &layers);
            let needed = vec![true; flow.kernels.len()];
            let at = Positions::optimized(&flow, &needed, &names, &[], &[dw, dx]);
            let found = [dx, dw].into_iter().max_by_key(|wire| at.of(wire.kernel));
            assert_eq!(found.map(|wire| flow.kernel(wire).name), Some(last), "{name}");
        }
    }
}
