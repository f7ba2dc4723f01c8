//! An optimizer with less state: Adam keeps two values a parameter, momentum one, plain SGD none.

use super::{Change, Kind, Level, Situation};
use crate::{Mode, Model, optimizers};
use memfit_graph::DType;

pub(super) const CHANGE: Change = Change {
    name: "lighter-optimizer",
    effort: 3,
    kind: Kind::Step,
    cost: "another path of learning: its learning rate has to be found anew",
    levels,
};

/// Lightest last.
const LIGHTER: [&str; 2] = ["momentum", "sgd"];

fn levels(_: &Model, now: &Situation) -> Vec<Level> {
    if now.plan.mode != Mode::Train {
        return Vec::new();
    }
    let have = state(&now.plan.optimizer);
    LIGHTER.iter().filter(|name| state(name) < have).filter_map(|name| level(now, name)).collect()
}

fn level(now: &Situation, name: &'static str) -> Option<Level> {
    let mut situation = now.clone();
    situation.plan.optimizer = name.into();
    let own = optimizers::find(name).map(|o| o.implementation(now.plan.optimizer_impl));
    situation.plan.optimizer_impl = own.unwrap_or_default();
    let title = if name == "momentum" { "SGD with momentum" } else { "plain SGD" };
    CHANGE.level(title, situation, &[])
}

/// Bytes of state for each of a thousand values.
fn state(name: &str) -> u64 {
    let parameter =
        optimizers::Parameter { shape: [40, 25].as_slice().into(), dtype: DType::Float32, is_table: false };
    let how = optimizers::StepConfig::default();
    optimizers::find(name).map_or(0, |o| o.state(&parameter, &how).iter().map(|s| s.device_bytes().0).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lighter_is_lighter() {
        assert_eq!([state("adam"), state("momentum"), state("sgd")], [8_000, 4_000, 0]);
        assert!(crate::optimizers::find("adamw").is_some());
    }
}
