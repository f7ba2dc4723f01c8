//! Real training steps beside what memfit predicts for them.
//!
//! The engine writes a model as the list of Burn's functions that a step calls; this crate runs that list on a device and reads
//! its memory. It is never a dependency of the crates that predict. Without features it holds no device code.

#[cfg(feature = "cpu")]
pub mod backends;
#[cfg(feature = "cpu")]
mod counting;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "cpu")]
pub mod measure;
pub mod measurement;
#[cfg(feature = "cpu")]
pub mod ops;
#[cfg(any(feature = "wgpu", feature = "cuda"))]
mod pools;
#[cfg(feature = "cpu")]
mod probe;
pub mod search;
#[cfg(feature = "cpu")]
pub mod step;
#[cfg(feature = "wgpu")]
mod wgpu;
