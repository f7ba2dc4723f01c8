//! Steps on wgpu: Vulkan, Metal or DirectX 12, and Mesa's lavapipe, which is a Vulkan device without a card.

use crate::measure::{Run, measure};
use crate::measurement::Measurement;
use crate::ops::float;
use crate::pools::Pools;
use crate::record::Ended;
use burn_backend::Backend;
use burn_wgpu::graphics::AutoGraphicsApi;
use burn_wgpu::{RuntimeOptions, Wgpu, WgpuDevice, WgpuRuntime, init_setup};
use cubecl::Runtime;
use memfit_engine::allocators::CubeclConfig;
use memfit_engine::frameworks::burn::{Float, Kind};
use memfit_graph::Bytes;
use std::sync::OnceLock;

type Own = Wgpu<f32, i32, u32>;

/// The adapter as its driver calls it; none where there is no device. It can be asked for only while Burn is set up, so this
/// comes before all else that is done on the device.
fn adapter() -> Option<&'static str> {
    static NAME: OnceLock<Option<String>> = OnceLock::new();
    let set_up = || {
        let setup = init_setup::<AutoGraphicsApi>(&WgpuDevice::default(), RuntimeOptions::default());
        setup.adapter.get_info().name
    };
    NAME.get_or_init(|| std::panic::catch_unwind(set_up).ok()).as_deref()
}

pub(crate) fn config() -> Option<CubeclConfig> {
    adapter()?;
    Some(crate::pools::config(&WgpuRuntime::client(&WgpuDevice::default())))
}

/// Whether there are kernels of a precision: of float16 where the driver has it in shaders and in buffers. None without a device.
pub(crate) fn computes(of: Float) -> Option<bool> {
    adapter()?;
    let dtype = float(Kind::Float(of)).ok()?;
    Some(Own::supports_dtype(&WgpuDevice::default(), dtype.into()))
}

pub(crate) fn run(run: Run<'_>, progress: &mut dyn FnMut(u32, Bytes)) -> Measurement {
    if adapter().is_none() {
        let ended = Ended::new("failed", "no Vulkan, Metal or DirectX 12 device was found");
        return Measurement { ended: Some(ended), ..Measurement::default() };
    }
    let device = WgpuDevice::default();
    let client = WgpuRuntime::client(&device);
    measure::<Own>(run, device, Pools::new(client, None), progress)
}

/// The adapter's name: two adapters of one host differ by it.
pub(crate) fn device() -> String {
    adapter().unwrap_or("no device").to_owned()
}
