//! One dimension of a shape: a number, or a product of named unknowns.
//!
//! A dim is exact where it can be: `batch*768 / 768` is `batch` again, which is what carries a symbolic batch
//! through the `Shape → Gather → Concat → Reshape` chains that exporters write. Whatever is not a product
//! (`batch + 1`, `floor(h / 2)`) becomes a new unknown whose name is that expression, so equal expressions stay
//! equal. An unknown may carry an upper bound: a data-dependent dim (`NonZero`) is never larger than its input.

use std::fmt;
use std::sync::Arc;

/// A sum of sums would double its name with each step.
const LONGEST_NAME: usize = 256;

/// Of two each, a size of 2^64.
const MOST_FACTORS: usize = 64;

/// A dimension: how many elements along one axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Dim {
    /// A number.
    Known(u64),
    /// `coefficient * name * name * …`, at least one name.
    Product(Arc<Product>),
}

/// A product of unknowns with a number in front.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Product {
    coefficient: u64,
    /// Sorted by name.
    factors: Vec<Unknown>,
}

/// A named unknown.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Unknown {
    name: Arc<str>,
    upper: Option<u64>,
}

impl Dim {
    /// A symbol such as `batch`, without bound.
    pub fn symbol(name: &str) -> Dim {
        Dim::unknown(name, None)
    }

    /// An unknown that is never larger than `upper`, if that is given.
    pub fn unknown(name: &str, upper: Option<u64>) -> Dim {
        let factor = Unknown { name: name.into(), upper };
        Dim::Product(Arc::new(Product { coefficient: 1, factors: vec![factor] }))
    }

    /// The number, if it is one.
    #[inline]
    pub fn known(&self) -> Option<u64> {
        match self {
            Dim::Known(n) => Some(*n),
            Dim::Product(_) => None,
        }
    }

    /// The largest value it can have, if that is known.
    #[inline]
    pub fn upper(&self) -> Option<u64> {
        match self {
            Dim::Known(n) => Some(*n),
            Dim::Product(p) => p.factors.iter().try_fold(p.coefficient, |acc, f| acc.checked_mul(f.upper?)),
        }
    }

    /// An unknown that is named after the expression that gives it; a long one is cut, and told from others by its hash.
    pub fn expression(text: &str, upper: Option<u64>) -> Dim {
        if text.len() <= LONGEST_NAME {
            return Dim::unknown(text, upper);
        }
        // FNV-1a: the standard library's hash may be another with the next compiler, and names are printed.
        let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let start: String = text.chars().take(LONGEST_NAME / 4).collect();
        Dim::unknown(&format!("{start}…#{hash:016x}"), upper)
    }

    fn parts(&self) -> (u64, &[Unknown]) {
        match self {
            Dim::Known(n) => (*n, &[]),
            Dim::Product(p) => (p.coefficient, &p.factors),
        }
    }

    fn from_parts(coefficient: u64, factors: Vec<Unknown>) -> Dim {
        if factors.is_empty() || coefficient == 0 {
            Dim::Known(coefficient)
        } else {
            Dim::Product(Arc::new(Product { coefficient, factors }))
        }
    }

    /// The product; `None` on overflow, and where it has more factors than any size could.
    pub fn mul(&self, other: &Dim) -> Option<Dim> {
        let ((a, x), (b, y)) = (self.parts(), other.parts());
        if x.len() + y.len() > MOST_FACTORS {
            return None;
        }
        let mut factors = x.to_vec();
        for factor in y {
            factors.insert(factors.partition_point(|f| f <= factor), factor.clone());
        }
        Some(Dim::from_parts(a.checked_mul(b)?, factors))
    }

    /// The quotient where it is exact (`batch*12 / batch`), else `None`.
    pub fn div_exact(&self, other: &Dim) -> Option<Dim> {
        let ((a, x), (b, y)) = (self.parts(), other.parts());
        if b == 0 || a % b != 0 {
            return None;
        }
        let mut factors = x.to_vec();
        for unknown in y {
            let at = factors.iter().position(|f| f == unknown)?;
            factors.remove(at);
        }
        Some(Dim::from_parts(a / b, factors))
    }

    /// `floor(self / other)`; an unknown named after the expression where it is not exact.
    pub fn div_floor(&self, other: &Dim) -> Option<Dim> {
        match (self, other) {
            (_, Dim::Known(0)) => None,
            (Dim::Known(a), Dim::Known(b)) => Some(Dim::Known(a / b)),
            _ => Some(self.div_exact(other).unwrap_or_else(|| {
                let upper = self.upper().map(|u| u / other.known().unwrap_or(1));
                Dim::expression(&format!("floor({self}/{other})"), upper)
            })),
        }
    }

    /// The sum, named after the expression where it is not a number; `None` on overflow.
    pub fn add(&self, other: &Dim) -> Option<Dim> {
        match (self, other) {
            (Dim::Known(a), Dim::Known(b)) => a.checked_add(*b).map(Dim::Known),
            (Dim::Known(0), d) | (d, Dim::Known(0)) => Some(d.clone()),
            _ if self.parts().1 == other.parts().1 => {
                let total = self.parts().0.checked_add(other.parts().0)?;
                Some(Dim::from_parts(total, self.parts().1.to_vec()))
            }
            (a, b) => {
                let upper = a.upper().zip(b.upper()).and_then(|(a, b)| a.checked_add(b));
                let (a, b) = if a.known().is_some() { (b, a) } else { (a, b) };
                Some(Dim::expression(&format!("({a} + {b})"), upper))
            }
        }
    }

    /// `self + offset`, never below zero; an unknown named after the expression where it is not a number.
    pub fn offset(&self, offset: i64) -> Dim {
        match self {
            Dim::Known(n) => Dim::Known(n.saturating_add_signed(offset)),
            d if offset == 0 => d.clone(),
            d => {
                let sign = if offset < 0 { '-' } else { '+' };
                let upper = d.upper().map(|u| u.saturating_add_signed(offset));
                Dim::expression(&format!("({d} {sign} {})", offset.unsigned_abs()), upper)
            }
        }
    }

    /// The difference where `other` is the smaller, named after the expression where it is not a product; `None` where
    /// the numbers say that it is negative.
    pub fn sub(&self, other: &Dim) -> Option<Dim> {
        let ((a, x), (b, y)) = (self.parts(), other.parts());
        if x == y {
            return a.checked_sub(b).map(|n| Dim::from_parts(n, x.to_vec()));
        }
        match other {
            Dim::Known(n) => i64::try_from(*n).ok().map(|n| self.offset(-n)),
            _ => Some(Dim::expression(&format!("({self} - {other})"), self.upper())),
        }
    }

    /// Both with the symbols of `bind` replaced by numbers.
    pub fn bind(&self, bind: &dyn Fn(&str) -> Option<u64>) -> Dim {
        let Dim::Product(p) = self else { return self.clone() };
        let mut coefficient = p.coefficient;
        let mut rest = Vec::new();
        for factor in &p.factors {
            match bind(&factor.name) {
                Some(n) => coefficient = coefficient.saturating_mul(n),
                None => rest.push(factor.clone()),
            }
        }
        Dim::from_parts(coefficient, rest)
    }

    /// The names in it.
    pub fn symbols(&self) -> impl Iterator<Item = &str> {
        self.parts().1.iter().map(|u| &*u.name)
    }
}

impl From<u64> for Dim {
    fn from(n: u64) -> Dim {
        Dim::Known(n)
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (coefficient, factors) = self.parts();
        if factors.is_empty() || coefficient != 1 {
            write!(f, "{coefficient}")?;
        }
        for (i, factor) in factors.iter().enumerate() {
            let star = if i > 0 || coefficient != 1 { "*" } else { "" };
            write!(f, "{star}{}", factor.name)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_cancel() {
        let batch = Dim::symbol("batch");
        let flat = batch.mul(&Dim::Known(768)).unwrap().mul(&Dim::symbol("seq")).unwrap();
        assert_eq!(flat.to_string(), "768*batch*seq");
        assert_eq!(
            flat.div_exact(&Dim::symbol("seq")).unwrap().div_exact(&Dim::Known(768)),
            Some(batch.clone())
        );
        assert_eq!(flat.div_exact(&Dim::Known(5)), None);
        assert_eq!(batch.mul(&Dim::Known(0)), Some(Dim::Known(0)));
        assert_eq!(Dim::Known(u64::MAX).mul(&Dim::Known(2)), None);
    }

    #[test]
    fn names_of_long_expressions_do_not_grow() {
        let doubled = |from: &str| {
            let mut dim = Dim::symbol(from);
            for _ in 0..60 {
                dim = dim.add(&dim.offset(1)).unwrap();
            }
            dim
        };
        assert!(doubled("h").to_string().len() < 2 * LONGEST_NAME);
        assert_eq!(doubled("h"), doubled("h"));
        assert_ne!(doubled("h"), doubled("w"));
        let squares = (0..60).try_fold(Dim::symbol("h"), |dim, _| dim.mul(&dim));
        assert_eq!(squares, None);
    }

    #[test]
    fn equal_expressions_are_equal() {
        let half = |d: &Dim| d.offset(2).div_floor(&Dim::Known(2)).unwrap();
        assert_eq!(half(&Dim::symbol("h")), half(&Dim::symbol("h")));
        assert_eq!(half(&Dim::symbol("h")).to_string(), "floor((h + 2)/2)");
        assert_eq!(half(&Dim::Known(7)), Dim::Known(4));
        assert_eq!(Dim::symbol("h").add(&Dim::symbol("h")).unwrap().to_string(), "2*h");
        assert_eq!(Dim::symbol("h").sub(&Dim::symbol("h")), Some(Dim::Known(0)));
        assert_eq!(Dim::Known(9).sub(&Dim::symbol("h")).unwrap().to_string(), "(9 - h)");
        assert_eq!(Dim::Known(1).sub(&Dim::Known(2)), None);
    }

    #[test]
    fn bounds_follow() {
        let n = Dim::unknown("nonzero", Some(10));
        assert_eq!(n.mul(&Dim::Known(4)).unwrap().upper(), Some(40));
        assert_eq!(n.add(&Dim::Known(1)).unwrap().upper(), Some(11));
        assert_eq!(Dim::symbol("batch").upper(), None);
        assert_eq!(n.mul(&Dim::Known(4)).unwrap().bind(&|_| Some(3)), Dim::Known(12));
    }
}
