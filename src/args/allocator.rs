//! How the framework's allocator is set up: from flags to [`AllocatorSettings`].

use super::typed;
use clap::Args;
use memfit_engine::allocators::{AllocatorSettings, PytorchAllocatorConfig};
use memfit_graph::Bytes;

#[derive(Args, Debug)]
#[command(next_help_heading = "Allocator")]
pub(crate) struct AllocatorArgs {
    /// PyTorch: what PYTORCH_ALLOC_CONF holds: expandable_segments:True,max_split_size_mb:128
    #[arg(long, value_name = "KEY:VALUE,…", value_parser = typed::allocator_conf)]
    allocator_conf: Option<PytorchAllocatorConfig>,
    /// CUDA's own pool in the framework's place
    #[arg(long)]
    cuda_malloc_async: bool,
    /// TensorFlow: memory growth, where it takes the whole card otherwise
    #[arg(long)]
    memory_growth: bool,
    /// The part of the card that the framework may have: per_process_gpu_memory_fraction
    #[arg(long, value_name = "X", value_parser = typed::thousandths)]
    memory_fraction: Option<u32>,
    /// TensorFlow: the limit of a logical device: 4GiB
    #[arg(long, value_name = "SIZE", value_parser = typed::memory)]
    memory_limit: Option<Bytes>,
}

impl AllocatorArgs {
    /// What the flags mean.
    pub(crate) fn settings(&self) -> AllocatorSettings {
        AllocatorSettings {
            pytorch: self.allocator_conf.clone().unwrap_or_default(),
            cuda_malloc_async: self.cuda_malloc_async,
            memory_growth: self.memory_growth,
            memory_fraction: self.memory_fraction,
            memory_limit: self.memory_limit,
        }
    }
}
