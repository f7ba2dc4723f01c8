//! What a recurrence has to know of its cell: its sizes, and its step under each framework.

use crate::run::Run;
use crate::torch::Torch;
use memfit_graph::kernels::Wire;
use memfit_graph::ops::{Traced, rnn};

/// What a recurrence has to know of its cell.
pub trait Cell {
    /// Elements of the output.
    fn output(&self) -> u64;

    /// Elements of each state.
    fn states(&self) -> Vec<u64>;

    /// Elements that one step on cuDNN keeps for backward.
    fn kept(&self) -> u64 {
        let cell = if self.states().len() > 1 { rnn::Cell::Lstm } else { rnn::Cell::Gru };
        rnn::reserve(cell, self.output())
    }

    /// Whether its configuration is the one that cuDNN's kernel has (`cudnn_ok`).
    fn is_default(&self) -> bool {
        false
    }

    /// Whether a fraction of the state is dropped, which that kernel cannot.
    fn drops_state(&self) -> bool {
        false
    }

    /// What is drawn once for all steps, for inputs of this shape.
    fn draw(&self, _: &mut Run<'_, '_>, _input: &[u64]) -> Drawn {
        Drawn::default()
    }

    /// Runs one step; gives its output, then its new states.
    fn step(&self, run: &mut Run<'_, '_>, now: &Step<'_>) -> Vec<Wire>;

    /// What is drawn once for all steps under PyTorch.
    fn draw_aten(&self, _: &mut Torch<'_, '_>, _input: &[u64]) -> Drawn<Traced> {
        Drawn::default()
    }

    /// The ATen calls of one step; nothing where they are not known.
    fn step_aten(&self, _: &mut Torch<'_, '_>, _: &Step<'_, Traced>) -> Vec<Traced> {
        Vec::new()
    }
}

/// Dropout's masks of a recurrence, which are the same in every step.
#[derive(Clone, Debug)]
pub struct Drawn<T = Wire> {
    /// Of the input.
    pub input: Vec<T>,
    /// Of the state.
    pub state: Vec<T>,
    /// Of the cells that the cell is made of.
    pub cells: Vec<Drawn<T>>,
}

impl<T> Default for Drawn<T> {
    fn default() -> Self {
        Drawn { input: Vec::new(), state: Vec::new(), cells: Vec::new() }
    }
}

/// What a cell's step works on.
#[derive(Clone, Debug)]
pub struct Step<'s, T = Wire> {
    /// Its input.
    pub x: T,
    /// What the step before gave.
    pub states: &'s [T],
    /// What the cell drew for all steps.
    pub drawn: &'s Drawn<T>,
    /// The cell's first variable among the layer's.
    pub first: usize,
}
