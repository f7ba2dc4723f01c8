//! Models of the allocators between a framework and the driver.
//!
//! Tensors ask for bytes; an allocator rounds, packs them into segments that it takes from the driver, and keeps
//! those when tensors die. What nvidia-smi shows, and whether a step fits, follows from that and from the order of
//! requests. Each model is one file with its constants and their source; [`replay`] runs a
//! [`Timeline`](crate::Timeline) through any of them.

mod bfc;
mod chunks;
mod cubecl;
mod cuda_async;
mod exact;
mod free_set;
#[cfg(test)]
mod properties;
mod pytorch;
mod replay;
mod settings;
mod tensorflow_limit;

pub use bfc::{BfcAllocator, BfcConfig};
pub use cubecl::{CubeclConfig, CubeclPools};
pub use cuda_async::CudaAsyncPool;
pub use exact::ExactAllocator;
pub use pytorch::{ConfigError, PytorchAllocator, PytorchAllocatorConfig};
pub use replay::{Failure, Moment, Replay, ReplayOptions, replay, replay_with};
pub use settings::{AllocatorSettings, Room};
pub use tensorflow_limit::{Chip, TensorflowMemory, system_reserve};

use memfit_graph::Bytes;
use std::fmt;

/// A live allocation: a handle of the allocator that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block(u32);

impl Block {
    /// What a request for no bytes gets: nothing is held.
    const EMPTY: Block = Block(u32::MAX);
}

/// What an allocator holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes asked for and still alive.
    pub requested: Bytes,
    /// Bytes of the blocks given out for them.
    pub allocated: Bytes,
    /// Bytes taken from the driver.
    pub reserved: Bytes,
}

impl Usage {
    /// Bytes held without a tensor in them.
    pub fn slack(self) -> Bytes {
        self.reserved.saturating_sub(self.allocated)
    }
}

/// A request that could not be met, with everything that could be given back given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// The request.
    pub request: Bytes,
    /// What the allocator had to take from the driver for it.
    pub needed: Bytes,
    /// Its state then.
    pub usage: Usage,
    /// The most that it may hold.
    pub limit: Bytes,
    /// The largest block that it had free.
    pub largest_free: Bytes,
    /// The most that one request may be, where that is why.
    pub largest_allowed: Option<Bytes>,
}

impl OutOfMemory {
    /// Bytes under the limit that no tensor held.
    pub fn free(&self) -> Bytes {
        self.limit.saturating_sub(self.usage.allocated)
    }

    /// The part of them that lay in segments with live tensors, in pieces too small for the request.
    pub fn unusable(&self) -> Bytes {
        self.usage.slack()
    }
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(most) = self.largest_allowed {
            return write!(f, "{} requested, but no more than {most} may be in one piece", self.request);
        }
        let (free, unusable) = (self.free(), self.unusable());
        write!(f, "{} requested, {free} of {} free", self.request, self.limit)?;
        if unusable > Bytes::ZERO {
            write!(f, ", {unusable} of it in pieces of at most {}", self.largest_free)?;
        }
        Ok(())
    }
}

impl std::error::Error for OutOfMemory {}

/// One piece of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Its size.
    pub bytes: Bytes,
    /// Whether a tensor lives in it.
    pub live: bool,
}

/// Memory taken from the driver in one piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where it begins; segments don't overlap.
    pub address: u64,
    /// From its beginning to its end.
    pub runs: Vec<Run>,
}

impl Segment {
    /// Its size.
    pub fn bytes(&self) -> Bytes {
        self.runs.iter().map(|r| r.bytes).sum()
    }
}

/// A model of an allocator.
pub trait Allocator {
    /// What it is called.
    fn name(&self) -> &'static str;
    /// Meets a request.
    ///
    /// # Errors
    /// When the limit does not allow it, even after all that can be given back has been.
    fn allocate(&mut self, request: Bytes) -> Result<Block, OutOfMemory>;
    /// Takes a block back.
    fn free(&mut self, block: Block);
    /// What it holds while it meets a request whose block it gets back at once, and which leaves it as it was. `None` where it would
    /// not be left so, or where that is not known before.
    fn usage_with(&mut self, _request: Bytes) -> Option<Usage> {
        None
    }
    /// What it holds.
    fn usage(&self) -> Usage;
    /// The most that it may hold.
    fn limit(&self) -> Option<Bytes>;
    /// The largest block that it holds free.
    fn largest_free(&self) -> Bytes;
    /// How many segments it holds.
    fn segment_count(&self) -> usize;
    /// How often what it holds of the driver has changed or was tried to. Where a step leaves this as it was, the allocator is
    /// after it as it was before: each piece that died is joined with its free neighbours again. `None` where that is not so.
    fn driver_calls(&self) -> Option<u64> {
        None
    }
    /// How often it gave everything back and tried again.
    fn retries(&self) -> u32 {
        0
    }
    /// The least that it would have held with a segment that its limit did not allow. `None` where there was none, or where it
    /// is not counted.
    fn refused(&self) -> Option<Bytes> {
        None
    }
    /// Gives back to the driver what holds no tensor (`torch.cuda.empty_cache`).
    fn empty_cache(&mut self) {}
    /// Its segments by address, where it has any.
    fn layout(&self) -> Vec<Segment> {
        Vec::new()
    }
}

/// Requests above this are out of memory in every model, so that sizes and addresses can't overflow.
const LARGEST_REQUEST: u64 = 1 << 46;
