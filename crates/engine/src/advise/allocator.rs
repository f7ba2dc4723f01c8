//! Growing segments in the place of many (PyTorch), CUDA's own pool (TensorFlow): less memory in pieces that are too small.

use super::{Change, Level, Situation, snippet};
use crate::{Framework, Model};

pub(super) const CHANGE: Change = Change {
    name: "allocator",
    effort: 1,
    cost: "nothing but a variable of the environment, set before the framework is imported",
    levels,
};

fn levels(_: &Model, now: &Situation) -> Vec<Level> {
    let mut situation = now.clone();
    let settings = &mut situation.plan.allocator;
    if settings.cuda_malloc_async || settings.pytorch.expandable_segments {
        return Vec::new();
    }
    let (title, text) = match now.plan.framework {
        Framework::Pytorch => {
            settings.pytorch.expandable_segments = true;
            ("expandable segments", include_str!("snippets/pytorch/allocator.py"))
        }
        Framework::Tensorflow => {
            settings.cuda_malloc_async = true;
            ("CUDA's own pool, cuda_malloc_async", include_str!("snippets/keras/allocator.py"))
        }
        Framework::Burn => return Vec::new(),
    };
    vec![Level { title: title.into(), situation, snippet: snippet::fill(text, &[]) }]
}
