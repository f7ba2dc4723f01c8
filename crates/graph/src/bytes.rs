//! Exact byte counts.
//!
//! Everything memfit says rests on unsigned integers whose arithmetic saturates; a count becomes text with a
//! decimal point only when it is printed, and then by integer arithmetic too.

use std::fmt;
use std::iter::Sum;

/// The product, saturating. Numbers below 2^32 have one that fits: WebAssembly can't tell an overflow but by a product of 128 bits.
pub fn times(a: u64, b: u64) -> u64 {
    if (a | b) >> 32 == 0 { a * b } else { a.saturating_mul(b) }
}

/// How many elements a tensor of these dims has, saturating.
#[inline]
pub fn elements(shape: &[u64]) -> u64 {
    shape.iter().fold(1, |all, dim| times(all, *dim))
}

/// A number of bytes. Arithmetic saturates at `u64::MAX`: sizes that overflow never wrap around to a small number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

impl Bytes {
    /// No bytes.
    pub const ZERO: Bytes = Bytes(0);
    /// 2^10 bytes.
    pub const KIB: u64 = 1 << 10;
    /// 2^20 bytes.
    pub const MIB: u64 = 1 << 20;
    /// 2^30 bytes.
    pub const GIB: u64 = 1 << 30;

    /// `n` MiB.
    pub const fn mib(n: u64) -> Bytes {
        Bytes(n.saturating_mul(Self::MIB))
    }

    /// Rounded up to a multiple of `unit` (`unit > 0`).
    #[inline]
    pub fn round_up(self, unit: u64) -> Bytes {
        if unit.is_power_of_two() {
            // Every allocator's block is one, and a division for each event of a step takes its time.
            return Bytes(self.0.checked_add(unit - 1).map_or(u64::MAX, |n| n & !(unit - 1)));
        }
        Bytes(self.0.div_ceil(unit).saturating_mul(unit))
    }

    /// The difference, zero where `other` is larger.
    pub fn saturating_sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }
}

impl std::ops::Add for Bytes {
    type Output = Bytes;
    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(other.0))
    }
}

impl std::ops::AddAssign for Bytes {
    fn add_assign(&mut self, other: Bytes) {
        *self = *self + other;
    }
}

impl std::ops::Sub for Bytes {
    type Output = Bytes;
    fn sub(self, other: Bytes) -> Bytes {
        debug_assert!(self.0 >= other.0, "{} - {} bytes", self.0, other.0);
        Bytes(self.0.saturating_sub(other.0))
    }
}

impl std::ops::SubAssign for Bytes {
    fn sub_assign(&mut self, other: Bytes) {
        *self = *self - other;
    }
}

impl std::ops::Mul<u64> for Bytes {
    type Output = Bytes;
    fn mul(self, factor: u64) -> Bytes {
        Bytes(times(self.0, factor))
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Bytes>>(iter: I) -> Bytes {
        iter.fold(Bytes::ZERO, |a, b| a + b)
    }
}

impl fmt::Display for Bytes {
    /// `512 B`, `1.5 KiB`, `97.5 MiB`, `1.97 GiB`: 1024-based and named so; rounded half up.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name, decimals) = match self.0 {
            n if n >= Self::GIB => (Self::GIB, "GiB", 2),
            n if n >= Self::MIB => (Self::MIB, "MiB", 1),
            n if n >= Self::KIB => (Self::KIB, "KiB", 1),
            n => return f.pad(&format!("{n} B")),
        };
        let scale = 10_u128.pow(decimals);
        let scaled = (u128::from(self.0) * scale + u128::from(unit) / 2) / u128::from(unit);
        let (whole, part) = (scaled / scale, scaled % scale);
        f.pad(&format!("{whole}.{part:0width$} {name}", width = decimals as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_in_1024_based_units() {
        for (n, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1536, "1.5 KiB"),
            (Bytes::MIB, "1.0 MiB"),
            (102_236_160, "97.5 MiB"),
            (Bytes::GIB * 2 - 1, "2.00 GiB"),
        ] {
            assert_eq!(Bytes(n).to_string(), text);
        }
        assert_eq!(format!("{:>10}", Bytes(1)), "       1 B");
    }

    #[test]
    fn saturates() {
        assert_eq!(Bytes(u64::MAX) + Bytes(1), Bytes(u64::MAX));
        assert_eq!(Bytes(513).round_up(512), Bytes(1024));
        assert_eq!(Bytes(0).round_up(512), Bytes(0));
    }
}
