//! The temporaries of Keras' own optimizers on its PyTorch backend.
//!
//! keras/src/backend/torch/optimizers/torch_*.py, 3.15: `torch._foreach_…` over all variables at once, so that each result is as long as
//! the model. They are written as letters: a capital is a list that is made, a small letter the same list when the last reference
//! to it goes. What Keras keeps is what torch.optim keeps. Plain SGD and momentum make nothing.

use super::{Parameter, Recorder, StepEvent};

/// By the optimizer's name.
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

/// The step's temporaries in order, with the unscaled gradients around it where the loss is scaled; `None` for an optimizer that Keras
/// updates one variable after the other.
pub(crate) fn keras_step(name: &str, params: &[Parameter], scaled: bool) -> Option<Vec<StepEvent>> {
    let (_, lists) = LISTS.iter().find(|(known, _)| *known == name)?;
    let around = if scaled { ["U", "u"] } else { ["", ""] };
    let mut step = Recorder::new(params);
    let mut live: Vec<(char, Vec<u32>)> = Vec::new();
    for letter in around[0].chars().chain(lists.chars()).chain(around[1].chars()) {
        let list = letter.to_ascii_uppercase();
        if letter == list {
            let made = (0..params.len()).map(|i| step.like("optimizer temporary", i)).collect();
            live.push((list, made));
        } else if let Some(at) = live.iter().position(|(known, _)| *known == list) {
            step.drop_values(live.swap_remove(at).1);
        }
    }
    Some(step.into_events())
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_graph::DType;

    #[test]
    fn every_list_goes_and_adam_has_three_at_once() {
        let p = [Parameter { shape: [8].as_slice().into(), dtype: DType::Float32, is_table: false }];
        for (name, _) in LISTS {
            assert!(crate::optimizers::find(name).is_some_and(|o| o.name() == *name), "{name}");
            let (mut live, mut most) = (0_i32, 0);
            for event in keras_step(name, &p, false).unwrap() {
                live += if matches!(event, StepEvent::Allocate { .. }) { 1 } else { -1 };
                most = most.max(live);
            }
            assert_eq!(live, 0, "{name}");
            assert_eq!(
                most == 3,
                name.starts_with("ada")
                    || *name == "amsgrad"
                    || *name == "rmsprop"
                    || name.starts_with("rmsprop-"),
                "{name}: {most}"
            );
        }
        assert!(keras_step("lamb", &p, false).is_none());
    }
}
