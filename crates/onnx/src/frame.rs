//! Where a node stands: which names, attributes and operator versions it sees.

use crate::import::{Import, Opsets};
use crate::paths;
use memfit_graph::{Attribute, TensorId};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

/// An attribute with the tensors that its bodies read from the graph it was written in.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    pub(crate) attribute: Attribute,
    pub(crate) captures: Captures,
    /// The nesting depth of that graph.
    pub(crate) depth: u32,
    /// Its size in the file.
    pub(crate) bytes: u64,
}

/// What bodies read from around them: each tensor once, in the order in which it was first read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Captures {
    pub(crate) ids: Vec<TensorId>,
    places: HashMap<TensorId, usize>,
}

impl Captures {
    /// The place of a tensor in the list.
    pub(crate) fn place(&mut self, id: TensorId) -> usize {
        *self.places.entry(id).or_insert_with(|| {
            self.ids.push(id);
            self.ids.len() - 1
        })
    }
}

/// The surroundings of a node.
pub(crate) struct Frame<'o> {
    pub(crate) opsets: &'o Opsets,
    /// In a function: what its attributes are in this call.
    pub(crate) attributes: Rc<HashMap<String, Bound>>,
    /// In a function's own nodes: its names. `None` stands for an optional input that the call omits.
    pub(crate) names: Option<HashMap<String, Option<TensorId>>>,
    /// In a body inside a function: names of optional inputs that the call omits.
    pub(crate) absent: HashSet<String>,
    /// In a function: the name of the call, which becomes part of the names inside.
    pub(crate) prefix: String,
    /// In a function or a body: the module path around it, for nodes that have none of their own.
    pub(crate) scope: Arc<str>,
    /// How many nodes were read, for the names of those without one.
    pub(crate) index: usize,
}

impl<'o> Frame<'o> {
    /// The model's own graph.
    pub(crate) fn root(opsets: &'o Opsets) -> Frame<'o> {
        Frame {
            opsets,
            attributes: Rc::default(),
            names: None,
            absent: HashSet::new(),
            prefix: String::new(),
            scope: paths::UNKNOWN.into(),
            index: 0,
        }
    }

    /// A body of one of this frame's nodes.
    pub(crate) fn body(&self) -> Frame<'o> {
        let omitted =
            self.names.iter().flatten().filter(|(_, id)| id.is_none()).map(|(name, _)| name.clone());
        Frame {
            attributes: Rc::clone(&self.attributes),
            absent: self.absent.iter().cloned().chain(omitted).collect(),
            prefix: self.prefix.clone(),
            ..Frame::root(self.opsets)
        }
    }

    /// The version of the operators of a domain. A file that does not say it means the newest.
    pub(crate) fn version(&self, domain: &str, cx: &mut Import) -> i64 {
        let domain = if domain == "ai.onnx" { "" } else { domain };
        self.opsets.get(domain).copied().unwrap_or_else(|| {
            cx.warn_of_domain(domain);
            i64::MAX
        })
    }

    /// The name that a node gets in the graph.
    pub(crate) fn node_name(&mut self, name: &str, op: &str) -> String {
        let index = self.index;
        self.index += 1;
        let own = if name.is_empty() { format!("{op}_{index}") } else { name.to_owned() };
        if self.prefix.is_empty() { own } else { format!("{}/{}", self.prefix, own.trim_start_matches('/')) }
    }
}
