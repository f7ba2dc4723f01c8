//! The log's card, with what the log says of limits: how much the framework's allocator may take is a setting of it, not a smaller card.
//!
//! PyTorch prints what `set_per_process_memory_fraction` allows (`4.00 GiB allowed`), which is a part of the card's total
//! (c10/cuda/CUDACachingAllocator.cpp, `setMemoryFraction`). TensorFlow prints the limit of its pool (`Created device … with N MB
//! memory`, `Limit:` of its statistics), which it takes beside its context (common_runtime/gpu/gpu_device.cc). Metal's `max allowed`
//! counts all that the process has (ATen/mps/MPSAllocator.mm, `m_max_total_allowed_size`): that is the card.

use crate::causes::elsewhere;
use crate::{Kind, Log};
use memfit_engine::devices::context::total;
use memfit_engine::devices::{Card, Device, Vendor};
use memfit_engine::{Framework, Plan};
use memfit_graph::Bytes;

/// The card that the log names, or one of the size that it tells, with what the log says that others hold, and the plan with the
/// limits of the log. `kept` is held there by the same process beside what is asked about.
pub(super) fn of(log: &Log, plan: &Plan, kept: Bytes) -> Option<(Card, Plan)> {
    let failure = log.failure()?;
    let taken = || log.messages.iter().filter(|m| m.kind == Kind::Taken);
    let own = || taken().filter(|m| m.family == failure.family);
    let named = taken().find_map(|m| m.device.as_deref()).and_then(|name| Card::find(name).ok());
    let whole = failure.capacity.or_else(|| own().find_map(|m| m.capacity));
    let limit = failure.limit.or_else(|| own().find_map(|m| m.limit));
    let limit = limit.filter(|limit| whole.is_none_or(|whole| *limit < whole));
    let pool = limit.filter(|_| plan.framework == Framework::Tensorflow);
    let sized = |size| Card::alone(Device::of_size("the card of the log", size));
    let mut card = match (named, whole, pool) {
        (Some(card), ..) => card,
        (None, Some(whole), _) => sized(whole),
        // Whatever the card has, the pool and the context have found their place on it.
        (None, None, Some(pool)) => sized(pool + total(&sized(pool).context(plan)).high),
        (None, None, None) => sized(limit?),
    };
    if failure.detail.as_deref() == Some("MPS") {
        card.device.vendor = Vendor::Apple;
    }
    card.other_processes = elsewhere(log);
    let usable = card.device.usable();
    let mut plan = plan.clone();
    match (limit.map(|limit| limit.saturating_sub(kept)), plan.framework) {
        (Some(limit), Framework::Tensorflow) => plan.allocator.memory_limit = Some(limit),
        (Some(limit), Framework::Pytorch) if whole.is_some() => {
            plan.allocator.memory_fraction = thousandths(limit, usable.saturating_sub(kept));
        }
        _ => {}
    }
    if kept > Bytes::ZERO {
        card.device.visible = Some((usable.saturating_sub(kept), "without what the process keeps".into()));
    }
    Some((card, plan))
}

/// The nearest thousandths of the whole.
fn thousandths(part: Bytes, whole: Bytes) -> Option<u32> {
    let (part, whole) = (u128::from(part.0), u128::from(whole.0.max(1)));
    u32::try_from((part * 1000 + whole / 2) / whole).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(text: &str, framework: Framework, kept: Bytes) -> (Card, Plan) {
        let log = crate::read(text.as_bytes()).unwrap();
        of(&log, &Plan { framework, ..Plan::default() }, kept).unwrap()
    }

    #[test]
    fn what_pytorch_allows_is_a_fraction_of_the_card() {
        let log = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 196.00 MiB. GPU 0 has a total capacity of 23.69 GiB of which 17.44 GiB is free. 4.00 GiB allowed; Including non-PyTorch memory, this process has 4.42 GiB memory in use. Of the allocated memory 3.61 GiB is allocated by PyTorch, and 241.12 MiB is reserved by PyTorch but unallocated.";
        let (card, plan) = on(log, Framework::Pytorch, Bytes::ZERO);
        assert_eq!(plan.allocator.memory_fraction, Some(169));
        assert!(card.device.usable() > Bytes(23 * Bytes::GIB));
        // What the process keeps is missing from both.
        let (less, plan) = on(log, Framework::Pytorch, Bytes(Bytes::GIB));
        assert_eq!(plan.allocator.memory_fraction, Some(132));
        assert_eq!(card.device.usable() - less.device.usable(), Bytes(Bytes::GIB));
    }

    #[test]
    fn tensorflows_limit_is_its_pools_whole_whatever_the_card() {
        let dump = "W bfc_allocator.cc:497] Allocator (GPU_0_bfc) ran out of memory trying to allocate 256.00MiB (rounded to 268435456)requested by op Conv2D\nLimit:   2147483648\nInUse:   2000000000\n";
        let (card, plan) = on(dump, Framework::Tensorflow, Bytes::ZERO);
        assert_eq!(plan.allocator.memory_limit, Some(Bytes::mib(2048)));
        let room = card.device.usable() - total(&card.context(&plan)).high;
        assert!(room >= Bytes::mib(2048), "the context takes nothing of the pool");
        let start = "I gpu_device.cc:1639] Created device /job:localhost/replica:0/task:0/device:GPU:0 with 2048 MB memory:  -> device: 0, name: NVIDIA GeForce GTX 1060 6GB, pci bus id: 0000:01:00.0\n";
        let failed = "OP_REQUIRES failed: RESOURCE_EXHAUSTED: OOM when allocating tensor with shape[8,32,512,512] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc";
        let (card, plan) = on(&format!("{start}{failed}"), Framework::Tensorflow, Bytes::ZERO);
        assert_eq!((&*card.device.id, plan.allocator.memory_limit), ("gtx-1060-6gb", Some(Bytes::mib(2048))));
        // Another framework in the same log is not under it.
        let torch = "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 8.00 GiB total capacity; 7.00 GiB already allocated; 10.00 MiB free; 7.20 GiB reserved in total by PyTorch)";
        let (_, plan) = on(&format!("{start}{torch}"), Framework::Pytorch, Bytes::ZERO);
        assert_eq!(plan.allocator, memfit_engine::allocators::AllocatorSettings::default());
    }

    #[test]
    fn metals_limit_is_the_card() {
        let log = "RuntimeError: MPS backend out of memory (MPS allocated: 17.25 GB, other allocations: 512.00 MB, max allowed: 18.13 GB). Tried to allocate 1.20 GB on private pool.";
        let (card, plan) = on(log, Framework::Pytorch, Bytes::ZERO);
        assert_eq!((card.device.vendor, plan.allocator.memory_fraction), (Vendor::Apple, None));
    }
}
