//! One graph while it is being read: names become tensors, in whatever order the file mentions them.
//!
//! A name may be read before it is made (initializers and types come after the nodes in a file), so every name gets a
//! tensor at its first mention. What is still made by nothing at the end is a problem in the model's own graph, and a
//! tensor of the outer graph in a body.

use crate::import::Import;
use crate::tensor::Stored;
use crate::{paths, types};
use memfit_graph::{Graph, Problem, Role, TensorId, Type};
use onnx_protobuf::ValueInfoProto;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// What makes a tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Maker {
    Nothing,
    Input,
    Initializer,
    Node,
}

/// A graph that is being read.
#[derive(Default)]
pub(crate) struct Builder {
    pub(crate) graph: Graph,
    /// How many graphs this one is nested in.
    pub(crate) depth: u32,
    ids: HashMap<Arc<str>, TensorId>,
    makers: Vec<Maker>,
    /// Names made up for the tensors of inlined functions.
    made_up: HashSet<Arc<str>>,
    inputs: Vec<TensorId>,
    /// Types of tensors that were not mentioned yet.
    pending: Vec<ValueInfoProto>,
}

/// Room for so many names at first: to make room again and again costs as much as a look-up of each.
const NAMES: usize = 1 << 10;

impl Builder {
    /// A model's own graph.
    pub(crate) fn root() -> Builder {
        Builder { ids: HashMap::with_capacity(NAMES), ..Builder::default() }
    }

    /// A body inside of a graph of this depth.
    pub(crate) fn nested(depth: u32) -> Builder {
        Builder { depth, ..Builder::default() }
    }

    /// The tensor of this name.
    pub(crate) fn named(&mut self, name: &str) -> TensorId {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let id = self.add(name.into());
        self.ids.insert(Arc::clone(&self.graph.tensor(id).name), id);
        id
    }

    /// Whether the name has been mentioned.
    pub(crate) fn knows(&self, name: &str) -> bool {
        self.ids.contains_key(name)
    }

    fn add(&mut self, name: Arc<str>) -> TensorId {
        self.makers.push(Maker::Nothing);
        self.graph.add_tensor(name, Type::Unknown, Role::Intermediate)
    }

    /// A new tensor of an inlined function, under a name that is not taken.
    pub(crate) fn inlined(&mut self, name: &str) -> TensorId {
        let taken = |b: &Builder, name: &str| b.ids.contains_key(name) || b.made_up.contains(name);
        let mut free: Arc<str> = name.into();
        let mut n = self.made_up.len();
        while taken(self, &free) {
            free = format!("{name}_{n}").into();
            n += 1;
        }
        self.made_up.insert(Arc::clone(&free));
        self.add(free)
    }

    /// Says that a node makes this tensor.
    pub(crate) fn made_by_node(&mut self, id: TensorId, node: &str, op: &str, cx: &mut Import) {
        match self.maker(id) {
            Maker::Nothing => self.set_maker(id, Maker::Node),
            other => {
                let tensor = &self.graph.tensor(id).name;
                let message = format!("it makes `{tensor}`, which {} already makes", other.name());
                let mut problem = Problem::new(node, message).hint("each tensor is made once; rename one");
                problem.op = op.to_owned();
                cx.problem(problem);
            }
        }
    }

    /// Adds a constant of the graph.
    pub(crate) fn constant(&mut self, id: TensorId, stored: Stored) {
        self.store(id, stored, Role::Constant);
    }

    fn store(&mut self, id: TensorId, stored: Stored, role: Role) {
        let tensor = &mut self.graph.tensors[id.index()];
        tensor.declared = stored.ty();
        tensor.value = stored.value.map(Arc::new);
        tensor.role = role;
    }

    /// Adds a stored tensor. `sparse` ones keep their kind.
    pub(crate) fn initializer(&mut self, name: &str, stored: Stored, sparse: bool, cx: &mut Import) {
        let id = self.named(name);
        match self.maker(id) {
            Maker::Nothing | Maker::Input => {}
            other => {
                let message = format!("it is an initializer, and {} makes it too", other.name());
                cx.problem(Problem::new(name, message));
            }
        }
        self.set_maker(id, Maker::Initializer);
        self.store(id, stored, Role::Initializer);
        let declared = &mut self.graph.tensors[id.index()].declared;
        if let (true, Type::Tensor(t)) = (sparse, &*declared) {
            *declared = Type::Sparse(t.clone());
        }
    }

    /// Notes a stored tensor that cannot be read, of which a problem tells: its readers have nothing to miss.
    pub(crate) fn damaged(&mut self, name: &str) {
        let id = self.named(name);
        if self.maker(id) == Maker::Nothing {
            self.set_maker(id, Maker::Initializer);
        }
    }

    /// Adds an input; its initializer, if it has one, may come before or after it.
    pub(crate) fn input(&mut self, info: &ValueInfoProto, cx: &mut Import) {
        let id = self.named(&info.name);
        let ty = self.declared(info, cx);
        match self.maker(id) {
            Maker::Initializer => {}
            Maker::Nothing => {
                self.set_maker(id, Maker::Input);
                let tensor = &mut self.graph.tensors[id.index()];
                (tensor.role, tensor.declared) = (Role::Input, ty);
            }
            other => {
                let message = format!("it is an input, and {} makes it too", other.name());
                cx.problem(Problem::new(&*info.name, message));
            }
        }
        self.inputs.push(id);
    }

    /// Adds an output.
    pub(crate) fn output(&mut self, info: &ValueInfoProto, cx: &mut Import) {
        let id = self.named(&info.name);
        self.graph.outputs.push(id);
        let ty = self.declared(info, cx);
        self.declare(id, ty);
    }

    /// Takes the type that the file gives a tensor.
    pub(crate) fn value_info(&mut self, info: ValueInfoProto, cx: &mut Import) {
        match self.ids.get(info.name.as_str()) {
            Some(id) => {
                let (id, ty) = (*id, self.declared(&info, cx));
                self.declare(id, ty);
            }
            None => self.pending.push(info),
        }
    }

    fn declared(&self, info: &ValueInfoProto, cx: &mut Import) -> Type {
        let mut problems = Vec::new();
        let ty = info.type_.as_ref().map_or(Type::Unknown, |t| types::declared(&info.name, t, &mut problems));
        cx.problems(problems);
        ty
    }

    fn declare(&mut self, id: TensorId, ty: Type) {
        let declared = &mut self.graph.tensors[id.index()].declared;
        if *declared == Type::Unknown {
            *declared = ty;
        }
    }

    fn maker(&self, id: TensorId) -> Maker {
        self.makers[id.index()]
    }

    fn set_maker(&mut self, id: TensorId, maker: Maker) {
        self.makers[id.index()] = maker;
    }

    /// What is left to do once everything was read. Gives the graph and the names that nothing in it makes, which a
    /// body takes from around it.
    pub(crate) fn finish(mut self, cx: &mut Import) -> (Graph, Vec<(Arc<str>, TensorId)>) {
        for info in std::mem::take(&mut self.pending) {
            if self.ids.contains_key(info.name.as_str()) {
                self.value_info(info, cx);
            }
        }
        let fed = |id: &TensorId| self.makers[id.index()] == Maker::Input;
        self.graph.inputs = self.inputs.iter().copied().filter(fed).collect();
        let mut seen = HashSet::new();
        for id in &self.graph.inputs {
            if !seen.insert(*id) {
                cx.problem(Problem::new(
                    &*self.graph.tensor(*id).name,
                    "it is listed twice among the inputs",
                ));
            }
        }
        let readers = self.first_readers();
        let unmade = |id: &TensorId| self.maker(*id) == Maker::Nothing;
        let is_output: HashSet<TensorId> = self.graph.outputs.iter().copied().collect();
        let all = (0..).take(self.makers.len()).map(TensorId).filter(unmade);
        let mut free = Vec::new();
        for id in all.filter(|id| readers[id.index()].is_some() || is_output.contains(id)) {
            let name = &self.graph.tensor(id).name;
            if self.depth > 0 && self.ids.contains_key(name) {
                free.push((Arc::clone(name), id));
            } else {
                cx.problem(self.missing(name, readers[id.index()]));
            }
        }
        if let Err(problem) = self.graph.sort() {
            cx.problem(problem);
        }
        if self.depth == 0 {
            paths::fill(&mut self.graph);
        }
        if let Some(problem) = self.graph.too_deep() {
            cx.problem(problem);
        }
        (self.graph, free)
    }

    /// The first node that reads each tensor.
    fn first_readers(&self) -> Vec<Option<u32>> {
        let mut readers = vec![None; self.makers.len()];
        for (i, node) in (0..).zip(&self.graph.nodes) {
            for id in node.inputs.iter().flatten().chain(&node.captures) {
                readers[id.index()].get_or_insert(i);
            }
        }
        readers
    }

    fn missing(&self, name: &str, reader: Option<u32>) -> Problem {
        let hint = "the file was cut out of a larger model, or a name is misspelt";
        let Some(node) = reader.and_then(|i| self.graph.nodes.get(i as usize)) else {
            return Problem::new(name, "it is an output of the model, but nothing makes it").hint(hint);
        };
        let message = format!("expected an input, an initializer or a node that makes `{name}`, found none");
        let mut problem = Problem::new(&*node.name, message).hint(hint);
        problem.op = node.op.name().to_owned();
        problem
    }
}

impl Maker {
    fn name(self) -> &'static str {
        match self {
            Maker::Nothing => "nothing",
            Maker::Input => "an input",
            Maker::Initializer => "an initializer",
            Maker::Node => "another node",
        }
    }
}
