//! The graph in the making: inputs, layer calls, and variables that shared layers share.

use crate::arguments::{Argument, Arguments};
use crate::layer::{Configured, Facts, LayerCall};
use crate::mask::{self, Mask};
use crate::options::Options;
use crate::spec::Spec;
use crate::{LayerSummary, Recorded};
use memfit_graph::{DType, Dim, Graph, OpError, Problem, Role, Shape, TensorId, Type};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// A file may ask for at most this many layer calls: nested models that call each other twice multiply.
const MAX_CALLS: usize = 1 << 16;

/// A tensor of the graph, with what the importer knows of it.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) id: TensorId,
    /// Not known behind a layer that has a problem.
    pub(crate) spec: Option<Spec>,
    /// Which of its positions count.
    pub(crate) mask: Option<Mask>,
}

/// A layer of the file with the variables that its first call made.
#[derive(Debug)]
pub(crate) struct Layered {
    pub(crate) configured: Configured,
    weights: Option<Vec<TensorId>>,
    calls: u32,
}

impl Layered {
    pub(crate) fn new(configured: Configured) -> Layered {
        Layered { configured, weights: None, calls: 0 }
    }
}

/// One call of a layer.
pub(crate) struct Request<'a> {
    pub(crate) path: &'a str,
    pub(crate) arguments: Arguments,
    pub(crate) tensors: Vec<Flow>,
    /// What the file says of the outputs.
    pub(crate) recorded: Vec<Option<Recorded>>,
}

#[derive(Debug)]
pub(crate) struct Builder<'o> {
    pub(crate) graph: Graph,
    pub(crate) options: &'o Options,
    pub(crate) problems: Vec<Problem>,
    pub(crate) summaries: Vec<LayerSummary>,
    /// Custom layers whose parameters nobody gave, by path and class.
    pub(crate) uncounted: Vec<(String, String)>,
    /// What the user says of layers that was needed.
    pub(crate) told: BTreeSet<&'o str>,
    /// Of tensors, with the last number that was put behind each.
    names: HashMap<Arc<str>, usize>,
    /// Masks by what they are computed of.
    masks: HashMap<TensorId, TensorId>,
    /// Models within models.
    entered: usize,
    is_full: bool,
}

impl<'o> Builder<'o> {
    pub(crate) fn new(options: &'o Options) -> Builder<'o> {
        Builder {
            graph: Graph::default(),
            options,
            problems: Vec::new(),
            summaries: Vec::new(),
            uncounted: Vec::new(),
            told: BTreeSet::new(),
            names: HashMap::new(),
            masks: HashMap::new(),
            entered: 0,
            is_full: false,
        }
    }

    /// A name that no tensor has yet.
    fn unique(&mut self, name: String) -> Arc<str> {
        let mut unique: Arc<str> = name.as_str().into();
        if let Some(taken) = self.names.get(&unique) {
            let mut n = *taken;
            while self.names.contains_key(&unique) {
                n += 1;
                unique = format!("{name}#{n}").into();
            }
            self.names.insert(name.into(), n);
        }
        self.names.insert(unique.clone(), 1);
        unique
    }

    /// A tensor that the user feeds.
    pub(crate) fn input(&mut self, name: &str, spec: Spec) -> Flow {
        let name = self.unique(name.to_owned());
        let id = self.graph.add_tensor(name, Type::tensor(spec.dtype, spec.shape.clone()), Role::Input);
        self.graph.inputs.push(id);
        Flow { id, spec: Some(spec), mask: None }
    }

    /// Something is wrong at `path`.
    pub(crate) fn problem(&mut self, path: &str, class: &str, message: impl Into<String>) {
        let mut problem = Problem::new(path, message);
        problem.op = class.to_owned();
        self.problems.push(problem);
    }

    /// Whether there is room for one call more of a layer or a model, of which there were `calls`.
    fn takes_more(&mut self, calls: usize, path: &str) -> bool {
        if calls < MAX_CALLS {
            return true;
        }
        if !self.is_full {
            self.is_full = true;
            self.problem(path, "", format!("expected at most {MAX_CALLS} layer calls, found more"));
        }
        false
    }

    /// Counts a call of a model within a model; whether there is room for it. Two calls each double what is run.
    pub(crate) fn enters(&mut self, path: &str) -> bool {
        self.entered += 1;
        !self.is_full && self.takes_more(self.entered, path)
    }

    /// Calls a layer. What is wrong becomes a problem, and the outputs are then not known.
    pub(crate) fn call(&mut self, layer: &mut Layered, mut request: Request<'_>) -> Vec<Flow> {
        if !self.takes_more(self.graph.nodes.len(), request.path) {
            return Vec::new();
        }
        let masks: Vec<_> = request.tensors.iter().map(|t| (t.id, t.spec.clone(), t.mask.clone())).collect();
        self.give_masks(&layer.configured.facts, &mut request);
        let call = layer.calls;
        layer.calls = layer.calls.saturating_add(1);
        let specs: Option<Vec<Spec>> = request.tensors.iter().map(|t| t.spec.clone()).collect();
        let outputs = match &specs {
            Some(specs) => self.outputs(layer, &request, specs).unwrap_or_default(),
            None => Vec::new(),
        };
        let count = outputs.len().max(request.recorded.len()).max(1);
        if !outputs.is_empty() && outputs.len() < count {
            let message = format!("its output {} is read, but it has {}", count - 1, outputs.len());
            self.problem(request.path, &layer.configured.facts.class, message);
        }
        let weights = layer.weights.clone().unwrap_or_default();
        let mut flows = Vec::with_capacity(count);
        for j in 0..count {
            let spec: Option<Spec> = outputs.get(j).cloned();
            let declared = spec.as_ref().map_or(Type::Unknown, |s| Type::tensor(s.dtype, s.shape.clone()));
            let call = if call == 0 { String::new() } else { format!(":{call}") };
            let output = if j == 0 { String::new() } else { format!("/output_{j}") };
            let name = self.unique(format!("{}{call}{output}", request.path));
            let id = self.graph.add_tensor(name, declared, Role::Intermediate);
            flows.push(Flow { id, spec, mask: None });
        }
        if call == 0 {
            self.summaries.push(LayerSummary {
                path: request.path.to_owned(),
                class: layer.configured.facts.class.clone(),
                outputs: outputs.iter().map(|s| s.shape.clone()).collect(),
                weights: weights.clone(),
            });
        }
        let tensors = request.tensors.len();
        let inputs = request.tensors.iter().map(|t| t.id).chain(weights).map(Some).collect();
        let name = flows.first().map_or("".into(), |f| self.graph.tensor(f.id).name.clone());
        let node = self.graph.add_node(
            name,
            Arc::new(LayerCall::new(
                layer.configured.clone(),
                request.arguments,
                tensors,
                specs.unwrap_or_default(),
                outputs,
            )),
            inputs,
            flows.iter().map(|f| Some(f.id)).collect(),
        );
        self.graph.nodes[node.index()].scope = request.path.into();
        if let Some(Flow { spec: Some(spec), mask, .. }) = flows.first_mut() {
            *mask = mask::given(&layer.configured, request.path, &masks, spec);
        }
        flows
    }

    /// Gives the nodes from `first` on that make masks the rank of what they are made of: Keras makes them with it.
    pub(crate) fn masks_follow(&self, first: usize, ranks: &mut [usize]) {
        let nodes = self.graph.nodes.get(first..).unwrap_or_default();
        let made = |node: &memfit_graph::Node| node.outputs.first().copied().flatten();
        let places: HashMap<TensorId, usize> =
            nodes.iter().enumerate().filter_map(|(i, node)| Some((made(node)?, i))).collect();
        for (i, node) in nodes.iter().enumerate() {
            let of = node.inputs.first().copied().flatten();
            let of = of.filter(|of| self.masks.get(of).copied() == made(node));
            if let Some(at) = of.and_then(|of| places.get(&of)) {
                ranks[i] = ranks[*at];
            }
        }
    }

    /// Gives a call the masks that ride on its tensors, where the layer takes them and the caller gave none.
    fn give_masks(&mut self, facts: &Facts, request: &mut Request<'_>) {
        for (name, tensor) in mask::taken(facts, &request.arguments) {
            let Some(mask) = request.tensors.get(tensor).and_then(|t| t.mask.clone()) else { continue };
            let (layer, spec) = mask.layer(facts);
            let id = match self.masks.get(&mask.of) {
                Some(id) => *id,
                None => {
                    let tensor = self.unique(format!("{}/mask", mask.path));
                    let id = self.graph.add_tensor(
                        tensor.clone(),
                        Type::tensor(spec.dtype, spec.shape.clone()),
                        Role::Intermediate,
                    );
                    let call = LayerCall::new(
                        layer,
                        Arguments::plain(1),
                        1,
                        vec![mask.spec.clone()],
                        vec![spec.clone()],
                    );
                    let node =
                        self.graph.add_node(tensor, Arc::new(call), vec![Some(mask.of)], vec![Some(id)]);
                    self.graph.nodes[node.index()].scope = mask.path.clone();
                    self.masks.insert(mask.of, id);
                    id
                }
            };
            request.arguments.named.insert(name.into(), Argument::Tensor(request.tensors.len()));
            request.tensors.push(Flow { id, spec: Some(spec), mask: None });
        }
    }

    /// The outputs' types, and the variables at the first call; `None` where something is wrong.
    fn outputs(&mut self, layer: &mut Layered, request: &Request<'_>, specs: &[Spec]) -> Option<Vec<Spec>> {
        let Configured { facts, layer: rule } = layer.configured.clone();
        let failed = |builder: &mut Self, error: OpError| {
            builder.problem(request.path, &facts.class, error.to_string())
        };
        if !rule.is_known() {
            return self.custom(layer, request, specs);
        }
        if layer.weights.is_none() {
            match layer.configured.own_weights(&request.arguments, specs) {
                Ok(weights) => layer.weights = Some(self.variables(request.path, &facts, weights)),
                Err(error) => {
                    failed(self, error);
                    return None;
                }
            }
        }
        match layer.configured.outputs(&request.arguments, specs) {
            Ok(outputs) if outputs.is_empty() => self.recorded(&facts.class, request, specs),
            Ok(outputs) => Some(outputs),
            Err(error) => {
                failed(self, error);
                None
            }
        }
    }

    fn variables(&mut self, path: &str, facts: &Facts, weights: Vec<crate::layer::Weight>) -> Vec<TensorId> {
        let mut ids = Vec::with_capacity(weights.len());
        for weight in weights {
            let name = self.unique(format!("{path}/{}", weight.name));
            let ty = Type::tensor(weight.dtype, Shape::from(&weight.shape[..]));
            let id = self.graph.add_tensor(name, ty, Role::Initializer);
            let tensor = &mut self.graph.tensors[id.index()];
            tensor.variable = Some(weight.variable);
            tensor.penalty = facts.penalty(&weight.name);
            ids.push(id);
        }
        ids
    }

    /// What the file says of the outputs of a layer that cannot tell.
    fn recorded(&mut self, class: &str, request: &Request<'_>, specs: &[Spec]) -> Option<Vec<Spec>> {
        if let Some(given) = self.given(request.path, class, specs) {
            return Some(vec![given]);
        }
        let dtype = specs.first().map_or(DType::Float32, |s| s.dtype);
        let known: Option<Vec<Spec>> =
            request.recorded.iter().map(|r| Some(r.as_ref()?.spec(request.path, specs, dtype))).collect();
        let known = known.filter(|k| !k.is_empty());
        if known.is_none() {
            let mut problem = Problem::new(request.path, "the file does not tell the shape of its output")
                .hint(format!(
                    "give it without the batch axis: --layer {}:shape=7x7x64,params=1000",
                    request.path
                ));
            problem.op = class.to_owned();
            self.problems.push(problem);
        }
        known
    }

    /// A layer that is not Keras' own: what the user says of it, else what the file recorded.
    fn custom(&mut self, layer: &mut Layered, request: &Request<'_>, specs: &[Spec]) -> Option<Vec<Spec>> {
        let facts = layer.configured.facts.clone();
        let options = self.options;
        let given = options.custom(request.path, &facts.name, &facts.class).map(|(key, given)| {
            self.told.insert(key);
            given.clone()
        });
        if layer.weights.is_none() {
            let call = crate::layer::Call { facts: &facts, arguments: &request.arguments };
            let mut weights = Vec::new();
            if let Some(n) = given.as_ref().and_then(|g| g.params).filter(|n| *n > 0) {
                weights.push(call.weight("params", [n]));
            }
            if let Some(n) = given.as_ref().and_then(|g| g.state).filter(|n| *n > 0) {
                weights.push(call.state("state", [n]));
            }
            if !facts.trainable {
                weights.iter_mut().for_each(|w| {
                    if w.variable == memfit_graph::Variable::Trainable {
                        w.variable = memfit_graph::Variable::Frozen;
                    }
                });
            }
            if given.as_ref().is_none_or(|g| g.params.is_none()) {
                self.uncounted.push((request.path.to_owned(), facts.class.clone()));
            }
            layer.weights = Some(self.variables(request.path, &facts, weights));
        }
        self.recorded(&facts.class, request, specs)
    }

    /// The output that the user gives, in the place of the batch axis that of the first input.
    fn given(&mut self, path: &str, class: &str, specs: &[Spec]) -> Option<Spec> {
        let name = path.rsplit('/').next().unwrap_or(path);
        let options = self.options;
        let (key, custom) = options.custom(path, name, class)?;
        let shape = custom.shape.as_ref()?;
        self.told.insert(key);
        let batch = specs.first().and_then(|s| s.dims().first().cloned()).unwrap_or(Dim::Known(1));
        let dims = std::iter::once(batch).chain(shape.iter().copied().map(Dim::Known));
        Some(Spec::new(dims.collect(), specs.first().map_or(DType::Float32, |s| s.dtype)))
    }
}
