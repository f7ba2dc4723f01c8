//! The smallest set of changes that fits: the fewest changes, and of equally many those that ask least.

use super::{Change, Combination, Kind, Outcome, Runs, Situation, validation};
use crate::{Model, Verdict};
use memfit_graph::order::sorted_by_key;

/// Sets of more changes than this are not looked for: nobody would make them.
const MOST_CHANGES: usize = 4;
/// No further set is tried once so many situations were asked about.
const MOST_RUNS: usize = 160;

/// The first set that fits for sure, else the first that is tight.
pub(super) fn smallest(
    model: &Model,
    seen: &Runs<'_>,
    now: &Situation,
    all: &[Change],
) -> Option<Combination> {
    let mut useful: Vec<&Change> = all.iter().filter(|c| c.kind == Kind::Step).collect();
    useful.retain(|change| !(change.levels)(model, now).is_empty());
    let useful = sorted_by_key(useful, |change| change.effort.into());
    let mut tries = Tries { model, seen, runs: 0 };
    let mut tight = None;
    for size in 1..=MOST_CHANGES.min(useful.len()) {
        let changes_of = |set: Vec<usize>| -> Vec<&Change> {
            set.into_iter().filter_map(|i| useful.get(i).copied()).collect()
        };
        let sets = subsets(useful.len(), size).into_iter().map(changes_of).collect();
        for changes in sorted_by_key(sets, |set| set.iter().map(|change| u64::from(change.effort)).sum()) {
            let Some(found) = tries.set(now, &changes) else { continue };
            if found.outcome.verdict == Verdict::Fits {
                return Some(found);
            }
            tight.get_or_insert(found);
            if tries.runs > MOST_RUNS {
                return tight;
            }
        }
        if tight.is_some() || tries.runs > MOST_RUNS {
            return tight;
        }
    }
    tight
}

/// Sets that were tried.
struct Tries<'a> {
    model: &'a Model,
    seen: &'a Runs<'a>,
    /// How many situations were asked about.
    runs: usize,
}

impl Tries<'_> {
    fn evaluate(&mut self, situation: &Situation) -> Option<Outcome> {
        self.runs += 1;
        self.seen.evaluate(situation).ok().filter(|outcome| outcome.verdict != Verdict::DoesNotFit)
    }

    /// Makes all changes. Validation is a part of the process beside the step: where the gentlest smaller batch does not do, the gentlest is
    /// taken with which the others can.
    fn set(&mut self, now: &Situation, changes: &[&Change]) -> Option<Combination> {
        let model = self.model;
        let found = self.in_order(now, changes);
        let (validation, others): (Vec<_>, Vec<_>) =
            changes.iter().copied().partition(|change| change.name == validation::CHANGE.name);
        if found.is_some() || others.is_empty() {
            return found;
        }
        for level in (validation.first()?.levels)(model, now) {
            let furthest = |s: Situation, change: &&Change| Some((change.levels)(model, &s).pop()?.situation);
            let most = others.iter().try_fold(level.situation.clone(), furthest)?;
            if self.evaluate(&most).is_some() {
                let mut found = self.in_order(&level.situation, &others)?;
                found.parts.insert(0, (validation::CHANGE.name, level.title, level.snippet));
                return Some(found);
            }
        }
        None
    }

    /// Makes all changes, the last one's level as gentle as it can be.
    fn in_order(&mut self, now: &Situation, changes: &[&Change]) -> Option<Combination> {
        let model = self.model;
        // A change with many levels comes last, where its level is looked for; the others take their gentlest.
        let ordered = sorted_by_key(changes.to_vec(), |change| (change.levels)(model, now).len() as u64);
        let (last, first) = ordered.split_last()?;
        let (mut situation, mut parts) = (now.clone(), Vec::new());
        for change in first {
            let level = (change.levels)(model, &situation).into_iter().next()?;
            situation = level.situation;
            parts.push((change.name, level.title, level.snippet));
        }
        let mut tight = None;
        for level in (last.levels)(model, &situation) {
            let Some(outcome) = self.evaluate(&level.situation) else { continue };
            let mut parts = parts.clone();
            parts.push((last.name, level.title, level.snippet));
            let found = Combination { parts, outcome, after: level.situation };
            if outcome.verdict == Verdict::Fits {
                return Some(found);
            }
            tight.get_or_insert(found);
        }
        tight
    }
}

/// The subsets of `0..n` with `size` elements.
fn subsets(n: usize, size: usize) -> Vec<Vec<usize>> {
    if size == 0 {
        return vec![Vec::new()];
    }
    let with_last = |last: usize| {
        subsets(last, size - 1).into_iter().map(move |mut set| {
            set.push(last);
            set
        })
    };
    (size - 1..n).flat_map(with_last).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subsets_are_all_there() {
        assert_eq!(subsets(4, 2).len(), 6);
        assert_eq!(subsets(3, 3), [[0, 1, 2]]);
        assert_eq!(subsets(2, 3).len(), 0);
    }
}
