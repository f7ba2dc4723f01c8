//! Saved bytes by the autograd functions that hold them: where a rule differs from the framework's, this names it.

use super::compare::Pair;
use memfit_engine::SavedBy;
use std::collections::{BTreeMap, BTreeSet};

/// Both sides by the set of functions that hold a storage, `Convolution+Relu`.
pub(super) fn compare(reference: &BTreeMap<String, u64>, estimate: &[SavedBy]) -> Vec<(String, Pair)> {
    let mut sets: BTreeMap<String, Pair> = BTreeMap::new();
    for (names, bytes) in reference {
        let set = set(names.split('+').map(plain));
        sets.entry(set).or_default().reference += bytes;
    }
    for saved in estimate {
        let set = set(saved.functions.iter().map(|name| node(name)));
        sets.entry(set).or_default().estimate += saved.bytes.0;
    }
    sets.into_iter().collect()
}

fn set(names: impl Iterator<Item = String>) -> String {
    names.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join("+")
}

/// `ConvolutionBackward0` is a node of `Convolution`.
fn plain(node: &str) -> String {
    let name = node.trim_end_matches(|c: char| c.is_ascii_digit());
    family(name.strip_suffix("Backward").unwrap_or(node))
}

/// Which kernel normalises a batch depends on dtypes alone; all of them hold the same.
fn family(name: &str) -> String {
    match name {
        "CudnnBatchNorm" | "NativeBatchNorm" => "BatchNorm".to_owned(),
        other => other.strip_suffix("Forward").unwrap_or(other).to_owned(),
    }
}

/// `max_pool2d_with_indices` has the node `MaxPool2DWithIndices`: a capital wherever letters begin (torchgen names nodes with
/// Python's `str.title`).
fn node(function: &str) -> String {
    let mut name = String::new();
    let mut inside = false;
    for c in function.chars() {
        if c != '_' {
            name.push(if inside { c } else { c.to_ascii_uppercase() });
        }
        inside = c.is_ascii_alphabetic();
    }
    family(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_nodes_follow_from_names_of_functions() {
        assert_eq!(node("max_pool2d_with_indices"), plain("MaxPool2DWithIndicesBackward0"));
        assert_eq!(node("_log_softmax"), plain("LogSoftmaxBackward0"));
        assert_eq!(node("nll_loss2d_forward"), plain("NllLoss2DBackward0"));
    }
}
