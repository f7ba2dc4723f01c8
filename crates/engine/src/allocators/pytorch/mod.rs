//! PyTorch's caching allocator for CUDA.
//!
//! Source: `c10/cuda/CUDACachingAllocator.cpp` (2.x; constants of 2.15 in [`config`]): `malloc`, `get_free_block`,
//! `alloc_block`, `should_split`, `free_block`, `release_available_cached_blocks`, `release_cached_blocks`,
//! `garbage_collect_cached_blocks`. One stream, since blocks of other streams are never shared, and no CUDA graphs.
//! `tests/caching.rs` runs it beside PyTorch's own.
//!
//! A request is rounded and looked for in its pool, small (up to 1 MiB) or large: the smallest free block that
//! fits, the lowest of equals. Without one a segment is taken from the driver; should that fail, oversize cached
//! blocks are given back, then all segments without a tensor, and only then is the request out of memory. So what
//! is reserved without a limit and what is needed to run inside one are different numbers.

mod config;
mod expandable;

pub use config::{ConfigError, PytorchAllocatorConfig};

use super::chunks::{Chunk, Chunks, State};
use super::free_set::FreeSet;
use super::{Allocator, Block, LARGEST_REQUEST, OutOfMemory, Segment, Usage};
use config::SMALL_SIZE;
use memfit_graph::Bytes;
use std::collections::BTreeSet;

/// Free blocks of one kind.
#[derive(Clone, Debug, Default)]
struct Pool {
    small: bool,
    free: FreeSet,
    /// Expandable segments: address space without memory, by address.
    unmapped: BTreeSet<(u64, u32)>,
    /// Searches so far, the clock of garbage collection.
    searches: u64,
}

/// PyTorch's caching allocator.
#[derive(Clone, Debug)]
pub struct PytorchAllocator {
    config: PytorchAllocatorConfig,
    chunks: Chunks,
    /// Small, large.
    pools: [Pool; 2],
    usage: Usage,
    segments: usize,
    /// Memory taken and given back.
    driver_calls: u64,
    retries: u32,
    refused: Option<Bytes>,
}

impl PytorchAllocator {
    /// An empty one.
    pub fn new(config: PytorchAllocatorConfig) -> PytorchAllocator {
        let small = Pool { small: true, ..Pool::default() };
        PytorchAllocator {
            config,
            chunks: Chunks::default(),
            pools: [small, Pool::default()],
            usage: Usage::default(),
            segments: 0,
            driver_calls: 0,
            retries: 0,
            refused: None,
        }
    }

    /// What the device can give.
    fn device(&self) -> u64 {
        self.config.limit.map_or(u64::MAX, |b| b.0)
    }

    /// What is allowed.
    fn allowed(&self) -> u64 {
        self.config.allowed.map_or(u64::MAX, |b| b.0)
    }

    /// The most that the allocator may hold.
    fn bound(&self) -> u64 {
        self.device().min(self.allowed())
    }

    fn forget(&mut self, id: u32) {
        self.pools[self.chunks[id].pool as usize].free.remove(&mut self.chunks, id);
    }

    fn put_free(&mut self, id: u32) {
        let pool = &mut self.pools[self.chunks[id].pool as usize];
        self.chunks[id].state = State::Free;
        self.chunks[id].note = pool.searches;
        pool.free.insert(&mut self.chunks, id);
    }

    /// `get_free_block`: the free block for a request, and whether the rest of it is cut off.
    fn suitable(&self, pool: usize, size: u64) -> Option<(u32, bool)> {
        let Pool { small, free, .. } = &self.pools[pool];
        let mut id = free.first(&self.chunks, size)?;
        if self.config.expandable_segments {
            // A block with room to grow behind it counts as large as it can grow.
            for next in free.at_least(&self.chunks, size).skip(1) {
                if expandable::grown(&self.chunks, next) >= expandable::grown(&self.chunks, id) {
                    break;
                }
                id = next;
            }
        }
        let found = self.chunks[id].size;
        self.config.suits(found, size).then(|| (id, self.config.should_split(*small, found, size)))
    }

    /// That block in no pool, cut to size.
    fn find(&mut self, pool: usize, size: u64) -> Option<u32> {
        self.pools[pool].searches += 1;
        let (id, is_split) = self.suitable(pool, size)?;
        let Pool { free, searches, .. } = &mut self.pools[pool];
        free.remove(&mut self.chunks, id);
        if is_split {
            let rest = self.chunks.split(id, size);
            self.chunks[rest].note = *searches;
            free.insert(&mut self.chunks, rest);
        }
        Some(id)
    }

    /// What `malloc` does where no free block suits, which is seldom: a block of a new segment, in no pool, cut to size.
    #[cold]
    fn make(&mut self, pool: usize, size: u64) -> Option<u32> {
        let segment = self.config.segment_size(size);
        self.collect_garbage();
        let mut found = self.extend(pool, size, segment);
        if found.is_none() && self.release_oversize(pool, size) {
            found = self.extend(pool, size, segment);
        }
        if found.is_none() {
            self.retries += 1;
            self.driver_calls += 1;
            self.release_all();
            found = self.extend(pool, size, segment);
        }
        let id = found?;
        if self.config.should_split(self.pools[pool].small, self.chunks[id].size, size) {
            let rest = self.chunks.split(id, size);
            self.put_free(rest);
        }
        Some(id)
    }

    #[cold]
    fn out_of_memory(&self, request: Bytes, size: u64) -> OutOfMemory {
        OutOfMemory {
            request,
            needed: Bytes(self.config.segment_size(size)),
            usage: self.usage,
            limit: Bytes(self.bound()),
            largest_free: self.largest_free(),
            largest_allowed: None,
        }
    }

    /// `alloc_block`: a new segment, or the growing one grown.
    fn extend(&mut self, pool: usize, size: u64, segment: u64) -> Option<u32> {
        if self.config.expandable_segments {
            let is_allowed = self.usage.reserved.0 + segment <= self.allowed();
            return if is_allowed { self.expand(pool, size) } else { None };
        }
        let held = self.usage.reserved + Bytes(segment);
        if held.0 > self.bound() {
            self.refused = Some(self.refused.map_or(held, |least| least.min(held)));
            return None;
        }
        self.usage.reserved = held;
        self.segments += 1;
        self.driver_calls += 1;
        Some(self.chunks.segment(segment, u8::from(pool == 1), State::Free))
    }

    /// `release_block`: gives a whole segment back.
    fn release(&mut self, id: u32) {
        self.forget(id);
        self.usage.reserved -= Bytes(self.chunks[id].size);
        self.segments -= 1;
        self.driver_calls += 1;
        self.chunks.remove(id);
    }

    /// `release_available_cached_blocks`: oversize blocks, as few as will do.
    fn release_oversize(&mut self, pool: usize, size: u64) -> bool {
        if self.config.max_split_size.is_none() {
            return false;
        }
        let wanted = size.max(self.config.max_split());
        if let Some(id) = self.pools[pool].free.first(&self.chunks, wanted) {
            // PyTorch does not look whether it is split, and such a block hardly ever is.
            if !self.chunks[id].is_split() {
                self.release(id);
                return true;
            }
        }
        let mut released = 0;
        while released < wanted {
            let Some(id) = self.pools[pool].free.last() else { break };
            let bytes = self.chunks[id].size;
            if bytes < self.config.max_split() || self.chunks[id].is_split() {
                break;
            }
            released += bytes;
            self.release(id);
        }
        released >= wanted
    }

    /// `garbage_collect_cached_blocks`: segments of the large pool that have gone unused for longer than the average.
    fn collect_garbage(&mut self) {
        let Some(allowed) = self.config.allowed else { return };
        let share = u128::from(self.config.garbage_collection_threshold);
        let threshold = u64::try_from(u128::from(allowed.0) * share / 1_000_000).unwrap_or(u64::MAX);
        let target = self.usage.reserved.0.saturating_sub(threshold);
        if share == 0 || target == 0 {
            return;
        }
        let now = self.pools[1].searches;
        let whole = |a: &PytorchAllocator| -> Vec<(u32, u64, u64)> {
            let free = a.pools[1].free.iter(&a.chunks).map(|id| (id, &a.chunks[id]));
            free.filter(|(_, chunk)| !chunk.is_split()).map(|(id, c)| (id, c.size, now - c.note)).collect()
        };
        let mut reclaimed = 0;
        loop {
            let blocks = whole(self);
            let age: u64 = blocks.iter().map(|b| b.2).sum();
            let old = |b: &&(u32, u64, u64)| u128::from(b.2) * blocks.len() as u128 >= u128::from(age);
            if reclaimed >= target || blocks.is_empty() {
                return;
            }
            for &(id, size, _) in blocks.iter().filter(old) {
                reclaimed += size;
                self.release(id);
            }
        }
    }

    /// `release_cached_blocks`.
    fn release_all(&mut self) {
        for pool in 0..self.pools.len() {
            let free: Vec<u32> = self.pools[pool].free.iter(&self.chunks).collect();
            for id in free {
                if self.config.expandable_segments {
                    self.unmap(id);
                } else if !self.chunks[id].is_split() {
                    self.release(id);
                }
            }
        }
    }
}

impl Allocator for PytorchAllocator {
    fn name(&self) -> &'static str {
        "pytorch"
    }

    fn allocate(&mut self, request: Bytes) -> Result<Block, OutOfMemory> {
        if request == Bytes::ZERO {
            return Ok(Block::EMPTY);
        }
        let size = self.config.round(request.0.min(LARGEST_REQUEST));
        let pool = usize::from(size > SMALL_SIZE);
        let found = match self.find(pool, size) {
            None if request.0 <= LARGEST_REQUEST => self.make(pool, size),
            found => found,
        };
        let Some(id) = found else { return Err(self.out_of_memory(request, size)) };
        let chunk = &mut self.chunks[id];
        (chunk.state, chunk.note) = (State::Live, request.0);
        self.usage.requested += request;
        self.usage.allocated += Bytes(chunk.size);
        Ok(Block(id))
    }

    fn free(&mut self, block: Block) {
        if !self.chunks.is_live(block.0) {
            return;
        }
        let Chunk { note: requested, size, pool, .. } = self.chunks[block.0];
        self.usage.requested -= Bytes(requested);
        self.usage.allocated -= Bytes(size);
        let pool = &mut self.pools[usize::from(pool == 1)];
        let joint = self.chunks.join_free(block.0, &mut pool.free);
        self.chunks[joint].note = pool.searches;
    }

    fn usage_with(&mut self, request: Bytes) -> Option<Usage> {
        if request == Bytes::ZERO || request.0 > LARGEST_REQUEST || self.config.expandable_segments {
            return None;
        }
        let size = self.config.round(request.0);
        let pool = usize::from(size > SMALL_SIZE);
        let (id, is_split) = self.suitable(pool, size)?;
        self.pools[pool].searches += 1;
        let chunk = &mut self.chunks[id];
        chunk.note = self.pools[pool].searches;
        let block = if is_split { size } else { chunk.size };
        let Usage { requested, allocated, reserved } = self.usage;
        Some(Usage { requested: requested + request, allocated: allocated + Bytes(block), reserved })
    }

    fn usage(&self) -> Usage {
        self.usage
    }

    fn limit(&self) -> Option<Bytes> {
        match (self.config.limit, self.config.allowed) {
            (None, None) => None,
            // What is allowed is compared with a segment, and then whole pages are mapped.
            _ if self.config.expandable_segments => {
                let pages = self.allowed().saturating_add(self.config.large_segment.0);
                Some(Bytes(self.device().min(pages)))
            }
            _ => Some(Bytes(self.bound())),
        }
    }

    fn largest_free(&self) -> Bytes {
        Bytes(
            self.pools.iter().filter_map(|p| p.free.last()).map(|id| self.chunks[id].size).max().unwrap_or(0),
        )
    }

    fn segment_count(&self) -> usize {
        self.segments
    }

    fn driver_calls(&self) -> Option<u64> {
        Some(self.driver_calls)
    }

    fn retries(&self) -> u32 {
        self.retries
    }

    fn refused(&self) -> Option<Bytes> {
        self.refused
    }

    fn empty_cache(&mut self) {
        self.release_all();
    }

    fn layout(&self) -> Vec<Segment> {
        self.chunks.layout()
    }
}

#[cfg(test)]
mod tests;
