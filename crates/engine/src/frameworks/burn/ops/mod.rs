//! How each operator of the graph is written in Burn's primitives. One file a family, in one ordered list.
//!
//! Where `burn-nn` 0.21 has a module for it, the calls are that module's in its order. Scalars that the graph does not carry
//! (an epsilon, a slope) are the frameworks' defaults: they change values, not memory.

mod activation;
mod attention;
mod convolution;
mod dropout;
mod elementwise;
mod indexing;
mod layout;
mod mask;
mod norm;
mod pool;
mod product;
mod recurrent;
mod reduce;
mod resize;
mod scatter;
mod sort;

use super::builder::Refusal;
use super::lower::Lower;

/// Writes one operator.
pub(super) type Rule = fn(&mut Lower<'_, '_>) -> Result<(), Refusal>;

/// Operators of one family, by name.
pub(super) struct Family {
    names: &'static [&'static str],
    rule: Rule,
}

/// Every family, in alphabetical order of its file.
static ALL: &[&[Family]] = &[
    activation::FAMILIES,
    attention::FAMILIES,
    convolution::FAMILIES,
    dropout::FAMILIES,
    elementwise::FAMILIES,
    indexing::FAMILIES,
    layout::FAMILIES,
    mask::FAMILIES,
    norm::FAMILIES,
    pool::FAMILIES,
    product::FAMILIES,
    recurrent::FAMILIES,
    reduce::FAMILIES,
    resize::FAMILIES,
    scatter::FAMILIES,
    sort::FAMILIES,
];

/// The rule of an operator.
pub(super) fn find(name: &str) -> Option<Rule> {
    ALL.iter().copied().flatten().find(|family| family.names.contains(&name)).map(|family| family.rule)
}

/// The names of all operators that can be run.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().copied().flatten().flat_map(|family| family.names.iter().copied())
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_operator_has_two_rules() {
        let mut names: Vec<_> = super::names().collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
