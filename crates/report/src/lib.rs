//! What memfit found, written for people and for programs: one file per output format.
//!
//! A format takes plain data (an [`Estimate`](memfit_engine::Estimate), an [`Inspection`]) and gives a string. Nothing here
//! reads a file, asks a terminal or decides on colour: text carries ANSI styles, which the host strips where they are not
//! wanted. Tables re-add to their totals as shown, not only in exact bytes ([`amounts`]).

pub mod advise;
pub mod amounts;
pub mod compare;
pub mod csv;
pub mod diff;
pub mod fit;
mod fold;
pub mod gpus;
pub mod html;
pub mod inspect;
pub mod json;
mod life;
pub mod markdown;
pub mod netron;
mod provenance;
#[cfg(test)]
mod sample;
pub mod svg;
pub mod text;
mod words;

pub use fold::{Depth, Fold, Group, fold};
pub use inspect::Inspection;
pub use provenance::{Provenance, fingerprint, text_hash};
pub use words::{NOT_EXACT, NOT_KNOWN, PARTS, tight};
