//! Which steps of a loop may run: so many side by side, the oldest that is not over and those after it.
//!
//! A loop's frame holds a ring of iterations; `NextIteration` of the newest waits while the ring is full, and an iteration is over when
//! nothing of it is left to run and the one before it is over (common_runtime/propagator_state.cc, `IncrementIteration`,
//! `CleanupIterations`).

use super::Flow;
use std::collections::BTreeMap;

/// A loop while it runs.
#[derive(Default)]
struct Frame {
    /// By step, how many of its kernels have still to run.
    left: BTreeMap<u32, u32>,
    /// What would be ready, but belongs to a step that may not begin yet.
    deferred: Vec<(u32, u32)>,
}

/// All loops while they run.
pub(super) struct Steps<'a> {
    flow: &'a Flow,
    parallel: u32,
    frames: BTreeMap<u32, Frame>,
}

impl<'a> Steps<'a> {
    pub(super) fn new(flow: &'a Flow, needed: &[u32], parallel: u32) -> Steps<'a> {
        let mut frames: BTreeMap<u32, Frame> = BTreeMap::new();
        for at in needed {
            if let Some(turn) = flow.kernels[*at as usize].turn {
                *frames.entry(turn.of).or_default().left.entry(turn.step).or_default() += 1;
            }
        }
        Steps { flow, parallel, frames }
    }

    /// The kernel, whose inputs are there, unless its step may not begin yet.
    pub(super) fn admit(&mut self, at: u32) -> Option<u32> {
        if self.frames.is_empty() {
            return Some(at);
        }
        let Some(turn) = self.flow.kernels[at as usize].turn else { return Some(at) };
        let Some(frame) = self.frames.get_mut(&turn.of) else { return Some(at) };
        let oldest = frame.left.keys().next().copied().unwrap_or(turn.step);
        if turn.step < oldest.saturating_add(self.parallel) {
            return Some(at);
        }
        frame.deferred.push((turn.step, at));
        None
    }

    /// The kernel has run: what may begin because its step is over.
    pub(super) fn end(&mut self, at: u32) -> Vec<u32> {
        if self.frames.is_empty() {
            return Vec::new();
        }
        let Some(turn) = self.flow.kernels[at as usize].turn else { return Vec::new() };
        let Some(frame) = self.frames.get_mut(&turn.of) else { return Vec::new() };
        let left = frame.left.entry(turn.step).or_default();
        *left = left.saturating_sub(1);
        if *left > 0 || frame.left.keys().next() != Some(&turn.step) {
            return Vec::new();
        }
        while frame.left.first_key_value().is_some_and(|(_, left)| *left == 0) {
            frame.left.pop_first();
        }
        let oldest = frame.left.keys().next().copied().unwrap_or(u32::MAX);
        let limit = oldest.saturating_add(self.parallel);
        let (ready, deferred) =
            std::mem::take(&mut frame.deferred).into_iter().partition(|(step, _)| *step < limit);
        frame.deferred = deferred;
        let ready: Vec<(u32, u32)> = ready;
        ready.into_iter().map(|(_, at)| at).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_graph::DType;

    #[test]
    fn a_step_waits_until_the_oldest_is_over() {
        let mut flow = Flow::default();
        let of = flow.begin_loop(3);
        let mut after = flow.constant(&[], DType::Int32).kernel;
        let first = after;
        let mut made = Vec::new();
        for step in 0..3 {
            after = flow.begin_step(of, step, after);
            made.push((after, flow.make("RandomUniform", &[], &[2], DType::Float32, None).kernel));
        }
        let needed: Vec<u32> = made.iter().flat_map(|(start, random)| [*start, *random]).collect();
        let mut steps = Steps::new(&flow, &needed, 2);
        assert_eq!(steps.admit(first), Some(first), "what is in no loop never waits");
        assert_eq!(steps.admit(made[1].1), Some(made[1].1));
        assert_eq!(steps.admit(made[2].0), None);
        // The second step is over before the first: the third has to wait all the same.
        for kernel in [made[1].0, made[1].1, made[0].0] {
            assert!(steps.end(kernel).is_empty());
        }
        assert_eq!(steps.end(made[0].1), [made[2].0]);
        assert_eq!(steps.admit(made[2].1), Some(made[2].1));
    }
}
