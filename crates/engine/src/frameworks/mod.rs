//! One folder per framework profile: the rules by which it runs, keeps and frees.

#[cfg(feature = "burn")]
pub mod burn;
pub(crate) mod cudnn;
pub mod pytorch;
#[cfg(feature = "tensorflow")]
pub mod tensorflow;
