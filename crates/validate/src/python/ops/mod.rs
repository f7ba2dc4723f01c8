//! How each operator of the graph is written as a call of torch. One file a family, in one ordered list.
//!
//! What the graph does not carry (an epsilon, a slope) is torch's default: it changes values, not memory.

mod elementwise;
mod indexing;
mod layout;
mod norm;
mod plane;
mod product;
mod recurrent;
mod reduce;

use super::line::{At, Refusal};

/// Writes one operator.
pub(super) type Rule = fn(&mut At<'_>) -> Result<(), Refusal>;

/// Operators of one family, by name.
pub(super) struct Family {
    names: &'static [&'static str],
    rule: Rule,
}

/// Every family, in alphabetical order of its file.
static ALL: &[&[Family]] = &[
    elementwise::FAMILIES,
    indexing::FAMILIES,
    layout::FAMILIES,
    norm::FAMILIES,
    plane::FAMILIES,
    product::FAMILIES,
    recurrent::FAMILIES,
    reduce::FAMILIES,
];

/// The rule of an operator.
pub(super) fn find(name: &str) -> Option<Rule> {
    ALL.iter().copied().flatten().find(|family| family.names.contains(&name)).map(|family| family.rule)
}

/// The names of all operators that can be written.
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
