//! How much of a card TensorFlow lets its allocator take.
//!
//! Source: `tensorflow/core/common_runtime/gpu/gpu_device.cc` (`SingleVirtualDeviceMemoryLimit`, `MinSystemMemory`).
//! Releases before compute capability 9 was listed give 9 and later the value of 8. On AMD's cards, whose compute capability is
//! nothing to it, a part is hidden from TensorFlow first (xla/stream_executor/rocm/rocm_executor.cc, `GetReservedMemory`). Apple's come
//! as a plug-in (`common_runtime/pluggable_device/pluggable_device_factory.cc`, `MinSystemMemory`).

use crate::devices::{Device, Generation, Vendor};
use memfit_graph::Bytes;

/// What a card's reserve follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chip {
    /// NVIDIA's, by its major compute capability.
    Cuda(u32),
    /// AMD's, by its family.
    Rocm(Generation),
    /// One that a plug-in brings.
    Plugged,
}

impl Chip {
    /// That of a card. One of which only the size is known is taken for NVIDIA's of today.
    pub fn of(device: &Device) -> Chip {
        match device.vendor {
            Vendor::Nvidia => Chip::Cuda(device.compute_capability.map_or(8, |c| c.0)),
            Vendor::Amd => Chip::Rocm(device.generation),
            Vendor::Apple => Chip::Plugged,
        }
    }
}

/// What the memory limit follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorflowMemory {
    /// The card's total.
    pub total: Bytes,
    /// What is free once the context exists.
    pub free: Bytes,
    /// What its reserve follows from.
    pub chip: Chip,
    /// `per_process_gpu_memory_fraction` in thousandths. None: not set.
    pub fraction: Option<u32>,
    /// `TF_DEVICE_MIN_SYS_MEMORY_IN_MB`, in the place of [`system_reserve`].
    pub reserve: Option<Bytes>,
}

impl TensorflowMemory {
    /// `memory_limit` of the allocator. A reserve that is set counts whatever else is; one that is more than there is does not.
    pub fn limit(&self) -> Bytes {
        if let Some(reserve) = self.reserve
            && reserve <= self.free
        {
            return self.free.saturating_sub(reserve);
        }
        match self.fraction {
            Some(thousandths) if thousandths > 0 => {
                let bytes = u128::from(self.total.0) * u128::from(thousandths) / 1000;
                Bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
            }
            _ => match system_reserve(self.free, self.chip) {
                reserve if reserve < self.free => self.free.saturating_sub(reserve),
                _ => self.free,
            },
        }
    }
}

/// What is left for the driver and libraries: a fixed part of a card with less than 2 GiB free, else by the card.
pub fn system_reserve(free: Bytes, chip: Chip) -> Bytes {
    let hidden = match chip {
        Chip::Rocm(generation) => hidden(generation),
        Chip::Cuda(_) | Chip::Plugged => Bytes::ZERO,
    };
    let free = free.saturating_sub(hidden);
    let is_small = free < Bytes(2 * Bytes::GIB);
    hidden
        + match chip {
            Chip::Cuda(_) | Chip::Rocm(_) if is_small => Bytes::mib(225),
            Chip::Cuda(0..=6) | Chip::Rocm(_) => Bytes::mib(500),
            Chip::Cuda(7) => Bytes::mib(1050),
            Chip::Cuda(8) => Bytes::mib(1536),
            Chip::Cuda(_) => Bytes::mib(1800),
            Chip::Plugged if is_small => Bytes::mib(255),
            Chip::Plugged => Bytes(free.0 / 50 * 3).max(Bytes::mib(300)),
        }
}

/// What ROCm's libraries are given beforehand: rocBLAS alone needs some 200 MiB for its kernels, says the source.
fn hidden(generation: Generation) -> Bytes {
    Bytes::mib(match generation {
        Generation::Cdna2 | Generation::Cdna3 => 1024,
        Generation::Cdna | Generation::Rdna2 | Generation::Rdna3 => 512,
        _ => 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_those_of_public_logs() {
        let card = |total, free, major| TensorflowMemory {
            total: Bytes::mib(total),
            free: Bytes::mib(free),
            chip: Chip::Cuda(major),
            fraction: None,
            reserve: None,
        };
        // A100 40 GB: 38,482 MiB in TensorFlow's log, that is 40,018 MiB free after the context.
        assert_eq!(card(40_536, 40_018, 8).limit(), Bytes::mib(38_482));
        assert_eq!(card(15_360, 14_900, 7).limit(), Bytes::mib(13_850));
        assert_eq!(card(2_000, 1_900, 6).limit(), Bytes::mib(1_675));
        let half = TensorflowMemory { fraction: Some(500), ..card(40_536, 40_018, 8) };
        assert_eq!(half.limit(), Bytes::mib(20_268));
        // A reserve that is set overrides the share, unless it is more than there is; and of less than its own reserve all is taken.
        let set = |mib| TensorflowMemory { reserve: Some(Bytes::mib(mib)), ..half };
        assert_eq!([set(40_000).limit(), set(40_019).limit()], [Bytes::mib(18), Bytes::mib(20_268)]);
        assert_eq!(card(2_000, 200, 6).limit(), Bytes::mib(200));
    }

    #[test]
    fn other_makers_cards_have_reserves_of_their_own() {
        let reserve = |mib, id: &str| {
            let device = crate::devices::find(id).unwrap();
            system_reserve(Bytes::mib(mib), Chip::of(device))
        };
        assert_eq!(reserve(196_000, "mi300x"), Bytes::mib(1024 + 500));
        assert_eq!(reserve(24_000, "rx-7900-xtx"), Bytes::mib(512 + 500));
        assert_eq!(reserve(16_000, "rx-9070-xt"), Bytes::mib(500));
        assert_eq!(reserve(20_000, "apple-m1-8gb"), Bytes::mib(1200));
        assert_eq!(reserve(4_000, "apple-m1-8gb"), Bytes::mib(300));
        assert_eq!(reserve(1_500, "apple-m1-8gb"), Bytes::mib(255));
    }
}
