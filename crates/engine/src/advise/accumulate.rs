//! Gradient accumulation: several micro-batches a step with the same effective batch.

use super::{Api, Change, Kind, Level, Situation, loops, snippet};
use crate::fit::Axis;
use crate::{Framework, Mode, Model};

pub(super) const CHANGE: Change = Change {
    name: "accumulate",
    effort: 2,
    kind: Kind::Step,
    cost: "as much arithmetic, in smaller and less efficient pieces",
    levels,
};

/// The same where statistics are taken of a batch.
const WITH_BATCH_NORMS: &str =
    "as much arithmetic, in smaller and less efficient pieces; batch norms see a micro-batch only";

/// Beyond about so many no loop is made.
const MOST_PIECES: u64 = 4096;

fn levels(model: &Model, now: &Situation) -> Vec<Level> {
    // tf.distribute runs no optimizer that accumulates (see `Plan::settle`).
    let refused = now.is(Framework::Tensorflow) && now.plan.parallel.is_some();
    let trains = now.plan.mode == Mode::Train && !refused;
    let Some(batch) = now.batch.filter(|_| trains) else { return Vec::new() };
    let graph = model.recomposed(&now.plan);
    let normalizes = graph.nodes.iter().any(|node| node.op.name().contains("BatchNormalization"));
    let level = |micro| {
        let mut level = level(model, now, batch, micro)?;
        level.cost = if normalizes { WITH_BATCH_NORMS } else { CHANGE.cost };
        Some(level)
    };
    micro_batches(batch).into_iter().filter_map(level).collect()
}

/// The micro-batches that are tried: those that divide a batch, few first, then about half as large each time, then one sample. Where the
/// next is less than half, halves lie between, of which the last in a step is smaller.
fn micro_batches(batch: u64) -> Vec<u64> {
    let mut all = Vec::new();
    let mut last = batch;
    for pieces in pieces(batch) {
        let next = batch / pieces;
        while last.div_ceil(2) > next {
            last = last.div_ceil(2);
            all.push(last);
        }
        all.push(next);
        last = next;
    }
    all
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

fn level(model: &Model, now: &Situation, batch: u64, micro: u64) -> Option<Level> {
    let pieces = batch.div_ceil(micro);
    let situation = in_pieces(model, now, micro, pieces);
    let steps = situation.plan.accumulate;
    let rest = batch % micro;
    if rest == 0 {
        let title = format!("{steps} micro-batches of {micro} a step");
        return CHANGE.level(title, situation, &[]);
    }
    if now.api != Some(Api::Pytorch) {
        // Keras counts micro-batches and makes all alike.
        let whole = micro.saturating_mul(u64::from(steps));
        let title = format!("{steps} micro-batches of {micro} a step, {whole} in all");
        return CHANGE.level(title, situation, &[]);
    }
    if loops::micro_batches(&now.plan) > 1 {
        return None;
    }
    let title = format!("micro-batches of {micro}, then {rest}");
    let snippet = snippet::lines(&situation, "accumulate-parts", &[("BATCH", batch.to_string())])?;
    Some(Level { title, situation, snippet, cost: CHANGE.cost })
}

/// The same batch in so many pieces of `micro` samples.
pub(super) fn in_pieces(model: &Model, now: &Situation, micro: u64, pieces: u64) -> Situation {
    let mut situation = now.clone();
    situation.binding = Axis::Batch.bind(model.graph(), &now.binding, micro);
    situation.batch = Some(micro);
    let steps = pieces.saturating_mul(u64::from(loops::micro_batches(&now.plan)));
    situation.plan.accumulate = u32::try_from(steps).unwrap_or(u32::MAX);
    situation
}

#[cfg(test)]
mod tests {
    use super::{micro_batches, pieces};

    #[test]
    fn pieces_are_of_one_size_and_soon_small() {
        assert_eq!(pieces(150), [2, 3, 5, 6, 10, 25, 50, 75, 150]);
        assert_eq!(pieces(64), [2, 4, 8, 16, 32, 64]);
        assert_eq!((pieces(1), pieces(2), pieces(7)), (vec![], vec![2], vec![7]));
        assert!(pieces(10_007).is_empty() && pieces(u64::MAX).len() < 40);
        assert!(pieces(1 << 20).iter().all(|pieces| *pieces <= 4096));
    }

    #[test]
    fn a_batch_that_nothing_divides_is_halved() {
        assert_eq!(micro_batches(127), [64, 32, 16, 8, 4, 2, 1]);
        assert_eq!(micro_batches(150), [75, 50, 30, 25, 15, 8, 6, 3, 2, 1]);
        assert_eq!(micro_batches(64), [32, 16, 8, 4, 2, 1]);
        assert_eq!((micro_batches(1), micro_batches(3)), (vec![], vec![2, 1]));
        assert!(micro_batches(u64::MAX).len() < 80);
    }
}
