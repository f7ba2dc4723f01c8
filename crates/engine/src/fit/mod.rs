//! The largest batch, image or sequence that fits: for each card, precision and optimizer, by replaying steps inside of
//! what each card leaves.
//!
//! A step does not depend on the card but for its kernels, so the cards share the steps of a plan (`steps`); a limit that grants and
//! refuses what another did needs no replay of its own. Each answer is the largest size at which the replay of a real step goes through, and is
//! tried against its neighbours (`search`).

mod axis;
mod families;
mod images;
mod search;
mod shelf;
mod steps;

pub use axis::Axis;

use crate::devices::{Card, context};
use crate::frameworks::{cudnn, pytorch};
use crate::{Framework, Life, Model, Plan, Precision, placement};
use memfit_graph::order::sorted_by_key;
use memfit_graph::{Binding, Bytes, Problem};
use search::{Answer, Start};
use shelf::Shelf;
use std::rc::Rc;
use steps::Steps;

/// What is searched, beside plans and cards.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The model.
    pub model: &'a Model,
    /// The sizes that stay.
    pub binding: &'a Binding,
    /// The size that is made larger.
    pub axis: &'a Axis,
    /// What happens in the process beside the step; it must fit too.
    pub life: &'a Life,
}

impl<'a> Subject<'a> {
    /// The batch of a step alone.
    pub fn batch(model: &'a Model, binding: &'a Binding) -> Subject<'a> {
        Subject { model, binding, axis: &Axis::Batch, life: &Life::ALONE }
    }
}

/// No search goes further.
const MOST: u64 = 1 << 24;

/// What fits on one card under one plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The card's id, or what was given in its place.
    pub gpu: String,
    /// The dtypes of a step.
    pub precision: Precision,
    /// The optimizer.
    pub optimizer: String,
    /// The largest size that fits if all goes as expected; zero where not even the smallest does.
    pub largest: u64,
    /// The largest that fits at the high end of the range too.
    pub safe: u64,
    /// Whether the batch that was asked for fits, or any where none was.
    pub takes: bool,
    /// The same at the high end of the range too.
    pub takes_safely: bool,
    /// What the driver would show for the largest; nothing where there is none.
    pub device: Bytes,
    /// What the framework's allocator can have of the card.
    pub usable: Bytes,
    /// What the driver shows as the card's total.
    pub capacity: Bytes,
    /// Whether something ran whose need is not known; then no size is safe.
    pub is_partial: bool,
    /// Whether all smaller sizes that were tried fit and no larger one does; not where there are too many to try them all.
    pub monotone: bool,
    /// Whether it is the model that ends there and not the memory.
    pub ends: bool,
    /// Whether it is the search that ends there: no larger size was tried.
    pub open: bool,
}

/// Fills the matrix, cards first, then plans in their order. `progress` is told how many cells are done, and of how many.
///
/// # Errors
/// What makes a step impossible at any size: sizes that are not given, shapes that do not go together, no such axis.
pub fn matrix(
    subject: Subject<'_>,
    plans: &[Plan],
    cards: &[Card],
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Vec<Cell>, Vec<Problem>> {
    let Subject { model, binding, axis, life } = subject;
    axis.check(model.graph()).map_err(|problem| vec![problem])?;
    let asked = binding.batch.filter(|_| *axis == Axis::Batch);
    let of = plans.len() * cards.len();
    let mut cells: Vec<((usize, usize), Cell)> = Vec::with_capacity(of);
    for (p, plan) in plans.iter().map(|plan| model.under_policy(plan)).enumerate() {
        let plan = &*plan;
        // Cards that run the same kernels share the steps.
        let mut left: Vec<usize> = (0..cards.len()).collect();
        while let Some(first) = left.first().and_then(|i| cards.get(*i)) {
            let own = on(plan, first);
            let shelf = Rc::new(Shelf::default());
            let parts = (0..life.parts())
                .map(|part| Steps::new(subject, own.clone(), part, shelf.clone(), start(axis)));
            let parts = parts.collect::<Result<Vec<_>, _>>();
            let mut parts =
                parts.map_err(|problems| fixed(problems, axis, || model.step(binding, plan).err()))?;
            let mut plans_seen = vec![(own, true)];
            let mut alike = |i: &usize| {
                let Some(theirs) = cards.get(*i).map(|card| on(plan, card)) else { return false };
                if let Some((_, same)) = plans_seen.iter().find(|(seen, _)| *seen == theirs) {
                    return *same;
                }
                let same = parts.iter_mut().all(|steps| steps.is_step_of(&theirs));
                plans_seen.push((theirs, same));
                same
            };
            let (group, others): (Vec<usize>, Vec<usize>) = left.iter().partition(|i| alike(i));
            left = others;
            for (c, card) in group.iter().filter_map(|c| Some((*c, cards.get(*c)?))) {
                cells.push(((c, p), cell(&mut parts, &plan.on(card), card, axis, asked)));
                progress(cells.len(), of);
            }
        }
    }
    let cells = sorted_by_key(cells, |((card, plan), _)| (card * plans.len() + plan) as u64);
    Ok(cells.into_iter().map(|(_, cell)| cell).collect())
}

/// The plan as it runs on a card, or on the first whose kernels are alike.
fn on(plan: &Plan, card: &Card) -> Plan {
    let plan = plan.on(card);
    let alike = match plan.framework {
        Framework::Tensorflow => cudnn::tensor_cores,
        _ => pytorch::alike,
    };
    Plan { compute_capability: plan.compute_capability.map(alike), ..plan }
}

/// What is wrong where a size is searched: what is wrong without it too (`before`), or that the model does not let it be chosen.
fn fixed(problems: Vec<Problem>, axis: &Axis, before: impl FnOnce() -> Option<Vec<Problem>>) -> Vec<Problem> {
    if *axis == Axis::Batch {
        return problems;
    }
    let hint = format!("--max {}: this layer takes one size only", axis.name());
    let before = before().unwrap_or_default();
    let told = |problem: Problem| match before.iter().any(|known| known.place == problem.place) {
        true => problem,
        false => Problem { hint: None, ..problem }.hint(&*hint),
    };
    problems.into_iter().map(told).collect()
}

/// A size that a model with such an axis takes.
fn start(axis: &Axis) -> u64 {
    match axis {
        Axis::Batch => 1,
        Axis::Symbol(_) | Axis::Sequence => 16,
        // 224 pixels.
        Axis::Image => 7,
    }
}

/// How often the largest safe size is looked for again with the spread that it has, or below a size that does not fit.
const ROUNDS: usize = 3;
/// At how many sizes, a hundredth apart, a safe size is looked into: a larger batch may meet segments that it happens to fill better, and
/// less room may make an allocator clean up earlier, so a size that fits is not safe by itself.
const BELOW: u64 = 6;

fn cell(parts: &mut [Steps<'_>], plan: &Plan, card: &Card, axis: &Axis, asked: Option<u64>) -> Cell {
    let limit_at = |spread| placement::limits(plan, card, spread);
    let is_partial = parts.iter().any(Steps::is_partial);
    let total = card.device.usable();
    let search = |parts: &mut [Steps<'_>], limit: Bytes, is_tried: bool| loop {
        let start = parts.iter_mut().map(|steps| steps.start(limit, MOST)).min_by_key(|start| start.guess);
        let start = start.unwrap_or(Start::at(1));
        let trials = parts.iter().map(Steps::trials).min().filter(|_| is_tried).unwrap_or(0);
        let mut ask =
            |n| parts.iter_mut().map(|steps| steps.ask(n, limit, total)).max().unwrap_or(Answer::Fits);
        let found = search::largest(MOST, start, trials, &mut ask);
        if found.largest == 0 || parts.iter_mut().all(|steps| steps.holds(found.largest)) {
            parts.iter_mut().for_each(|steps| steps.learn(found.largest, limit));
            let ends = found.largest > 0 && !parts.iter_mut().all(|steps| steps.exists(found.largest + 1));
            let reserved =
                parts.iter_mut().filter_map(|steps| steps.inside(found.largest, limit, total)).max();
            break (found, reserved.unwrap_or(Bytes::ZERO), ends);
        }
    };
    let usable = limit_at(0).expected;
    let (expected, reserved, ends) = search(parts, usable, true);
    let spread_at = |parts: &mut [Steps<'_>], n: u64| {
        parts.iter_mut().map(|steps| steps.spread_at(n.max(1))).max().unwrap_or(0)
    };
    let mut safe = 0;
    let safest = |parts: &mut [Steps<'_>], spread| {
        let limits = limit_at(spread);
        let fits = |n: u64, parts: &mut [Steps<'_>]| {
            let both = [limits.cautious, limits.expected];
            both.iter().all(|limit| parts.iter_mut().all(|steps| steps.inside(n, *limit, total).is_some()))
        };
        let mut found = search(parts, limits.cautious, false).0.largest.min(expected.largest);
        let mut high = found.saturating_add(1);
        for _ in 0..ROUNDS {
            let step = (found / 128).max(1);
            let below = (0..BELOW).filter_map(|k| found.checked_sub(k * step)).filter(|n| *n > 0);
            let Some(hole) = below.filter(|n| !fits(*n, parts)).min() else { break };
            high = high.min(hole);
            let start = Start { low: 0, high, guess: high.saturating_sub(step), stride: step };
            found = search::edge(MOST, start, &mut |n| fits(n, parts));
        }
        found
    };
    if !is_partial {
        // How far other orders of the kernels reach depends on the size: it is looked up where the answer lies.
        let (mut seen, mut at) = (0, expected.largest);
        for _ in 0..ROUNDS {
            let spread = spread_at(parts, at);
            if at == safe && spread <= seen {
                break;
            }
            seen = spread;
            safe = safest(parts, spread);
            at = safe;
        }
        let spread = spread_at(parts, safe);
        if spread > seen {
            safe = safest(parts, spread);
        }
    }
    let context = context::total(&card.context(plan)).expected;
    let mut fits = |n| n <= MOST && parts.iter_mut().all(|steps| steps.inside(n, usable, total).is_some());
    let takes = asked.map_or(expected.largest > 0, |n| n <= expected.largest && fits(n));
    Cell {
        gpu: card.device.id.clone(),
        precision: plan.precision,
        optimizer: plan.optimizer.clone(),
        largest: expected.largest.saturating_mul(axis.step()),
        safe: safe.saturating_mul(axis.step()),
        takes,
        takes_safely: takes && asked.map_or(safe > 0, |n| n <= safe),
        device: if expected.largest > 0 { reserved + context } else { Bytes::ZERO },
        usable,
        capacity: card.device.total(),
        is_partial,
        monotone: expected.monotone,
        ends,
        open: expected.largest == MOST && !ends,
    }
}

/// Of the cards that take the size that was asked for, the one with the least memory, for each plan in their order. A card that takes
/// it only if all goes as expected stands there where none takes it safely.
pub fn smallest(cells: &[Cell]) -> Vec<&Cell> {
    let mut plans: Vec<(Precision, &str)> = Vec::new();
    for cell in cells {
        if !plans.contains(&(cell.precision, &*cell.optimizer)) {
            plans.push((cell.precision, &*cell.optimizer));
        }
    }
    let best = |(precision, optimizer): (Precision, &str)| {
        let of_plan = cells.iter().filter(|c| c.precision == precision && c.optimizer == optimizer);
        of_plan.filter(|c| c.takes).min_by_key(|c| (!c.takes_safely, c.capacity))
    };
    plans.into_iter().filter_map(best).collect()
}
