//! `expandable_segments:True`: one segment a pool, whose address space is set aside at once and gets memory page by page.
//!
//! Source: `c10/cuda/CUDACachingAllocator.cpp`: `ExpandableSegment`, `find_expandable_block`,
//! `try_allocate_expandable_block`, `map_block`, `unmap_block`. Pages are 2 MiB in the small pool, the size of a large
//! segment (20 MiB) in the large one. A new block may begin in free memory and go on in pages that are mapped for it,
//! so little is lost to pieces; only pages without any tensor in them can be given back.

use super::config::SMALL_SEGMENT;
use super::{PytorchAllocator, State};
use crate::allocators::chunks::{Chunks, NONE};
use memfit_graph::Bytes;

/// The address space of a segment where the device has no limit.
const UNLIMITED: u64 = 1 << 47;

/// How large a free block can become without moving.
pub(super) fn grown(chunks: &Chunks, id: u32) -> u64 {
    let chunk = &chunks[id];
    let room = if chunk.next == NONE { None } else { Some(&chunks[chunk.next]) };
    chunk.size + room.filter(|c| c.state == State::Unmapped).map_or(0, |c| c.size)
}

impl PytorchAllocator {
    fn page(&self, pool: usize) -> u64 {
        if self.pools[pool].small { SMALL_SEGMENT } else { self.config.large_segment.0 }
    }

    /// `find_expandable_block`: where free memory and address space, one behind the other, are enough.
    fn expandable(&mut self, pool: usize, size: u64) -> u32 {
        let room = |mut id: u32| {
            let mut bytes = 0;
            while bytes < size && id != NONE && self.chunks[id].state != State::Live {
                bytes += self.chunks[id].size;
                id = self.chunks[id].next;
            }
            bytes >= size
        };
        let begin = |&(_, id): &(u64, u32)| {
            let prev = self.chunks[id].prev;
            if prev != NONE && self.chunks[prev].state == State::Free { prev } else { id }
        };
        if let Some(id) = self.pools[pool].unmapped.iter().map(begin).find(|&id| room(id)) {
            return id;
        }
        // An eighth more than the device has, since pages may have to move to the end.
        let total = self.config.limit.map_or(UNLIMITED, |b| b.0.min(UNLIMITED));
        let space = (total + total / 8).max(size).next_multiple_of(self.page(pool));
        // Both pools' pages divide two large segments, so that every segment begins at a page.
        self.chunks.align(2 * self.config.large_segment.0);
        let id = self.chunks.segment(space, u8::from(pool == 1), State::Unmapped);
        self.pools[pool].unmapped.insert((self.chunks[id].address, id));
        id
    }

    /// `map_block`: puts whole pages behind the first `size` bytes, all or none; returns the joint free block.
    fn map(&mut self, id: u32, size: u64) -> Option<u32> {
        let chunk = self.chunks[id];
        let pool = chunk.pool as usize;
        let bytes = size.next_multiple_of(self.page(pool)).min(chunk.size);
        if self.usage.reserved.0 + bytes > self.device() {
            return None;
        }
        self.usage.reserved += Bytes(bytes);
        self.driver_calls += 1;
        self.segments += usize::from(!chunk.is_split());
        self.pools[pool].unmapped.remove(&(chunk.address, id));
        if bytes < chunk.size {
            let rest = self.chunks.split(id, bytes);
            self.pools[pool].unmapped.insert((self.chunks[rest].address, rest));
        }
        let free = &mut self.pools[pool].free;
        let joint = self.chunks.coalesce(id, State::Free, |chunks, id| free.remove(chunks, id));
        self.put_free(joint);
        Some(joint)
    }

    /// `try_allocate_expandable_block`.
    pub(super) fn expand(&mut self, pool: usize, size: u64) -> Option<u32> {
        let mut id = self.expandable(pool, size);
        if self.chunks[id].state == State::Unmapped {
            id = self.map(id, size.min(self.chunks[id].size))?;
        }
        while self.chunks[id].size < size {
            let (missing, next) = (size - self.chunks[id].size, self.chunks[id].next);
            id = self.map(next, missing.min(self.chunks[next].size))?;
        }
        self.forget(id);
        Some(id)
    }

    /// `unmap_block`: gives back the whole pages inside a free block.
    pub(super) fn unmap(&mut self, mut id: u32) {
        let chunk = self.chunks[id];
        let pool = chunk.pool as usize;
        let page = self.page(pool);
        let begin = chunk.address.next_multiple_of(page);
        let end = (chunk.address + chunk.size) / page * page;
        if begin >= end {
            return;
        }
        self.forget(id);
        if begin > chunk.address {
            let rest = self.chunks.split(id, begin - chunk.address);
            self.put_free(id);
            id = rest;
        }
        if self.chunks[id].size > end - begin {
            let rest = self.chunks.split(id, end - begin);
            self.put_free(rest);
        }
        self.usage.reserved -= Bytes(end - begin);
        self.driver_calls += 1;
        self.chunks[id].state = State::Unmapped;
        let unmapped = &mut self.pools[pool].unmapped;
        let joint = self.chunks.coalesce(id, State::Unmapped, |chunks, id| {
            unmapped.remove(&(chunks[id].address, id));
        });
        self.pools[pool].unmapped.insert((self.chunks[joint].address, joint));
        if !self.chunks[joint].is_split() {
            self.pools[pool].unmapped.remove(&(self.chunks[joint].address, joint));
            self.chunks.remove(joint);
            self.segments -= 1;
        }
    }
}
