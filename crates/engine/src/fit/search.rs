//! The largest number that fits, by galloping from a guess and bisecting.
//!
//! Whether a step fits is almost monotone: memory grows with the batch. Almost, since a block that is a little larger may meet
//! segments it happens to fill better. So the numbers around the answer are tried too, and what they say is told.

/// What a search found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The largest that fits; zero where not even one does.
    pub(crate) largest: u64,
    /// Whether every number that was tried below it fits, and every one above does not.
    pub(crate) monotone: bool,
}

/// How far around the answer is looked.
const AROUND: u64 = 2;

/// Searches 1 to `most`, beginning at `guess`.
pub(crate) fn largest(most: u64, guess: u64, fits: &mut dyn FnMut(u64) -> bool) -> Found {
    // `low` fits (or is zero), `high` does not (or is more than is asked for).
    let (mut low, mut high) = (0, most.saturating_add(1));
    let guess = guess.clamp(1, most.max(1));
    if most == 0 {
        return Found { largest: 0, monotone: true };
    }
    // A guess is right to about a hundredth.
    let mut stride = (guess / 128).max(1);
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
    let mut monotone = true;
    for n in (low.saturating_add(2)..=low.saturating_add(1 + AROUND)).filter(|n| *n <= most) {
        if fits(n) {
            (low, monotone) = (n, false);
        }
    }
    for n in (low.saturating_sub(AROUND)..low).filter(|n| *n > 0) {
        monotone &= fits(n);
    }
    Found { largest: low, monotone }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_does_not_depend_on_the_guess() {
        for most in [1, 7, 1000, u64::MAX - 1] {
            for answer in [0, 1, 2, 37, 640, 1000] {
                for guess in [0, 1, 36, 38, 5_000, u64::MAX] {
                    let found = largest(most, guess, &mut |n| n <= answer);
                    assert_eq!(found, Found { largest: answer.min(most), monotone: true }, "{most} {guess}");
                }
            }
        }
    }

    #[test]
    fn a_good_guess_takes_few_trials() {
        let mut trials = 0;
        largest(1 << 24, 1010, &mut |n| {
            trials += 1;
            n <= 1000
        });
        assert!(trials <= 11, "{trials}");
    }

    #[test]
    fn a_hole_beside_the_answer_is_told() {
        let above = largest(100, 10, &mut |n| n <= 12 || n == 14);
        assert_eq!(above, Found { largest: 14, monotone: false });
        let below = largest(100, 10, &mut |n| n <= 12 && n != 11);
        assert_eq!(below, Found { largest: 12, monotone: false });
    }
}
