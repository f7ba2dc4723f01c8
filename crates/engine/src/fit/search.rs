//! The largest number that fits, by galloping from a guess and bisecting.
//!
//! Whether a step fits is almost monotone: memory grows with the batch. Almost, since a block that is a little larger may meet
//! segments it happens to fill better; of large batches whole ranges do. So numbers around the answer are tried too, and what they say is
//! told.

/// What a search found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The largest that fits; zero where not even one does.
    pub(crate) largest: u64,
    /// Whether every number that was tried below it fits, and every one above does not.
    pub(crate) monotone: bool,
}

/// How far around an answer is looked.
pub(crate) const AROUND: u64 = 2;

/// What is known before a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    /// This is taken to fit; zero where nothing is known.
    pub(crate) low: u64,
    /// This is taken not to.
    pub(crate) high: u64,
    /// The answer is looked for from here on.
    pub(crate) guess: u64,
    /// By how much the guess may be off.
    pub(crate) stride: u64,
}

impl Start {
    /// Where nothing is known but a guess, which is right to about a hundredth.
    pub(crate) fn at(guess: u64) -> Start {
        Start { low: 0, high: u64::MAX, guess, stride: guess / 128 }
    }
}

/// Numbers beyond an answer that are tried: the nearest, or of a large answer up to a twelfth more, since holes are as wide there.
fn beyond(answer: u64) -> impl Iterator<Item = u64> {
    let (step, count) = if answer < 48 { (1, 2) } else { (answer / 48, 4) };
    let first = if step == 1 { 2 } else { step };
    (0..count).map(move |k| answer.saturating_add(first + k * step))
}

/// Searches 1 to `most`. What is taken for granted is tried where the answer rests on it, and so are the numbers up to `around`
/// below it and some beyond it; none around it where that is zero.
pub(crate) fn largest(most: u64, start: Start, around: u64, fits: &mut dyn FnMut(u64) -> bool) -> Found {
    if most == 0 {
        return Found { largest: 0, monotone: true };
    }
    let mut low = edge(most, start, fits);
    let holds = (low == 0 || fits(low)) && (low >= most || !fits(low + 1));
    if !holds {
        low = edge(most, Start::at(start.guess), fits);
    }
    let mut monotone = true;
    while let Some(n) = beyond(low).find(|n| around > 0 && *n <= most && fits(*n)) {
        low = edge(most, Start { low: n, high: u64::MAX, guess: n.saturating_add(1), stride: n / 128 }, fits);
        monotone = false;
    }
    for n in (low.saturating_sub(around)..low).filter(|n| *n > 0) {
        monotone &= fits(n);
    }
    Found { largest: low, monotone }
}

/// The last that fits before one that does not, by galloping and bisecting.
pub(crate) fn edge(most: u64, start: Start, fits: &mut dyn FnMut(u64) -> bool) -> u64 {
    // `low` fits (or is zero), `high` does not (or is more than is asked for).
    let (mut low, mut high) = (start.low.min(most), start.high.min(most.saturating_add(1)));
    if high <= low + 1 {
        return low;
    }
    let guess = start.guess.clamp(low + 1, high - 1);
    let mut stride = start.stride.max(1);
    if fits(guess) {
        low = guess;
        while low + stride < high {
            if fits(low + stride) {
                low += stride;
                stride = stride.saturating_mul(2);
            } else {
                high = low + stride;
            }
        }
    } else {
        high = guess;
        while high > low + 1 {
            let next = high.saturating_sub(stride).max(low + 1);
            if fits(next) {
                low = next;
                break;
            }
            high = next;
            stride = stride.saturating_mul(2);
        }
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle) { low = middle } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_does_not_depend_on_the_guess() {
        for most in [1, 7, 1000, u64::MAX - 1] {
            for answer in [0, 1, 2, 37, 640, 1000] {
                for guess in [0, 1, 36, 38, 5_000, u64::MAX] {
                    let found = largest(most, Start::at(guess), AROUND, &mut |n| n <= answer);
                    assert_eq!(found, Found { largest: answer.min(most), monotone: true }, "{most} {guess}");
                }
            }
        }
    }

    #[test]
    fn a_good_guess_takes_few_trials() {
        let mut tried = std::collections::BTreeSet::new();
        largest(1 << 24, Start::at(1010), AROUND, &mut |n| {
            tried.insert(n);
            n <= 1000
        });
        assert!(tried.len() <= 13, "{tried:?}");
    }

    #[test]
    fn what_is_taken_for_granted_is_tried() {
        for (low, high) in [(0, 37), (900, 2_000), (640, 641), (36, 39), (0, 1), (2_000, 3_000)] {
            let start = Start { low, high, guess: 500, stride: 1 };
            let found = largest(1 << 24, start, AROUND, &mut |n| n <= 640);
            assert_eq!(found, Found { largest: 640, monotone: true }, "{low} {high}");
        }
    }

    #[test]
    fn a_hole_beside_the_answer_is_told() {
        let above = largest(100, Start::at(10), AROUND, &mut |n| n <= 12 || n == 14);
        assert_eq!(above, Found { largest: 14, monotone: false });
        let wide = largest(1 << 24, Start::at(990), AROUND, &mut |n| n <= 1000 || (1035..=1065).contains(&n));
        assert_eq!(wide, Found { largest: 1065, monotone: false });
        let below = largest(100, Start::at(10), AROUND, &mut |n| n <= 12 && n != 11);
        assert_eq!(below, Found { largest: 12, monotone: false });
    }
}
