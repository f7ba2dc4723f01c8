//! Steps on wgpu: Vulkan, Metal or DirectX 12, and Mesa's lavapipe, which is a Vulkan device without a card.

use crate::measure::{Run, measure};
use crate::measurement::{Ended, Measurement};
use crate::pools::Pools;
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
            let message = "no Vulkan, Metal or DirectX 12 device was found".to_owned();
            let ended = Ended { kind: "failed", layer: String::new(), function: String::new(), message };
            return Measurement { ended: Some(ended), ..Measurement::default() };
        }
    };
    let mut m = measure::<Own>(run, device.clone(), Pools(client), progress);
    m.device = format!("{} {device:?}", Own::name(&device));
    m
}
