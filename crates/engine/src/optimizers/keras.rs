//! What Keras' own optimizers keep, and their temporaries on its PyTorch backend, Keras 3.15.
//!
//! keras/src/backend/torch/optimizers/torch_*.py: `torch._foreach_…` over all variables at once, so that each result is as long as
//! the model; where there is no such file, keras/src/optimizers/*.py one variable after the other. Temporaries are written as letters:
//! a capital is made, a small letter is the same one when the last reference to it goes. Plain SGD and momentum make nothing. Around a step: keras/src/optimizers/base_optimizer.py,
//! `_backend_apply_gradients`; loss_scale_optimizer.py.

use super::{Parameter, Recorder, StepConfig, StepEvent, muon};
use crate::Plan;
use memfit_graph::{Bytes, Dims};
use std::ops::Range;

/// By the optimizer's name, lists as long as the model.
const LISTS: &[(&str, &str)] = &[
    ("adadelta", "AaBCbDcBCbEdcFeAaf"),
    ("adagrad", "AaBCDcEbde"),
    ("adam", "AaBCDcEbde"),
    ("adamax", "AaBCDcEbde"),
    ("adamw", "AaBCDcEbde"),
    ("amsgrad", "AaBCDcEbde"),
    ("lion", "ABaCcb"),
    ("momentum", ""),
    ("nadam", "AaBCbDEdFceGBCDcEbdefg"),
    ("nesterov", ""),
    ("rmsprop", "AaBCDcbd"),
    ("rmsprop-centered", "AaBAaCDcbd"),
    ("rmsprop-momentum", "AaBCDcbd"),
    ("sgd", ""),
];

/// By the optimizer's name, what one variable's update makes.
const VARIABLES: &[(&str, &str)] = &[
    ("adafactor", "AaABaAaACaAaADEedbca"),
    ("ftrl", "ABaACaADEadAeDaAdDdaADaAdDEFefbcad"),
    ("lamb", "ABaAabABaAbBbaABCbBcCDdDdDEedabc"),
    ("muon", "ABaAabABaAbBbaABCbBacAab"),
    SCHEDULE_FREE,
];
/// From H on a letter is a number of the variable's dtype, S and T are numbers of float32.
pub(super) const SCHEDULE_FREE: (&str, &str) =
    ("schedule-free-adamw", "HSTsItJKLMNmABaMAbmBbaABaAbBCbBbMOmMBmDbBdMDmEFdeMDmEGdehijklnacobfg");
/// What Muon makes of a matrix, with one of its iterations, which are all alike. From U on a letter is the square of the shorter side.
const MATRIX: &str = "ABaAabABaAXYZWzVywCDEcdaxvACDcaAadbe";

/// What new values of averaged weights make: `momentum * average + (1 - momentum) * variable`.
const AVERAGE: &str = "ABCabc";
/// What a mean of accumulated gradients makes and leaves: `(gradient + sum) / steps`.
const MEAN: &str = "ABa";

/// The step's temporaries in order, with what makes other gradients of them around it and averages weights after it; `None` for an
/// optimizer that Keras has not.
pub(crate) fn keras_step(
    name: &str,
    params: &[Parameter],
    plan: &Plan,
    scaled: bool,
) -> Option<Vec<StepEvent>> {
    let lists = LISTS.iter().find(|(known, _)| *known == name);
    let each = VARIABLES.iter().find(|(known, _)| *known == name);
    let (mut step, all) = (Recorder::new(params), 0..params.len());
    let list = |step: &mut Recorder<'_>| letters(step, "A", 0..params.len());
    let unscaled = if scaled { list(&mut step) } else { Vec::new() };
    let mut gradients = Vec::new();
    if plan.accumulate > 1 {
        gradients.extend(all.clone().flat_map(|i| letters(&mut step, MEAN, i..i + 1)));
    }
    if plan.clip_norm {
        let clipped = list(&mut step);
        step.drop_values(std::mem::replace(&mut gradients, clipped));
    }
    match (lists, each) {
        (Some((_, made)), _) => drop(letters(&mut step, made, all.clone())),
        (None, Some((_, made))) => {
            for (i, p) in params.iter().enumerate() {
                let is_matrix = name == "muon" && muon::is_matrix(p);
                letters(&mut step, if is_matrix { MATRIX } else { made }, i..i + 1);
            }
        }
        (None, None) => return None,
    }
    // The function that took the mean has returned.
    if plan.accumulate > 1 {
        step.drop_values(std::mem::take(&mut gradients));
    }
    for i in all.filter(|_| plan.ema) {
        letters(&mut step, AVERAGE, i..i + 1);
    }
    step.drop_values(gradients);
    step.drop_values(unscaled);
    Some(step.into_events())
}

/// The shapes of the slots that an optimizer of Keras keeps for a parameter (keras/src/optimizers, `build`).
pub(crate) fn keras_slots(optimizer: &str, parameter: &Parameter) -> Vec<Dims> {
    let shape = &parameter.shape;
    let like = |n: usize| vec![shape.clone(); n];
    match optimizer {
        "sgd" => Vec::new(),
        "momentum" | "nesterov" | "rmsprop" | "adagrad" | "lion" => like(1),
        "adam" | "adamw" | "adamax" | "nadam" | "adadelta" | "lamb" | "rmsprop-momentum"
        | "rmsprop-centered" => like(2),
        "amsgrad" => like(3),
        // _r, _c, and _v, which is as large as the variable
        "adafactor" => match &shape[..] {
            [outer @ .., rows, columns] => {
                let reduced = |side: &u64| outer.iter().chain([side]).copied().collect();
                vec![reduced(rows), reduced(columns), shape.clone()]
            }
            _ => like(1),
        },
        // Momentum alone for a matrix, Adam's slots for the others.
        "muon" if muon::is_matrix(parameter) => like(1),
        other => match super::find(other) {
            Some(optimizer) => {
                let states = optimizer.state(parameter, &StepConfig::default());
                states.into_iter().filter(|s| s.on_device).map(|s| s.shape).collect()
            }
            None => like(2),
        },
    }
}

/// Makes and drops what letters say, of so many parameters; what is left.
pub(super) fn letters(step: &mut Recorder<'_>, letters: &str, of: Range<usize>) -> Vec<u32> {
    let mut live: Vec<(char, Vec<u32>)> = Vec::new();
    for letter in letters.chars() {
        let list = letter.to_ascii_uppercase();
        if letter == list {
            let made = of.clone().map(|i| make(step, letter, i)).collect();
            live.push((list, made));
        } else if let Some(at) = live.iter().position(|(known, _)| *known == list) {
            step.drop_values(live.swap_remove(at).1);
        }
    }
    live.into_iter().flat_map(|(_, values)| values).collect()
}

fn make(step: &mut Recorder<'_>, letter: char, i: usize) -> u32 {
    let p = step.param(i);
    let bytes = match letter {
        ..'H' => p.bytes(),
        ..'S' => p.dtype.size_of(1),
        ..'U' => Bytes(4),
        _ => p.shape.iter().min().map_or(Bytes::ZERO, |side| p.dtype.size_of(side.saturating_mul(*side))),
    };
    step.value("optimizer temporary", i, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_graph::DType;

    /// The most bytes that are alive at once, in parameters; all are gone at the end.
    fn most(name: &str, shape: &[u64], plan: &Plan) -> f64 {
        let p = Parameter { shape: shape.into(), dtype: DType::Float32, is_table: false };
        let (whole, mut sizes) = (p.bytes().0 as f64, std::collections::BTreeMap::new());
        let (mut live, mut most) = (0, 0);
        for event in keras_step(name, &[p], plan, false).unwrap() {
            match event {
                StepEvent::Allocate { id, bytes, .. } => {
                    live += bytes.0;
                    sizes.insert(id, bytes.0);
                }
                StepEvent::Free { id } => live -= sizes[&id],
            }
            most = most.max(live);
        }
        assert_eq!(live, 0, "{name}");
        most as f64 / whole
    }

    #[test]
    fn every_temporary_goes() {
        let plan = Plan::default();
        for (name, _) in LISTS.iter().chain(VARIABLES) {
            assert!(crate::optimizers::find(name).is_some_and(|o| o.name() == *name), "{name}");
            let of_adam = ["adam", "adadelta", "adagrad", "adamax", "adamw", "amsgrad"].contains(name);
            let has_three = of_adam || name.starts_with("rmsprop");
            assert_eq!(most(name, &[8], &plan) == 3.0, has_three || *name == "muon", "{name}");
        }
        assert!(keras_step("rprop", &[], &plan, false).is_none());
        // The square of the shorter side is half a matrix here, and a whole one there.
        assert_eq!((most("muon", &[16, 8], &plan), most("muon", &[8, 8], &plan)), (6.0, 7.0));
    }

    #[test]
    fn other_gradients_and_averages_come_around_the_step() {
        let plan = |accumulate, clip_norm, ema| Plan { accumulate, clip_norm, ema, ..Plan::default() };
        for (given, sgd, adam) in [
            (plan(1, false, false), 0.0, 3.0),
            (plan(1, true, false), 1.0, 4.0),
            (plan(4, false, false), 2.0, 4.0),
            (plan(4, true, false), 2.0, 4.0),
            (plan(1, false, true), 3.0, 3.0),
            // What is clipped goes at the end, a mean of gradients before.
            (plan(1, true, true), 4.0, 4.0),
            (plan(4, true, true), 3.0, 4.0),
        ] {
            assert_eq!((most("sgd", &[8], &given), most("adam", &[8], &given)), (sgd, adam));
        }
    }
}
