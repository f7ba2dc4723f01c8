//! Marks on an axis: round numbers, few of them.

/// Round sizes from nought up to `most`, in steps of 1, 2 or 5 of a unit of 1024.
pub(crate) fn sizes(most: u64) -> Vec<u64> {
    let unit = [1 << 40, 1 << 30, 1 << 20, 1 << 10].into_iter().find(|u| most >= *u).unwrap_or(1);
    steps(most, unit)
}

/// Round numbers from nought up to `most`.
pub(crate) fn counts(most: u64) -> Vec<u64> {
    steps(most, 1)
}

fn steps(most: u64, unit: u64) -> Vec<u64> {
    let units = most / unit;
    let mut step = 1;
    // 1, 2, 5, 10, 20, 50, …
    for factor in [2, 5, 10].into_iter().cycle() {
        if units / step <= 5 {
            break;
        }
        step = match factor {
            2 => step * 2,
            5 => step / 2 * 5,
            _ => step * 2,
        };
    }
    (0..=units / step).map(|i| i * step * unit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_few() {
        assert_eq!(counts(64), [0, 20, 40, 60]);
        assert_eq!(counts(3), [0, 1, 2, 3]);
        assert_eq!(sizes(5 << 29), [0, 1 << 30, 2 << 30]);
        for most in [1, 7, 99, 1 << 20, 3 << 33, u64::MAX] {
            let marks = sizes(most);
            assert!(
                (1..=6).contains(&marks.len()) && marks.windows(2).all(|w| w[0] < w[1]),
                "{most}: {marks:?}"
            );
        }
    }
}
