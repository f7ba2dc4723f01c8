//! Growing segments in the place of many (PyTorch), CUDA's own pool (TensorFlow): less memory in pieces that are too small.

use super::{Change, Kind, Level, Situation};
use crate::devices::Vendor;
use crate::{Framework, Model};

pub(super) const CHANGE: Change = Change {
    name: "allocator",
    effort: 1,
    kind: Kind::Step,
    cost: "nothing but a variable of the environment, set before the framework is imported",
    levels,
};

fn levels(_: &Model, now: &Situation) -> Vec<Level> {
    let mut situation = now.clone();
    let settings = &mut situation.plan.allocator;
    // Both are CUDA's: c10/cuda/CUDAAllocatorConfig.cpp has expandable segments where `PYTORCH_C10_DRIVER_API_SUPPORTED` is set.
    let is_cuda = now.card.device.vendor == Vendor::Nvidia;
    if !is_cuda || settings.cuda_malloc_async || settings.pytorch.expandable_segments {
        return Vec::new();
    }
    let title = match now.plan.framework {
        Framework::Pytorch if now.has((2, 1)) => {
            settings.pytorch.expandable_segments = true;
            "expandable segments"
        }
        Framework::Tensorflow if now.has((2, 5)) => {
            settings.cuda_malloc_async = true;
            "CUDA's own pool, cuda_malloc_async"
        }
        _ => return Vec::new(),
    };
    CHANGE.level(title, situation, &[]).into_iter().collect()
}
