//! Steps on an NVIDIA card. The driver and NVRTC are loaded when they are asked for; what is missing is said before anything runs.

use crate::measure::{Run, measure};
use crate::measurement::Measurement;
use crate::ops::float;
use crate::pools::Pools;
use crate::record::Ended;
use crate::silence::{Elsewhere, Silence};
use burn_backend::Backend;
use burn_cuda::{Cuda, CudaDevice};
use cubecl::Runtime;
use cubecl::client::ComputeClient;
use cubecl::cuda::CudaRuntime;
use cudarc::driver::result;
use memfit_engine::allocators::CubeclConfig;
use memfit_engine::frameworks::burn::{Float, Kind};
use memfit_graph::Bytes;

type Own = Cuda<f32, i32>;

/// The oldest CUDA driver interface that NVRTC 12 kernels load on.
const OLDEST: i32 = 12_000;

/// Why steps cannot run here.
///
/// # Errors
/// In words that say what is missing: the driver, NVRTC, a device, or a driver that is new enough.
pub(crate) fn available() -> Result<(), String> {
    use cudarc::nvrtc;
    // SAFETY: both only look whether a library can be loaded.
    #[allow(unsafe_code)]
    let (driver, compiler) =
        unsafe { (cudarc::driver::sys::is_culib_present(), nvrtc::sys::is_culib_present()) };
    if !driver {
        return Err("the NVIDIA driver is not installed (libcuda was not found)".into());
    }
    result::init().map_err(|e| explain(&e))?;
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
    if cubecl::cuda::install::cuda_path().is_none() {
        return Err("the CUDA toolkit's headers were not found: CUDA_PATH says where it is".into());
    }
    context().map_err(|e| explain(&e))
}

pub(crate) fn config() -> Option<CubeclConfig> {
    client().map(|client| crate::pools::config(&client))
}

/// cubecl's client; none where its thread could not make one, which is said by a panic there.
fn client() -> Option<ComputeClient<CudaRuntime>> {
    let _silence = Silence::new(Elsewhere::default());
    std::panic::catch_unwind(|| CudaRuntime::client(&CudaDevice::default())).ok()
}

/// Whether cubecl has kernels of a precision for the card; none where it could not be asked.
pub(crate) fn computes(of: Float) -> Option<bool> {
    client()?;
    let dtype = float(Kind::Float(of)).ok()?;
    Some(Own::supports_dtype(&CudaDevice::default(), dtype.into()))
}

pub(crate) fn run(run: Run<'_>, progress: &mut dyn FnMut(u32, Bytes)) -> Measurement {
    let device = CudaDevice::default();
    // The context first, so that what it takes shows apart from the first kernel.
    let _ = memory();
    let Some(client) = client() else {
        let ended = Ended::new("failed", "the device is busy, or has no memory left for a context");
        return Measurement { ended: Some(ended), ..Measurement::default() };
    };
    let used = || memory().map(|(free, total)| total.saturating_sub(free));
    measure::<Own>(run, device, Pools::new(client, Some(used)), progress)
}

/// The card as its driver calls it.
pub(crate) fn device() -> String {
    let name = || {
        let device = result::device::get(0).ok()?;
        result::device::get_name(device).ok()
    };
    name().unwrap_or_else(|| "a card without a name".into())
}

/// Makes the primary context of the first device, which steps use too, and this thread's.
fn context() -> Result<(), result::DriverError> {
    let device = result::device::get(0)?;
    // SAFETY: the primary context is retained and never released, so it outlives every use.
    #[allow(unsafe_code)]
    unsafe {
        let context = result::primary_ctx::retain(device)?;
        result::ctx::set_current(context)
    }
}

/// What is free on the card and its total, as `cuMemGetInfo` says it.
pub(crate) fn memory() -> Option<(Bytes, Bytes)> {
    context().ok()?;
    let (free, total) = result::mem_get_info().ok()?;
    Some((Bytes(free as u64), Bytes(total as u64)))
}

/// What a driver's answer means before anything runs.
fn explain(error: &result::DriverError) -> String {
    use cudarc::driver::sys::CUresult as Code;
    match error.0 {
        Code::CUDA_ERROR_NO_DEVICE => "the driver shows no device".into(),
        Code::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH => {
            "the kernel's driver and its library are of different versions: reboot, or reload the module"
                .into()
        }
        Code::CUDA_ERROR_UNSUPPORTED_PTX_VERSION | Code::CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE => {
            "the driver is too old for its device or library".into()
        }
        Code::CUDA_ERROR_STUB_LIBRARY => {
            "the toolkit's stub was found where the driver's library should be".into()
        }
        Code::CUDA_ERROR_DEVICE_UNAVAILABLE => {
            "the device is in use by another process that has it alone".into()
        }
        Code::CUDA_ERROR_OUT_OF_MEMORY => "the device has no memory left for a context".into(),
        code => format!("the driver says {code:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys::CUresult as Code;

    #[test]
    fn a_driver_that_refuses_is_understood() {
        let said = |code| explain(&result::DriverError(code));
        assert!(said(Code::CUDA_ERROR_NO_DEVICE).contains("no device"));
        assert!(said(Code::CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE).contains("too old"));
        assert!(said(Code::CUDA_ERROR_STUB_LIBRARY).contains("stub"));
        assert!(said(Code::CUDA_ERROR_OUT_OF_MEMORY).contains("no memory left"));
        assert!(said(Code::CUDA_ERROR_DEVICE_UNAVAILABLE).contains("another process"));
        assert!(said(Code::CUDA_ERROR_ECC_UNCORRECTABLE).contains("ECC"));
    }

    #[test]
    fn a_host_without_a_driver_says_so() {
        // SAFETY: only looks whether a library can be loaded.
        #[allow(unsafe_code)]
        let present = unsafe { cudarc::driver::sys::is_culib_present() };
        if !present {
            assert_eq!(
                available().unwrap_err(),
                "the NVIDIA driver is not installed (libcuda was not found)"
            );
        }
    }
}
