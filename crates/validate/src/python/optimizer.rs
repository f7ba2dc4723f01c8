//! An optimizer's constructor in Python: torch's own, timm's, or bitsandbytes'.

use super::line::{Refusal, float};
use memfit_engine::{OptimizerImpl, Plan};

/// Where an optimizer comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    Torch,
    Timm,
    Bitsandbytes,
}

/// memfit's name, where it comes from, its class and its options.
const OPTIMIZERS: [(&str, From, &str, &str); 22] = [
    ("sgd", From::Torch, "SGD", "lr=0.01"),
    ("momentum", From::Torch, "SGD", "lr=0.01, momentum=0.9"),
    ("nesterov", From::Torch, "SGD", "lr=0.01, momentum=0.9, nesterov=True"),
    ("adam", From::Torch, "Adam", "lr=1e-4"),
    ("adamw", From::Torch, "AdamW", "lr=1e-4"),
    ("amsgrad", From::Torch, "Adam", "lr=1e-4, amsgrad=True"),
    ("rmsprop", From::Torch, "RMSprop", "lr=1e-4"),
    ("rmsprop-centered", From::Torch, "RMSprop", "lr=1e-4, centered=True"),
    ("rmsprop-momentum", From::Torch, "RMSprop", "lr=1e-4, momentum=0.9"),
    ("adagrad", From::Torch, "Adagrad", "lr=1e-4"),
    ("adadelta", From::Torch, "Adadelta", "lr=1e-4"),
    ("adamax", From::Torch, "Adamax", "lr=1e-4"),
    ("nadam", From::Torch, "NAdam", "lr=1e-4"),
    ("radam", From::Torch, "RAdam", "lr=1e-4"),
    ("rprop", From::Torch, "Rprop", "lr=1e-4"),
    ("asgd", From::Torch, "ASGD", "lr=1e-4"),
    ("adafactor", From::Torch, "Adafactor", "lr=1e-4"),
    ("lars", From::Timm, "Lars", "lr=1e-4, momentum=0.9"),
    ("lamb", From::Timm, "Lamb", "lr=1e-4"),
    ("lion", From::Timm, "Lion", "lr=1e-4"),
    ("adam8bit", From::Bitsandbytes, "Adam8bit", "lr=1e-4"),
    ("adamw8bit", From::Bitsandbytes, "AdamW8bit", "lr=1e-4"),
];

/// The body of `make_optimizer`.
pub(super) fn optimizer(plan: &Plan) -> Result<String, Refusal> {
    let how = match plan.optimizer_impl {
        OptimizerImpl::Foreach => "foreach=True",
        OptimizerImpl::Fused => "fused=True",
        OptimizerImpl::Loop => "foreach=False",
    };
    let decay = float(if plan.weight_decay { 0.01 } else { 0.0 });
    if plan.optimizer == "muon" {
        // It takes matrices only; its documentation hands everything else, and embeddings, to AdamW, as the engine's rule does.
        let [matrices, others] =
            ["", "not "].map(|is| format!("[p for p in parameters if {is}is_matrix(p)]"));
        let muon = format!("(torch.optim.Muon, {matrices}, dict(lr=1e-4, weight_decay={decay}))");
        let adamw = format!("(torch.optim.AdamW, {others}, dict(lr=1e-4, {how}, weight_decay={decay}))");
        return Ok(format!("    return Several(\n        {muon},\n        {adamw},\n    )"));
    }
    let found = OPTIMIZERS.iter().find(|(name, ..)| *name == plan.optimizer);
    let (name, from, class, options) = found
        .ok_or_else(|| format!("{} is in neither torch.optim, timm nor bitsandbytes", plan.optimizer))?;
    let decay = if *name == "rprop" { String::new() } else { format!(", weight_decay={decay}") };
    Ok(match from {
        From::Torch => format!("    return torch.optim.{class}(parameters, {options}, {how}{decay})"),
        From::Timm => {
            format!("    return needed(\"timm\").optim.{class}(parameters, {options}, {how}{decay})")
        }
        // It has one kernel a parameter.
        From::Bitsandbytes => {
            format!("    return needed(\"bitsandbytes\").optim.{class}(parameters, {options}{decay})")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn muon_gets_matrices_that_are_no_tables() {
        let written = optimizer(&Plan { optimizer: "muon".into(), ..Plan::default() }).unwrap();
        assert!(
            written.contains("(torch.optim.Muon, [p for p in parameters if is_matrix(p)], "),
            "{written}"
        );
        assert!(
            written.contains("(torch.optim.AdamW, [p for p in parameters if not is_matrix(p)], "),
            "{written}"
        );
    }

    #[test]
    fn every_optimizer_of_pytorch_is_written() {
        for rule in memfit_engine::optimizers::all() {
            let plan = Plan { optimizer: rule.name().into(), ..Plan::default() };
            let written = optimizer(&plan);
            if rule.source().starts_with("keras.") {
                assert!(written.is_err(), "{}", rule.name());
            } else {
                assert!(written.unwrap().starts_with("    return "), "{}", rule.name());
            }
        }
        assert!(optimizer(&Plan { optimizer: "nobody".into(), ..Plan::default() }).is_err());
    }
}
