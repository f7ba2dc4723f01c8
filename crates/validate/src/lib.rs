//! Real training steps beside what memfit predicts for them.
//!
//! The engine writes a model as the list of Burn's functions that a step calls; with its features this crate runs that list on a
//! device and reads its memory. Without them it holds no device code: programs for the frameworks themselves ([`python`]), which
//! the host's own Python runs, and the records that runs leave behind ([`record`]). It is never a dependency of the crates that predict.

#[cfg(feature = "cpu")]
pub mod backends;
pub mod calibrate;
#[cfg(feature = "cpu")]
mod counting;
#[cfg(feature = "cuda")]
mod cuda;
pub mod driver;
pub mod framework;
pub mod key;
#[cfg(feature = "cpu")]
pub mod measure;
pub mod measurement;
#[cfg(feature = "cuda")]
mod nvml;
#[cfg(feature = "cpu")]
pub mod ops;
#[cfg(any(feature = "wgpu", feature = "cuda"))]
mod pools;
#[cfg(feature = "cpu")]
mod probe;
pub mod python;
pub mod record;
pub mod search;
#[cfg(feature = "cpu")]
mod silence;
#[cfg(feature = "cpu")]
pub mod step;
pub mod text;
#[cfg(feature = "wgpu")]
mod wgpu;
