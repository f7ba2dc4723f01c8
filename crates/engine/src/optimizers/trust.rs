//! The layer-wise trust ratio that LAMB and LARS share: norms of weights and updates, and scalars made from them.
//! timm/optim/_helpers.py, lamb.py, lars.py, 1.0.31.

use super::Recorder;
use memfit_graph::DType;

/// `trust_ratio` where both norms are above zero, 1 elsewhere, for `elements` ratios at once; takes over `ratio` and
/// returns its successor. Both masks exist before the inner `torch.where`, which makes a tensor of its number too.
pub(super) fn guarded(step: &mut Recorder<'_>, i: usize, elements: u64, ratio: u32) -> u32 {
    let dtype = step.param(i).dtype;
    let masks: Vec<u32> =
        ["w_norm > 0", "g_norm > 0"].map(|m| step.value(m, i, DType::Bool.size_of(elements))).to_vec();
    let mut chosen = ratio;
    let mut old = Vec::new();
    for mask in masks.into_iter().rev() {
        let one = step.value("1.0", i, dtype.size_of(1));
        old.push(chosen);
        chosen = step.value("trust_ratio", i, dtype.size_of(elements));
        step.drop_values(vec![mask, one]);
    }
    step.drop_values(old);
    chosen
}

/// `torch._foreach_norm` of parameters and of updates: two lists of scalars.
pub(super) fn norms(step: &mut Recorder<'_>, indices: &[usize]) -> Vec<u32> {
    ["w_norms", "g_norms"].iter().flat_map(|label| scalars(step, label, indices)).collect()
}

/// A list of scalars.
pub(super) fn scalars(step: &mut Recorder<'_>, label: &'static str, indices: &[usize]) -> Vec<u32> {
    indices.iter().map(|i| step.scalar(label, *i)).collect()
}

/// `_foreach_trust_ratios`: one vector of ratios a dtype, computed from stacked norms by `ratio`, which is given the
/// parameter that stands for the group and the number of elements.
pub(super) fn ratios(
    step: &mut Recorder<'_>,
    indices: &[usize],
    ratio: impl Fn(&mut Recorder<'_>, usize, u64) -> u32,
) -> Vec<u32> {
    let norms = norms(step, indices);
    let mut found = Vec::new();
    for group in step.groups(indices).into_iter().rev() {
        let Some(&first) = group.first() else { continue };
        let elements = group.len() as u64;
        let bytes = step.param(first).dtype.size_of(elements);
        let stacks = ["w_norms", "g_norms"].map(|label| step.value(label, first, bytes));
        found.push(ratio(step, first, elements));
        step.drop_values(stacks.to_vec());
    }
    step.drop_values(norms);
    found
}
