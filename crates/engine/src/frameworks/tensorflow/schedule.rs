//! The order in which the executor runs the kernels that somebody needs.
//!
//! A kernel runs when its inputs are there. Of those that become ready together the executor runs the cheap ones at once,
//! then goes on with the last of the others and hands the rest to its pool, where the latest comes first
//! (common_runtime/executor.cc, `ScheduleReady`; Eigen's ThreadPool takes its own tasks from the front). So the graph is
//! run depth first, the consumer that stands last in the graph before the others; where it stands is `grappler`'s doing.
//! What needs nothing (reads of variables, random masks, the batch) is started in an order that is the executor's own: the source
//! node's edges lie in a hash set of their addresses (graph/graph.h, `EdgeSet`), so it differs from run to run. They were made one after
//! the other in the graph's order, and the hash keeps neighbours together (lib/gtl/flatset.h, lib/hash/hash.h, `hash<T*>`): so it
//! is the graph's order, begun at a random place. The batch is there first; forward waits for the weight that is read last, and what is
//! read after it (the slots of whole layers, not just of some variable) holds up an update until everything else is done. In small
//! models that is much of the peak's spread, so the order is begun at several places and the peak in the middle is taken.

use super::dependencies::{Waits, has_effect, needed};
use super::grappler::Positions;
use super::names::Names;
use super::turns::Steps;
use super::{Effect, Flow, Place, Wire};
use memfit_graph::kernels::Kernel;
use memfit_graph::order::sorted_by_key;
use std::collections::{BinaryHeap, VecDeque};

/// At how many places the order is begun.
pub(super) const PLACES: usize = 15;

/// The kernels that the kept wires and the variables' updates need, and what decides in which order they run.
pub(super) struct Schedule<'a> {
    flow: &'a Flow,
    /// Those that need nothing, the last in the graph first.
    first: Vec<u32>,
    waits: Waits,
    /// By kernel.
    is_cheap: Vec<bool>,
    /// How many steps of a loop run side by side.
    parallel: u32,
}

impl<'a> Schedule<'a> {
    /// Grappler's walk begins at the roots; without them the graph is as it was made.
    pub(super) fn new(
        flow: &'a Flow,
        kept: &[Wire],
        roots: Option<(&[u32], &Names<'_>)>,
        parallel: u32,
    ) -> Schedule<'a> {
        let needed = needed(flow, kept);
        let positions = match roots {
            Some((roots, names)) => Positions::optimized(flow, &needed, names, roots, kept),
            None => Positions::as_made(flow),
        };
        let kernels = || (0..).zip(&needed).filter(|(_, needed)| **needed).map(|(at, _)| at);
        let mut waits = Waits::of(flow, kernels(), |from| from);
        for list in waits.readers.iter_mut().filter(|list| list.len() > 1) {
            list.sort_by_key(|reader| positions.of(*reader));
        }
        let first = kernels().filter(|at| waits.number[*at as usize] == 0).collect();
        let first = sorted_by_key(first, |at| u64::from(u32::MAX - positions.of(*at)));
        let is_cheap = flow.kernels.iter().map(is_cheap).collect();
        Schedule { flow, first, waits, is_cheap, parallel }
    }

    /// The kernels in the order in which they run. What needs nothing is started after the batch and from this place on; without one,
    /// all of it before the batch.
    pub(super) fn order(&self, place: Option<usize>) -> Vec<u32> {
        let flow = self.flow;
        let is_feed = |i: &u32| matches!(flow.kernels[*i as usize].effect, Effect::Feed(_));
        let mut first = self.first.clone();
        first.rotate_left(place.map_or(0, |place| place * self.first.len() / PLACES));
        let first = sorted_by_key(first, |i| u64::from(is_feed(i) == place.is_none()));
        let mut pool = VecDeque::from(first);
        let mut waiting = self.waits.number.clone();
        let mut order = Vec::with_capacity(self.waits.needed.len());
        let mut steps = Steps::new(flow, &self.waits.needed, self.parallel);
        let (mut inline, mut ready) = (VecDeque::new(), Vec::new());
        while let Some(next) = pool.pop_front() {
            inline.push_back(next);
            while let Some(at) = inline.pop_front() {
                order.push(at);
                let mut current = None;
                self.ready_after(at, &mut waiting, &mut steps, &mut ready);
                for reader in ready.drain(..) {
                    if self.is_cheap[reader as usize] {
                        inline.push_back(reader);
                    } else if let Some(other) = current.replace(reader) {
                        pool.push_front(other);
                    }
                }
                match current {
                    Some(current) if inline.is_empty() => inline.push_back(current),
                    Some(current) => pool.push_front(current),
                    None => {}
                }
            }
        }
        order
    }
}

impl Schedule<'_> {
    /// The order on a GPU, whose kernels are none of them expensive (framework/op_kernel.cc, `OpKernel::OpKernel`): the executor runs
    /// what is ready itself, first come, first served (common_runtime/executor.cc, `ScheduleReady`), so that all updates that wait
    /// for one number, a norm of all gradients, go on side by side.
    pub(super) fn order_on_gpu(&self) -> Vec<u32> {
        let mut waiting = self.waits.number.clone();
        let mut order = self.first.clone();
        let mut steps = Steps::new(self.flow, &self.waits.needed, self.parallel);
        let mut next = 0;
        while let Some(at) = order.get(next).copied() {
            next += 1;
            self.ready_after(at, &mut waiting, &mut steps, &mut order);
        }
        order
    }

    /// An order that XLA tries: of what is ready, the kernel that frees most beyond what it makes, then the one with most readers
    /// (xla/service/hlo_memory_scheduler.cc, `ListScheduler`). What makes no buffer of its own runs at once.
    pub(super) fn frugal(&self, kept: &[Wire]) -> Vec<u32> {
        let kernels = &self.flow.kernels;
        // By kernel and output, the one whose buffer it is; by buffer, its bytes and how many kernels have still to read it.
        let mut first = Vec::with_capacity(kernels.len());
        let outputs = kernels.iter().fold(0, |of, kernel| {
            first.push(of);
            of + kernel.outputs.len()
        });
        let mut of: Vec<usize> = (0..outputs).collect();
        let mut bytes = vec![0; outputs];
        for (kernel, first_of) in kernels.iter().zip(&first) {
            let from =
                kernel.inputs.first().map(|wire| of[first[wire.kernel as usize] + wire.output as usize]);
            for (at, made) in (*first_of..).zip(&kernel.outputs) {
                let shared = from.filter(|_| made.place == Place::Alias && kernel.effect == Effect::None);
                of[at] = shared.unwrap_or(at);
                // New values of variables are counted although they lie in the old ones' place.
                let is_new = matches!(made.place, Place::New | Place::Reuse) || has_effect(kernel);
                bytes[at] = if is_new { made.dtype.size_of(made.elements()).0 } else { 0 };
            }
        }
        let buffer = |wire: &Wire| of[first[wire.kernel as usize] + wire.output as usize];
        // By kernel, the buffers that it reads; by buffer, the kernels that read it.
        let mut reads: Vec<Vec<usize>> = vec![Vec::new(); kernels.len()];
        let mut read_by: Vec<Vec<u32>> = vec![Vec::new(); of.len()];
        let makes_none = |at: u32| kernels[at as usize].effect == Effect::None && self.is_cheap[at as usize];
        for at in self.waits.needed.iter().copied().filter(|at| !makes_none(*at)) {
            let reads = &mut reads[at as usize];
            reads.extend(kernels[at as usize].inputs.iter().map(buffer));
            reads.sort_unstable();
            reads.dedup();
            reads.iter().for_each(|buffer| read_by[*buffer].push(at));
        }
        let mut left: Vec<usize> = read_by.iter().map(Vec::len).collect();
        kept.iter().for_each(|wire| left[buffer(wire)] += 1);
        let gain = |at: u32, left: &[usize]| {
            let freed =
                reads[at as usize].iter().filter(|buffer| left[**buffer] == 1).map(|buffer| bytes[*buffer]);
            let own = first[at as usize]..first[at as usize] + kernels[at as usize].outputs.len();
            let sum = |sum: u64, n: u64| sum.saturating_add(n);
            // A library call gives a tuple of its result and its scratch: two pointers more.
            let table = if is_call(&kernels[at as usize]) { 16 } else { 0 };
            let made = bytes.get(own).unwrap_or_default().iter().copied().fold(table, sum);
            i128::from(freed.fold(0, sum)) - i128::from(made)
        };
        let mut waiting = self.waits.number.clone();
        let mut steps = Steps::new(self.flow, &self.waits.needed, self.parallel);
        let (mut order, mut next) = (Vec::new(), self.first.clone());
        // A kernel whose gain has grown meanwhile is there twice, the better first.
        let mut ready = BinaryHeap::new();
        let mut is_ready = vec![false; kernels.len()];
        loop {
            for at in next.drain(..) {
                is_ready[at as usize] = true;
                let readers = self.waits.readers[at as usize].len();
                ready.push((makes_none(at), gain(at, &left), readers, order.len(), at));
            }
            let best = std::iter::from_fn(|| ready.pop()).find(|(.., at)| is_ready[*at as usize]);
            let Some((.., at)) = best else { return order };
            is_ready[at as usize] = false;
            order.push(at);
            self.ready_after(at, &mut waiting, &mut steps, &mut next);
            for buffer in &reads[at as usize] {
                left[*buffer] -= 1;
                if left[*buffer] == 1 {
                    next.extend(read_by[*buffer].iter().filter(|at| is_ready[**at as usize]));
                }
            }
        }
    }

    /// Adds what is ready once this kernel has run, in the order of the graph.
    fn ready_after(&self, at: u32, waiting: &mut [u32], steps: &mut Steps<'_>, ready: &mut Vec<u32>) {
        for reader in &self.waits.readers[at as usize] {
            let left = &mut waiting[*reader as usize];
            *left -= 1;
            if *left == 0 {
                ready.extend(steps.admit(*reader));
            }
        }
        ready.extend(steps.end(at));
    }
}

/// Whether XLA calls a library for it.
fn is_call(kernel: &Kernel) -> bool {
    kernel.name.contains("Conv") || kernel.name.contains("MatMul")
}

/// Kernels that say of themselves that they are not expensive (`OpKernel::IsExpensive`): those that make views, and reads.
fn is_cheap(kernel: &Kernel) -> bool {
    matches!(kernel.effect, Effect::None | Effect::Read(_))
        && kernel.outputs.iter().all(|made| matches!(made.place, Place::Alias | Place::Host))
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_graph::DType;

    #[test]
    fn reads_keep_the_graphs_order_from_one_place_or_another_on() {
        let mut flow = Flow::default();
        let reads: Vec<u32> = (0..30)
            .map(|_| {
                let variable = flow.variable(&[2], DType::Float32, true);
                let read = flow.read(variable);
                flow.effect("AssignSubVariableOp", &[read], Vec::new(), Effect::Update(variable), None);
                read.kernel
            })
            .collect();
        let schedule = Schedule::new(&flow, &[], None, 1);
        let started = |place| -> Vec<u32> {
            let order = schedule.order(Some(place));
            order
                .into_iter()
                .filter_map(|at| reads.iter().position(|read| *read == at))
                .map(|i| i as u32)
                .collect()
        };
        let whole = started(0);
        for place in 0..PLACES {
            let begun = started(place);
            assert_eq!(begun[0], whole[2 * place]);
            assert!((0..30).all(|i| begun[(i + 1) % 30] == (begun[i] + 29) % 30), "{begun:?}");
        }
    }

    #[test]
    fn what_frees_most_runs_first() {
        // Two products of one gradient: of the one that is the last to read what forward made, the result is small.
        let mut flow = Flow::default();
        let float =
            |flow: &mut Flow, name, inputs: &[Wire], n| flow.make(name, inputs, &[n], DType::Float32, None);
        let x = float(&mut flow, "X", &[], 1000);
        let y = float(&mut flow, "Y", &[x], 1000);
        let view = flow.view("Reshape", x, &[10, 100]);
        let dx = float(&mut flow, "of inputs", &[y], 1000);
        let dw = float(&mut flow, "of weights", &[view, y], 10);
        let schedule = Schedule::new(&flow, &[dx, dw], None, 1);
        let order = schedule.frugal(&[dx, dw]);
        assert_eq!(order, [x, view, y, dw, dx].map(|wire| wire.kernel));
    }

    #[test]
    fn a_gpu_runs_chains_side_by_side_and_a_thread_one_after_the_other() {
        let mut flow = Flow::default();
        let mut chains = Vec::new();
        for _ in 0..2 {
            let variable = flow.variable(&[2], DType::Float32, true);
            let read = flow.read(variable);
            let squared = flow.scaled("Square", read);
            let root = flow.scaled("Sqrt", squared);
            flow.effect("AssignSubVariableOp", &[root], Vec::new(), Effect::Update(variable), None);
            chains.push((squared.kernel, root.kernel));
        }
        let schedule = Schedule::new(&flow, &[], None, 1);
        let turns = |order: Vec<u32>| {
            let at = |kernel: u32| order.iter().position(|other| *other == kernel).unwrap();
            // Whether one chain's second kernel runs before the other's first.
            chains.iter().zip(chains.iter().rev()).any(|(one, other)| at(one.1) < at(other.0))
        };
        assert!(!turns(schedule.order_on_gpu()));
        assert!(turns(schedule.order(Some(0))));
    }
}
