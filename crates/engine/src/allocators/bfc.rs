//! TensorFlow's best-fit-with-coalescing allocator for GPUs.
//!
//! Source: `xla/tsl/framework/bfc_allocator.{h,cc}` (TensorFlow 2.x): `AllocateRawInternal`, `FindChunkPtr`, `Extend`,
//! `DeallocateFreeRegions`. Chunks are split only where the rest is as large as the request or 128 MiB, so a tensor may
//! sit in a chunk almost twice its size. Without `allow_growth` one region of the whole limit is taken at first use; with
//! it regions begin at 2 MiB and double. Regions are not joined: the default sub-allocator does not support it.

use super::chunks::{Chunk, Chunks, State};
use super::free_set::FreeSet;
use super::{Allocator, Block, LARGEST_REQUEST, OutOfMemory, Segment, Usage};
use memfit_graph::Bytes;

/// `kMinAllocationSize`.
const MIN_CHUNK: u64 = 256;
/// The first region under `allow_growth`.
const FIRST_REGION: u64 = 2 * Bytes::MIB;
/// `max_internal_fragmentation_bytes`.
const MAX_INTERNAL_FRAGMENTATION: u64 = 128 * Bytes::MIB;

/// Settings of the allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BfcConfig {
    /// The most that it takes from the driver ([`TensorflowMemory`](super::TensorflowMemory)).
    pub memory_limit: Bytes,
    /// `TF_FORCE_GPU_ALLOW_GROWTH`, `set_memory_growth`: whether regions are taken as needed.
    pub allow_growth: bool,
    /// `TF_ENABLE_GPU_GARBAGE_COLLECTION`: whether regions without tensors are given back for a larger one.
    pub garbage_collection: bool,
    /// What the driver can really give, where that is less than the limit.
    pub device_free: Option<Bytes>,
    /// Whether only what was ever touched of a region counts as reserved.
    pub counts_touched: bool,
}

impl BfcConfig {
    /// TensorFlow's defaults under a limit.
    pub fn within(memory_limit: Bytes) -> BfcConfig {
        BfcConfig {
            memory_limit,
            allow_growth: false,
            garbage_collection: true,
            device_free: None,
            counts_touched: false,
        }
    }

    /// One region without an end, to learn how much of it is needed.
    pub fn open() -> BfcConfig {
        BfcConfig { counts_touched: true, ..BfcConfig::within(Bytes(u64::MAX)) }
    }
}

/// TensorFlow's allocator.
#[derive(Clone, Debug)]
pub struct BfcAllocator {
    config: BfcConfig,
    chunks: Chunks,
    free: FreeSet,
    usage: Usage,
    regions: usize,
    /// Regions taken and collections.
    driver_calls: u64,
    next_region: u64,
    collections: u32,
}

impl BfcAllocator {
    /// An empty one.
    pub fn new(config: BfcConfig) -> BfcAllocator {
        let limit = config.memory_limit.min(Bytes(LARGEST_REQUEST));
        let first = if config.allow_growth { limit.min(Bytes(FIRST_REGION)) } else { limit };
        BfcAllocator {
            config: BfcConfig { memory_limit: limit, ..config },
            chunks: Chunks::default(),
            free: FreeSet::default(),
            usage: Usage::default(),
            regions: 0,
            driver_calls: 0,
            // At least one chunk, or doubling would never end.
            next_region: first.round_up(MIN_CHUNK).0.max(MIN_CHUNK),
            collections: 0,
        }
    }

    /// `FindChunkPtr`, without the split.
    fn find(&mut self, size: u64) -> Option<u32> {
        let id = self.free.first(&self.chunks, size)?;
        self.free.remove(&mut self.chunks, id);
        Some(id)
    }

    /// `Extend`.
    fn extend(&mut self, size: u64) -> bool {
        if self.config.counts_touched && self.regions > 0 {
            return false;
        }
        let available = (self.config.memory_limit.0 - self.usage.reserved.0) / MIN_CHUNK * MIN_CHUNK;
        if size > available {
            return false;
        }
        let mut grown = false;
        while size > self.next_region {
            self.next_region *= 2;
            grown = true;
        }
        let device = self.config.device_free.map_or(u64::MAX, |b| b.0.saturating_sub(self.usage.reserved.0));
        let mut region = self.next_region.min(available);
        while region > device {
            // `kBackpedalFactor`: a tenth less, until the driver agrees; a chunk less where a tenth is rounded away. (Releases
            // of 2022 and 2023 tried that once in a process; 2.21 asks for ever where it is rounded away.)
            region = (region * 9 / 10).next_multiple_of(MIN_CHUNK).min(region - MIN_CHUNK);
            if region < size {
                return false;
            }
        }
        if !grown {
            self.next_region *= 2;
        }
        let id = self.chunks.segment(region, 0, State::Free);
        self.free.insert(&mut self.chunks, id);
        if !self.config.counts_touched {
            self.usage.reserved += Bytes(region);
        }
        self.regions += 1;
        self.driver_calls += 1;
        true
    }

    /// `DeallocateFreeRegions`.
    fn collect(&mut self, size: u64) -> bool {
        let whole: Vec<u32> =
            self.free.iter(&self.chunks).filter(|id| !self.chunks[*id].is_split()).collect();
        let bytes: u64 = whole.iter().map(|id| self.chunks[*id].size).sum();
        let room = self.config.memory_limit.0 - self.usage.reserved.0;
        if !self.config.garbage_collection
            || self.config.counts_touched
            || whole.is_empty()
            || size > room + bytes
        {
            return false;
        }
        for id in whole {
            self.free.remove(&mut self.chunks, id);
            self.chunks.remove(id);
            self.usage.reserved -= Bytes(self.chunks[id].size);
            self.regions -= 1;
        }
        self.collections += 1;
        self.driver_calls += 1;
        true
    }
}

impl Allocator for BfcAllocator {
    fn name(&self) -> &'static str {
        "bfc"
    }

    fn allocate(&mut self, request: Bytes) -> Result<Block, OutOfMemory> {
        if request == Bytes::ZERO {
            return Ok(Block::EMPTY);
        }
        let size = request.0.min(LARGEST_REQUEST + 1).next_multiple_of(MIN_CHUNK);
        let mut found = self.find(size);
        if found.is_none() && (self.extend(size) || (self.collect(size) && self.extend(size))) {
            found = self.find(size);
        }
        let Some(id) = found else {
            return Err(OutOfMemory {
                request,
                needed: Bytes(size),
                usage: self.usage,
                limit: self.config.memory_limit.min(self.config.device_free.unwrap_or(Bytes(u64::MAX))),
                largest_free: self.largest_free(),
                largest_allowed: None,
            });
        };
        let chunk = self.chunks[id].size;
        if chunk >= size * 2 || chunk - size >= MAX_INTERNAL_FRAGMENTATION {
            let rest = self.chunks.split(id, size);
            self.free.insert(&mut self.chunks, rest);
        }
        let chunk = &mut self.chunks[id];
        (chunk.state, chunk.note) = (State::Live, request.0);
        self.usage.requested += request;
        self.usage.allocated += Bytes(chunk.size);
        if self.config.counts_touched {
            self.usage.reserved = self.usage.reserved.max(Bytes(chunk.address + chunk.size));
        }
        Ok(Block(id))
    }

    fn free(&mut self, block: Block) {
        if !self.chunks.is_live(block.0) {
            return;
        }
        let Chunk { note: requested, size, .. } = self.chunks[block.0];
        self.usage.requested -= Bytes(requested);
        self.usage.allocated -= Bytes(size);
        self.chunks.join_free(block.0, &mut self.free);
    }

    fn usage(&self) -> Usage {
        self.usage
    }

    fn limit(&self) -> Option<Bytes> {
        Some(self.config.memory_limit)
    }

    fn largest_free(&self) -> Bytes {
        Bytes(self.free.last().map_or(0, |id| self.chunks[id].size))
    }

    fn segment_count(&self) -> usize {
        self.regions
    }

    fn driver_calls(&self) -> Option<u64> {
        Some(self.driver_calls)
    }

    fn retries(&self) -> u32 {
        self.collections
    }

    fn layout(&self) -> Vec<Segment> {
        self.chunks.layout()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = Bytes::MIB;

    fn growing(limit: u64) -> BfcAllocator {
        BfcAllocator::new(BfcConfig { allow_growth: true, ..BfcConfig::within(Bytes(limit)) })
    }

    fn held(a: &BfcAllocator) -> (u64, u64) {
        (a.usage().allocated.0, a.usage().reserved.0)
    }

    #[test]
    fn a_driver_that_has_nothing_is_not_asked_for_ever() {
        for (allow_growth, free, reserved) in
            [(true, 0, 0), (false, 255, 0), (true, 2000, 1792), (false, 2000, 1792)]
        {
            let device_free = Some(Bytes(free));
            let config = BfcConfig { allow_growth, device_free, ..BfcConfig::within(Bytes::mib(4)) };
            let mut a = BfcAllocator::new(config);
            assert_eq!(a.allocate(Bytes(1)).is_ok(), reserved > 0, "{allow_growth} {free}");
            assert_eq!(a.usage().reserved, Bytes(reserved), "{allow_growth} {free}");
        }
    }

    #[test]
    fn without_growth_the_whole_limit_is_taken_at_once() {
        let mut a = BfcAllocator::new(BfcConfig::within(Bytes(1000 * MIB)));
        assert_eq!(held(&a), (0, 0));
        a.allocate(Bytes(1)).unwrap();
        assert_eq!((held(&a), a.segment_count()), ((256, 1000 * MIB), 1));
        // The driver has less: a tenth less each time, and no second region.
        let device_free = Some(Bytes(800 * MIB));
        let mut a = BfcAllocator::new(BfcConfig { device_free, ..BfcConfig::within(Bytes(1000 * MIB)) });
        a.allocate(Bytes(1)).unwrap();
        assert_eq!(held(&a), (256, 729 * MIB));
    }

    #[test]
    fn regions_double_under_growth() {
        let mut a = growing(1 << 30);
        let mut pools = Vec::new();
        // Each takes all of the next region: 2, 4, 8, 16 MiB.
        for mib in [2, 4, 8, 16] {
            a.allocate(Bytes(mib * MIB)).unwrap();
            pools.push(held(&a).1 / MIB);
        }
        assert_eq!(pools, [2, 6, 14, 30]);
        // 100 MiB: 32 doubles to 128 for it; then the size stays 128.
        a.allocate(Bytes(100 * MIB)).unwrap();
        assert_eq!(held(&a).1 / MIB, 158);
        a.allocate(Bytes(128 * MIB)).unwrap();
        assert_eq!(held(&a).1 / MIB, 286);
    }

    #[test]
    fn chunks_are_split_from_twice_the_request_on() {
        let mut a = growing(1 << 30);
        let block = a.allocate(Bytes(16 * MIB)).unwrap();
        a.free(block);
        // 16 < 2 * 9: the whole chunk goes to 9 MiB; 16 >= 2 * 8: half of it to 8.
        let block = a.allocate(Bytes(9 * MIB)).unwrap();
        assert_eq!(held(&a), (16 * MIB, 16 * MIB));
        a.free(block);
        a.allocate(Bytes(8 * MIB)).unwrap();
        assert_eq!(held(&a), (8 * MIB, 16 * MIB));
        // Above 128 MiB of rest a chunk is split in any case.
        let mut a = BfcAllocator::new(BfcConfig::within(Bytes(1000 * MIB)));
        a.allocate(Bytes(800 * MIB)).unwrap();
        assert_eq!(held(&a), (800 * MIB, 1000 * MIB));
        assert_eq!(a.allocate(Bytes(201 * MIB)).unwrap_err().largest_free, Bytes(200 * MIB));
    }

    #[test]
    fn stuck_regions_are_given_back_for_a_larger_one() {
        let mut a = growing(60 * MIB);
        let blocks: Vec<Block> = [2, 4, 8, 16].map(|mib| a.allocate(Bytes(mib * MIB)).unwrap()).into();
        for block in blocks {
            a.free(block);
        }
        // 30 of 60 MiB are reserved; 50 need them back.
        a.allocate(Bytes(50 * MIB)).unwrap();
        assert_eq!((held(&a), a.retries()), ((60 * MIB, 60 * MIB), 1));
    }
}
