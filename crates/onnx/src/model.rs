//! The outer messages: `ModelProto` and its graph, read field by field from the stream.
//!
//! Operator versions and functions come after the graph in a file, and its nodes need them; so a first pass takes
//! everything else and only notes where the graph lies.

use crate::Model;
use crate::builder::Builder;
use crate::frame::Frame;
use crate::import::{Import, Opsets, add_opset};
use crate::slim::{self, Kind};
use crate::wire::{Content, Fault, Source};
use crate::{bodies, functions, nodes, tensor};
use memfit_graph::{Problem, ops};
use onnx_protobuf::{
    FunctionProto, NodeProto, OperatorSetIdProto, SparseTensorProto, TensorProto, ValueInfoProto,
};
use protobuf::Message;

/// Operators are read as this version or a later one defines them; broadcasting and batch norms were others before.
const OLDEST: i64 = 7;

/// The parts of a `ModelProto`, its graphs not read yet.
#[derive(Default)]
struct Outline {
    ir_version: i64,
    producer: [String; 2],
    opsets: Opsets,
    graphs: Vec<(u64, u64)>,
    has_training: bool,
}

/// Reads a whole model.
pub(crate) fn import(source: &mut Source<'_>) -> Result<Model, Vec<Problem>> {
    let mut cx = Import::default();
    match read(source, &mut cx) {
        Ok(model) if !cx.has_problems() => Ok(Model { warnings: cx.warnings, ..model }),
        Ok(_) => Err(cx.into_problems()),
        Err(fault) => {
            cx.problem(fault.problem());
            Err(cx.into_problems())
        }
    }
}

fn read(source: &mut Source<'_>, cx: &mut Import) -> Result<Model, Fault> {
    let mut operators = 0;
    let outline = outline(source, cx, &mut operators)?;
    if outline.graphs.is_empty() {
        let message = format!("expected a graph, found none in its {} bytes", source.len());
        cx.problem(
            Problem::new("model", message).hint("the file may be cut off, or it is not an ONNX model"),
        );
        return Ok(Model::default());
    }
    if outline.opsets.is_empty() && outline.ir_version >= 3 {
        let message = "expected the versions of its operators (opset_import), found none";
        cx.problem(Problem::new("model", message).hint("the file may be cut off; export it again"));
    }
    warn(&outline, cx);
    cx.opsets.clone_from(&outline.opsets);
    let mut builder = Builder::root();
    let mut frame = Frame::root(&outline.opsets);
    for (start, len) in &outline.graphs {
        source.go(*start)?;
        graph(source, *len, &mut builder, &mut frame, cx, &mut operators)?;
    }
    let (graph, _) = builder.finish(cx);
    let [name, version] = &outline.producer;
    Ok(Model {
        graph,
        producer: format!("{name} {version}").trim().to_owned(),
        opset: outline.opsets.get("").copied().unwrap_or(1),
        ir_version: outline.ir_version,
        operators,
        warnings: Vec::new(),
        structure: Vec::new(),
    })
}

/// Warns of versions that memfit does not know, and of parts that it leaves out.
fn warn(outline: &Outline, cx: &mut Import) {
    let mut warn = |message: String, hint: &str| {
        cx.warnings.push(Problem::new("model", message).hint(hint));
    };
    let version = outline.opsets.get("").copied();
    let newest = ops::all().filter(|op| op.domain.is_empty()).flat_map(|op| op.since).max().copied();
    if let Some((version, newest)) = version.zip(newest).filter(|(version, newest)| version > newest) {
        let message = format!("it uses operators of version {version}, memfit knows them up to {newest}");
        warn(message, "what changed since is not known");
    }
    if let Some(version) = version.filter(|v| *v < OLDEST) {
        let message =
            format!("it uses operators of version {version}; before {OLDEST} some meant something else");
        warn(message, "convert it with onnx.version_converter");
    }
    if outline.has_training {
        warn(
            "its own training steps are left out".into(),
            "memfit takes the training step from the framework",
        );
    }
}

fn outline(source: &mut Source<'_>, cx: &mut Import, operators: &mut u64) -> Result<Outline, Fault> {
    let mut outline = Outline::default();
    let end = source.len();
    while let Some(field) = source.field(end)? {
        match (field.number, field.content) {
            (1, Content::Varint(n)) => outline.ir_version = n as i64,
            (2 | 3, Content::Bytes(n)) if n <= 4096 => {
                let text = String::from_utf8_lossy(&source.take(n)?).into_owned();
                outline.producer[field.number as usize - 2] = text;
            }
            (7, Content::Bytes(n)) => {
                outline.graphs.push((source.at(), n));
                source.go(source.at() + n)?;
            }
            (8, Content::Bytes(n)) if n <= 4096 => {
                let at = source.at();
                let import: OperatorSetIdProto = parse(at, &source.take(n)?)?;
                add_opset(&mut outline.opsets, &import);
            }
            (20, Content::Bytes(n)) => {
                outline.has_training = true;
                source.go(source.at() + n)?;
            }
            (25, Content::Bytes(n)) => {
                let function: FunctionProto = message(source, Kind::Function, n)?;
                *operators += function.node.iter().map(bodies::count).sum::<u64>();
                functions::define(function, cx);
            }
            (_, Content::Bytes(n)) => source.go(source.at() + n)?,
            _ => {}
        }
    }
    Ok(outline)
}

fn graph(
    source: &mut Source<'_>,
    len: u64,
    builder: &mut Builder,
    frame: &mut Frame<'_>,
    cx: &mut Import,
    operators: &mut u64,
) -> Result<(), Fault> {
    let end = source.at() + len;
    while let Some(field) = source.field(end)? {
        let Content::Bytes(n) = field.content else { continue };
        if cx.stopped() {
            return Ok(());
        }
        let at = source.at();
        match field.number {
            1 => {
                let node: NodeProto = message(source, Kind::Node, n)?;
                *operators += bodies::count(&node);
                nodes::add(builder, frame, &node, cx);
            }
            2 => builder.graph.name = String::from_utf8_lossy(&source.take(n)?).into_owned(),
            5 => {
                let proto: TensorProto = message(source, Kind::Tensor, n)?;
                add_initializer(builder, &proto, cx);
            }
            15 => {
                let proto: SparseTensorProto = message(source, Kind::Sparse, n)?;
                add_sparse_initializer(builder, &proto, cx);
            }
            11 => builder.input(&parse::<ValueInfoProto>(at, &source.take(n)?)?, cx),
            12 => builder.output(&parse::<ValueInfoProto>(at, &source.take(n)?)?, cx),
            13 => builder.value_info(parse(at, &source.take(n)?)?, cx),
            _ => source.go(at + n)?,
        }
    }
    Ok(())
}

/// Adds a stored tensor to a graph.
pub(crate) fn add_initializer(builder: &mut Builder, proto: &TensorProto, cx: &mut Import) {
    let mut problems = Vec::new();
    let stored = tensor::read(&proto.name, proto, &mut problems);
    cx.problems(problems);
    match stored {
        Some(stored) => builder.initializer(&proto.name, stored, false, cx),
        None => builder.damaged(&proto.name),
    }
}

/// Adds a stored sparse tensor, whose name is that of its values.
pub(crate) fn add_sparse_initializer(builder: &mut Builder, proto: &SparseTensorProto, cx: &mut Import) {
    let name = proto.values.as_ref().map_or("", |v| v.name.as_str());
    let mut problems = Vec::new();
    let stored = tensor::read_sparse(name, proto, &mut problems);
    cx.problems(problems);
    match stored {
        Some(stored) => builder.initializer(name, stored, true, cx),
        None => builder.damaged(name),
    }
}

fn message<M: Message>(source: &mut Source<'_>, kind: Kind, len: u64) -> Result<M, Fault> {
    let at = source.at();
    parse(at, &slim::read(source, kind, len)?)
}

fn parse<M: Message>(at: u64, bytes: &[u8]) -> Result<M, Fault> {
    M::parse_from_bytes(bytes).map_err(|error| Fault::Malformed { at, what: format!("damage ({error})") })
}
