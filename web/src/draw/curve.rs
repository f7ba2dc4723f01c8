//! The peak against the batch size: which sizes are asked for.

use memfit_graph::order::sorted_by_key;

/// Sizes from one to twice the batch, or to where the largest one that fits shows, at most 19.
pub(crate) fn batches(batch: u64, largest: Option<u64>) -> Vec<u64> {
    let shown = largest.map_or(0, |n| n.saturating_add(n / 6));
    let most = batch.saturating_mul(2).max(shown).max(8);
    let mut sizes: Vec<u64> = (0..=16).map(|i| (most / 16).saturating_mul(i) + most % 16 * i / 16).collect();
    sizes.extend([1, batch]);
    sizes.extend(largest);
    sizes.retain(|n| *n > 0);
    let mut sizes = sorted_by_key(sizes, |n| *n);
    sizes.dedup();
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_batch_itself_and_one_are_asked_for() {
        for batch in [1, 2, 7, 32, 1000] {
            let sizes = batches(batch, Some(40));
            assert!(sizes.contains(&batch) && sizes[0] == 1 && sizes.len() <= 19, "{batch}: {sizes:?}");
            assert!(sizes.contains(&40) && sizes.iter().any(|n| *n > 40));
            assert!(*sizes.last().unwrap() >= 2 * batch.min(4));
        }
    }
}
