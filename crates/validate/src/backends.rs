//! The devices that steps run on.

use crate::counting;
use crate::measure::{Meter, Run, measure};
use crate::measurement::{Measurement, Usage};
use burn_ndarray::{NdArray, NdArrayDevice};
use memfit_engine::allocators::CubeclConfig;
use memfit_engine::frameworks::burn::{Backend as Layout, Float};
use memfit_graph::Bytes;

/// Who runs the steps, as a record names it.
pub const FRAMEWORK: &str = "burn 0.21.0, cubecl 0.10.0";

/// A device's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// The processor.
    Cpu,
    /// Vulkan, Metal or DirectX 12.
    Wgpu,
    /// An NVIDIA card.
    Cuda,
}

impl Backend {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Backend::Cpu => "cpu",
            Backend::Wgpu => "wgpu",
            Backend::Cuda => "cuda",
        }
    }

    /// What it makes of kinds and offsets, which its pools align. The processor is predicted as the others are, without their rounding.
    pub fn layout(self, pools: Option<&CubeclConfig>) -> Layout {
        let layout = match self {
            Backend::Cpu => Layout::PROCESSOR,
            Backend::Wgpu => Layout::WGPU,
            Backend::Cuda => Layout::CUDA,
        };
        Layout { alignment: pools.map_or(layout.alignment, |pools| pools.alignment), ..layout }
    }

    /// Why it cannot be used here, in words that say what is missing.
    ///
    /// # Errors
    /// Where this program was built without it, or the host lacks it.
    pub fn available(self) -> Result<(), String> {
        match self {
            Backend::Cpu => Ok(()),
            #[cfg(feature = "wgpu")]
            Backend::Wgpu => Ok(()),
            #[cfg(feature = "cuda")]
            Backend::Cuda => crate::cuda::available(),
            #[allow(unreachable_patterns)]
            other => Err(format!(
                "this memfit was built without it: cargo install memfit --features {}",
                other.name()
            )),
        }
    }
}

/// Whether a backend has kernels of a precision here; one whose device is not found says that when it is used.
///
/// # Errors
/// In words that say what is missing.
pub fn computes(backend: Backend, float: Float) -> Result<(), String> {
    let has = match backend {
        Backend::Cpu => Some(float == Float::F32),
        #[cfg(feature = "wgpu")]
        Backend::Wgpu => crate::wgpu::computes(float),
        #[cfg(feature = "cuda")]
        Backend::Cuda => crate::cuda::computes(float),
        #[allow(unreachable_patterns)]
        _ => None,
    };
    match has {
        Some(false) => Err(match (backend, float) {
            (Backend::Cpu, _) => format!("Burn's processor backend has no {}", float.name()),
            (Backend::Wgpu, Float::Bf16) => {
                "the language of Burn's kernels here, WGSL, has no bfloat16".into()
            }
            _ => format!("{} has no {} in kernels", device(backend), float.name()),
        }),
        _ => Ok(()),
    }
}

struct Processor;

impl Meter for Processor {
    fn usage(&mut self) -> Usage {
        let (now, highest) = counting::take();
        Usage { in_use: highest, reserved: now }
    }
}

/// What a backend's pools follow from on this host; none where it has no pools.
pub fn pools(backend: Backend) -> Option<CubeclConfig> {
    match backend {
        Backend::Cpu => None,
        #[cfg(feature = "wgpu")]
        Backend::Wgpu => crate::wgpu::config(),
        #[cfg(feature = "cuda")]
        Backend::Cuda => crate::cuda::config(),
        #[allow(unreachable_patterns)]
        _ => None,
    }
}

/// The device as its driver calls it.
pub fn device(backend: Backend) -> String {
    match backend {
        Backend::Cpu => format!("{} {}", std::env::consts::ARCH, std::env::consts::OS),
        #[cfg(feature = "wgpu")]
        Backend::Wgpu => crate::wgpu::device(),
        #[cfg(feature = "cuda")]
        Backend::Cuda => crate::cuda::device(),
        #[allow(unreachable_patterns)]
        _ => String::new(),
    }
}

/// What is free of the device's memory once it has a context; none where nobody says it.
pub fn free(backend: Backend) -> Option<Bytes> {
    match backend {
        #[cfg(feature = "cuda")]
        Backend::Cuda => crate::cuda::memory().map(|(free, _)| free),
        _ => None,
    }
}

/// Runs steps; the measurement carries what was said where they failed.
pub fn run(backend: Backend, run: Run<'_>, progress: &mut dyn FnMut(u32, Bytes)) -> Measurement {
    let mut m = match backend {
        Backend::Cpu => {
            let mut m = measure::<NdArray<f32>>(run, NdArrayDevice::Cpu, Processor, progress);
            // Nothing pools here.
            m.reserved = Bytes::ZERO;
            m
        }
        #[cfg(feature = "wgpu")]
        Backend::Wgpu => crate::wgpu::run(run, progress),
        #[cfg(feature = "cuda")]
        Backend::Cuda => crate::cuda::run(run, progress),
        #[allow(unreachable_patterns)]
        _ => Measurement::default(),
    };
    m.backend = backend.name().into();
    m.device = device(backend);
    m
}
