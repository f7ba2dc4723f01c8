//! Segments cut into chunks that know their neighbours: what PyTorch's caching allocator and TensorFlow's BFC share.
//!
//! Free chunks are indexed by the allocators in a [`FreeSet`], ordered by size, then address. BFC sorts its chunks into
//! 21 bins by size and searches the bins upward for the first that fits, each bin ordered by (size, address); bins
//! being ranges of sizes, that is the same chunk as the first one in a single ordered set.

use super::free_set::FreeSet;
use super::{Run, Segment};
use memfit_graph::Bytes;
use memfit_graph::order::sorted_by_key;

/// No chunk.
pub(super) const NONE: u32 = u32::MAX;

/// What a chunk is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// A slot without a chunk.
    Spare,
    /// In a free set.
    Free,
    /// Given out.
    Live,
    /// Address space without memory behind it.
    Unmapped,
}

/// A piece of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    pub(super) address: u64,
    pub(super) size: u64,
    pub(super) prev: u32,
    pub(super) next: u32,
    /// Its neighbours in a free set, and in which of the set's lists.
    pub(super) smaller: u32,
    pub(super) larger: u32,
    pub(super) list: u16,
    pub(super) state: State,
    /// Which of the allocator's pools it belongs to.
    pub(super) pool: u8,
    /// While it is live, the bytes asked for; while it is free, since when, in the allocator's own clock.
    pub(super) note: u64,
}

impl Chunk {
    /// Whether it shares its segment.
    pub(super) fn is_split(&self) -> bool {
        self.prev != NONE || self.next != NONE
    }
}

/// All chunks of an allocator.
#[derive(Clone, Debug)]
pub(super) struct Chunks {
    slots: Vec<Chunk>,
    spare: Vec<u32>,
    next_address: u64,
}

/// What most steps come to.
const USUAL: usize = 1 << 11;

impl Default for Chunks {
    fn default() -> Chunks {
        Chunks { slots: Vec::with_capacity(USUAL), spare: Vec::with_capacity(USUAL), next_address: 0 }
    }
}

impl std::ops::Index<u32> for Chunks {
    type Output = Chunk;
    fn index(&self, id: u32) -> &Chunk {
        &self.slots[id as usize]
    }
}

impl std::ops::IndexMut<u32> for Chunks {
    fn index_mut(&mut self, id: u32) -> &mut Chunk {
        &mut self.slots[id as usize]
    }
}

impl Chunks {
    /// A new segment of one chunk. Addresses only ever grow: which of two equal chunks the driver would have placed
    /// lower can't be known.
    pub(super) fn segment(&mut self, size: u64, pool: u8, state: State) -> u32 {
        let address = self.next_address;
        self.next_address += size;
        let (prev, next, smaller, larger) = (NONE, NONE, NONE, NONE);
        self.insert(Chunk { address, size, prev, next, smaller, larger, list: 0, state, pool, note: 0 })
    }

    /// Lets the next segment begin at a multiple of so many bytes.
    pub(super) fn align(&mut self, bytes: u64) {
        self.next_address = self.next_address.next_multiple_of(bytes);
    }

    fn insert(&mut self, chunk: Chunk) -> u32 {
        if let Some(id) = self.spare.pop() {
            self[id] = chunk;
            return id;
        }
        self.slots.push(chunk);
        u32::try_from(self.slots.len() - 1).unwrap_or(NONE)
    }

    /// Cuts the first `size` bytes off: `id` keeps them, the rest is a new chunk behind it, in the same state.
    pub(super) fn split(&mut self, id: u32, size: u64) -> u32 {
        let chunk = self[id];
        let rest =
            self.insert(Chunk { address: chunk.address + size, size: chunk.size - size, prev: id, ..chunk });
        if chunk.next != NONE {
            self[chunk.next].prev = rest;
        }
        self[id].size = size;
        self[id].next = rest;
        rest
    }

    /// Joins a chunk with the one behind it.
    pub(super) fn absorb_next(&mut self, id: u32) {
        let gone = self[id].next;
        let Chunk { size, next, .. } = self[gone];
        let chunk = &mut self[id];
        chunk.size += size;
        chunk.next = next;
        if next != NONE {
            self[next].prev = id;
        }
        self.remove(gone);
    }

    /// Joins a chunk, which is in no free set, with neighbours of the given state; `forget` takes them out of
    /// theirs. Returns the joint chunk.
    pub(super) fn coalesce(
        &mut self,
        mut id: u32,
        state: State,
        mut forget: impl FnMut(&mut Chunks, u32),
    ) -> u32 {
        let Chunk { prev, next, .. } = self[id];
        if next != NONE && self[next].state == state {
            forget(self, next);
            self.absorb_next(id);
        }
        if prev != NONE && self[prev].state == state {
            forget(self, prev);
            self.absorb_next(prev);
            id = prev;
        }
        id
    }

    /// Makes a chunk free and joins it with its free neighbours, which are in `free`. Returns the joint chunk.
    pub(super) fn join_free(&mut self, id: u32, free: &mut FreeSet) -> u32 {
        let joint = self.coalesce(id, State::Free, |chunks, id| free.remove(chunks, id));
        self[joint].state = State::Free;
        free.insert(self, joint);
        joint
    }

    /// Forgets a chunk.
    pub(super) fn remove(&mut self, id: u32) {
        self[id].state = State::Spare;
        self.spare.push(id);
    }

    /// Whether a handle is of a live chunk.
    pub(super) fn is_live(&self, id: u32) -> bool {
        self.slots.get(id as usize).is_some_and(|c| c.state == State::Live)
    }

    /// Segments by address; address space without memory parts a segment in two.
    pub(super) fn layout(&self) -> Vec<Segment> {
        let mut segments = Vec::new();
        for head in self.slots.iter().filter(|c| c.state != State::Spare && c.prev == NONE) {
            let (mut chunk, mut runs, mut address) = (*head, Vec::new(), head.address);
            loop {
                if chunk.state == State::Unmapped {
                    if !runs.is_empty() {
                        segments.push(Segment { address, runs: std::mem::take(&mut runs) });
                    }
                    address = chunk.address + chunk.size;
                } else {
                    runs.push(Run { bytes: Bytes(chunk.size), live: chunk.state == State::Live });
                }
                if chunk.next == NONE {
                    break;
                }
                chunk = self[chunk.next];
            }
            if !runs.is_empty() {
                segments.push(Segment { address, runs });
            }
        }
        sorted_by_key(segments, |segment| segment.address)
    }
}
