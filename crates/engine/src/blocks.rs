//! The repeated blocks of a model, told by the paths of its modules: what is recomputed as one, wrapped as one, and never cut by a
//! pipeline.
//!
//! A block is a module up to a number that has siblings. Numbers of a list come first, the outermost of them (`encoder.layer.3`,
//! `layer1.0`), then names that end in one, the innermost of those (`block2.block2-1`, `denseblock1.denselayer4`): outer ones are stages.
//! A module without modules in it is no block, as those of a chain of single layers.

use crate::Checkpoint;
use memfit_graph::{Graph, order};
use std::ops::Range;

/// By path, the block that it lies in.
pub(crate) fn of<'a>(paths: impl Iterator<Item = &'a str> + Clone) -> Vec<Option<&'a str>> {
    let within = paths.clone().flat_map(|path| modules(path).map(move |module| (module, path)));
    let blocks = with_several(within);
    let families = with_several(blocks.iter().filter_map(|block| Some((family(block)?, *block))));
    let is_block = |path: &&str| {
        blocks.binary_search(path).is_ok() && family(path).is_some_and(|f| families.binary_search(&f).is_ok())
    };
    let is_listed = |path: &&str| family(path).is_some_and(|stem| stem.is_empty() || stem.ends_with('.'));
    let of = |path: &'a str| {
        let mut found = modules(path).filter(is_block);
        let listed = found.clone().find(is_listed);
        listed.or_else(|| found.next_back())
    };
    paths.map(of).collect()
}

/// The runs of nodes that are computed again in backward, in order and disjoint.
pub(crate) fn recomputed(graph: &Graph, how: Checkpoint) -> Vec<Range<usize>> {
    if matches!(how, Checkpoint::None | Checkpoint::Balanced) {
        return Vec::new();
    }
    let mut ranges: Vec<(Option<&str>, Range<usize>)> = Vec::new();
    for (i, key) in of(graph.nodes.iter().map(|node| &*node.scope)).into_iter().enumerate() {
        match ranges.last_mut() {
            // What follows a block goes with it: so its inputs are all that is kept.
            Some((last, range)) if *last == key || (how == Checkpoint::Full && key.is_none()) => {
                range.end = i + 1
            }
            _ => ranges.push((key, i..i + 1)),
        }
    }
    let wanted = ranges.into_iter().filter(|(key, _)| key.is_some() || how == Checkpoint::Full);
    wanted.map(|(_, nodes)| nodes).collect()
}

/// The modules that a path lies in, the outermost first; itself too, for what a block's own `forward` runs (its residual sum).
fn modules(path: &str) -> impl DoubleEndedIterator<Item = &str> + Clone {
    path.match_indices('.').map(|(at, _)| at).chain([path.len()]).map(|end| &path[..end])
}

/// The first of each pair, in order, where it stands with several different seconds.
fn with_several<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<&'a str> {
    let (mut several, mut last) = (Vec::new(), None);
    for (first, _) in order::set(pairs) {
        if last == Some(first) && several.last() != Some(&first) {
            several.push(first);
        }
        last = Some(first);
    }
    several
}

/// What a module that ends in a number has in common with its siblings: `layer1.` of `layer1.0`, `features.denselayer` of
/// `features.denselayer4`.
fn family(path: &str) -> Option<&str> {
    let stem = path.trim_end_matches(|c: char| c.is_ascii_digit());
    (stem.len() < path.len()).then_some(stem)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(paths: &[&str]) -> Vec<String> {
        let of = of(paths.iter().copied()).into_iter().flatten().map(str::to_owned);
        order::set(of).into_iter().collect()
    }

    #[test]
    fn a_block_is_no_stage_and_no_single_layer() {
        let with = |block: &str, layers: [&str; 2]| layers.map(|layer| format!("{block}.{layer}"));
        for (stems, layers) in [
            (["layer1.0", "layer1.1", "layer2.0", "layer2.1"], ["conv1", "downsample.0"]),
            (
                ["t.block1.block1-0", "t.block1.block1-1", "t.block2.block2-0", "t.block2.block2-1"],
                ["f.a.0", "f.a.1"],
            ),
            (
                ["e.encoder_layer_0", "e.encoder_layer_1", "e.encoder_layer_2", "e.encoder_layer_3"],
                ["ln_1", "mlp.0"],
            ),
            (["features.1", "features.2", "features.3", "features.4"], ["conv.0.0", "conv.0.1"]),
        ] {
            let paths: Vec<String> = stems.iter().flat_map(|block| with(block, layers)).collect();
            assert_eq!(blocks(&paths.iter().map(|s| &**s).collect::<Vec<_>>()), stems);
        }
        assert!(blocks(&["features.0", "features.1", "features.2", "classifier.0"]).is_empty());
    }

    #[test]
    fn what_a_blocks_own_forward_runs_is_in_it() {
        let paths = ["stem", "layer1.0.conv1", "layer1.0", "layer1.1.conv1", "layer1.1", "fc"];
        let expected = [None, Some("layer1.0"), Some("layer1.0"), Some("layer1.1"), Some("layer1.1"), None];
        assert_eq!(of(paths.into_iter()), expected);
    }
}
