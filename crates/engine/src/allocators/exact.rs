//! No allocator: each request is rounded up and nothing else is lost. The least that any allocator can do.

use super::{Allocator, Block, LARGEST_REQUEST, OutOfMemory, Usage};
use memfit_graph::Bytes;

/// Rounds and counts.
#[derive(Clone, Debug)]
pub struct ExactAllocator {
    block: u64,
    limit: Option<Bytes>,
    /// Requests by handle; zero is a spare slot.
    requests: Vec<u64>,
    spare: Vec<u32>,
    usage: Usage,
}

impl ExactAllocator {
    /// Rounds to multiples of `block` bytes, at least one.
    pub fn new(block: u64, limit: Option<Bytes>) -> ExactAllocator {
        let (requests, spare, usage) = (Vec::new(), Vec::new(), Usage::default());
        ExactAllocator { block: block.max(1), limit, requests, spare, usage }
    }
}

impl Allocator for ExactAllocator {
    fn name(&self) -> &'static str {
        "exact"
    }

    fn allocate(&mut self, request: Bytes) -> Result<Block, OutOfMemory> {
        if request == Bytes::ZERO {
            return Ok(Block::EMPTY);
        }
        let needed = request.round_up(self.block);
        let limit = self.limit.unwrap_or(Bytes(LARGEST_REQUEST));
        if self.usage.reserved + needed > limit {
            let (usage, largest_free) = (self.usage, Bytes::ZERO);
            return Err(OutOfMemory { request, needed, usage, limit, largest_free, largest_allowed: None });
        }
        self.usage.requested += request;
        self.usage.allocated += needed;
        self.usage.reserved = self.usage.allocated;
        if let Some(id) = self.spare.pop() {
            self.requests[id as usize] = request.0;
            return Ok(Block(id));
        }
        self.requests.push(request.0);
        Ok(Block(u32::try_from(self.requests.len() - 1).unwrap_or(u32::MAX)))
    }

    fn free(&mut self, block: Block) {
        let Some(request) = self.requests.get_mut(block.0 as usize).map(std::mem::take) else { return };
        if request == 0 {
            return;
        }
        self.spare.push(block.0);
        self.usage.requested -= Bytes(request);
        self.usage.allocated -= Bytes(request).round_up(self.block);
        self.usage.reserved = self.usage.allocated;
    }

    fn usage(&self) -> Usage {
        self.usage
    }

    fn limit(&self) -> Option<Bytes> {
        self.limit
    }

    fn largest_free(&self) -> Bytes {
        Bytes::ZERO
    }

    fn segment_count(&self) -> usize {
        self.requests.len() - self.spare.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_each_request_and_holds_nothing_back() {
        let mut a = ExactAllocator::new(512, Some(Bytes(1536)));
        let (one, two) = (a.allocate(Bytes(1)).unwrap(), a.allocate(Bytes(513)).unwrap());
        assert_eq!(a.usage(), Usage { requested: Bytes(514), allocated: Bytes(1536), reserved: Bytes(1536) });
        assert_eq!(a.allocate(Bytes(1)).unwrap_err().free(), Bytes::ZERO);
        a.free(one);
        a.free(one);
        assert_eq!(a.usage().allocated, Bytes(1024));
        assert_eq!(a.allocate(Bytes::ZERO), Ok(Block::EMPTY));
        a.free(Block::EMPTY);
        a.free(two);
        assert_eq!(a.usage(), Usage::default());
    }
}
