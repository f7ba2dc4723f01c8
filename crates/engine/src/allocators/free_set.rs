//! An ordered set of free chunks: which is the smallest that a request fits in, the lowest of equals.
//!
//! Every request and every death of a tensor changes the set, so it decides how long a replay takes. Chunks are sorted in bins, one
//! for each power of two, most of which hold a few: a change moves a part of one bin, and one word says which bins hold any.

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

    /// The chunk's size.
    pub(super) fn size(self) -> u64 {
        (self.0 >> 80) as u64
    }

    /// The chunk's number.
    pub(super) fn id(self) -> u32 {
        self.0 as u32
    }
}

/// One for each bit of a size.
const BINS: usize = 48;

/// The bin of chunks of a size.
fn bin_of(size: u64) -> usize {
    (size.min(MOST) | 1).ilog2() as usize
}

/// Free chunks in ascending order.
#[derive(Clone, Debug)]
pub(super) struct FreeSet {
    /// By the power of two that the sizes have reached.
    bins: [Vec<Key>; BINS],
    /// A bit for each bin that holds some.
    held: u64,
}

impl Default for FreeSet {
    fn default() -> FreeSet {
        FreeSet { bins: [const { Vec::new() }; BINS], held: 0 }
    }
}

/// Where a key is, until the set changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    bin: usize,
    at: usize,
}

impl FreeSet {
    /// Where a key is or would be.
    fn place(&self, key: Key) -> Place {
        let bin = bin_of(key.size());
        Place { bin, at: self.bins[bin].partition_point(|k| *k < key) }
    }

    /// The first chunk of at least `size` bytes.
    pub(super) fn first(&self, size: u64) -> Option<(Place, Key)> {
        let bin = bin_of(size);
        let at = self.bins[bin].partition_point(|key| key.size() < size);
        if let Some(key) = self.bins[bin].get(at) {
            return Some((Place { bin, at }, *key));
        }
        let bin = (self.held & (u64::MAX << bin << 1)).trailing_zeros() as usize;
        Some((Place { bin, at: 0 }, *self.bins.get(bin)?.first()?))
    }

    /// Takes the chunk at a place out.
    pub(super) fn take(&mut self, Place { bin, at }: Place) {
        let keys = &mut self.bins[bin];
        if at + 1 < keys.len() {
            keys.remove(at);
        } else if keys.pop().is_some() && keys.is_empty() {
            self.held &= !(1 << bin);
        }
    }

    /// Puts another chunk in the stead of the one at a place.
    pub(super) fn replace(&mut self, place: Place, key: Key) {
        let Place { bin, mut at } = place;
        if bin != bin_of(key.size()) {
            self.take(place);
            return self.insert(key);
        }
        // The others only move up or down by one, and mostly none does.
        let keys = &mut self.bins[bin];
        while at > 0 && key < keys[at - 1] {
            keys[at] = keys[at - 1];
            at -= 1;
        }
        while at + 1 < keys.len() && keys[at + 1] < key {
            keys[at] = keys[at + 1];
            at += 1;
        }
        keys[at] = key;
    }

    /// Adds a chunk that is not in the set.
    pub(super) fn insert(&mut self, key: Key) {
        let Place { bin, at } = self.place(key);
        self.bins[bin].insert(at, key);
        self.held |= 1 << bin;
    }

    /// Where a chunk is, if it is in the set.
    pub(super) fn find(&self, key: Key) -> Option<Place> {
        let place = self.place(key);
        (self.bins[place.bin].get(place.at) == Some(&key)).then_some(place)
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
        let bins = &self.bins[bin_of(size)..];
        bins.iter().flatten().copied().skip_while(move |key| key.size() < size)
    }

    /// The largest chunk, the highest of equals.
    pub(super) fn last(&self) -> Option<Key> {
        self.bins[self.held.checked_ilog2()? as usize].last().copied()
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
                        let first = tree.range(Key::new(size, 0, 0)..).next().copied();
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
                let held = (0..BINS).filter(|bin| !set.bins[*bin].is_empty()).map(|bin| 1_u64 << bin);
                prop_assert_eq!(set.held, held.sum::<u64>());
            }
        }
    }
}
