//! Steps on an NVIDIA card. The driver and NVRTC are loaded when they are asked for; what is missing is said before anything runs.

use crate::measure::{Run, measure};
use crate::measurement::Measurement;
use crate::pools::Pools;
use burn_cuda::{Cuda, CudaDevice};
use cubecl::Runtime;
use cubecl::cuda::CudaRuntime;
use memfit_engine::allocators::CubeclConfig;
use memfit_graph::Bytes;

type Own = Cuda<f32, i32>;

/// The oldest CUDA driver interface that NVRTC 12 kernels load on.
const OLDEST: i32 = 12_000;

/// Why steps cannot run here.
///
/// # Errors
/// In words that say what is missing: the driver, NVRTC, a device, or a driver that is new enough.
pub(crate) fn available() -> Result<(), String> {
    use cudarc::{driver::result, nvrtc};
    // SAFETY: both only look whether a library can be loaded.
    #[allow(unsafe_code)]
    let (driver, compiler) =
        unsafe { (cudarc::driver::sys::is_culib_present(), nvrtc::sys::is_culib_present()) };
    if !driver {
        return Err("the NVIDIA driver is not installed (libcuda was not found)".into());
    }
    result::init().map_err(|e| format!("the NVIDIA driver does not start: {e:?}"))?;
    let mut version = 0;
    // SAFETY: writes one integer, and the library is there.
    #[allow(unsafe_code)]
    unsafe { cudarc::driver::sys::cuDriverGetVersion(&mut version) }
        .result()
        .map_err(|e| format!("the driver does not say its version: {e:?}"))?;
    if version < OLDEST {
        return Err(format!(
            "the driver is too old: CUDA {}.{}, 12.0 is needed",
            version / 1000,
            version % 1000 / 10
        ));
    }
    if result::device::get_count().unwrap_or(0) < 1 {
        return Err("the driver shows no device".into());
    }
    if !compiler {
        return Err("NVRTC is not installed (libnvrtc was not found): it comes with the CUDA toolkit".into());
    }
    Ok(())
}

pub(crate) fn config() -> Option<CubeclConfig> {
    std::panic::catch_unwind(|| crate::pools::config(&CudaRuntime::client(&CudaDevice::default()))).ok()
}

pub(crate) fn run(run: Run<'_>, progress: &mut dyn FnMut(u32, Bytes)) -> Measurement {
    let device = CudaDevice::default();
    let client = CudaRuntime::client(&device);
    let mut m = measure::<Own>(run, device.clone(), Pools(client), progress);
    m.device = format!("{device:?}");
    m
}
