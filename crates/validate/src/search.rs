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
    /// What was tried, in order, and not known before.
    pub tried: Vec<(u64, Outcome)>,
}

/// Walks from `start` in growing steps until one batch runs and a larger one does not, then halves the gap. `known` is what an earlier
/// search has seen. Ends at `most`, when `go_on` says so, or where a try was ended before it showed anything (`None`).
///
/// # Errors
/// Where a try fails for another reason than memory.
pub fn search<E>(
    start: u64,
    most: u64,
    known: &[(u64, Outcome)],
    mut go_on: impl FnMut() -> bool,
    mut attempt: impl FnMut(u64) -> Result<Option<Outcome>, E>,
) -> Result<Found, E> {
    let of = |outcome: Outcome| known.iter().filter(move |(_, o)| *o == outcome).map(|(batch, _)| *batch);
    let mut runs = of(Outcome::Ran).max().unwrap_or(0);
    let mut fails = of(Outcome::OutOfMemory).filter(|b| *b > runs).min();
    let mut tried = Vec::new();
    let mut step = 1_u64;
    loop {
        let next = match fails {
            Some(fails) if runs + 1 >= fails => break,
            // From a start that is close, single steps first: the answer is often the start or its neighbour.
            Some(fails) if runs == 0 && tried.len() < 2 => fails.saturating_sub(step).max(1),
            Some(fails) => runs + (fails - runs) / 2,
            None if runs >= most => break,
            None if runs == 0 => start.clamp(1, most.max(1)),
            None if start > 1 => runs.saturating_add(step).min(most),
            None => runs.saturating_mul(2).min(most),
        };
        if !go_on() {
            break;
        }
        let Some(outcome) = attempt(next)? else { break };
        // The start is no step yet.
        if !tried.is_empty() {
            step = step.saturating_mul(4);
        }
        tried.push((next, outcome));
        match outcome {
            Outcome::Ran => runs = next,
            Outcome::OutOfMemory => fails = Some(next),
        }
    }
    Ok(Found { largest: runs, bounded: fails == Some(runs + 1), tried })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_is_found_in_few_tries() {
        for start in [1, 8, 60] {
            for limit in [0, 1, 2, 37, 59, 60, 61, 63, 64, 1000] {
                let run = |batch| {
                    Ok::<_, ()>(Some(if batch <= limit { Outcome::Ran } else { Outcome::OutOfMemory }))
                };
                let found = search(start, 512, &[], || true, run).unwrap();
                assert_eq!((found.largest, found.bounded), (limit.min(512), limit < 512), "{start} {limit}");
                assert!(found.tried.len() < 20, "{start} {limit}: {:?}", found.tried);
            }
        }
    }

    #[test]
    fn a_start_that_is_right_takes_two_tries() {
        let run = |batch| Ok::<_, ()>(Some(if batch <= 60 { Outcome::Ran } else { Outcome::OutOfMemory }));
        let found = search(60, 512, &[], || true, run).unwrap();
        assert!(found.tried.len() <= 3, "{:?}", found.tried);
    }

    #[test]
    fn it_ends_when_told() {
        let mut left = 2;
        let go_on = || {
            left -= 1;
            left >= 0
        };
        let found = search(1, 512, &[], go_on, |_| Ok::<_, ()>(Some(Outcome::Ran))).unwrap();
        assert_eq!((found.largest, found.bounded), (2, false));
        let cut_short = |batch| Ok::<_, ()>((batch < 5).then_some(Outcome::Ran));
        let found = search(1, 512, &[], || true, cut_short).unwrap();
        assert_eq!((found.largest, found.bounded, found.tried.len()), (4, false, 3));
    }

    #[test]
    fn what_is_known_is_not_tried_again() {
        let known = [(8, Outcome::Ran), (16, Outcome::OutOfMemory)];
        let run = |batch: u64| {
            assert!(batch > 8 && batch < 16, "{batch}");
            Ok::<_, ()>(Some(if batch <= 11 { Outcome::Ran } else { Outcome::OutOfMemory }))
        };
        let found = search(1, 512, &known, || true, run).unwrap();
        assert_eq!((found.largest, found.bounded), (11, true));
        let all = [(11, Outcome::Ran), (12, Outcome::OutOfMemory)];
        let none = |_| -> Result<Option<Outcome>, ()> { panic!("a try") };
        assert_eq!(search(1, 512, &all, || true, none).unwrap().largest, 11);
    }
}
