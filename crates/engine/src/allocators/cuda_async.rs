//! CUDA's own stream-ordered pool (`cudaMallocAsync`): `TF_GPU_ALLOCATOR=cuda_malloc_async`, `backend:cudaMallocAsync`.
//!
//! The driver does not publish how its pool packs blocks. It maps physical pages anywhere in its address space, so pieces
//! do not go to waste as they do in segments: this model takes 512-byte blocks out of pages of 2 MiB (the smallest that
//! `cuMemGetAllocationGranularity` names) and keeps pages until a release threshold. That is a lower bound. TensorFlow sets
//! the threshold to what its own allocator would have taken, PyTorch to the end of the card; above it pages go back
//! when the stream synchronizes, which is taken to be at once.

use super::{Allocator, Block, ExactAllocator, OutOfMemory, Usage};
use memfit_graph::Bytes;

/// Alignment of blocks.
const BLOCK: u64 = 512;
/// The smallest physical page.
const PAGE: u64 = 2 * Bytes::MIB;

/// CUDA's stream-ordered pool.
#[derive(Clone, Debug)]
pub struct CudaAsyncPool {
    blocks: ExactAllocator,
    /// Pages are kept up to here.
    threshold: Bytes,
    limit: Option<Bytes>,
    reserved: Bytes,
}

impl CudaAsyncPool {
    /// A pool that keeps pages up to `threshold` and can have `limit` of the device.
    pub fn new(threshold: Bytes, limit: Option<Bytes>) -> CudaAsyncPool {
        let whole_pages = limit.map(|b| Bytes(b.0 / PAGE * PAGE));
        let blocks = ExactAllocator::new(BLOCK, whole_pages);
        CudaAsyncPool { blocks, threshold, limit, reserved: Bytes::ZERO }
    }

    fn pages(&self) -> Bytes {
        self.blocks.usage().allocated.round_up(PAGE)
    }
}

impl Allocator for CudaAsyncPool {
    fn name(&self) -> &'static str {
        "cuda-malloc-async"
    }

    fn allocate(&mut self, request: Bytes) -> Result<Block, OutOfMemory> {
        let block = self.blocks.allocate(request).map_err(|error| OutOfMemory {
            needed: error.needed.round_up(PAGE),
            usage: self.usage(),
            largest_free: self.largest_free(),
            ..error
        })?;
        self.reserved = self.reserved.max(self.pages());
        Ok(block)
    }

    fn free(&mut self, block: Block) {
        self.blocks.free(block);
        self.reserved = self.reserved.min(self.pages().max(Bytes(self.threshold.0 / PAGE * PAGE)));
    }

    fn usage(&self) -> Usage {
        Usage { reserved: self.reserved, ..self.blocks.usage() }
    }

    fn limit(&self) -> Option<Bytes> {
        self.limit
    }

    fn largest_free(&self) -> Bytes {
        self.usage().slack()
    }

    fn segment_count(&self) -> usize {
        usize::from(self.reserved > Bytes::ZERO)
    }

    fn empty_cache(&mut self) {
        self.reserved = self.pages();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_kept_up_to_the_threshold() {
        let mib = Bytes::mib;
        let mut pool = CudaAsyncPool::new(mib(10), Some(mib(31)));
        let (one, two) = (pool.allocate(mib(5)).unwrap(), pool.allocate(mib(15)).unwrap());
        assert_eq!(pool.usage().reserved, mib(20));
        pool.free(two);
        assert_eq!(pool.usage().reserved, mib(10));
        pool.free(one);
        assert_eq!(pool.usage().reserved, mib(10));
        assert!(pool.allocate(mib(31)).is_err());
        assert!(pool.allocate(mib(30)).is_ok());
        pool.empty_cache();
        assert_eq!(pool.usage().reserved, mib(30));
    }
}
