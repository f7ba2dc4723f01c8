//! The graph as the passes see it: who makes and who reads each tensor, kept current while nodes are rewritten.
//!
//! A pass never deletes: it gives the node that makes a pattern's result another operator and other inputs, and the
//! pattern's inner nodes go by themselves once nothing reads them. New nodes stand right before the node they were
//! made for, so that the order in which the framework runs things stays the file's.

use memfit_graph::order::{permuted, sorted_by_key};
use memfit_graph::{
    Attribute, Attributes, DType, Graph, Inferred, Node, NodeId, Op, Role, Shape, TensorId, Type, Value,
    find_op,
};
use std::sync::Arc;

/// A graph under rewriting. Node ids stay valid until [`Rewriter::finish`].
pub(super) struct Rewriter<'g> {
    /// Nodes and tensors; dead nodes are still in it.
    pub(super) graph: &'g mut Graph,
    types: Vec<Type>,
    values: Vec<Option<Arc<Value>>>,
    producers: Vec<Option<NodeId>>,
    /// Who ever read each tensor; entries go stale instead of being removed, so that removal costs nothing.
    consumers: Vec<Vec<NodeId>>,
    /// How many uses of each tensor are left.
    uses: Vec<usize>,
    is_output: Vec<bool>,
    dead: Vec<bool>,
    /// Where each node stands: an index into the file's order in the upper half, and the order before it in the lower.
    position: Vec<u64>,
    /// What masks are made of, found once for all layers.
    pub(super) cone: super::mask::Cone,
    /// By tensor, whether a layer with weights has a part in it; made when first asked for.
    trained: Vec<bool>,
}

impl<'g> Rewriter<'g> {
    pub(super) fn new(graph: &'g mut Graph, inferred: &Inferred) -> Rewriter<'g> {
        let mut is_output = vec![false; graph.tensors.len()];
        graph.outputs.iter().for_each(|id| is_output[id.index()] = true);
        let nodes = graph.nodes.len();
        let consumers = graph.consumers();
        Rewriter {
            types: inferred.types.clone(),
            values: inferred.values.clone(),
            producers: graph.producers(),
            uses: consumers.iter().map(Vec::len).collect(),
            consumers,
            is_output,
            dead: vec![false; nodes],
            position: (0..nodes as u64).map(|i| i << 32 | u64::from(u32::MAX)).collect(),
            cone: super::mask::Cone::default(),
            trained: Vec::new(),
            graph,
        }
    }

    /// All living nodes, in the file's order.
    pub(super) fn node_ids(&self) -> Vec<NodeId> {
        (0..).zip(&self.dead).filter(|(_, dead)| !**dead).map(|(i, _)| NodeId(i)).collect()
    }

    /// How many nodes live.
    pub(super) fn living(&self) -> usize {
        self.dead.iter().filter(|dead| !**dead).count()
    }

    pub(super) fn is_dead(&self, id: NodeId) -> bool {
        self.dead[id.index()]
    }

    pub(super) fn node(&self, id: NodeId) -> &Node {
        &self.graph.nodes[id.index()]
    }

    /// Whether this living node is an operator of this ONNX name.
    pub(super) fn is(&self, id: NodeId, op: &str) -> bool {
        !self.dead[id.index()] && self.node(id).op.name() == op
    }

    /// The node's operator as its own type.
    pub(super) fn op<T: Op>(&self, id: NodeId) -> Option<&T> {
        self.node(id).op.downcast()
    }

    pub(super) fn input(&self, id: NodeId, i: usize) -> Option<TensorId> {
        self.node(id).inputs.get(i).copied().flatten()
    }

    /// The first output of a node that has no other used one.
    pub(super) fn output(&self, id: NodeId) -> Option<TensorId> {
        let mut used = self.node(id).outputs.iter().enumerate().filter_map(|(j, t)| Some((j, (*t)?)));
        match (used.next(), used.find(|(_, t)| self.is_used(*t))) {
            (Some((0, t)), None) => Some(t),
            _ => None,
        }
    }

    fn is_used(&self, t: TensorId) -> bool {
        self.is_output[t.index()] || self.uses[t.index()] > 0
    }

    pub(super) fn is_graph_output(&self, t: TensorId) -> bool {
        self.is_output[t.index()]
    }

    pub(super) fn producer(&self, t: TensorId) -> Option<NodeId> {
        self.producers[t.index()]
    }

    /// The node that makes `t`, if it is an operator of this name.
    pub(super) fn made_by(&self, t: TensorId, op: &str) -> Option<NodeId> {
        self.producer(t).filter(|id| self.is(*id, op))
    }

    /// The node that makes `t`, if it is an operator of this name and `t` is read once and is no output of the model.
    pub(super) fn made_for_one(&self, t: TensorId, op: &str) -> Option<NodeId> {
        self.made_by(t, op).filter(|_| self.sole_reader(t).is_some())
    }

    /// The living nodes that read `t`, a node once for each use.
    pub(super) fn readers(&self, t: TensorId) -> impl Iterator<Item = NodeId> + '_ {
        self.consumers[t.index()].iter().copied().filter(move |id| self.reads(*id, t))
    }

    fn reads(&self, id: NodeId, t: TensorId) -> bool {
        let node = self.node(id);
        !self.dead[id.index()] && (node.inputs.contains(&Some(t)) || node.captures.contains(&t))
    }

    /// The only node that reads `t`, which it does once, if `t` is no output of the model.
    pub(super) fn sole_reader(&self, t: TensorId) -> Option<NodeId> {
        (self.uses[t.index()] == 1 && !self.is_output[t.index()]).then(|| self.readers(t).next()).flatten()
    }

    /// How many times `t` is read.
    pub(super) fn use_count(&self, t: TensorId) -> usize {
        self.uses[t.index()]
    }

    /// The operand of a two-input node that is not `t`.
    pub(super) fn other(&self, id: NodeId, t: TensorId) -> Option<TensorId> {
        self.operands(id, |x| (x == t).then_some(())).map(|(_, other)| other)
    }

    /// Both operands of a node of this name, in either order, such that `accepts` takes the first of the pair.
    pub(super) fn operands<T>(
        &self,
        id: NodeId,
        accepts: impl Fn(TensorId) -> Option<T>,
    ) -> Option<(T, TensorId)> {
        let [Some(a), Some(b)] = self.node(id).inputs[..] else { return None };
        accepts(a).map(|x| (x, b)).or_else(|| accepts(b).map(|x| (x, a)))
    }

    /// Whether `t` is stored in the file, as a weight or as a constant.
    pub(super) fn is_stored(&self, t: TensorId) -> bool {
        matches!(self.graph.tensor(t).role, Role::Initializer | Role::Constant)
    }

    /// A Cast of a float32 to float32 that is no output of the model: what a float32 export makes of `x.float()`.
    pub(super) fn is_empty_cast(&self, id: NodeId) -> bool {
        let is_cast = self.is(id, "Cast") || self.is(id, "CastLike");
        let (true, Some(from), Some(to)) = (is_cast, self.input(id, 0), self.output(id)) else {
            return false;
        };
        self.dtype(from) == DType::Float32 && self.dtype(to) == DType::Float32 && !self.is_graph_output(to)
    }

    /// Whether the TorchScript exporter wrote a node: it names nodes by module paths (`/layers.0/Softmax`).
    pub(super) fn is_legacy(&self, id: NodeId) -> bool {
        self.node(id).name.starts_with('/')
    }

    /// Whether `t` is the result of this PyTorch function, as the dynamo exporter names results: `glu`, `glu_2`.
    pub(super) fn is_named_after(&self, t: TensorId, function: &str) -> bool {
        let rest = self.graph.tensor(t).name.strip_prefix(function);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
    }

    /// Whether a node is a layer with weights: a table or a matrix that is stored, or the transpose of one.
    pub(super) fn is_layer(&self, id: NodeId) -> bool {
        const LAYERS: &[&str] =
            &["Conv", "ConvTranspose", "GRU", "Gather", "Gemm", "LSTM", "Linear", "MatMul", "RNN"];
        let is_weight = |t: TensorId| {
            let source = self.made_by(t, "Transpose").and_then(|n| self.input(n, 0)).unwrap_or(t);
            let stored = self.graph.tensor(source).role == Role::Initializer && self.dtype(source).is_float();
            stored && self.rank(source).is_some_and(|r| r >= 2)
        };
        LAYERS.contains(&self.node(id).op.name())
            && self.node(id).inputs.iter().take(2).flatten().any(|t| is_weight(*t))
    }

    /// Whether a layer with weights has a part in `t`, not by its sizes alone, as it was before anything was rewritten.
    pub(super) fn is_trained(&mut self, t: TensorId) -> bool {
        if self.trained.is_empty() {
            let mut trained = vec![false; self.graph.tensors.len()];
            for id in self.node_ids() {
                let node = self.node(id);
                let reads = || node.inputs.iter().flatten().any(|t| trained[t.index()]);
                if self.is_layer(id) || (!matches!(node.op.name(), "Shape" | "Size") && reads()) {
                    node.outputs.iter().flatten().for_each(|t| trained[t.index()] = true);
                }
            }
            self.trained = trained;
        }
        self.trained.get(t.index()).copied().unwrap_or(false)
    }

    pub(super) fn ty(&self, t: TensorId) -> &Type {
        &self.types[t.index()]
    }

    pub(super) fn shape(&self, t: TensorId) -> Option<&Shape> {
        self.types[t.index()].shape()
    }

    pub(super) fn rank(&self, t: TensorId) -> Option<usize> {
        self.shape(t).map(Shape::rank)
    }

    pub(super) fn dtype(&self, t: TensorId) -> DType {
        self.types[t.index()].dtype().unwrap_or(DType::Undefined)
    }

    pub(super) fn value(&self, t: TensorId) -> Option<&Value> {
        self.values[t.index()].as_deref()
    }

    /// The only element of a folded tensor.
    pub(super) fn scalar(&self, t: TensorId) -> Option<f64> {
        self.value(t)?.single()?.as_f64()
    }

    /// Whether `t` is a folded scalar near `x`; files hold float32.
    pub(super) fn is_scalar(&self, t: TensorId, x: f64) -> bool {
        self.scalar(t).is_some_and(|s| (s - x).abs() <= 1e-4 * x.abs().max(1e-3))
    }

    /// What a two-input node multiplies (or adds, compares…) with the scalar `x`.
    pub(super) fn times(&self, id: NodeId, x: f64) -> Option<TensorId> {
        self.operands(id, |t| self.is_scalar(t, x).then_some(())).map(|(_, other)| other)
    }

    /// Adds a stored tensor: [`Role::Initializer`] or [`Role::Constant`].
    pub(super) fn add_stored(&mut self, name: String, ty: Type, role: Role) -> TensorId {
        let id = self.add_tensor(name, ty);
        self.graph.tensors[id.index()].role = role;
        id
    }

    /// A stored tensor like `stored` with a name of its own.
    pub(super) fn copy(&mut self, stored: TensorId, name: String) -> TensorId {
        let copy = self.add_stored(name, self.ty(stored).clone(), Role::Initializer);
        let value = self.values[stored.index()].clone();
        self.values[copy.index()].clone_from(&value);
        self.graph.tensors[copy.index()].value = value;
        copy
    }

    /// Adds a small constant.
    pub(super) fn add_value(&mut self, value: Value) -> TensorId {
        let ty = Type::tensor(value.dtype, value.dims());
        let name = format!("recomposed_{}", self.graph.tensors.len());
        let id = self.add_stored(name, ty, Role::Constant);
        let value = Some(Arc::new(value));
        self.values[id.index()].clone_from(&value);
        self.graph.tensors[id.index()].value = value;
        id
    }

    fn add_tensor(&mut self, name: String, ty: Type) -> TensorId {
        let id = self.graph.add_tensor(name, ty.clone(), Role::Intermediate);
        self.types.push(ty);
        self.values.push(None);
        self.producers.push(None);
        self.consumers.push(Vec::new());
        self.uses.push(0);
        self.is_output.push(false);
        id
    }

    /// Gives a node another operator and other inputs; what only its old inputs needed goes.
    pub(super) fn rewrite(&mut self, id: NodeId, op: Arc<dyn Op>, inputs: Vec<Option<TensorId>>) {
        inputs.iter().flatten().for_each(|t| self.add_use(*t, id));
        let node = &mut self.graph.nodes[id.index()];
        node.op = op;
        let old = std::mem::replace(&mut node.inputs, inputs);
        old.into_iter().flatten().for_each(|t| self.drop_use(t));
    }

    /// Lets a node read `new` in the stead of `old`.
    pub(super) fn reread(&mut self, id: NodeId, old: TensorId, new: TensorId) {
        let Node { op, inputs, .. } = self.node(id).clone();
        let inputs = inputs.into_iter().map(|t| if t == Some(old) { Some(new) } else { t }).collect();
        self.rewrite(id, op, inputs);
    }

    fn add_use(&mut self, t: TensorId, reader: NodeId) {
        self.consumers[t.index()].push(reader);
        self.uses[t.index()] += 1;
    }

    /// Takes one use of `t` away, and with the last one the node that makes it.
    fn drop_use(&mut self, t: TensorId) {
        self.uses[t.index()] = self.uses[t.index()].saturating_sub(1);
        if let Some(producer) = self.producer(t) {
            self.bury(producer);
        }
    }

    /// Adds a node with one output right before `before`, in its scope.
    pub(super) fn insert_before(
        &mut self,
        before: NodeId,
        op: Arc<dyn Op>,
        inputs: Vec<Option<TensorId>>,
        ty: Type,
    ) -> TensorId {
        self.insert_with_outputs(before, op, inputs, vec![ty])[0]
    }

    /// Adds a node with an output of each of these types right before `before`, in its scope.
    pub(super) fn insert_with_outputs(
        &mut self,
        before: NodeId,
        op: Arc<dyn Op>,
        inputs: Vec<Option<TensorId>>,
        types: Vec<Type>,
    ) -> Vec<TensorId> {
        let id = NodeId(u32::try_from(self.graph.nodes.len()).unwrap_or(u32::MAX));
        let Node { name, scope, .. } = self.node(before);
        let (name, scope): (Arc<str>, _) = (format!("{name}/{}", op.name()).into(), scope.clone());
        let mut made = Vec::with_capacity(types.len());
        for (j, ty) in types.into_iter().enumerate() {
            let suffix = if j == 0 { String::new() } else { format!(".{j}") };
            let output = self.add_tensor(format!("{name}_{}{suffix}", id.0), ty);
            self.producers[output.index()] = Some(id);
            made.push(output);
        }
        inputs.iter().flatten().for_each(|t| self.add_use(*t, id));
        let outputs = made.iter().copied().map(Some).collect();
        self.graph.nodes.push(Node { name, scope, op, inputs, outputs, captures: Vec::new() });
        self.dead.push(false);
        self.position.push(self.position[before.index()] >> 32 << 32 | id.index() as u64);
        made
    }

    /// Makes every reader of `old` read `new` instead.
    pub(super) fn redirect(&mut self, old: TensorId, new: TensorId) {
        for id in std::mem::take(&mut self.consumers[old.index()]) {
            let node = &mut self.graph.nodes[id.index()];
            let slots = node.inputs.iter_mut().flatten().chain(&mut node.captures);
            let count = slots.filter(|t| **t == old).map(|t| *t = new).count();
            if !self.dead[id.index()] {
                self.consumers[new.index()].extend(vec![id; count]);
                self.uses[new.index()] += count;
            }
        }
        self.uses[old.index()] = 0;
        if let Some(producer) = self.producer(old) {
            self.bury(producer);
        }
    }

    /// Marks a node dead whose outputs nothing reads, and then what only it needed.
    fn bury(&mut self, id: NodeId) {
        let mut pending = vec![id];
        while let Some(id) = pending.pop() {
            let node = &self.graph.nodes[id.index()];
            if self.dead[id.index()] || node.outputs.iter().flatten().any(|t| self.is_used(*t)) {
                continue;
            }
            self.dead[id.index()] = true;
            for t in node.inputs.iter().flatten().chain(&node.captures) {
                self.uses[t.index()] = self.uses[t.index()].saturating_sub(1);
                pending.extend(self.producers[t.index()]);
            }
        }
    }

    /// Buries everything that no output of the model needs.
    pub(super) fn prune(&mut self) {
        for i in (0..self.graph.nodes.len()).rev() {
            self.bury(NodeId(u32::try_from(i).unwrap_or(u32::MAX)));
        }
    }

    /// Drops the dead nodes and puts the living ones in order.
    pub(super) fn finish(self) {
        let order = (0..self.graph.nodes.len()).filter(|i| !self.dead[*i]).collect();
        let order = sorted_by_key(order, |i| self.position[*i]);
        self.graph.nodes = permuted(std::mem::take(&mut self.graph.nodes), order);
    }
}

/// An operator by its ONNX name, as the newest opset defines it.
pub(super) fn build<const N: usize>(name: &str, attributes: [(&str, Attribute); N]) -> Option<Arc<dyn Op>> {
    find_op("", name, i64::MAX)?.build(Attributes::from(attributes), i64::MAX).ok()
}
