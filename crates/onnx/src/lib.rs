//! ONNX models as memfit graphs.
//!
//! ```text
//! stream ── wire, model: fields, seeking over weights ── slim: messages without payloads ── generated code
//!        ── builder, nodes, bodies, functions: names become tensors, calls become nodes ── Graph
//! ```
//!
//! Weights are never read: a file costs what its structure costs, however large it is. A file can be damaged or
//! hostile; the importer bounds what it may ask for and reports all problems it finds together.

mod attributes;
mod bodies;
mod builder;
mod frame;
mod functions;
mod import;
mod model;
mod nodes;
mod paths;
mod scope;
mod slim;
mod sniff;
mod tensor;
mod types;
mod wire;

use memfit_graph::{Graph, Imported, Problem};
use std::io::{self, Cursor, Read, Seek};
use std::ops::Range;

/// An imported model.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// Its graph, functions inlined.
    pub graph: Graph,
    /// What wrote the file, with its version: `pytorch 2.5.1`.
    pub producer: String,
    /// The version of the default operator set.
    pub opset: i64,
    /// The version of the file format.
    pub ir_version: i64,
    /// Nodes in the file, those of bodies and functions included.
    pub operators: u64,
    /// What is odd but does no harm.
    pub warnings: Vec<Problem>,
    /// The parts of the file that were read, ascending: with anything in the place of the rest it is the same model.
    pub structure: Vec<Range<u64>>,
}

impl From<Model> for Imported {
    fn from(model: Model) -> Imported {
        let Model { graph, producer, opset, operators, warnings, structure, .. } = model;
        let opset = Some(opset);
        Imported { format: "onnx", graph, producer, opset, operators, compiled: None, warnings, structure }
    }
}

/// How many bytes tell what a file is.
const HEAD: u64 = 1024;

/// The first bytes of a file, which tell its format; it is read from its beginning afterwards.
///
/// # Errors
/// Where the file cannot be read.
pub fn head(reader: &mut (impl Read + Seek)) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    reader.rewind()?;
    reader.by_ref().take(HEAD).read_to_end(&mut head)?;
    reader.rewind()?;
    Ok(head)
}

/// Why what begins like this is no model, told before the rest of a stream is read. A model begins with the key of one of `ModelProto`'s
/// fields (onnx/onnx.proto).
pub fn refusal(head: &[u8]) -> Option<Problem> {
    let is_key = match head {
        // Training, functions and the configuration have keys of two bytes.
        [0xa2 | 0xca | 0xd2, 0x01, ..] => true,
        [first, ..] => [0x08, 0x12, 0x1a, 0x22, 0x28, 0x32, 0x3a, 0x42, 0x72].contains(first),
        [] => false,
    };
    let other = || Problem::new("file", "expected an ONNX model, found something else");
    sniffed(head).or_else(|| (!is_key).then(other))
}

/// What else it is that begins like this, where that is known.
fn sniffed(head: &[u8]) -> Option<Problem> {
    let (what, hint) = sniff::not_a_model(head)?;
    Some(Problem::new("file", format!("expected an ONNX model, found {what}")).hint(hint))
}

/// Imports a model from memory.
///
/// # Errors
/// All problems of the file.
pub fn import(bytes: &[u8]) -> Result<Model, Vec<Problem>> {
    import_from(Cursor::new(bytes))
}

/// Imports a model from a stream, reading its structure and seeking over its weights.
///
/// # Errors
/// All problems of the file.
pub fn import_from<R: Read + Seek>(mut reader: R) -> Result<Model, Vec<Problem>> {
    let mut source = wire::Source::new(&mut reader).map_err(|fault| vec![fault.problem()])?;
    let head = source.take(source.len().min(HEAD)).map_err(|fault| vec![fault.problem()])?;
    if let Some(problem) = sniffed(&head) {
        return Err(vec![problem]);
    }
    source.go(0).map_err(|fault| vec![fault.problem()])?;
    source.forget();
    let model = model::import(&mut source)?;
    Ok(Model { structure: source.read(), ..model })
}
