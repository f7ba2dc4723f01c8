//! The same work on many things, by as many threads as there are processors.

use std::sync::atomic::{AtomicUsize, Ordering};

/// What `work` gives for each item, told its place, in the order of the items.
pub(crate) fn each<T: Sync, R: Send>(items: &[T], work: impl Fn(usize, &T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let some = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { return done };
            done.push((at, work(at, item)));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(items.len());
    let mut all: Vec<(usize, R)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(some)).collect();
        workers.into_iter().flat_map(|w| w.join().unwrap_or_else(|p| std::panic::resume_unwind(p))).collect()
    });
    all.sort_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn results_stand_in_the_order_of_the_items() {
        let items: Vec<usize> = (10..500).collect();
        let wanted: Vec<_> = items.iter().copied().enumerate().collect();
        assert_eq!(super::each(&items, |at, item| (at, *item)), wanted);
        assert!(super::each(&[(); 0], |_, ()| ()).is_empty());
    }
}
