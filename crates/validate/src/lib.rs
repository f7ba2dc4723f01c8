//! Real training steps beside what memfit predicts for them.
//!
//! The engine writes a model as the list of Burn's functions that a step calls; this crate runs that list on a device and reads
//! its memory. It is never a dependency of the crates that predict.

#[cfg(feature = "cpu")]
pub mod ops;
#[cfg(feature = "cpu")]
mod probe;
#[cfg(feature = "cpu")]
pub mod step;
