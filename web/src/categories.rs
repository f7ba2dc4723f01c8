//! What bytes are for: names (the reports'), the class that colours each, and how sizes are written.

use memfit_engine::{Breakdown, Category, Phase};
use memfit_graph::Bytes;

pub(crate) use memfit_report::PARTS as NAMES;

/// What each of [`NAMES`] is, for people who do not know the word.
pub(crate) const MEANINGS: [&str; 11] = [
    "trained values",
    "state that is not trained: running means, tables",
    "of the parameters",
    "moments, momentum, master weights",
    "what forward keeps because backward will read it",
    "of intermediate tensors, alive inside of backward",
    "scratch of one kernel",
    "the batch and its targets",
    "freed before their phase ends",
    "held by the framework's allocator without a tensor in it",
    "the driver's context and loaded kernels",
];

/// The phases of a step, in their order.
pub(crate) const PHASES: [&str; 4] =
    [Phase::Setup.name(), Phase::Forward.name(), Phase::Backward.name(), Phase::OptimizerStep.name()];

/// The place of a category in [`NAMES`].
pub(crate) fn index(category: Category) -> u8 {
    match category {
        Category::Parameter => 0,
        Category::Buffer => 1,
        Category::Gradient => 2,
        Category::OptimizerState => 3,
        Category::Activation => 4,
        Category::ActivationGradient => 5,
        Category::Workspace => 6,
        Category::Input => 7,
        Category::Transient => 8,
    }
}

/// A breakdown in the order of [`NAMES`].
pub(crate) fn parts(b: &Breakdown) -> Vec<u64> {
    let tensors = b.categories().into_iter().map(|(_, bytes)| bytes);
    tensors.chain([b.allocator, b.context]).map(|b| b.0).collect()
}

/// The class that colours a category.
pub(crate) fn class(category: usize) -> &'static str {
    const CLASSES: [&str; 11] = ["c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9", "c10"];
    CLASSES.get(category).copied().unwrap_or("c10")
}

/// `2.88 GiB`.
pub(crate) fn size(bytes: u64) -> String {
    Bytes(bytes).to_string()
}

/// A share in whole per cent, `<1 %` where it would be nought.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "0 %".into();
    }
    let tenths = u128::from(part) * 1000 / u128::from(whole);
    if part > 0 && tenths < 10 { "<1 %".into() } else { format!("{} %", (tenths + 5) / 10) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_breakdown_keeps_its_order_and_sum() {
        let mut b = Breakdown::default();
        b.add(Category::Activation, Bytes(7));
        b.add(Category::Parameter, Bytes(5));
        let parts = parts(&b);
        assert_eq!((parts.len(), parts[usize::from(index(Category::Activation))]), (NAMES.len(), 7));
        assert_eq!(parts.iter().sum::<u64>(), 12);
        assert_eq!(
            (percent(1, 1000), percent(335, 1000), percent(0, 9)),
            ("<1 %".into(), "34 %".into(), "0 %".into())
        );
    }
}
