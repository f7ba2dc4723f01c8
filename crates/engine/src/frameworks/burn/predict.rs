//! What a device would show of a program's step.
//!
//! A device is asked between two functions of Burn, so that is where a prediction is read off too; what a function holds inside
//! of itself shows in what the pools have reserved.

use super::program::Program;
use super::simulate::{Backend, simulate};
use crate::allocators::{CubeclConfig, CubeclPools, ReplayOptions, replay_with};
use crate::{EventKind, Phase, StorageId, Timeline};
use memfit_graph::Bytes;

/// What a step holds on a backend.
#[derive(Clone, Debug)]
pub struct Prediction {
    /// All events.
    pub timeline: Timeline,
    /// Bytes of tensors at the highest moment, inside of functions too.
    pub peak: Bytes,
    /// The highest of [`Prediction::phases`] and of what is held between steps.
    pub between: Bytes,
    /// Bytes of tensors between two functions, at most: in forward, backward and the optimizer's step.
    pub phases: [Bytes; 3],
    /// The same by layer.
    pub layers: Vec<Bytes>,
    /// What is held between steps.
    pub steady: Bytes,
}

/// Where a phase stands in [`Prediction::phases`].
pub fn phase_index(phase: Phase) -> Option<usize> {
    match phase {
        Phase::Setup => None,
        Phase::Forward => Some(0),
        Phase::Backward => Some(1),
        Phase::OptimizerStep => Some(2),
    }
}

/// Predicts the step of a program on a backend.
pub fn predict(program: &Program, backend: Backend) -> Prediction {
    let simulated = simulate(program, backend);
    let timeline = simulated.timeline;
    let size = |id: StorageId| timeline.storages[id.0 as usize].bytes;
    let mut p = Prediction {
        peak: Bytes::ZERO,
        between: Bytes::ZERO,
        phases: [Bytes::ZERO; 3],
        layers: vec![Bytes::ZERO; program.layers.len()],
        steady: Bytes::ZERO,
        timeline: Timeline::default(),
    };
    let mut live = Bytes::ZERO;
    let mut boundaries = simulated.boundaries.iter().peekable();
    for i in 0..=timeline.events.len() {
        while let Some(b) = boundaries.next_if(|b| b.event as usize <= i) {
            if let Some(slot) = phase_index(b.phase).and_then(|at| p.phases.get_mut(at)) {
                *slot = (*slot).max(live);
            }
            if let (Some(slot), true) = (p.layers.get_mut(b.layer as usize), b.phase != Phase::Setup) {
                *slot = (*slot).max(live);
            }
            if b.phase == Phase::Setup {
                p.steady = live;
            }
        }
        let Some(event) = timeline.events.get(i) else { break };
        match event.kind {
            EventKind::Allocate => live += size(event.storage),
            EventKind::Free => live = live.saturating_sub(size(event.storage)),
        }
        p.peak = p.peak.max(live);
    }
    p.between = p.phases.iter().copied().fold(p.steady, Bytes::max);
    p.timeline = timeline;
    p
}

impl Prediction {
    /// What cubecl's pools have taken from the driver after a few steps; None where they would not get it. The optimizer's state is
    /// there before the first, as a program's sources are.
    pub fn reserved(&self, config: CubeclConfig) -> Option<Bytes> {
        let options = ReplayOptions { state_first: true, ..ReplayOptions::default() };
        let replayed = replay_with(&self.timeline, &mut CubeclPools::new(config), options);
        replayed.failure.is_none().then_some(replayed.peak_reserved.usage.reserved)
    }
}
