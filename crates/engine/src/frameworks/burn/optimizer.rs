//! burn-optim 0.21's optimizers, a parameter at a time: `optim/{sgd,momentum,adam,adamw}.rs`, `SimpleOptimizer::step` of each in
//! its order. State exists already.

use super::builder::{Calls, Refusal};
use super::program::{Binary, Fill, Program, Slot, Source, SourceKind, Unary, Update};
use crate::Plan;

const RATE: f64 = 1e-3;
const MOMENTUM: f64 = 0.9;
const BETAS: [f64; 2] = [0.9, 0.999];
const EPSILON: f64 = 1e-5;
const DECAY: f64 = 1e-4;

/// The names that have a rule here.
pub const NAMES: &[&str] = &["sgd", "momentum", "nesterov", "adam", "adamw"];

/// Writes the update of every parameter.
pub(super) fn write(program: &mut Program, plan: &Plan) -> Result<(), Refusal> {
    if !NAMES.contains(&&*plan.optimizer) {
        return Err(format!("Burn's {} has no rule; those with one: {}", plan.optimizer, NAMES.join(", ")));
    }
    let parameters: Vec<Source> = program.parameters().cloned().collect();
    let forward = std::mem::take(&mut program.instrs);
    for (index, source) in parameters.iter().enumerate() {
        let ty = program.ty(source.slot).clone();
        let gradient = program.slot(ty.kind, ty.shape.clone());
        let state = |program: &mut Program, name: &str, fill: Fill| {
            let slot = program.slot(ty.kind, ty.shape.clone());
            program.add_source(Source {
                slot,
                kind: SourceKind::State(index),
                name: format!("{} of {}", name, source.name).into(),
                tensor: None,
                fill,
                layer: source.layer,
            });
            slot
        };
        let mut states = Vec::new();
        match &*plan.optimizer {
            "sgd" => {}
            "momentum" | "nesterov" => states.push(state(program, "momentum", Fill::Uniform(-1e-3, 1e-3))),
            _ => {
                states.push(state(program, "moment 1", Fill::Uniform(-1e-3, 1e-3)));
                states.push(state(program, "moment 2", Fill::Uniform(1e-6, 1e-5)));
            }
        }
        let calls = &mut Calls::of(program, source.layer);
        let (new, states_new) = step(calls, plan, source.slot, gradient, &states)?;
        let instrs = std::mem::take(&mut calls.program.instrs);
        let replaced = [(source.slot, new)].into_iter().chain(states.into_iter().zip(states_new)).collect();
        program.updates.push(Update { parameter: source.slot, gradient, instrs, replaced });
    }
    program.instrs = forward;
    Ok(())
}

/// The new parameter and the new states.
fn step(
    l: &mut Calls<'_>,
    plan: &Plan,
    parameter: Slot,
    gradient: Slot,
    states: &[Slot],
) -> Result<(Slot, Vec<Slot>), Refusal> {
    let mut gradient = gradient;
    let is_adamw = plan.optimizer == "adamw";
    if plan.weight_decay && !is_adamw {
        // `WeightDecay::transform`: the tensor times the penalty, added to the gradient.
        let decay = l.scalar(Binary::Mul, parameter, DECAY);
        gradient = l.binary(Binary::Add, decay, gradient)?;
    }
    match states {
        [] => {
            let delta = l.scalar(Binary::Mul, gradient, RATE);
            Ok((l.binary(Binary::Sub, parameter, delta)?, Vec::new()))
        }
        [velocity] => {
            let undamped = l.scalar(Binary::Mul, gradient, 1.0);
            let decayed = l.scalar(Binary::Mul, *velocity, MOMENTUM);
            let velocity = l.binary(Binary::Add, undamped, decayed)?;
            let step = if plan.optimizer == "nesterov" {
                let ahead = l.scalar(Binary::Mul, velocity, MOMENTUM);
                l.binary(Binary::Add, ahead, gradient)?
            } else {
                velocity
            };
            let delta = l.scalar(Binary::Mul, step, RATE);
            Ok((l.binary(Binary::Sub, parameter, delta)?, vec![velocity]))
        }
        [first, second, ..] => {
            let decayed = l.scalar(Binary::Mul, *first, BETAS[0]);
            let fresh = l.scalar(Binary::Mul, gradient, 1.0 - BETAS[0]);
            let first = l.binary(Binary::Add, decayed, fresh)?;
            let decayed = l.scalar(Binary::Mul, *second, BETAS[1]);
            let square = l.scalar(Binary::Pow, gradient, 2.0);
            let fresh = l.scalar(Binary::Mul, square, 1.0 - BETAS[1]);
            let second = l.binary(Binary::Add, decayed, fresh)?;
            let (up, down) = if is_adamw {
                let first = l.scalar(Binary::Div, first, 1.0 - BETAS[0]);
                let second = l.scalar(Binary::Div, second, 1.0 - BETAS[1]);
                (first, l.unary(Unary::Sqrt, second))
            } else {
                let first = l.scalar(Binary::Mul, first, 0.3);
                (first, l.unary(Unary::Sqrt, second))
            };
            let down = l.scalar(Binary::Add, down, EPSILON);
            let delta = l.binary(Binary::Div, up, down)?;
            let parameter =
                if is_adamw { l.scalar(Binary::Mul, parameter, 1.0 - RATE * DECAY) } else { parameter };
            let delta = l.scalar(Binary::Mul, delta, RATE);
            Ok((l.binary(Binary::Sub, parameter, delta)?, vec![first, second]))
        }
    }
}
