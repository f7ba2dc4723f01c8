//! Gradient accumulation: several micro-batches a step with the same effective batch.

use super::{Change, Kind, Level, Situation};
use crate::Model;
use crate::fit::Axis;

pub(super) const CHANGE: Change = Change {
    name: "accumulate",
    effort: 2,
    kind: Kind::Step,
    cost: "as much arithmetic, in smaller and less efficient pieces; batch norms see a micro-batch only",
    levels,
};

/// Beyond about so many no loop is made.
const MOST_PIECES: u64 = 4096;

fn levels(model: &Model, now: &Situation) -> Vec<Level> {
    let Some(batch) = now.batch.filter(|_| now.plan.mode == crate::Mode::Train) else { return Vec::new() };
    pieces(batch).into_iter().filter_map(|pieces| level(model, now, batch / pieces, pieces)).collect()
}

/// In how many pieces of the same size a batch is tried: few, then about twice as many each time, then one sample each.
fn pieces(batch: u64) -> Vec<u64> {
    let divides = |pieces: &u64| batch.is_multiple_of(*pieces);
    let mut all: Vec<u64> = (2..=8.min(batch)).filter(divides).collect();
    for least in (3..=MOST_PIECES.ilog2()).map(|power| 1 << power) {
        all.extend((least..(2 * least).min(batch)).find(divides));
    }
    all.dedup();
    if (2..=2 * MOST_PIECES).contains(&batch) && all.last() != Some(&batch) {
        all.push(batch);
    }
    all
}

fn level(model: &Model, now: &Situation, micro: u64, pieces: u64) -> Option<Level> {
    let situation = in_pieces(model, now, micro, pieces);
    let steps = situation.plan.accumulate;
    let values = [("K", steps.to_string()), ("MICRO", micro.to_string())];
    let title = format!("{steps} micro-batches of {micro} a step");
    CHANGE.level(title, situation, &values)
}

/// The same batch in so many pieces of `micro` samples.
pub(super) fn in_pieces(model: &Model, now: &Situation, micro: u64, pieces: u64) -> Situation {
    let mut situation = now.clone();
    situation.binding = Axis::Batch.bind(model.graph(), &now.binding, micro);
    situation.batch = Some(micro);
    let steps = pieces.saturating_mul(u64::from(now.plan.accumulate));
    situation.plan.accumulate = u32::try_from(steps).unwrap_or(u32::MAX);
    situation
}

#[cfg(test)]
mod tests {
    use super::pieces;

    #[test]
    fn pieces_are_of_one_size_and_soon_small() {
        assert_eq!(pieces(150), [2, 3, 5, 6, 10, 25, 50, 75, 150]);
        assert_eq!(pieces(64), [2, 4, 8, 16, 32, 64]);
        assert_eq!((pieces(1), pieces(2), pieces(7)), (vec![], vec![2], vec![7]));
        assert!(pieces(10_007).is_empty() && pieces(u64::MAX).len() < 40);
        assert!(pieces(1 << 20).iter().all(|pieces| *pieces <= 4096));
    }
}
