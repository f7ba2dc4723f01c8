//! Sizes as a table shows them: one unit a column, and rows that re-add to the total *as shown*.
//!
//! Rounding each row by itself makes a column of ten rows miss its total by half a unit in the last place per row, and a
//! reader who re-adds it doubts the rest. So a column rounds its total, then hands the remaining tenths to the rows with
//! the largest remainders (the method of largest remainders, as seats are given out).

use memfit_graph::Bytes;
use memfit_graph::order::largest_first;

/// The unit of one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Whole bytes.
    B,
    /// 2^10 bytes.
    KiB,
    /// 2^20 bytes.
    MiB,
}

impl Unit {
    /// The unit in which a column with this total is read most easily. It stops at MiB, the unit of nvidia-smi, so that small
    /// rows keep their digits.
    pub fn of(total: Bytes) -> Unit {
        match total.0 {
            n if n >= 10 * Bytes::MIB => Unit::MiB,
            n if n >= 10 * Bytes::KIB => Unit::KiB,
            _ => Unit::B,
        }
    }

    /// Its name: `MiB`.
    pub fn name(self) -> &'static str {
        match self {
            Unit::B => "B",
            Unit::KiB => "KiB",
            Unit::MiB => "MiB",
        }
    }

    /// How many steps of the last shown digit a byte is, as a fraction.
    fn scale(self) -> (u64, u64) {
        match self {
            Unit::B => (1, 1),
            Unit::KiB => (10, Bytes::KIB),
            Unit::MiB => (10, Bytes::MIB),
        }
    }

    /// The parts of a column in steps of the last shown digit; they re-add to [`Unit::round`] of their sum.
    pub fn column(self, parts: &[Bytes]) -> Vec<u64> {
        let (scale, size) = self.scale();
        apportion(parts.iter().map(|b| b.0), scale, size.into())
    }

    /// One size in steps of the last shown digit, rounded half up.
    pub fn round(self, bytes: Bytes) -> u64 {
        let (scale, size) = self.scale();
        narrow((u128::from(bytes.0) * u128::from(scale) + u128::from(size) / 2) / u128::from(size))
    }

    /// Steps as text: `1,234.5`.
    pub fn text(self, steps: u64) -> String {
        match self {
            Unit::B => grouped(steps),
            Unit::KiB | Unit::MiB => tenths(steps),
        }
    }
}

/// Shares of the parts' sum in tenths of a percent, which re-add to 1,000; all zero where the sum is.
pub fn shares(parts: &[Bytes]) -> Vec<u64> {
    let total: u128 = parts.iter().map(|b| u128::from(b.0)).sum();
    if total == 0 { vec![0; parts.len()] } else { apportion(parts.iter().map(|b| b.0), 1000, total) }
}

/// Each part times `scale / size`, rounded so that the results re-add to the rounded sum.
fn apportion(parts: impl Iterator<Item = u64>, scale: u64, size: u128) -> Vec<u64> {
    let exact: Vec<u128> = parts.map(|p| u128::from(p) * u128::from(scale)).collect();
    let total = (exact.iter().sum::<u128>() + size / 2) / size;
    let mut rounded: Vec<u128> = exact.iter().map(|p| p / size).collect();
    let left = total.saturating_sub(rounded.iter().sum());
    let by_remainder = largest_first((0..exact.len()).collect(), |i: &usize| narrow(exact[*i] % size));
    for i in by_remainder.into_iter().take(usize::try_from(left).unwrap_or(usize::MAX)) {
        rounded[i] += 1;
    }
    rounded.into_iter().map(narrow).collect()
}

fn narrow(n: u128) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

/// A count with separators: `25,557,032`.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 operator`, `1,204 operators`.
pub(crate) fn counted(n: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(n), if n == 1 { "" } else { "s" })
}

/// Tenths as a decimal: `74.1`.
pub fn tenths(n: u64) -> String {
    format!("{}.{}", grouped(n / 10), n % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_re_add_to_the_shown_total() {
        // Ten rows of 1.04 MiB: rounded one by one they would show 10 * 1.0 beside a total of 10.4.
        let parts = vec![Bytes(Bytes::MIB * 104 / 100); 10];
        let total: Bytes = parts.iter().copied().sum();
        assert_eq!(Unit::of(total), Unit::MiB);
        assert_eq!(Unit::MiB.column(&parts).iter().sum::<u64>(), Unit::MiB.round(total));
        assert_eq!(Unit::MiB.round(total), 104);
        assert_eq!(shares(&parts).iter().sum::<u64>(), 1000);
    }

    #[test]
    fn nothing_is_given_to_an_empty_row() {
        let parts = [Bytes(0), Bytes(1), Bytes(2), Bytes(0)];
        let shares = shares(&parts);
        assert_eq!(shares, [0, 333, 667, 0]);
        assert_eq!(super::shares(&[Bytes(0)]), [0]);
        assert_eq!(Unit::MiB.column(&[]), [0_u64; 0]);
    }

    #[test]
    fn huge_sizes_do_not_wrap() {
        let steps = Unit::MiB.column(&[Bytes(u64::MAX), Bytes(u64::MAX)]);
        assert_eq!(
            steps.iter().map(|n| u128::from(*n)).sum::<u128>(),
            (u128::from(u64::MAX) * 20 + (1 << 19)) >> 20
        );
        assert_eq!(grouped(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!(
            (grouped(7), grouped(1000), tenths(12345)),
            ("7".into(), "1,000".into(), "1,234.5".into())
        );
    }
}
