//! Order by a number. A sort is a lot of machine code, made anew for each type and key: here it is made once.

use std::collections::{BTreeMap, BTreeSet};

/// The places of `keys` in ascending order of their key; equal ones stay in order.
pub fn by_key(keys: impl Iterator<Item = u64>) -> Vec<usize> {
    let mut keyed: Vec<(u64, usize)> = keys.zip(0..).collect();
    keyed.sort_unstable();
    keyed.into_iter().map(|(_, place)| place).collect()
}

/// The items in ascending order of a key that is found once for each; equal ones stay in order.
pub fn sorted_by_key<T>(items: Vec<T>, key: impl FnMut(&T) -> u64) -> Vec<T> {
    let order = by_key(items.iter().map(key));
    permuted(items, order)
}

/// The same with the largest key first; equal ones stay in order.
pub fn largest_first<T>(items: Vec<T>, mut key: impl FnMut(&T) -> u64) -> Vec<T> {
    sorted_by_key(items, |item| u64::MAX - key(item))
}

/// The items in an order that names each at most once; those that it leaves out go.
pub fn permuted<T>(items: Vec<T>, order: Vec<usize>) -> Vec<T> {
    let mut items: Vec<Option<T>> = items.into_iter().map(Some).collect();
    order.into_iter().filter_map(|place| items.get_mut(place)?.take()).collect()
}

/// A set that is filled one by one. `collect` would sort the items first.
pub fn set<T: Ord>(items: impl IntoIterator<Item = T>) -> BTreeSet<T> {
    let mut set = BTreeSet::new();
    set.extend(items);
    set
}

/// The same of a map.
pub fn map<K: Ord, V>(entries: impl IntoIterator<Item = (K, V)>) -> BTreeMap<K, V> {
    let mut map = BTreeMap::new();
    map.extend(entries);
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_keys_stay_in_order() {
        let words = vec!["bb", "a", "cc", "", "d"];
        assert_eq!(sorted_by_key(words, |w| w.len() as u64), ["", "a", "d", "bb", "cc"]);
        let words = vec!["bb", "a", "cc", "", "d"];
        assert_eq!(largest_first(words, |w| w.len() as u64), ["bb", "cc", "a", "d", ""]);
    }
}
