//! cubecl's memory pools, which Burn allocates from on CUDA and wgpu.
//!
//! Source: `cubecl-runtime` 0.10 (Burn 0.21), `memory_management/{memory_manage,memory_pool/sliced_pool,
//! memory_pool/memory_page}.rs`, `MemoryConfiguration::SubSlices`, which is the default outside of browsers;
//! `cubecl-cuda` 0.10 `runtime.rs` and `cubecl-wgpu` 0.10 `backend/vulkan.rs` for pages and alignment.
//!
//! Each pool has pages of one size, and a request goes to the first pool that takes it: one whose largest slice is as large,
//! or whose page would be filled to four fifths. There it gets the first fit over all pages. The largest page is a
//! quarter of the card and so is the largest tensor; the page sizes below are quarters of each other. Pages are kept;
//! when the driver has no more, nothing is given back and the request fails.
//!
//! A slice that is freed among live ones keeps the size that was asked of it, not the multiple of the alignment that it takes; so
//! where that is no multiple, an equal request does not fit it, until a neighbour is freed too and both are merged
//! (`try_reserve`, `coalesce`).
//!
//! Left out: tensors put into the persistent pool, which get pages of their own size.

use super::chunks::{Chunk, Chunks, State};
use super::free_set::FreeSet;
use super::{Allocator, Block, LARGEST_REQUEST, OutOfMemory, Segment, Usage};
use memfit_graph::Bytes;
use std::collections::BTreeSet;

/// Pools are made down to the first page below this.
const SMALLEST_PAGE: u64 = 32 * Bytes::MIB;

/// What the pools follow from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CubeclConfig {
    /// The largest page, and the largest tensor.
    pub max_page: Bytes,
    /// Slices are multiples of it.
    pub alignment: u64,
    /// What the device can give. None: no end.
    pub limit: Option<Bytes>,
}

impl CubeclConfig {
    /// On CUDA, where `total` is what the driver shows to the process.
    pub fn cuda(total: Bytes) -> CubeclConfig {
        CubeclConfig { max_page: Bytes(total.0 / 4), alignment: 512, limit: Some(total) }
    }

    /// On Vulkan through wgpu, where `heap` is the card's own memory. The alignment is the adapter's
    /// `min_uniform_buffer_offset_alignment`; 256 is the most that WebGPU allows.
    pub fn vulkan(heap: Bytes) -> CubeclConfig {
        CubeclConfig { max_page: Bytes(heap.0 / 4), alignment: 256, limit: Some(heap) }
    }
}

/// Pages of one size.
#[derive(Clone, Debug, Default)]
struct Pool {
    page: u64,
    max_slice: u64,
    /// Free slices by address, which is the order of pages and of slices in them.
    free: BTreeSet<(u64, u32)>,
    /// The same by size.
    sizes: FreeSet,
}

impl Pool {
    fn accepts(&self, size: u64) -> bool {
        self.max_slice >= size || self.page.checked_sub(size).is_some_and(|rest| rest * 5 < self.page)
    }

    fn insert(&mut self, chunks: &mut Chunks, id: u32) {
        self.free.insert((chunks[id].address, id));
        self.sizes.insert(chunks, id);
    }

    fn remove(&mut self, chunks: &mut Chunks, id: u32) {
        self.free.remove(&(chunks[id].address, id));
        self.sizes.remove(chunks, id);
    }
}

/// cubecl's pools.
#[derive(Clone, Debug)]
pub struct CubeclPools {
    config: CubeclConfig,
    chunks: Chunks,
    /// Smallest pages first.
    pools: Vec<Pool>,
    usage: Usage,
    pages: usize,
}

impl CubeclPools {
    /// Empty pools.
    pub fn new(config: CubeclConfig) -> CubeclPools {
        let alignment = config.alignment.max(1);
        let largest = config.max_page.0.min(LARGEST_REQUEST) / alignment * alignment;
        let mut pools = vec![Pool { page: largest, max_slice: largest, ..Pool::default() }];
        let (mut page, mut halvings) = (config.max_page.0.min(LARGEST_REQUEST), 1);
        while page >= SMALLEST_PAGE {
            page = (page / 4).next_multiple_of(alignment);
            pools.push(Pool { page, max_slice: page >> halvings, ..Pool::default() });
            halvings += 1;
        }
        pools.reverse();
        let config = CubeclConfig { alignment, ..config };
        CubeclPools { config, chunks: Chunks::default(), pools, usage: Usage::default(), pages: 0 }
    }

    /// The first slice that is large enough.
    fn find(&mut self, pool: usize, size: u64) -> Option<u32> {
        let (chunks, pool) = (&mut self.chunks, &mut self.pools[pool]);
        if pool.sizes.last().is_none_or(|id| chunks[id].size < size) {
            return None;
        }
        let fits = |chunk: &Chunk| chunk.size - chunk.note >= size;
        let &(_, id) = pool.free.iter().find(|(_, id)| fits(&chunks[*id]))?;
        pool.remove(chunks, id);
        Some(id)
    }

    fn grow(&mut self, pool: usize) -> Option<u32> {
        let page = self.pools[pool].page;
        if self.config.limit.is_some_and(|limit| self.usage.reserved + Bytes(page) > limit) {
            return None;
        }
        self.usage.reserved += Bytes(page);
        self.pages += 1;
        Some(self.chunks.segment(page, u8::try_from(pool).unwrap_or(u8::MAX), State::Free))
    }
}

impl Allocator for CubeclPools {
    fn name(&self) -> &'static str {
        "cubecl"
    }

    fn allocate(&mut self, request: Bytes) -> Result<Block, OutOfMemory> {
        if request == Bytes::ZERO {
            return Ok(Block::EMPTY);
        }
        let pool = self.pools.iter().position(|pool| pool.accepts(request.0));
        let size = request.0.min(LARGEST_REQUEST).next_multiple_of(self.config.alignment);
        let fail = |pools: &CubeclPools, needed, largest_allowed| OutOfMemory {
            request,
            needed: Bytes(needed),
            usage: pools.usage,
            limit: pools.config.limit.unwrap_or(Bytes(LARGEST_REQUEST)),
            largest_free: pools.largest_free(),
            largest_allowed,
        };
        let Some(pool) = pool else {
            return Err(fail(self, size, self.pools.last().map(|pool| Bytes(pool.page))));
        };
        // A size between a page and its last multiple of the alignment fits no page, which cubecl does not expect.
        let page = self.pools[pool].page;
        let found = if size > page { None } else { self.find(pool, size).or_else(|| self.grow(pool)) };
        let Some(id) = found else { return Err(fail(self, page, None)) };
        if self.chunks[id].size > size {
            let rest = self.chunks.split(id, size);
            self.pools[pool].insert(&mut self.chunks, rest);
        }
        let chunk = &mut self.chunks[id];
        (chunk.state, chunk.note) = (State::Live, request.0);
        self.usage.requested += request;
        self.usage.allocated += Bytes(size);
        Ok(Block(id))
    }

    fn free(&mut self, block: Block) {
        if !self.chunks.is_live(block.0) {
            return;
        }
        let Chunk { note: requested, size, pool, .. } = self.chunks[block.0];
        self.usage.requested -= Bytes(requested);
        self.usage.allocated -= Bytes(size);
        let pool = &mut self.pools[usize::from(pool)];
        let joint = self.chunks.coalesce(block.0, State::Free, |chunks, id| pool.remove(chunks, id));
        let chunk = &mut self.chunks[joint];
        // A free slice's note is what of its end can't be used.
        let is_alone = joint == block.0 && chunk.size == size;
        (chunk.state, chunk.note) = (State::Free, if is_alone { size - requested } else { 0 });
        pool.insert(&mut self.chunks, joint);
    }

    fn usage(&self) -> Usage {
        self.usage
    }

    fn limit(&self) -> Option<Bytes> {
        self.config.limit
    }

    fn largest_free(&self) -> Bytes {
        let largest = self.pools.iter().filter_map(|pool| pool.sizes.last());
        Bytes(largest.map(|id| self.chunks[id].size).max().unwrap_or(0))
    }

    fn segment_count(&self) -> usize {
        self.pages
    }

    /// `memory_cleanup`.
    fn empty_cache(&mut self) {
        for pool in &mut self.pools {
            let whole = pool.sizes.iter(&self.chunks).filter(|id| !self.chunks[*id].is_split());
            let whole: Vec<u32> = whole.collect();
            for id in whole {
                pool.remove(&mut self.chunks, id);
                self.usage.reserved -= Bytes(self.chunks[id].size);
                self.chunks.remove(id);
                self.pages -= 1;
            }
        }
    }

    fn layout(&self) -> Vec<Segment> {
        self.chunks.layout()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = Bytes::MIB;

    #[test]
    fn pages_are_quarters_of_each_other() {
        // A card of 8 GiB: pages of 2048, 512, 128, 32 and 8 MiB; slices of all, a half, a quarter, …
        let pools = CubeclPools::new(CubeclConfig::cuda(Bytes(8 << 30)));
        let sizes: Vec<_> = pools.pools.iter().map(|p| (p.page / MIB, p.max_slice / 1024)).collect();
        let kib = |mib: u64| mib * 1024;
        assert_eq!(sizes, [(8, 512), (32, kib(4)), (128, kib(32)), (512, kib(256)), (2048, kib(2048))]);
    }

    #[test]
    fn requests_go_to_the_first_pool_that_takes_them() {
        let mut pools = CubeclPools::new(CubeclConfig::cuda(Bytes(8 << 30)));
        for (request, reserved) in [
            (1, 8),       // the first page of 8 MiB
            (MIB / 2, 8), // its largest slice
            (7 * MIB, 8), // fills a page of 8 MiB to more than four fifths, and fits behind
            (7 * MIB, 16),
            (6 * MIB, 16 + 128), // too much for slices of 4 MiB, too little for a page of 8
            (3 * MIB, 16 + 128 + 32),
        ] {
            pools.allocate(Bytes(request)).unwrap();
            assert_eq!(pools.usage().reserved, Bytes(reserved * MIB), "{request}");
        }
        assert_eq!(pools.usage().requested, Bytes(1 + MIB / 2 + 23 * MIB));
        assert_eq!(pools.usage().allocated, Bytes(512 + MIB / 2 + 23 * MIB));
    }

    #[test]
    fn a_slice_among_live_ones_keeps_the_size_that_was_asked_of_it() {
        let mut pools = CubeclPools::new(CubeclConfig::cuda(Bytes(8 << 30)));
        let blocks: Vec<Block> = (0..3).map(|_| pools.allocate(Bytes(1000)).unwrap()).collect();
        let place = |pools: &CubeclPools, block: Block| pools.chunks[block.0].address;
        let (second, behind) = (place(&pools, blocks[1]), 3 * 1024);
        pools.free(blocks[1]);
        // 1000 bytes take 1024, which the slice of 1000 has not; 500 take 512.
        let again = pools.allocate(Bytes(1000)).unwrap();
        assert_eq!(place(&pools, again), place(&pools, blocks[0]) + behind);
        let half = pools.allocate(Bytes(500)).unwrap();
        assert_eq!(place(&pools, half), second);
        // Merged with its neighbour it is whole.
        pools.free(half);
        pools.free(blocks[0]);
        let both = pools.allocate(Bytes(2048)).unwrap();
        assert_eq!(place(&pools, both), second - 1024);
    }

    #[test]
    fn no_tensor_is_larger_than_a_quarter_of_the_card() {
        let mut pools = CubeclPools::new(CubeclConfig::cuda(Bytes(8 << 30)));
        let error = pools.allocate(Bytes((2 << 30) + 1)).unwrap_err();
        assert_eq!(error.largest_allowed, Some(Bytes(2 << 30)));
        assert_eq!(error.to_string(), "2.00 GiB requested, but no more than 2.00 GiB may be in one piece");
        assert!(pools.allocate(Bytes(2 << 30)).is_ok());
        pools.empty_cache();
        assert_eq!(pools.segment_count(), 1);
    }
}
