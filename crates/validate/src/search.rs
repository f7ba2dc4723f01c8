//! The largest batch that runs, by bisection.

/// How a batch went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A step ran.
    Ran,
    /// The device had not enough memory.
    OutOfMemory,
}

/// What a search found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The largest batch that ran; 0 where none did.
    pub largest: u64,
    /// Whether the next larger one was seen to fail, rather than the search having ended for another reason.
    pub bounded: bool,
    /// What was tried, in order.
    pub tried: Vec<(u64, Outcome)>,
}

/// Doubles from `start` until a batch does not run, then halves the gap. Ends at `most` or when `go_on` says so.
///
/// # Errors
/// Where a try fails for another reason than memory.
pub fn search<E>(
    start: u64,
    most: u64,
    mut go_on: impl FnMut() -> bool,
    mut attempt: impl FnMut(u64) -> Result<Outcome, E>,
) -> Result<Found, E> {
    let (mut runs, mut fails) = (0, most.saturating_add(1));
    let mut tried = Vec::new();
    let mut next = start.clamp(1, most.max(1));
    while runs + 1 < fails && go_on() {
        let outcome = attempt(next)?;
        tried.push((next, outcome));
        match outcome {
            Outcome::Ran => runs = next,
            Outcome::OutOfMemory => fails = next,
        }
        let failed = tried.iter().any(|(_, outcome)| *outcome == Outcome::OutOfMemory);
        next = if failed { runs + (fails - runs) / 2 } else { next.saturating_mul(2).min(most) };
    }
    Ok(Found { largest: runs, bounded: runs + 1 == fails && fails <= most, tried })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_is_found_in_few_tries() {
        for limit in [0, 1, 2, 37, 63, 64, 1000] {
            let run = |batch| Ok::<_, ()>(if batch <= limit { Outcome::Ran } else { Outcome::OutOfMemory });
            let found = search(8, 512, || true, run).unwrap();
            assert_eq!((found.largest, found.bounded), (limit.min(512), limit < 512), "{limit}");
            assert!(found.tried.len() < 16);
        }
    }

    #[test]
    fn it_ends_when_told() {
        let mut left = 2;
        let go_on = || {
            left -= 1;
            left >= 0
        };
        let found = search(1, 512, go_on, |_| Ok::<_, ()>(Outcome::Ran)).unwrap();
        assert_eq!((found.largest, found.bounded), (2, false));
    }
}
