//! The largest number that fits, by galloping from a guess and bisecting, then by trying what is left above.
//!
//! Whether a step fits is almost monotone: memory grows with the batch. Almost, since a block that is a little larger may meet
//! segments it happens to fill better, and the one that fits may lie a twelfth above the first that does not. What tensors alone fill
//! grows without exception, so there is a last number that any allocator could place; each up to it is tried.

/// What is said of a number, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Answer {
    /// It fits.
    Fits,
    /// It does not.
    Fails,
    /// Neither it nor any above it can.
    Hopeless,
}

/// What a search found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The largest that fits; zero where not even one does.
    pub(crate) largest: u64,
    /// Whether every number that was tried below it fits and none above it does; not where there are too many to try them all.
    pub(crate) monotone: bool,
}

/// How far below an answer is looked.
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

/// Searches 1 to `most`. What is taken for granted is tried where the answer rests on it. Where `trials` is not zero, so are the
/// numbers up to [`AROUND`] below it and all above it that are not hopeless, or so many of them.
pub(crate) fn largest(most: u64, start: Start, trials: u64, ask: &mut dyn FnMut(u64) -> Answer) -> Found {
    if most == 0 {
        return Found { largest: 0, monotone: true };
    }
    let mut fits = |n| ask(n) == Answer::Fits;
    let mut low = edge(most, start, &mut fits);
    let holds = (low == 0 || fits(low)) && (low >= most || !fits(low + 1));
    if !holds {
        low = edge(most, Start::at(start.guess), &mut fits);
    }
    if trials == 0 {
        return Found { largest: low, monotone: true };
    }
    let beside = Start { low, high: u64::MAX, guess: low.saturating_add(1 + low / 64), stride: low / 64 };
    let last = edge(most, beside, &mut |n| ask(n) != Answer::Hopeless);
    let step = (last - low).div_ceil(trials).max(1);
    let mut fits = |n| ask(n) == Answer::Fits;
    let mut monotone = step == 1;
    let mut above = (0..).map_while(|k| last.checked_sub(step * k).filter(|n| *n > low));
    if let Some(n) = above.find(|n| fits(*n)) {
        low = edge(last, Start { low: n, high: n + step, guess: n + 1, stride: 1 }, &mut fits);
        monotone = false;
    }
    for n in (low.saturating_sub(AROUND)..low).filter(|n| *n > 0) {
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

    /// Up to `answer` it fits, and no more than a tenth above there is room for the tensors.
    fn sharp(answer: u64) -> impl FnMut(u64) -> Answer {
        move |n| match n {
            n if n <= answer => Answer::Fits,
            n if n > answer + answer / 10 + 1 => Answer::Hopeless,
            _ => Answer::Fails,
        }
    }

    #[test]
    fn the_answer_does_not_depend_on_the_guess() {
        for most in [1, 7, 1000, u64::MAX - 1] {
            for answer in [0, 1, 2, 37, 640, 1000] {
                for guess in [0, 1, 36, 38, 5_000, u64::MAX] {
                    let found = largest(most, Start::at(guess), 200, &mut sharp(answer));
                    assert_eq!(found, Found { largest: answer.min(most), monotone: true }, "{most} {guess}");
                }
            }
        }
    }

    #[test]
    fn a_good_guess_takes_few_trials() {
        let mut tried = std::collections::BTreeSet::new();
        largest(1 << 24, Start::at(1010), 0, &mut |n| {
            tried.insert(n);
            sharp(1000)(n)
        });
        assert!(tried.len() <= 13, "{tried:?}");
    }

    #[test]
    fn what_is_taken_for_granted_is_tried() {
        for (low, high) in [(0, 37), (900, 2_000), (640, 641), (36, 39), (0, 1), (2_000, 3_000)] {
            let start = Start { low, high, guess: 500, stride: 1 };
            let found = largest(1 << 24, start, 100, &mut sharp(640));
            assert_eq!(found, Found { largest: 640, monotone: true }, "{low} {high}");
        }
    }

    #[test]
    fn a_hole_beside_the_answer_is_told() {
        let among = |fits: &dyn Fn(u64) -> bool, last: u64, trials: u64| {
            largest(1 << 24, Start::at(10), trials, &mut |n| match n {
                n if n > last => Answer::Hopeless,
                n if fits(n) => Answer::Fits,
                _ => Answer::Fails,
            })
        };
        for above in [14, 19, 30] {
            let found = among(&|n| n <= 12 || n == above, 30, 100);
            assert_eq!(found, Found { largest: above, monotone: false });
        }
        let below = among(&|n| n <= 12 && n != 11, 30, 100);
        assert_eq!(below, Found { largest: 12, monotone: false });
        // Not all of them are tried, which is told too.
        let wide = |n| n <= 1000 || (1035..=1065).contains(&n);
        assert_eq!(among(&wide, 1100, 8), Found { largest: 1065, monotone: false });
        assert_eq!(among(&|n| n <= 1000, 1100, 8), Found { largest: 1000, monotone: false });
    }
}
