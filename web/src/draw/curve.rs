//! The peak against the batch size: which sizes are asked for.

/// Sizes from one to twice the batch, the batch among them, at most 17.
pub(crate) fn batches(batch: u64) -> Vec<u64> {
    let most = batch.saturating_mul(2).max(8);
    let mut sizes: Vec<u64> = (0..=16).map(|i| (most / 16).saturating_mul(i) + most % 16 * i / 16).collect();
    sizes.retain(|n| *n > 0);
    sizes.extend([1, batch]);
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_batch_itself_and_one_are_asked_for() {
        for batch in [1, 2, 7, 32, 1000] {
            let sizes = batches(batch);
            assert!(sizes.contains(&batch) && sizes[0] == 1 && sizes.len() <= 18, "{batch}: {sizes:?}");
            assert!(*sizes.last().unwrap() >= 2 * batch.min(4));
        }
    }
}
