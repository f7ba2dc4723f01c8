//! What all graphs of one import share: opsets, functions, problems and the limits on what a file may ask for.

use crate::Model;
use crate::builder::Builder;
use crate::frame::Frame;
use crate::functions::{self, Key};
use crate::slim::{self, Kind};
use crate::wire::{Content, Fault, Source};
use crate::{bodies, nodes, tensor};
use memfit_graph::{Problem, ops};
use onnx_protobuf::{
    FunctionProto, NodeProto, OperatorSetIdProto, SparseTensorProto, TensorProto, ValueInfoProto,
};
use protobuf::Message;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

/// Nodes of a model, bodies and inlined functions included: beyond any real one, and still a few seconds.
const MAX_NODES: u64 = 2_000_000;

/// How many repeated bytes weigh as much as a node.
const REPEATED_PER_NODE: u64 = 16;

/// Operators are read as this version or a later one defines them; broadcasting and batch norms were others before.
const OLDEST: i64 = 7;

/// Reading stops after this many problems.
const MAX_PROBLEMS: usize = 1000;

/// Versions of operator sets by domain; the default domain is `""`.
pub(crate) type Opsets = HashMap<String, i64>;

/// The state of one import.
#[derive(Default)]
pub(crate) struct Import {
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
    /// The model's own operator versions.
    pub(crate) opsets: Opsets,
    /// Domains without a version that were warned of.
    unversioned: BTreeSet<String>,
    pub(crate) functions: HashMap<Key, Rc<FunctionProto>>,
    /// The functions that are being inlined, outermost first.
    pub(crate) calls: Vec<Key>,
    nodes: u64,
    stopped: bool,
}

impl Import {
    /// Takes a problem; too many of them end the import.
    pub(crate) fn problem(&mut self, problem: Problem) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(problem);
        } else if !self.stopped {
            self.stopped = true;
            self.problems
                .push(Problem::new("model", "there are more problems than these; reading stopped here"));
        }
    }

    /// Warns of a domain whose version the file does not say, once.
    pub(crate) fn warn_of_domain(&mut self, domain: &str) {
        if self.unversioned.insert(domain.to_owned()) {
            let name = if domain.is_empty() { "ai.onnx" } else { domain };
            let message = format!("the file does not say the version of the operators of {name}");
            self.warnings.push(Problem::new("model", message).hint("the newest one is assumed"));
        }
    }

    /// Warns of versions that memfit does not know, and of parts that it leaves out.
    fn warn_of_outline(&mut self, outline: &Outline) {
        let mut warn = |message: String, hint: &str| {
            self.warnings.push(Problem::new("model", message).hint(hint));
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

    /// All problems so far.
    pub(crate) fn into_problems(self) -> Vec<Problem> {
        self.problems
    }

    /// Takes problems.
    pub(crate) fn problems(&mut self, problems: Vec<Problem>) {
        problems.into_iter().for_each(|p| self.problem(p));
    }

    /// Counts a node; `false` where there are too many and reading has to stop.
    pub(crate) fn count_node(&mut self) -> bool {
        self.nodes += 1;
        self.allows(0)
    }

    /// Counts bytes of the file that an inlined function repeats, in nodes: a small file can repeat a large constant or a
    /// long name as often as a node.
    pub(crate) fn count_repeated(&mut self, bytes: u64) {
        if !self.calls.is_empty() {
            self.nodes = self.nodes.saturating_add(bytes / REPEATED_PER_NODE);
            self.allows(0);
        }
    }

    /// Whether there may be so many more nodes; if not, reading stops with a problem.
    pub(crate) fn allows(&mut self, more: u64) -> bool {
        if self.nodes.saturating_add(more) > MAX_NODES && !self.stopped {
            let message = format!(
                "it has more than {MAX_NODES} nodes, or content of that size, once its functions are inlined"
            );
            self.problem(
                Problem::new("model", message).hint("functions that call functions multiply; simplify it"),
            );
            self.stopped = true;
        }
        !self.stopped
    }

    /// Whether reading has to stop.
    pub(crate) fn stopped(&self) -> bool {
        self.stopped
    }
}

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
pub(crate) fn model(source: &mut Source<'_>) -> Result<Model, Vec<Problem>> {
    let mut cx = Import::default();
    match read(source, &mut cx) {
        Ok(model) if cx.problems.is_empty() => Ok(Model { warnings: cx.warnings, ..model }),
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
    cx.warn_of_outline(&outline);
    cx.opsets.clone_from(&outline.opsets);
    let mut builder = Builder::default();
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
    })
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

/// Adds an `opset_import`.
pub(crate) fn add_opset(opsets: &mut Opsets, import: &OperatorSetIdProto) {
    let domain = if import.domain == "ai.onnx" { "" } else { import.domain.as_str() };
    opsets.insert(domain.to_owned(), import.version);
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
    if let Some(stored) = stored {
        builder.initializer(&proto.name, stored, false, cx);
    }
}

/// Adds a stored sparse tensor, whose name is that of its values.
pub(crate) fn add_sparse_initializer(builder: &mut Builder, proto: &SparseTensorProto, cx: &mut Import) {
    let name = proto.values.as_ref().map_or("", |v| v.name.as_str());
    let mut problems = Vec::new();
    let stored = tensor::read_sparse(name, proto, &mut problems);
    cx.problems(problems);
    if let Some(stored) = stored {
        builder.initializer(name, stored, true, cx);
    }
}

fn message<M: Message>(source: &mut Source<'_>, kind: Kind, len: u64) -> Result<M, Fault> {
    let at = source.at();
    parse(at, &slim::read(source, kind, len)?)
}

fn parse<M: Message>(at: u64, bytes: &[u8]) -> Result<M, Fault> {
    M::parse_from_bytes(bytes).map_err(|error| Fault::Malformed { at, what: format!("damage ({error})") })
}
