//! Steps on wgpu: Vulkan, Metal or DirectX 12, and Mesa's lavapipe, which is a Vulkan device without a card.

use crate::measure::{Run, measure};
use crate::measurement::Measurement;
use crate::pools::Pools;
use crate::record::Ended;
use burn_backend::Backend;
use burn_wgpu::{Wgpu, WgpuDevice, WgpuRuntime};
use cubecl::Runtime;
use memfit_engine::allocators::CubeclConfig;
use memfit_graph::Bytes;

type Own = Wgpu<f32, i32, u32>;

pub(crate) fn config() -> Option<CubeclConfig> {
    let device = WgpuDevice::default();
    std::panic::catch_unwind(|| crate::pools::config(&WgpuRuntime::client(&device))).ok()
}

pub(crate) fn run(run: Run<'_>, progress: &mut dyn FnMut(u32, Bytes)) -> Measurement {
    let device = WgpuDevice::default();
    let client = match std::panic::catch_unwind(|| WgpuRuntime::client(&device)) {
        Ok(client) => client,
        Err(_) => {
            let ended = Ended::new("failed", "no Vulkan, Metal or DirectX 12 device was found");
            return Measurement { ended: Some(ended), ..Measurement::default() };
        }
    };
    measure::<Own>(run, device, Pools { client, device: None }, progress)
}

/// The adapter as its driver calls it: two adapters of one host differ by it.
pub(crate) fn device() -> String {
    let asked = std::panic::catch_unwind(|| {
        let device = WgpuDevice::default();
        let _ = WgpuRuntime::client(&device);
        Own::name(&device)
    });
    asked.unwrap_or_else(|_| "no device".into())
}
