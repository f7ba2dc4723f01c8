//! What all graphs of one import share: operator versions, functions, problems and the limits on what a file may ask for.

use crate::functions::Key;
use memfit_graph::Problem;
use onnx_protobuf::{FunctionProto, OperatorSetIdProto};
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

/// Nodes of a model, bodies and inlined functions included: beyond any real one, and still a few seconds.
const MAX_NODES: u64 = 2_000_000;

/// How many repeated bytes weigh as much as a node.
const REPEATED_PER_NODE: u64 = 16;

/// Reading stops after this many problems.
const MAX_PROBLEMS: usize = 1000;

/// Versions of operator sets by domain; the default domain is `""`.
pub(crate) type Opsets = HashMap<String, i64>;

/// The state of one import.
#[derive(Default)]
pub(crate) struct Import {
    problems: Vec<Problem>,
    pub(crate) warnings: Vec<Problem>,
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

    /// All problems so far.
    pub(crate) fn into_problems(self) -> Vec<Problem> {
        self.problems
    }

    /// Whether there is any.
    pub(crate) fn has_problems(&self) -> bool {
        !self.problems.is_empty()
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

/// Adds an `opset_import`.
pub(crate) fn add_opset(opsets: &mut Opsets, import: &OperatorSetIdProto) {
    let domain = if import.domain == "ai.onnx" { "" } else { import.domain.as_str() };
    opsets.insert(domain.to_owned(), import.version);
}
