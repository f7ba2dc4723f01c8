//! Forward: one graph operator after the other, each as the ATen calls it lists.

use super::Runner;
use super::tape::TensorRef;
use crate::Mode;
use memfit_graph::ops::float_island::FloatIsland;
use memfit_graph::{Call, Lowering, Node, Operand, OutState, Role, TensorId, TensorState, Value};
use smallvec::{SmallVec, smallvec};

impl Runner<'_> {
    /// Runs all operators, checkpointed segments as one each.
    pub(super) fn forward(&mut self) {
        let graph = self.graph;
        let recomputes = self.plan.mode == Mode::Train && self.plan.checkpoint != crate::Checkpoint::None;
        if recomputes && self.segments.is_empty() {
            self.assumptions
                .push("checkpointing: no repeated blocks were found, nothing is recomputed".into());
        }
        let mut next = 0;
        for index in 0..self.segments.len() {
            let nodes = self.segments[index].nodes.clone();
            self.nodes(next..nodes.start);
            self.run_checkpointed(index);
            next = nodes.end;
        }
        self.nodes(next..graph.nodes.len());
    }

    /// Runs some nodes, and lets go of the names that go with them.
    pub(super) fn nodes(&mut self, range: std::ops::Range<usize>) {
        for i in range {
            self.node(i);
            // A segment that runs again finds none: they went when it ran first.
            while let Some(name) = self.names.get(self.names_gone).filter(|name| name.until as usize == i) {
                self.names_gone += 1;
                self.release_use(name.tensor);
            }
        }
    }

    /// Runs one operator.
    fn node(&mut self, index: usize) {
        let (node, layer) = (&self.graph.nodes[index], self.structure.node_layers[index]);
        self.tape.memory.layer = layer;
        if !node.outputs.is_empty() && node.outputs.iter().flatten().all(|id| self.host[id.index()]) {
            return self.release_inputs(node);
        }
        let refs: SmallVec<[Option<TensorRef>; 6]> =
            node.inputs.iter().map(|id| id.and_then(|id| self.value(id))).collect();
        let row = &mut self.layer_ops[layer as usize];
        row.ran(&self.structure.ops[index]);
        if let Some(shape) = node.outputs.first().and_then(|id| self.sizes.of((*id)?)) {
            row.output_shapes = smallvec![shape.into()];
        }
        if let (Some(FloatIsland::Widen), Some(id), Some(Some(t))) =
            (node.op.downcast(), node.inputs.first().copied().flatten(), refs.first())
        {
            self.dtypes.insert(id, self.tape.tensor(*t).dtype);
        }
        let lists = std::mem::take(&mut self.lists);
        let (calls, bound, modelled) = self.lower(node, &refs, lists);
        let is_known = modelled && self.sizes.are_known(node, &self.structure.uses, self.inferred);
        if !is_known && !self.unknown.iter().any(|n| n == node.op.name()) {
            self.unknown.push(node.op.name().to_owned());
        }
        let first = node.inputs.first().copied().flatten();
        self.tape.input_is_last_use = first
            .is_some_and(|id| self.uses[id.index()] == 1 && self.graph.tensor(id).role == Role::Intermediate);
        self.execute(node, &refs, &calls, &bound);
        self.lists = (calls, bound);
        self.release_inputs(node);
    }

    /// The tensor of a graph value; a host value becomes a number where a call wants it as a tensor.
    fn value(&mut self, id: TensorId) -> Option<TensorRef> {
        if self.values[id.index()].is_none() {
            let shape = self.sizes.of(id).unwrap_or_default();
            let dtype = self.inferred.dtype(id);
            let t = self.tape.new_number(shape, dtype);
            self.values[id.index()] = Some(t);
        }
        self.values[id.index()]
    }

    #[allow(clippy::type_complexity)]
    fn lower(
        &self,
        node: &Node,
        refs: &[Option<TensorRef>],
        lists: (Vec<Call>, Vec<(usize, Operand)>),
    ) -> (Vec<Call>, Vec<(usize, Operand)>, bool) {
        let states: SmallVec<[Option<TensorState<'_>>; 6]> = refs
            .iter()
            .zip(&node.inputs)
            .map(|(t, id)| {
                let tensor = self.tape.tensor((*t)?);
                let role = self.graph.tensor((*id)?).role;
                Some(TensorState {
                    shape: self.tape.layouts.shape(tensor.layout),
                    dtype: tensor.dtype,
                    requires_grad: tensor.requires_grad(),
                    is_initializer: role != Role::Input && role != Role::Intermediate,
                })
            })
            .collect();
        let values: SmallVec<[Option<&Value>; 6]> =
            node.inputs.iter().map(|id| self.inferred.value((*id)?)).collect();
        let restored = match node.op.downcast() {
            Some(FloatIsland::Restore { entry }) => self.dtypes.get(entry).copied(),
            _ => None,
        };
        let outputs: SmallVec<[Option<OutState<'_>>; 3]> = node
            .outputs
            .iter()
            .map(|id| {
                let dtype = restored.unwrap_or(self.plan.precision.applied_to(self.inferred.dtype((*id)?)));
                Some(OutState { shape: self.sizes.of((*id)?)?, dtype })
            })
            .collect();
        let autocast = if self.structure.is_keras {
            self.structure.global_policy(self.plan)
        } else {
            self.tape.autocast
        };
        let mut lowering = Lowering::new(&states, &outputs, autocast, self.plan.mode == Mode::Train)
            .with_values(&values)
            .on_card(self.plan.compute_capability)
            .reusing(lists);
        node.op.pytorch(&mut lowering);
        lowering.into_parts()
    }

    /// Runs a list of calls; a result lives until its last use in the list, a bound one as long as its graph value.
    fn execute(
        &mut self,
        node: &Node,
        refs: &[Option<TensorRef>],
        calls: &[Call],
        bound: &[(usize, Operand)],
    ) {
        let mut results: SmallVec<[SmallVec<[TensorRef; 4]>; 4]> = SmallVec::new();
        let mut last = last_uses(calls, bound);
        for (k, call) in calls.iter().enumerate() {
            let inputs: Option<SmallVec<[TensorRef; 6]>> = call
                .inputs
                .iter()
                .map(|operand| match operand {
                    Operand::Input(i) => refs.get(*i).copied().flatten(),
                    Operand::Result { call, output } => results.get(*call)?.get(*output).copied(),
                })
                .collect();
            // An operator that names an input it does not have is not run; the list test of operators finds it.
            let Some(inputs) = inputs else { break };
            let outputs = self.tape.run(call, &inputs);
            results.push(outputs);
            let own = (0..call.outputs.len()).map(|output| Operand::Result { call: k, output });
            for operand in call.inputs.iter().copied().chain(own) {
                // Named twice, it goes once.
                if let Operand::Result { call, output } = operand
                    && let Some(last) = last.get_mut(call).and_then(|of| of.get_mut(output))
                    && *last == k
                {
                    *last = usize::MAX;
                    self.tape.release(results[call][output]);
                }
            }
        }
        for (at, (j, operand)) in bound.iter().enumerate() {
            let value = match operand {
                Operand::Input(i) => refs.get(*i).copied().flatten(),
                Operand::Result { call, output } => results.get(*call).and_then(|r| r.get(*output)).copied(),
            };
            // A result is held for the first of the node's outputs that it is.
            let is_held = matches!(operand, Operand::Result { .. })
                && bound[..at].iter().all(|(_, other)| other != operand);
            if let Some(value) = value.filter(|_| !is_held) {
                self.tape.hold(value);
            }
            match (value, node.outputs.get(*j).copied().flatten()) {
                (Some(value), Some(id)) if self.uses[id.index()] == 0 => self.tape.release(value),
                (Some(value), Some(id)) => self.values[id.index()] = Some(value),
                (Some(value), None) if *j == Lowering::LOSS => self.penalties.push(value),
                _ => {}
            }
        }
    }

    /// Forgets values that nobody reads any more.
    fn release_inputs(&mut self, node: &Node) {
        for id in node.inputs.iter().flatten().chain(&node.captures) {
            self.release_use(*id);
        }
    }

    pub(super) fn release_use(&mut self, id: TensorId) {
        let uses = &mut self.uses[id.index()];
        *uses = uses.saturating_sub(1);
        let is_own = self.graph.tensor(id).role == Role::Intermediate;
        if *uses == 0
            && is_own
            && let Some(t) = self.values[id.index()].take()
        {
            self.tape.release(t);
        }
    }
}

/// By call and output, the last call that reads it; none for what is bound.
fn last_uses(calls: &[Call], bound: &[(usize, Operand)]) -> Vec<SmallVec<[usize; 4]>> {
    let mut last: Vec<SmallVec<[usize; 4]>> =
        calls.iter().enumerate().map(|(k, call)| smallvec![k; call.outputs.len()]).collect();
    let mut note = |operand: &Operand, k| {
        if let Operand::Result { call, output } = operand
            && let Some(last) = last.get_mut(*call).and_then(|of| of.get_mut(*output))
        {
            *last = k;
        }
    };
    for (k, call) in calls.iter().enumerate() {
        call.inputs.iter().for_each(|operand| note(operand, k));
    }
    bound.iter().for_each(|(_, operand)| note(operand, usize::MAX));
    last
}
