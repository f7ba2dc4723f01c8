//! Which order of a step's kernels stands for those in which it may run, and by how much another needs more.
//!
//! Eagerly there is one. XLA takes the one that needs least of those it tries. The executor's begins at a place that differs from run
//! to run (`schedule`), so of several the one in the middle is played.

use super::memory::{Play, Played};
use super::names::Names;
use super::schedule::{PLACES, Schedule};
use super::{Builder, eager, merged, pushed};
use crate::Mode;
use memfit_graph::kernels::{PARALLEL, Wire};
use memfit_graph::order::sorted_by_key;
use std::collections::BTreeMap;

/// Plays the step whose kernels are all there. Wires that are `kept` live to its end; grappler's walk begins at the `roots`.
pub(super) fn played(
    builder: &mut Builder<'_>,
    kept: &[Wire],
    gradients: &BTreeMap<u32, Wire>,
    roots: &[u32],
) -> Played {
    let plan = builder.plan;
    if plan.eager {
        let (order, holds) = eager::order(builder, kept, gradients);
        return Play::new(builder, kept, gradients).whole(&order, &holds);
    }
    if plan.xla {
        // A loop that XLA compiled runs one step after the other.
        let schedule = Schedule::new(&builder.flow, kept, None, 1);
        return least(&Play::new(builder, kept, gradients), &schedule, kept);
    }
    let mut names = None;
    if plan.grappler {
        merged::merge(&mut builder.flow, false);
        merged::fold_transposes(&mut builder.flow);
        let own = Names::of(&builder.flow, &builder.graph.name, &builder.layers).with(&plan.optimizer);
        pushed::push_down(&mut builder.flow, &own, kept);
        names = Some(own);
    }
    let schedule = Schedule::new(&builder.flow, kept, names.as_ref().map(|names| (roots, names)), PARALLEL);
    let places = if plan.mode == Mode::Train { PLACES } else { 0 };
    middle(&Play::new(builder, kept, gradients), &schedule, places)
}

/// The order that needs least (xla/service/hlo_memory_scheduler.cc, `DefaultMemoryScheduler`).
fn least(play: &Play<'_>, schedule: &Schedule<'_>, kept: &[Wire]) -> Played {
    let [one, frugal] =
        [schedule.order(None), schedule.frugal(kept)].map(|order| (play.highest(&order), order));
    let (least, other) = if frugal.0 < one.0 { (frugal, one.0) } else { (one, frugal.0) };
    let mut played = play.whole(&least.1, &[]);
    played.timeline.spread = spread(least.0, other);
    played
}

/// The order in the middle of those that begin at so many places.
fn middle(play: &Play<'_>, schedule: &Schedule<'_>, places: usize) -> Played {
    let orders = (0..places).map(|place| schedule.order(Some(place)));
    let mut orders = sorted_by_key(orders.map(|o| (play.highest(&o), o)).collect(), |(most, _)| *most);
    let most = orders.last().map_or(0, |(most, _)| *most);
    let middle = orders.len() / 2;
    let (own, order) = if orders.is_empty() {
        let order = schedule.order(None);
        (play.highest(&order), order)
    } else {
        orders.swap_remove(middle)
    };
    let mut played = play.whole(&order, &[]);
    played.timeline.spread = spread(own, most.max(play.highest(&schedule.order_on_gpu())));
    played
}

/// By how much, in thousandths, one number of bytes is above another.
fn spread(of: u64, above: u64) -> u64 {
    let thousandths = u128::from(above.saturating_sub(of)) * 1000 / u128::from(of.max(1));
    u64::try_from(thousandths).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_in_thousandths_and_never_below_zero() {
        assert_eq!([spread(1000, 1100), spread(1000, 900), spread(0, 2)], [100, 0, 2000]);
        assert_eq!(spread(1, u64::MAX), u64::MAX);
    }
}
