//! The typed model graph that every other part of memfit stands on.
//!
//! A model file becomes one [`Graph`]: tensors (dtype, symbolic dims, role), operators (one struct each, one file
//! each under [`ops`]) and the module path that the user knows a layer by. [`infer`] gives every tensor a type;
//! an operator then says, as plain data, what a framework allocates, views and keeps when it runs: ATen calls for PyTorch
//! ([`Lowering`]), kernels of a dataflow graph for TensorFlow ([`kernels`]).
//!
//! Nothing here does IO, reads a clock or keeps global state, and nothing depends on a GPU crate.

mod attributes;
mod binding;
mod bytes;
mod call;
mod context;
mod dim;
mod dtype;
mod error;
mod generated;
mod graph;
mod imported;
mod infer;
mod inline;
pub mod kernels;
mod lowering;
mod names;
mod op;
pub mod ops;
pub mod order;
mod resized;
mod shape;
mod types;
mod unroll;
mod value;

pub use attributes::{Attribute, Attributes, TensorAttribute};
pub use binding::{Binding, batch_symbol};
pub use bytes::{Bytes, elements, times};
pub use call::{Autocast, Call, Dims, Grad, Operand, OutDtype, Output, Place, Saved, View};
pub use context::{Infer, Step};
pub use dim::Dim;
pub use dtype::DType;
pub use error::{OpError, Problem};
pub use graph::{Graph, Node, NodeId, Penalty, Role, Tensor, TensorId, Variable};
pub use imported::{Compiled, Imported};
pub use infer::{Inferred, infer};
pub use lowering::{Lowering, OutState, TensorState};
pub use names::is_exporter_name;
pub use op::{Build, Op, OpSpec, UnknownOp, find_op};
pub use shape::Shape;
pub use types::{TensorType, Type};
pub use value::{Num, Value};
