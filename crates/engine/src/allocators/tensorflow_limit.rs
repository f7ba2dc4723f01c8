//! How much of a card TensorFlow lets its allocator take.
//!
//! Source: `tensorflow/core/common_runtime/gpu/gpu_device.cc` (`SingleVirtualDeviceMemoryLimit`, `MinSystemMemory`).
//! Releases before compute capability 9 was listed give 9 and later the value of 8.

use memfit_graph::Bytes;

/// What the memory limit follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorflowMemory {
    /// The card's total.
    pub total: Bytes,
    /// What is free once the context exists.
    pub free: Bytes,
    /// The major compute capability.
    pub compute_capability: u32,
    /// `per_process_gpu_memory_fraction` in thousandths. None: not set.
    pub fraction: Option<u32>,
    /// `TF_DEVICE_MIN_SYS_MEMORY_IN_MB`, in the place of [`system_reserve`].
    pub reserve: Option<Bytes>,
}

impl TensorflowMemory {
    /// `memory_limit` of the allocator.
    pub fn limit(&self) -> Bytes {
        match self.fraction {
            Some(thousandths) if thousandths > 0 => {
                let bytes = u128::from(self.total.0) * u128::from(thousandths) / 1000;
                Bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
            }
            _ => {
                let reserve =
                    self.reserve.unwrap_or_else(|| system_reserve(self.free, self.compute_capability));
                self.free.saturating_sub(reserve)
            }
        }
    }
}

/// What is left for the driver and libraries: 225 MiB of a card with less than 2 GiB free, else by compute capability.
pub fn system_reserve(free: Bytes, compute_capability: u32) -> Bytes {
    if free < Bytes(2 * Bytes::GIB) {
        return Bytes::mib(225);
    }
    Bytes::mib(match compute_capability {
        0..=6 => 500,
        7 => 1050,
        8 => 1536,
        _ => 1800,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_those_of_public_logs() {
        let card = |total, free, compute_capability| TensorflowMemory {
            total: Bytes::mib(total),
            free: Bytes::mib(free),
            compute_capability,
            fraction: None,
            reserve: None,
        };
        // A100 40 GB: 38,482 MiB in TensorFlow's log, that is 40,018 MiB free after the context.
        assert_eq!(card(40_536, 40_018, 8).limit(), Bytes::mib(38_482));
        assert_eq!(card(15_360, 14_900, 7).limit(), Bytes::mib(13_850));
        assert_eq!(card(2_000, 1_900, 6).limit(), Bytes::mib(1_675));
        let half = TensorflowMemory { fraction: Some(500), ..card(40_536, 40_018, 8) };
        assert_eq!(half.limit(), Bytes::mib(20_268));
    }
}
