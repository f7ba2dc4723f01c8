//! Files made to measure: transformers of any length and a file of 2 GiB that takes no room on the disk as ONNX, stacks of dense
//! layers as Keras' JSON.
//!
//! They are written field by field, without the importer's own code, so that what is measured reads what something
//! else wrote.

mod keras;
mod large;
mod model;
mod transformer;
mod wire;

pub use keras::dense;
pub use large::write_large;
pub use transformer::transformer;
