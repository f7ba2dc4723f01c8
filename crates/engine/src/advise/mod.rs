//! What to change so that a step fits: each change with what it saves alone and what it costs, and the smallest set that does.
//!
//! A change is one file: it takes a situation (plan, sizes, card) and gives the situations after it, gentlest first, each with
//! the lines of code that bring it about. What it saves is not a rule of thumb: the changed step is run and replayed.
//! Adding one is its file, a `mod` line and a line in `ALL`.

mod accumulate;
mod allocator;
mod channels_last;
mod checkpoint;
mod close;
mod freeze;
mod fused;
mod gradients;
mod growth;
mod mixed;
mod optimizer;
mod search;
mod shorten;
mod shrink;
mod snippet;

pub use snippet::snippets;

use crate::devices::{Card, context};
use crate::{Framework, Model, Plan, Verdict, placement};
use memfit_graph::{Binding, Bytes, Problem};

/// All changes, in alphabetical order of their files.
static ALL: &[Change] = &[
    accumulate::CHANGE,
    allocator::CHANGE,
    channels_last::CHANGE,
    checkpoint::CHANGE,
    close::CHANGE,
    freeze::CHANGE,
    fused::CHANGE,
    gradients::CHANGE,
    growth::CHANGE,
    mixed::CHANGE,
    optimizer::CHANGE,
    shorten::CHANGE,
    shrink::CHANGE,
];

/// Something that can be changed.
struct Change {
    /// A word for it.
    name: &'static str,
    /// What it asks of the user: 1 is a setting, 2 a change of the training loop, 3 touches what is learnt.
    effort: u32,
    /// What it costs.
    cost: &'static str,
    /// The situations after it, gentlest first; none where it does not apply.
    levels: fn(&Model, &Situation) -> Vec<Level>,
}

/// What is asked about.
#[derive(Clone, Debug)]
struct Situation {
    plan: Plan,
    binding: Binding,
    batch: Option<u64>,
    card: Card,
}

impl Situation {
    fn is(&self, framework: Framework) -> bool {
        self.plan.framework == framework
    }
}

/// A situation after a change.
struct Level {
    title: String,
    situation: Situation,
    snippet: String,
}

/// What a situation comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What the driver would show, with nothing in the way.
    pub device: Bytes,
    /// What the framework's allocator reserves.
    pub reserved: Bytes,
    /// What it can have of the card.
    pub usable: Bytes,
    /// Whether the step fits.
    pub verdict: Verdict,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advised {
    /// A word for it.
    pub name: &'static str,
    /// What is done.
    pub title: String,
    /// What it costs.
    pub cost: &'static str,
    /// What it asks: 1 is a setting, 2 a change of the training loop, 3 touches what is learnt.
    pub effort: u32,
    /// What it comes to alone; none where it is not predicted.
    pub outcome: Option<Outcome>,
    /// How much less the step needs of the card; negative where it needs more.
    pub saving: i64,
    /// The code that does it.
    pub snippet: String,
}

/// Changes that fit together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Combination {
    /// Name, what is done, and the code.
    pub parts: Vec<(&'static str, String, String)>,
    /// What they come to.
    pub outcome: Outcome,
}

/// All there is to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// The card.
    pub gpu: String,
    /// The batch size, where there is one.
    pub batch: Option<u64>,
    /// As it is.
    pub now: Outcome,
    /// Each change alone, the most useful first.
    pub changes: Vec<Advised>,
    /// The smallest set of changes that makes it fit; none where it fits as it is, or nothing helps.
    pub combination: Option<Combination>,
}

/// Looks for changes that make a step fit on a card.
///
/// # Errors
/// What makes the step impossible as it is.
pub fn advise(model: &Model, binding: &Binding, plan: &Plan, card: &Card) -> Result<Advice, Vec<Problem>> {
    let batch = model.batch(binding)?;
    let now = Situation { plan: plan.clone(), binding: binding.clone(), batch, card: card.clone() };
    let outcome = evaluate(model, &now)?;
    let mut changes: Vec<Advised> =
        ALL.iter().filter_map(|change| alone(model, change, &now, &outcome)).collect();
    let rank = |a: &Advised| {
        let fits = a.outcome.is_some_and(|o| o.verdict > outcome.verdict);
        (a.outcome.is_none(), !fits, if fits { a.effort } else { 0 }, std::cmp::Reverse(a.saving))
    };
    changes.sort_by_key(|a| (rank(a), a.name));
    let combination =
        (outcome.verdict != Verdict::Fits).then(|| search::smallest(model, &now, ALL)).flatten();
    let combination = combination.filter(|c| c.outcome.verdict > outcome.verdict);
    Ok(Advice { gpu: card.device.id.clone(), batch, now: outcome, changes, combination })
}

/// The gentlest level that helps to fit, else the one that saves most.
fn alone(model: &Model, change: &Change, now: &Situation, before: &Outcome) -> Option<Advised> {
    let mut best: Option<(Level, Outcome)> = None;
    let mut unpredicted = None;
    for level in (change.levels)(model, now) {
        if !is_predicted(change) {
            unpredicted = Some(level);
            break;
        }
        let Ok(outcome) = evaluate(model, &level.situation) else { continue };
        let done = outcome.verdict == Verdict::Fits;
        if best.as_ref().is_none_or(|(_, b)| (outcome.verdict, b.reserved) > (b.verdict, outcome.reserved)) {
            best = Some((level, outcome));
        }
        if done {
            break;
        }
    }
    let (level, outcome) = match (best, unpredicted) {
        (Some((level, outcome)), _) => (level, Some(outcome)),
        (None, Some(level)) => (level, None),
        (None, None) => return None,
    };
    let saving = outcome.map_or(0, |after| saved(before, &after));
    if outcome.is_some_and(|after| saving <= 0 && after.verdict <= before.verdict) {
        return None;
    }
    let Change { name, effort, cost, .. } = *change;
    Some(Advised { name, title: level.title, cost, effort, outcome, saving, snippet: level.snippet })
}

/// Whether the engine knows what the change does.
fn is_predicted(change: &Change) -> bool {
    !matches!(change.name, "channels-last" | "memory-growth")
}

/// What the step needs less, and the card has more.
fn saved(before: &Outcome, after: &Outcome) -> i64 {
    let signed = |b: Bytes| i64::try_from(b.0).unwrap_or(i64::MAX);
    signed(before.device) - signed(after.device) + signed(after.usable) - signed(before.usable)
}

/// Runs and replays a situation.
fn evaluate(model: &Model, s: &Situation) -> Result<Outcome, Vec<Problem>> {
    let plan = s.plan.on(&s.card);
    let timeline = model.step(&s.binding, &plan)?.timeline;
    let open = placement::open(&timeline, plan.framework, &plan.allocator, Some(&s.card.device));
    let fit = placement::place(&timeline, &plan, &s.card, &open);
    let context = context::total(&s.card.context(&plan)).expected;
    let reserved = open.peak_reserved.usage.reserved;
    Ok(Outcome { device: reserved + context, reserved, usable: fit.usable, verdict: fit.verdict })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn list_and_files_are_in_step() {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/src/advise");
        let helpers = ["mod", "search", "snippet"];
        let files: BTreeSet<String> = std::fs::read_dir(dir)
            .unwrap()
            .filter_map(|f| Some(f.unwrap().file_name().to_str()?.strip_suffix(".rs")?.to_owned()))
            .filter(|f| !helpers.contains(&f.as_str()))
            .collect();
        assert_eq!(ALL.len(), files.len());
        let names: BTreeSet<&str> = ALL.iter().map(|c| c.name).collect();
        assert_eq!(names.len(), ALL.len());
    }
}
