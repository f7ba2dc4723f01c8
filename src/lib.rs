//! memfit tells, before a GPU is rented, where the memory of one training step goes.
//!
//! This is a façade over the crates that do the work, for programs that use memfit as a library:
//!
//! | module | what |
//! |---|---|
//! | [`graph`] | tensors, operators, shape inference |
//! | [`onnx`] | `.onnx` files as graphs; weights are never read |
//! | [`keras`] | `.keras`, `.h5` and `.json` files of Keras 2 and 3 as graphs; the config alone is read |
//! | [`engine`] | a graph and a plan give a timeline of allocations and its peak |
//! | [`explain`] | the log of a run that died: why memory ran out |
//! | [`report`] | an estimate as text and JSON |
//!
//! None of them does IO beyond the reader they are given, and none has global state.

pub use memfit_engine as engine;
pub use memfit_explain as explain;
pub use memfit_graph as graph;
pub use memfit_keras as keras;
pub use memfit_onnx as onnx;
pub use memfit_report as report;
