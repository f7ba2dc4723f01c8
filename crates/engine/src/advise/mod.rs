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
mod constructor;
mod freeze;
mod fused;
mod gradients;
mod growth;
mod half;
mod limit;
mod loops;
mod mixed;
mod optimizer;
mod prefetch;
mod retry;
mod runs;
mod search;
mod shard;
mod shorten;
mod shrink;
mod snippet;
mod stale;
mod together;
mod validation;

pub(crate) use runs::Runs;
pub use snippet::{Api, Release, examples};

use crate::devices::Card;
use crate::{Framework, Life, Model, Plan, Verdict};
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
    half::CHANGE,
    limit::CHANGE,
    mixed::CHANGE,
    optimizer::CHANGE,
    prefetch::CHANGE,
    retry::CHANGE,
    shard::CHANGE,
    shorten::CHANGE,
    shrink::CHANGE,
    stale::CHANGE,
    validation::CHANGE,
];

/// Something that can be changed.
struct Change {
    /// A word for it.
    name: &'static str,
    /// What it asks of the user: 1 is a setting, 2 a change of the training loop, 3 touches what is learnt.
    effort: u32,
    /// What it saves.
    kind: Kind,
    /// What it costs.
    cost: &'static str,
    /// The situations after it, gentlest first; none where it does not apply.
    levels: fn(&Model, &Situation) -> Vec<Level>,
}

impl Change {
    /// The situation after it with the code that does it, where the release has what that needs.
    fn level(
        &self,
        title: impl Into<String>,
        situation: Situation,
        values: &[(&str, String)],
    ) -> Option<Level> {
        let snippet = snippet::lines(&situation, self.name, values)?;
        Some(Level { title: title.into(), situation, snippet, cost: self.cost })
    }
}

/// What a change saves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The step, or what else happens in the process, needs less, or has more of the card.
    Step,
    /// The process holds less of the card than it may, and needs as much.
    ForOthers,
}

/// What is known beside the step.
#[derive(Clone, Debug, Default)]
pub struct Around {
    /// What else happens in the process.
    pub life: Life,
    /// What code is written for.
    pub code: Code,
}

/// What the lines of a change have to go with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Code {
    /// The framework's release; the newest where it is not given.
    pub release: Option<Release>,
    /// The optimizer's weight decay, where it has one.
    pub weight_decay: Option<f64>,
    /// The norm to which gradients are clipped, where they are.
    pub clip_norm: Option<f64>,
}

/// What is asked about, and what it is after a change.
#[derive(Clone, Debug, PartialEq)]
pub struct Situation {
    /// How the model is trained.
    pub plan: Plan,
    /// The sizes that the model leaves open.
    pub binding: Binding,
    /// The batch size, where there is one.
    pub batch: Option<u64>,
    /// The card, and what else is on it.
    pub card: Card,
    /// What else happens in the process.
    pub life: Life,
    /// What code is written for.
    pub code: Code,
    /// What it calls; none where no code is written.
    pub api: Option<Api>,
}

impl Situation {
    fn is(&self, framework: Framework) -> bool {
        self.plan.framework == framework
    }

    /// Whether the framework is of this release or a later one.
    fn has(&self, release: Release) -> bool {
        self.code.release.is_none_or(|is| is >= release)
    }
}

/// A situation after a change.
struct Level {
    title: String,
    situation: Situation,
    snippet: String,
    cost: &'static str,
}

/// What a situation comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What the driver would show: `reserved` and the context.
    pub device: Bytes,
    /// What the framework's allocator reserves inside of the card; with nothing in the way, where it does not fit.
    pub reserved: Bytes,
    /// The same at the high end of its range.
    pub high: Bytes,
    /// What it can have of the card.
    pub usable: Bytes,
    /// Whether the step fits, and what else happens in the process.
    pub verdict: Verdict,
    /// What the driver shows for the process: `device`, or all that the framework takes at its start.
    pub held: Bytes,
    /// Whether something ran whose need is not known.
    pub is_partial: bool,
}

/// One change.
#[derive(Clone, Debug, PartialEq)]
pub struct Advised {
    /// A word for it.
    pub name: &'static str,
    /// What is done.
    pub title: String,
    /// What it costs.
    pub cost: &'static str,
    /// What it asks: 1 is a setting, 2 a change of the training loop, 3 touches what is learnt.
    pub effort: u32,
    /// What it comes to alone.
    pub outcome: Outcome,
    /// Whether others have what is saved, and the step itself needs as much as before.
    pub for_others: bool,
    /// How much less the step needs of the card, or the process holds where others have it; negative where it needs more.
    pub saving: i64,
    /// The code that does it.
    pub snippet: String,
    /// The situation after it.
    pub after: Situation,
}

/// Changes that fit together.
#[derive(Clone, Debug, PartialEq)]
pub struct Combination {
    /// Name, what is done, and the code.
    pub parts: Vec<(&'static str, String, String)>,
    /// What they come to.
    pub outcome: Outcome,
    /// The situation after all of them.
    pub after: Situation,
}

/// All there is to say.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// What is asked about.
    pub before: Situation,
    /// As it is.
    pub now: Outcome,
    /// Each change alone, the most useful first.
    pub changes: Vec<Advised>,
    /// The smallest set of changes that makes it fit; none where it fits as it is, or nothing helps.
    pub combination: Option<Combination>,
}

/// Looks for changes that make a step fit on a card, and what else happens in its process.
///
/// # Errors
/// What makes the step impossible as it is.
pub fn advise(
    model: &Model,
    binding: &Binding,
    plan: &Plan,
    card: &Card,
    around: &Around,
) -> Result<Advice, Vec<Problem>> {
    let batch = model.batch(binding)?;
    let now = Situation {
        plan: model.under_policy(plan).into_owned(),
        binding: binding.clone(),
        batch,
        card: card.clone(),
        life: around.life.clone(),
        code: around.code.clone(),
        api: Api::of(plan.framework, model.is_keras()),
    };
    let runs = Runs::of(model);
    let outcome = runs.evaluate(&now)?;
    let mut changes: Vec<Advised> =
        ALL.iter().filter_map(|change| alone(model, &runs, change, &now, &outcome)).collect();
    let rank = |a: &Advised| {
        let fits = a.outcome.verdict > outcome.verdict;
        (a.for_others, !fits, if fits { a.effort } else { 0 }, std::cmp::Reverse(a.saving))
    };
    changes.sort_by_key(|a| (rank(a), a.name));
    let combination =
        (outcome.verdict != Verdict::Fits).then(|| search::smallest(model, &runs, &now, ALL)).flatten();
    let combination = combination.filter(|c| c.outcome.verdict > outcome.verdict).map(together::in_one_loop);
    Ok(Advice { before: now, now: outcome, changes, combination })
}

/// The gentlest of the levels that help most to fit; where none does, the one that saves most.
fn alone(
    model: &Model,
    runs: &Runs<'_>,
    change: &Change,
    now: &Situation,
    before: &Outcome,
) -> Option<Advised> {
    let mut best: Option<(Level, Outcome)> = None;
    for level in (change.levels)(model, now) {
        let Ok(outcome) = runs.evaluate(&level.situation) else { continue };
        let done = outcome.verdict == Verdict::Fits;
        let saves_more = |b: &Outcome| b.verdict == Verdict::DoesNotFit && outcome.reserved < b.reserved;
        if best.as_ref().is_none_or(|(_, b)| outcome.verdict > b.verdict || saves_more(b)) {
            best = Some((level, outcome));
        }
        if done {
            break;
        }
    }
    let (level, outcome) = best?;
    let for_others = change.kind == Kind::ForOthers;
    let saving = match change.kind {
        Kind::Step => saved(before, &outcome),
        Kind::ForOthers => signed(before.held) - signed(outcome.held),
    };
    if saving <= 0 && outcome.verdict <= before.verdict {
        return None;
    }
    let Change { name, effort, .. } = *change;
    let Level { title, snippet, situation: after, cost } = level;
    Some(Advised { name, title, cost, effort, outcome, for_others, saving, snippet, after })
}

/// What the step needs less, and the card has more.
fn saved(before: &Outcome, after: &Outcome) -> i64 {
    signed(before.device) - signed(after.device) + signed(after.usable) - signed(before.usable)
}

fn signed(bytes: Bytes) -> i64 {
    i64::try_from(bytes.0).unwrap_or(i64::MAX)
}

/// What a situation comes to by itself.
fn evaluate(model: &Model, situation: &Situation) -> Result<Outcome, Vec<Problem>> {
    Runs::of(model).evaluate(situation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn list_and_files_are_in_step() {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/src/advise");
        let helpers = ["constructor", "loops", "mod", "runs", "search", "snippet", "together"];
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
