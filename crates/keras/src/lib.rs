//! Keras architectures as memfit graphs: `.keras` archives, `to_json()` text and HDF5 files of Keras 2 and 3.
//!
//! ```text
//! stream ── container: archive, hdf5 ── config as JSON ── model: functional, sequential ── reader, layers: one struct a layer
//!        ── builder: calls become nodes, variables become initializers ── Graph
//! ```
//!
//! Only the config is read, whatever the weights weigh. A layer call is one node; its operator is a [`LayerCall`], which keeps
//! everything that the composition of the layer depends on. A file can be damaged or hostile; the importer bounds what it may
//! ask for and reports all problems it finds together.

pub mod activation;
pub mod arguments;
pub mod layers;
pub mod operations;
pub mod options;
pub mod policy;

mod archive;
mod builder;
mod cell;
mod compiled;
mod config;
mod container;
mod functional;
mod functions;
mod hdf5;
mod import;
mod layer;
mod mask;
mod model;
mod nodes;
mod object;
mod reader;
mod recorded;
mod run;
mod sequential;
mod spatial;
mod spec;
mod table;
pub mod torch;

pub use cell::Cell;
pub use container::is_keras;
pub use layer::{Call, Configured, Facts, Keras, Layer, LayerCall, Weight};
pub use options::{Custom, Options};
pub use run::Run;
pub use spatial::{DataFormat, Padding, PerAxis, Window};
pub use spec::Spec;
pub use table::layer_table;

pub(crate) use recorded::Recorded;

use memfit_graph::{Compiled, Graph, Imported, Problem, Shape, TensorId};
use std::io::{Cursor, Read, Seek};

/// An imported model.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// Its graph: one node for each layer call.
    pub graph: Graph,
    /// What wrote the file: `keras 3.5.0`.
    pub producer: String,
    /// The major version of Keras, which decides how layers are composed.
    pub keras: Option<Keras>,
    /// One entry for each layer, nested ones included, in the order in which they run.
    pub layers: Vec<LayerSummary>,
    /// Layers that are not Keras' own and whose parameters nobody gave, as `path (class)`: the model has more than is counted.
    pub custom: Vec<String>,
    /// What it was compiled with, where it was.
    pub compiled: Option<Compiled>,
    /// What is odd but does no harm.
    pub warnings: Vec<Problem>,
}

impl From<Model> for Imported {
    fn from(model: Model) -> Imported {
        let Model { graph, producer, compiled, warnings, .. } = model;
        let operators = graph.nodes.len() as u64;
        Imported { format: "keras", graph, producer, operators, compiled, warnings, ..Imported::default() }
    }
}

/// What `model.summary()` shows of a layer.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerSummary {
    /// Its name below those of the models around it: `encoder/conv2d`.
    pub path: String,
    /// Its class.
    pub class: String,
    /// The shapes of its outputs in its first call.
    pub outputs: Vec<Shape>,
    /// Its variables.
    pub weights: Vec<TensorId>,
}

/// Imports a model from memory.
///
/// # Errors
/// All problems of the file.
pub fn import(bytes: &[u8], options: &Options) -> Result<Model, Vec<Problem>> {
    import_from(Cursor::new(bytes), options)
}

/// The config of a model by itself, with the version of Keras in it: as JSON it gives the same model as the file does.
///
/// # Errors
/// What is wrong with the file.
pub fn config_of<R: Read + Seek>(mut reader: R) -> Result<Vec<u8>, Problem> {
    import::with_version(container::config(&mut reader)?)
}

/// Imports a model from a stream, reading its config alone.
///
/// # Errors
/// All problems of the file.
pub fn import_from<R: Read + Seek>(mut reader: R, options: &Options) -> Result<Model, Vec<Problem>> {
    let text = container::config(&mut reader).map_err(|problem| vec![problem])?;
    import::import(&text, options)
}
