//! How the plan's optimizer is written in Python, so that lines of advice replace it by none but itself.
//!
//! Sources: torch/optim, 2.15; keras/src/optimizers, 3.15: where both have an optimizer they call it and its options alike.
//! TensorFlow's documentation: which release of `tf.keras.optimizers` has which class; weight decay and averaged weights 2.11.

use super::Code;
use super::snippet::{Api, KERAS_3, Release};
use crate::{Plan, optimizers};

/// memfit's name, the class, and the options that make it this optimizer.
const CLASSES: &[(&str, &str, &str)] = &[
    ("adadelta", "Adadelta", ""),
    ("adafactor", "Adafactor", ""),
    ("adagrad", "Adagrad", ""),
    ("adam", "Adam", ""),
    ("adamax", "Adamax", ""),
    ("adamw", "AdamW", ""),
    ("amsgrad", "Adam", "amsgrad=True"),
    ("ftrl", "Ftrl", ""),
    ("lamb", "Lamb", ""),
    ("lion", "Lion", ""),
    ("momentum", "SGD", "momentum=0.9"),
    ("muon", "Muon", ""),
    ("nadam", "Nadam", ""),
    ("nesterov", "SGD", "momentum=0.9, nesterov=True"),
    ("rmsprop", "RMSprop", ""),
    ("rmsprop-centered", "RMSprop", "centered=True"),
    ("rmsprop-momentum", "RMSprop", "momentum=0.9"),
    ("schedule-free-adamw", "ScheduleFreeAdamW", ""),
    ("sgd", "SGD", ""),
];

/// The releases of TensorFlow before which `tf.keras.optimizers` had no such class; all had those that are not listed.
const SINCE: &[(&str, Release)] = &[
    ("Adafactor", (2, 12)),
    ("AdamW", (2, 11)),
    ("Lamb", KERAS_3),
    ("Lion", (2, 13)),
    ("Muon", KERAS_3),
    ("ScheduleFreeAdamW", KERAS_3),
];

/// The release from which on Keras' optimizers decay weights and average them.
const NEW_OPTIMIZERS: Release = (2, 11);

/// What AdamW steps where Muon has the matrices.
const NOT_OF_MUON: &str = "[p for m in model.modules() for p in m.parameters(recurse=False) \
                           if p.ndim != 2 or isinstance(m, torch.nn.Embedding)]";

/// What stands for the optimizer in the lines of a change: its class, the parameters that it takes, and its flags.
pub(super) fn values(api: Api, plan: &Plan, change: &str, code: &Code) -> [(&'static str, String); 3] {
    let name = optimizers::find(&plan.optimizer).map_or(&*plan.optimizer, |o| o.name());
    let found = CLASSES.iter().find(|(known, ..)| *known == name);
    let (keras, muon) = (api != Api::Pytorch, name == "muon");
    let has = |since: Release| api != Api::Tensorflow || code.release.is_none_or(|release| release >= since);
    let found =
        found.filter(|(_, class, _)| SINCE.iter().all(|(known, since)| known != class || has(*since)));
    let class = match found {
        // Of what Keras has not, the user's own class is known to the user alone.
        None => "type(optimizer)".into(),
        Some((_, class, _)) if keras => format!("keras.optimizers.{class}"),
        // Muon takes matrices alone and has one implementation; AdamW beside it takes the rest.
        Some(_) if muon => "torch.optim.AdamW".into(),
        Some((_, class, _)) => format!("torch.optim.{class}"),
    };
    let rest = if muon { NOT_OF_MUON } else { "model.parameters()" };
    let steps = keras && plan.accumulate > 1 && has(KERAS_3);
    let decay = plan.weight_decay && has(NEW_OPTIMIZERS);
    let flags = [
        found.map(|(.., options)| (*options).to_owned()),
        decay.then(|| format!("weight_decay={:?}", code.weight_decay.unwrap_or(0.01))),
        (keras && plan.clip_norm).then(|| format!("global_clipnorm={}", norm(code))),
        (keras && plan.ema && has(NEW_OPTIMIZERS)).then(|| "use_ema=True".into()),
        // The retry loop has a number of its own.
        (steps && change != "retry").then(|| format!("gradient_accumulation_steps={}", plan.accumulate)),
    ];
    let flags: Vec<String> = flags.into_iter().flatten().filter(|flag| !flag.is_empty()).collect();
    [("OPTIMIZER", class), ("PARAMETERS", rest.into()), ("FLAGS", flags.join(", "))]
}

/// What gradients are clipped to, as Python writes it.
fn norm(code: &Code) -> String {
    format!("{:?}", code.clip_norm.unwrap_or(1.0))
}

/// PyTorch's loop clips gradients itself, before the optimizer's step.
pub(super) fn clipped(text: &str, code: &Code) -> String {
    let norm = norm(code);
    let mut lines = Vec::new();
    for line in text.lines() {
        let step = line.trim_start();
        let indent = &line[..line.len() - step.len()];
        if step == "optimizer.step()" {
            lines.push(format!("{indent}torch.nn.utils.clip_grad_norm_(model.parameters(), {norm})"));
        }
        lines.push(line.into());
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OptimizerImpl;

    fn written(api: Api, plan: &Plan, change: &str) -> String {
        written_for(api, plan, change, &Code::default())
    }

    fn written_for(api: Api, plan: &Plan, change: &str, code: &Code) -> String {
        let [(_, class), (_, parameters), (_, flags)] = values(api, plan, change, code);
        format!("{class}({parameters}; {flags})")
    }

    #[test]
    fn every_fused_optimizer_has_its_class() {
        let fused = |o: &&dyn optimizers::Optimizer| o.implementations().contains(&OptimizerImpl::Fused);
        for optimizer in optimizers::all().filter(fused).filter(|o| o.source().starts_with("torch.")) {
            let plan = Plan { optimizer: optimizer.name().into(), ..Plan::default() };
            // Muon's source ends with AdamW, the one of its two that is fused.
            let class = match optimizer.name() {
                "muon" => "torch.optim.AdamW",
                _ => optimizer.source(),
            };
            assert!(
                written(Api::Pytorch, &plan, "fused-optimizer").starts_with(&format!("{class}(")),
                "{}",
                optimizer.name()
            );
        }
        assert!(CLASSES.iter().all(|(name, ..)| optimizers::find(name).is_some_and(|o| o.name() == *name)));
    }

    #[test]
    fn the_plans_optimizer_keeps_its_flags() {
        let plan = |optimizer: &str| Plan {
            optimizer: optimizer.into(),
            clip_norm: true,
            weight_decay: true,
            accumulate: 4,
            ..Plan::default()
        };
        assert_eq!(
            written(Api::Tensorflow, &plan("nesterov"), "accumulate"),
            "keras.optimizers.SGD(model.parameters(); momentum=0.9, nesterov=True, weight_decay=0.01, \
             global_clipnorm=1.0, gradient_accumulation_steps=4)"
        );
        assert!(!written(Api::Tensorflow, &plan("adam"), "retry").contains("accumulation"));
        assert!(written(Api::Tensorflow, &plan("rprop"), "retry").starts_with("type(optimizer)("));
        assert_eq!(
            written(Api::Pytorch, &plan("momentum"), "fused-optimizer"),
            "torch.optim.SGD(model.parameters(); momentum=0.9, weight_decay=0.01)"
        );
    }

    #[test]
    fn flags_have_the_values_that_were_typed_where_the_release_has_them() {
        let code = |release| Code { release, weight_decay: Some(0.1), clip_norm: Some(0.5) };
        let plan = |optimizer: &str| Plan {
            optimizer: optimizer.into(),
            clip_norm: true,
            weight_decay: true,
            ema: true,
            ..Plan::default()
        };
        let flags = "weight_decay=0.1, global_clipnorm=0.5, use_ema=True";
        let written = |optimizer: &str, release| {
            written_for(Api::Tensorflow, &plan(optimizer), "freeze", &code(release))
        };
        assert_eq!(written("adam", None), format!("keras.optimizers.Adam(model.parameters(); {flags})"));
        let old = "(model.parameters(); global_clipnorm=0.5)";
        assert_eq!(written("adam", Some((2, 10))), format!("keras.optimizers.Adam{old}"));
        assert_eq!(written("adamw", Some((2, 10))), format!("type(optimizer){old}"));
        assert!(written("adamw", Some((2, 11))).starts_with("keras.optimizers.AdamW("));
        // Of TensorFlow's releases nothing follows for Keras on PyTorch.
        let torch = written_for(Api::KerasOnPytorch, &plan("adamw"), "freeze", &code(Some((2, 5))));
        assert_eq!(torch, format!("keras.optimizers.AdamW(model.parameters(); {flags})"));
        assert!(clipped("optimizer.step()", &code(None)).contains("model.parameters(), 0.5)"));
    }
}
