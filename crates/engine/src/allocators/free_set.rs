//! An ordered set of free chunks: which is the smallest that a request fits in, the lowest of equals.
//!
//! Every request and every death of a tensor changes the set, so it decides how long a replay takes. It is a segregated list with
//! two levels (Masmano, Ripoll, Crespo, Real: TLSF, ECRTS 2004) whose lists are in order: one for each eighth of a power of two,
//! most of which hold a chunk or two. Chunks are linked to each other where they are, so that none is moved or looked for.

use super::chunks::{Chunk, Chunks, NONE};

/// Into how many lists a power of two is divided: two to the power of this.
const STEPS: u32 = 3;
/// The power of two up to which sizes share the first list.
const LEAST: u32 = 8;
/// Powers of two from there to the largest size.
const POWERS: usize = 48 - LEAST as usize;
/// Words of bits for all lists.
const WORDS: usize = (POWERS << STEPS) / 64;
/// All lists.
const LISTS: usize = WORDS * 64;

/// The list of chunks of a size.
fn list_of(size: u64) -> usize {
    let size = size.max(1 << LEAST);
    let power = size.ilog2();
    let list = (u64::from(power - LEAST) << STEPS) + (size >> (power - STEPS) & ((1 << STEPS) - 1));
    (list as usize).min(LISTS - 1)
}

/// Whether a chunk comes before another.
fn is_before(chunk: &Chunk, other: &Chunk) -> bool {
    chunk.size < other.size || (chunk.size == other.size && chunk.address < other.address)
}

/// The first and the last chunk of a list, and the one that came last or stood beside it: the next to come belongs near it, since
/// tensors of one size die in order, one way or the other.
#[derive(Clone, Copy, Debug)]
struct Ends {
    first: u32,
    last: u32,
    recent: u32,
}

/// Free chunks in ascending order.
#[derive(Clone, Debug)]
pub(super) struct FreeSet {
    lists: [Ends; LISTS],
    /// A bit for each list that holds some.
    held: [u64; WORDS],
}

impl Default for FreeSet {
    fn default() -> FreeSet {
        FreeSet { lists: [Ends { first: NONE, last: NONE, recent: NONE }; LISTS], held: [0; WORDS] }
    }
}

impl FreeSet {
    /// The first chunk of this list or a later one.
    fn first_from(&self, list: usize) -> Option<u32> {
        let mut word = list / 64;
        let mut bits = self.held.get(word)? & (u64::MAX << (list % 64));
        while bits == 0 {
            word += 1;
            bits = *self.held.get(word)?;
        }
        Some(self.lists[word * 64 + bits.trailing_zeros() as usize].first)
    }

    /// The first chunk of at least `size` bytes.
    pub(super) fn first(&self, chunks: &Chunks, size: u64) -> Option<u32> {
        let list = list_of(size);
        let mut id = self.lists[list].first;
        while id != NONE {
            let chunk = &chunks[id];
            if chunk.size >= size {
                return Some(id);
            }
            id = chunk.larger;
        }
        self.first_from(list + 1)
    }

    /// Adds a chunk that is not in the set.
    pub(super) fn insert(&mut self, chunks: &mut Chunks, id: u32) {
        let chunk = &chunks[id];
        let list = list_of(chunk.size);
        let ends = &mut self.lists[list];
        let (mut smaller, mut larger) = (ends.recent, NONE);
        while smaller != NONE && !is_before(&chunks[smaller], chunk) {
            (smaller, larger) = (chunks[smaller].smaller, smaller);
        }
        if larger == NONE && smaller != NONE {
            larger = chunks[smaller].larger;
            while larger != NONE && is_before(&chunks[larger], chunk) {
                (smaller, larger) = (larger, chunks[larger].larger);
            }
        }
        ends.recent = id;
        match smaller {
            NONE => ends.first = id,
            _ => chunks[smaller].larger = id,
        }
        match larger {
            NONE => ends.last = id,
            _ => chunks[larger].smaller = id,
        }
        let chunk = &mut chunks[id];
        (chunk.smaller, chunk.larger, chunk.list) = (smaller, larger, list as u16);
        self.held[list / 64] |= 1 << (list % 64);
    }

    /// Takes a chunk out.
    #[inline]
    pub(super) fn remove(&mut self, chunks: &mut Chunks, id: u32) {
        let Chunk { smaller, larger, list, .. } = chunks[id];
        let list = usize::from(list).min(LISTS - 1);
        let ends = &mut self.lists[list];
        match smaller {
            NONE => ends.first = larger,
            _ => chunks[smaller].larger = larger,
        }
        match larger {
            NONE => ends.last = smaller,
            _ => chunks[larger].smaller = smaller,
        }
        if ends.recent == id {
            ends.recent = if smaller == NONE { larger } else { smaller };
        }
        if ends.first == NONE {
            self.held[list / 64] &= !(1 << (list % 64));
        }
    }

    /// The chunks of at least `size` bytes, in ascending order.
    pub(super) fn at_least(&self, chunks: &Chunks, size: u64) -> impl Iterator<Item = u32> {
        std::iter::successors(self.first(chunks, size), |id| match &chunks[*id] {
            Chunk { larger: NONE, list, .. } => self.first_from(usize::from(*list) + 1),
            Chunk { larger, .. } => Some(*larger),
        })
    }

    /// The largest chunk, the highest of equals.
    pub(super) fn last(&self) -> Option<u32> {
        let word = self.held.iter().rposition(|bits| *bits != 0)?;
        Some(self.lists[word * 64 + self.held[word].ilog2() as usize].last)
    }

    /// All chunks.
    pub(super) fn iter(&self, chunks: &Chunks) -> impl Iterator<Item = u32> {
        self.at_least(chunks, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::chunks::State;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn lists_are_in_order_of_size() {
        let sizes: Vec<u64> = (0..52).flat_map(|power| (16..32).map(move |n| (n << power) >> 4)).collect();
        assert!(sizes.is_sorted() && sizes.iter().map(|size| list_of(*size)).is_sorted());
        assert_eq!((list_of(1), list_of(300), list_of(1 << 48)), (0, 1, LISTS - 1));
        assert!(list_of(1 << 20) < list_of((1 << 20) + (1 << 17)));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn agrees_with_a_tree(steps in prop::collection::vec((0..40_u64, any::<prop::sample::Index>(), 0..5_u8), 1..1500)) {
            let (mut set, mut chunks) = (FreeSet::default(), Chunks::default());
            let mut tree: BTreeSet<(u64, u64, u32)> = BTreeSet::new();
            for (size, which, what) in steps {
                let size = (size + 1) * (size + 1) * 100;
                let one = (!tree.is_empty()).then(|| *which.get(&tree.iter().copied().collect::<Vec<_>>()));
                match (what, one) {
                    (0, Some(key)) => {
                        set.remove(&mut chunks, key.2);
                        tree.remove(&key);
                    }
                    (1, _) => {
                        let first = tree.range((size, 0, 0)..).next().map(|key| key.2);
                        prop_assert_eq!(set.first(&chunks, size), first);
                        prop_assert_eq!(set.at_least(&chunks, size).next(), first);
                    }
                    _ => {
                        let id = chunks.segment(size, 0, State::Free);
                        set.insert(&mut chunks, id);
                        tree.insert((size, chunks[id].address, id));
                    }
                }
                prop_assert!(set.iter(&chunks).eq(tree.iter().map(|key| key.2)));
                prop_assert_eq!(set.last(), tree.last().map(|key| key.2));
            }
        }
    }
}
