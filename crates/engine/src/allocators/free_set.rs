//! An ordered set of free chunks: which is the smallest that a request fits in, the lowest of equals.
//!
//! Every request and every death of a tensor changes the set, so it decides how long a replay takes. It is kept as sorted runs
//! of a few dozen keys, one behind the other: a change moves a part of one run, and a step of most models needs one run. The
//! chunk that came last waits beside them: requests in a row are cut from one chunk, and tensors that die in a row join one.

/// A free chunk: size, address, id, as one number that orders chunks by size, then address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(u128);

/// The largest size that a key holds.
const MOST: u64 = (1 << 48) - 1;

impl Key {
    /// Sizes are below 2^48. Addresses are below 2^56, and those of chunks of one size differ by 256 at least.
    pub(super) fn new(size: u64, address: u64, id: u32) -> Key {
        debug_assert!(size <= MOST && address >> 56 == 0);
        Key((u128::from(size) << 80) | (u128::from(address >> 8) << 32) | u128::from(id))
    }

    /// What comes before all chunks of a size.
    fn least(size: u64) -> Key {
        Key(u128::from(size.min(MOST)) << 80)
    }

    /// The chunk's size.
    pub(super) fn size(self) -> u64 {
        (self.0 >> 80) as u64
    }

    /// The chunk's number.
    pub(super) fn id(self) -> u32 {
        self.0 as u32
    }
}

/// A run is cut in two when it has so many keys.
const LONGEST: usize = 64;

/// Free chunks in ascending order.
#[derive(Clone, Debug, Default)]
pub(super) struct FreeSet {
    /// None of them is empty.
    runs: Vec<Vec<Key>>,
    /// The last key of each, side by side: which run a key belongs to is looked up at every change.
    lasts: Vec<Key>,
    /// What came last, which is in no run.
    newest: Option<Key>,
}

/// Where a key is, until the set changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    run: usize,
    at: usize,
}

impl Place {
    /// That of the key which is in no run.
    const NEWEST: Place = Place { run: usize::MAX, at: 0 };
}

impl FreeSet {
    /// Where a key is or would be in the runs. That may be the end of the last one.
    fn place(&self, key: Key) -> Place {
        let end = self.lasts.len().saturating_sub(1);
        let run = if end == 0 { 0 } else { self.lasts.partition_point(|last| *last < key).min(end) };
        Place { run, at: self.runs.get(run).map_or(0, |keys| keys.partition_point(|k| *k < key)) }
    }

    /// The first chunk of at least `size` bytes.
    pub(super) fn first(&self, size: u64) -> Option<(Place, Key)> {
        let least = Key::least(size);
        let place = self.place(least);
        let sorted = self.runs.get(place.run).and_then(|keys| keys.get(place.at)).copied();
        match self.newest {
            Some(newest) if newest >= least && sorted.is_none_or(|key| newest < key) => {
                Some((Place::NEWEST, newest))
            }
            _ => Some((place, sorted?)),
        }
    }

    /// Takes the chunk at a place out.
    pub(super) fn take(&mut self, place: Place) {
        if place == Place::NEWEST {
            self.newest = None;
            return;
        }
        let Some(keys) = self.runs.get_mut(place.run).filter(|keys| place.at < keys.len()) else { return };
        keys.remove(place.at);
        match keys.last() {
            Some(last) => self.lasts[place.run] = *last,
            None => {
                self.runs.remove(place.run);
                self.lasts.remove(place.run);
            }
        }
    }

    /// Puts another chunk in the stead of the one at a place.
    pub(super) fn replace(&mut self, place: Place, key: Key) {
        if place == Place::NEWEST {
            self.newest = Some(key);
            return;
        }
        let Place { run, at } = place;
        let (is_first, is_last) = (run == 0, run + 1 >= self.runs.len());
        let Some(keys) = self.runs.get_mut(run).filter(|keys| at < keys.len()) else {
            return self.insert(key);
        };
        let (first, last) = (keys[0], keys[keys.len() - 1]);
        let stays = (is_first || first < key) && (is_last || key < last);
        if !stays {
            self.take(place);
            return self.insert(key);
        }
        // Within the run's own ends the others only move up or down by one, and mostly few do.
        let mut to = at;
        while to > 0 && key < keys[to - 1] {
            keys[to] = keys[to - 1];
            to -= 1;
        }
        while to + 1 < keys.len() && keys[to + 1] < key {
            keys[to] = keys[to + 1];
            to += 1;
        }
        keys[to] = key;
        self.lasts[run] = keys[keys.len() - 1];
    }

    /// Adds a chunk that is not in the set.
    pub(super) fn insert(&mut self, key: Key) {
        if let Some(earlier) = self.newest.replace(key) {
            self.sort_in(earlier);
        }
    }

    fn sort_in(&mut self, key: Key) {
        let Place { run, at } = self.place(key);
        let Some(keys) = self.runs.get_mut(run) else {
            let mut keys = Vec::with_capacity(LONGEST);
            keys.push(key);
            self.runs.push(keys);
            return self.lasts.push(key);
        };
        keys.insert(at, key);
        self.lasts[run] = keys[keys.len() - 1];
        if keys.len() == LONGEST {
            let mut upper = Vec::with_capacity(LONGEST);
            upper.extend(keys.drain(LONGEST / 2..));
            self.lasts.insert(run, keys[keys.len() - 1]);
            self.runs.insert(run + 1, upper);
        }
    }

    /// Where a chunk is, if it is in the set.
    pub(super) fn find(&self, key: Key) -> Option<Place> {
        if self.newest == Some(key) {
            return Some(Place::NEWEST);
        }
        let place = self.place(key);
        (*self.runs.get(place.run)?.get(place.at)? == key).then_some(place)
    }

    /// Takes a chunk out.
    pub(super) fn remove(&mut self, key: Key) {
        if let Some(place) = self.find(key) {
            self.take(place);
        }
    }

    /// Takes the first chunk of at least `size` bytes out.
    pub(super) fn take_first(&mut self, size: u64) -> Option<Key> {
        let (place, key) = self.first(size)?;
        self.take(place);
        Some(key)
    }

    /// The chunks of at least `size` bytes, in ascending order.
    pub(super) fn at_least(&self, size: u64) -> impl Iterator<Item = Key> {
        let least = Key::least(size);
        let Place { run, at } = self.place(least);
        let mut sorted =
            self.runs.get(run..).unwrap_or_default().iter().flatten().copied().skip(at).peekable();
        let mut newest = self.newest.filter(|key| *key >= least);
        std::iter::from_fn(move || {
            let is_next = newest.is_some_and(|newest| sorted.peek().is_none_or(|key| newest < *key));
            if is_next { newest.take() } else { sorted.next() }
        })
    }

    /// The largest chunk, the highest of equals.
    pub(super) fn last(&self) -> Option<Key> {
        self.lasts.last().copied().max(self.newest)
    }

    /// All chunks.
    pub(super) fn iter(&self) -> impl Iterator<Item = Key> {
        self.at_least(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn agrees_with_a_tree(steps in prop::collection::vec((0..40_u64, 0..30_u64, 0..6_u8), 1..1500)) {
            let (mut set, mut tree) = (FreeSet::default(), BTreeSet::new());
            for (size, address, what) in steps {
                let key = Key::new(size, address << 8, 0);
                match what {
                    0 => {
                        set.remove(key);
                        tree.remove(&key);
                    }
                    1 => {
                        let first = tree.range(Key::least(size)..).next().copied();
                        prop_assert_eq!(set.at_least(size).next(), first);
                        prop_assert_eq!(set.first(size).map(|(_, key)| key), first);
                        prop_assert_eq!(set.take_first(size), first);
                        first.map(|key| tree.remove(&key));
                    }
                    // A chunk shrinks or grows.
                    2 | 3 => {
                        let Some((place, old)) = set.first(address) else { continue };
                        let new_size = if what == 2 { old.size() / 2 } else { old.size() + size };
                        let new = Key::new(new_size, (address + 100 + size) << 8, 0);
                        if !tree.contains(&new) {
                            set.replace(place, new);
                            prop_assert!(tree.remove(&old) && tree.insert(new));
                        }
                    }
                    _ => {
                        if tree.insert(key) {
                            set.insert(key);
                        }
                    }
                }
                prop_assert!(set.iter().eq(tree.iter().copied()));
                prop_assert_eq!(set.last(), tree.last().copied());
                prop_assert!(set.lasts.iter().eq(set.runs.iter().filter_map(|run| run.last())));
            }
        }
    }
}
