//! Loops over time: the kernels of a body written out once for each step, each of which knows its turn.
//!
//! A `tf.while_loop` is lowered to one copy of its body between `Merge` and `NextIteration`; its gradient is a second loop that runs the
//! other way around (python/ops/while_v2.py, `_WhileGrad`). A step starts when its counter is there, whatever the one before still
//! has to do, up to [`PARALLEL`] of them at a time (common_runtime/propagator_state.cc, `FrameState`), but waits for the lists that it takes
//! from the one before ([`Flow::put`]); grappler knows one kernel for all
//! steps. What backward reads of a step is pushed to a list, which holds it without a copy, and popped. A variable's gradients are added
//! to a sum that is carried from step to step.

use super::{Effect, Flow, Kernel, Made, Place, Wire};
use crate::DType;

/// How many steps of a loop run side by side (keras/src/backend/tensorflow/rnn.py, `parallel_iterations`).
pub const PARALLEL: u32 = 32;

/// Constants of at most so many bytes are folded by grappler, so that no kernel makes them (constant_folding.cc, `kMaxConstantSize`).
const FOLDED: u64 = 100 << 10;

/// The turn of a kernel in a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The loop: even while it goes forward, one more for its gradient.
    pub of: u32,
    /// Which step, in the order in which they run.
    pub step: u32,
    /// Which kernel of the body: the same in each step.
    pub place: u64,
    /// The kernel that starts the step.
    start: u32,
}

impl Turn {
    /// The kernel that starts the step.
    pub fn start(self) -> u32 {
        self.start
    }
}

/// A loop.
#[derive(Clone, Debug, Default)]
pub struct Loop {
    steps: u32,
    /// The kernels that start its gradient's steps.
    starts: Vec<Option<u32>>,
    /// The kernel that last gave on the gradient of the list of its results.
    list: Option<u32>,
}

/// Places of one forward kernel's gradient kernels.
const PLACES: u64 = 256;

/// Where the places of sums begin.
const SUMS: u64 = 1 << 40;

impl Flow {
    /// Begins a loop of so many steps; gives its number.
    pub fn begin_loop(&mut self, steps: u32) -> u32 {
        let number = u32::try_from(self.loops.len()).unwrap_or(u32::MAX);
        self.loops.push(Loop { steps, starts: vec![None; steps as usize], list: None });
        number.saturating_mul(2)
    }

    /// How many steps of a loop are written out.
    pub fn steps(&self, of: u32) -> u32 {
        self.loops.get((of / 2) as usize).map_or(0, |one| one.steps)
    }

    /// Begins a step of a loop: kernels that are made now belong to it. It starts once `after` has run.
    pub fn begin_step(&mut self, of: u32, step: u32, after: u32) -> u32 {
        self.turn = None;
        let made = Made { shape: Vec::new(), dtype: DType::Int32, place: Place::Host };
        let start = self.effect("LoopCond", &[], vec![made], Effect::None, None).kernel;
        self.kernels[start as usize].after.push(after);
        self.kernels[start as usize].turn = Some(Turn { of, step, place: 0, start });
        self.turn = Some(Turn { of, step, place: 1, start });
        start
    }

    /// Ends the step: kernels that are made now belong to no loop.
    pub fn end_step(&mut self) {
        self.turn = None;
    }

    /// Begins the gradient of a kernel, which belongs to a step where the kernel does. `part` tells the kernels of several such
    /// calls apart; `dy` is what the loop's gradient begins with.
    pub fn begin_gradient(&mut self, kernel: &Kernel, part: u64, dy: Option<Wire>) {
        self.turn = None;
        let Some(turn) = kernel.turn else { return };
        let Some(one) = self.loops.get((turn.of / 2) as usize) else { return };
        let step = one.steps.saturating_sub(1).saturating_sub(turn.step);
        let of = turn.of | 1;
        let earlier = one.starts.get(..step as usize).and_then(|starts| starts.iter().rev().flatten().next());
        let start = match one.starts.get(step as usize).copied().flatten() {
            Some(start) => start,
            None => {
                let after = earlier.copied().or(dy.map(|wire| wire.kernel)).unwrap_or(0);
                let start = self.begin_step(of, step, after);
                let starts = self.loops.get_mut((turn.of / 2) as usize).map(|one| &mut one.starts);
                starts.and_then(|s| s.get_mut(step as usize)).into_iter().for_each(|s| *s = Some(start));
                start
            }
        };
        let place = turn.place.saturating_add(1).saturating_mul(PLACES).saturating_add(part);
        self.turn = Some(Turn { of, step, place, start });
    }

    /// Lets what a gradient's step takes from the list of results, and what it gives on, wait for the step before it.
    pub(super) fn carry(&mut self, kernel: &Kernel, [item, list]: [Wire; 2]) {
        let Some(turn) = kernel.turn else { return };
        let Some(one) = self.loops.get_mut((turn.of / 2) as usize) else { return };
        let before = one.list.replace(list.kernel);
        for wire in [item, list] {
            self.kernels[wire.kernel as usize].after.extend(before);
        }
    }

    /// No gradient has begun yet.
    pub(super) fn forget_lists(&mut self) {
        self.loops.iter_mut().for_each(|one| one.list = None);
    }

    /// Adds what the steps of a loop found for a variable to a sum, one step after the other. All are of one loop.
    pub fn sum_of_steps(&mut self, variable: u32, met: &[Wire]) -> Option<Wire> {
        let turn = |flow: &Flow, wire: &Wire| flow.kernel(*wire).turn;
        let mut met: Vec<(Turn, Wire)> =
            met.iter().filter_map(|wire| Some((turn(self, wire)?, *wire))).collect();
        met.sort_by_key(|(turn, wire)| (turn.step, *wire));
        let first = met.first()?.1;
        let shape = self.shape(first).to_vec();
        let of = self.kernel(first).layer;
        let layer = std::mem::replace(&mut self.layer, of);
        let mut sum = self.zeros(&shape, self.dtype(first));
        for step in met.chunk_by(|(a, _), (b, _)| a.step == b.step) {
            let (turn, _) = *step.first()?;
            self.turn = Some(Turn { place: SUMS.saturating_add(variable.into()), ..turn });
            let inputs: Vec<Wire> = [sum].into_iter().chain(step.iter().map(|(_, wire)| *wire)).collect();
            sum = self.add_n(&inputs)?;
        }
        self.turn = None;
        self.layer = layer;
        Some(sum)
    }

    /// Zeros: a constant where they are few.
    pub fn zeros(&mut self, shape: &[u64], dtype: DType) -> Wire {
        let made = Made { shape: shape.to_vec(), dtype, place: Place::New };
        if dtype.size_of(made.elements()).0 <= FOLDED {
            return self.constant(shape, dtype);
        }
        self.make("Fill", &[], shape, dtype, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gradient_takes_its_results_step_after_step() {
        let mut flow = Flow::default();
        let of = flow.begin_loop(3);
        let mut after = flow.constant(&[], DType::Int32).kernel;
        let mut results = Vec::new();
        for step in 0..3 {
            after = flow.begin_step(of, step, after);
            let x = flow.make("RandomUniform", &[], &[4, 2], DType::Float32, None);
            results.push(flow.put(x));
        }
        flow.end_step();
        let mut lists: Vec<u32> = Vec::new();
        for result in results.iter().rev() {
            let (kernel, dy) = (flow.kernel(*result).clone(), flow.constant(&[4, 2], DType::Float32));
            flow.begin_gradient(&kernel, 0, Some(dy));
            let item = kernel.gradient.unwrap()(&mut flow, &kernel, *result, &[Some(dy)])[0].unwrap();
            assert_eq!(flow.kernel(item).after, lists.last().copied().into_iter().collect::<Vec<_>>());
            lists.push(item.kernel + 1);
            assert_eq!(flow.kernels[item.kernel as usize + 1].name, "TensorListSetItem");
        }
        flow.end_step();
        // Where the last result alone is asked for, the others' gradients are zeros.
        let last = flow.last_of(&results).unwrap();
        let (kernel, dy) =
            (flow.kernel(last).clone(), flow.make("dy", &[], &[1, 4, 2], DType::Float32, None));
        let made = kernel.gradient.unwrap()(&mut flow, &kernel, last, &[Some(dy)]);
        let names: Vec<&str> = made.iter().flatten().map(|wire| flow.kernel(*wire).name).collect();
        assert_eq!(names, ["Const", "Const", "TensorListFromTensor"]);
    }

    #[test]
    fn a_gradient_runs_the_other_way_and_adds_step_after_step() {
        let mut flow = Flow::default();
        let of = flow.begin_loop(3);
        let mut after = flow.constant(&[], DType::Int32).kernel;
        let mut squares = Vec::new();
        for step in 0..3 {
            after = flow.begin_step(of, step, after);
            let x = flow.make("RandomUniform", &[], &[1 << 20], DType::Float32, None);
            squares.push(flow.unary("Square", x));
        }
        flow.end_step();
        // A kernel is in the same place of each step, and what reads nothing starts with its step.
        let turns: Vec<Turn> = squares.iter().filter_map(|wire| flow.kernel(*wire).turn).collect();
        assert!(turns.iter().all(|turn| turn.place == turns[0].place));
        assert_eq!(turns.iter().map(|turn| turn.step).collect::<Vec<_>>(), [0, 1, 2]);
        let random = flow.kernel(squares[2]).inputs[0];
        assert_eq!(flow.kernel(random).after, [after]);

        let mut met = Vec::new();
        for square in squares.iter().rev() {
            let (kernel, dy) = (flow.kernel(*square).clone(), flow.constant(&[1 << 20], DType::Float32));
            flow.begin_gradient(&kernel, 0, Some(dy));
            met.push(flow.scaled("Mul", dy));
        }
        flow.end_step();
        let of_first = flow.kernel(met[0]).turn.map(|turn| (turn.of, turn.step));
        assert_eq!(of_first, Some((of + 1, 0)), "the last step's gradient runs first");
        let sum = flow.sum_of_steps(0, &met).unwrap();
        let mut at = sum;
        for (step, wire) in met.iter().enumerate().rev() {
            let kernel = flow.kernel(at);
            assert_eq!((kernel.name, kernel.turn.map(|turn| turn.step)), ("AddN", Some(step as u32)));
            assert_eq!(kernel.inputs[1], *wire);
            at = kernel.inputs[0];
        }
        assert_eq!(flow.kernel(at).name, "Fill");
    }
}
