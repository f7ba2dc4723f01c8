//! What one operator sees of the graph while it is written as Burn's primitives.

use super::builder::{Calls, Refusal};
use super::elements::Elements;
use super::fits::too_large;
use super::program::{Fill, Kind, Program, Slot, Source, SourceKind};
use crate::parameters::Stored;
use memfit_graph::{DType, Graph, Inferred, Node, NodeId, Num, Role, TensorId, Value};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// What is known of the whole model.
pub(super) struct Model<'a> {
    pub(super) graph: &'a Graph,
    pub(super) inferred: &'a Inferred,
    pub(super) kinds: Vec<Option<Stored>>,
    /// What follows from a trained parameter.
    pub(super) trained: Vec<bool>,
    /// Readers of each tensor.
    pub(super) consumers: Vec<Vec<NodeId>>,
    /// Whether the step trains.
    pub(super) training: bool,
    /// What each tensor is on the device, once something has made it there.
    pub(super) slots: Vec<Option<Slot>>,
}

/// One operator.
pub(super) struct Lower<'a, 'm> {
    pub(super) calls: Calls<'a>,
    pub(super) model: &'a mut Model<'m>,
    pub(super) node: &'m Node,
}

impl<'a> Deref for Lower<'a, '_> {
    type Target = Calls<'a>;

    fn deref(&self) -> &Calls<'a> {
        &self.calls
    }
}

impl DerefMut for Lower<'_, '_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.calls
    }
}

impl<'m> Lower<'_, 'm> {
    pub(super) fn id(&self, i: usize) -> Option<TensorId> {
        self.node.inputs.get(i).copied().flatten()
    }

    /// Input `i` on the device.
    pub(super) fn input(&mut self, i: usize) -> Result<Slot, Refusal> {
        let id = self.id(i).ok_or_else(|| format!("input {i} is absent"))?;
        self.model.slot(self.calls.program, id, self.calls.layer)
    }

    /// Input `i` on the device, where it is given.
    pub(super) fn optional(&mut self, i: usize) -> Result<Option<Slot>, Refusal> {
        self.id(i).map(|_| self.input(i)).transpose()
    }

    /// The elements of input `i`, where they are known and stay.
    pub(super) fn value(&self, i: usize) -> Option<&'m Value> {
        let id = self.id(i).filter(|id| !self.model.trained[id.index()])?;
        self.model.inferred.value(id)
    }

    pub(super) fn ints(&self, i: usize) -> Option<Vec<i64>> {
        self.value(i)?.ints()
    }

    /// The only element of input `i`, where it is known.
    pub(super) fn number(&self, i: usize) -> Option<f64> {
        self.value(i)?.single().and_then(Num::as_f64)
    }

    pub(super) fn input_shape(&self, i: usize) -> Result<Vec<usize>, Refusal> {
        let id = self.id(i).ok_or_else(|| format!("input {i} is absent"))?;
        self.model.shape(id)
    }

    pub(super) fn output_shape(&self, j: usize) -> Result<Vec<usize>, Refusal> {
        let id = self.node.outputs.get(j).copied().flatten();
        self.model.shape(id.ok_or_else(|| format!("output {j} is absent"))?)
    }

    pub(super) fn output_kind(&self, j: usize) -> Kind {
        let id = self.node.outputs.get(j).copied().flatten();
        id.map_or(Kind::FLOAT, |id| kind(self.model.inferred.dtype(id)))
    }

    pub(super) fn wants(&self, j: usize) -> bool {
        let id = self.node.outputs.get(j).copied().flatten();
        id.is_some_and(|id| {
            !self.model.consumers[id.index()].is_empty() || self.model.graph.outputs.contains(&id)
        })
    }

    pub(super) fn set(&mut self, j: usize, slot: Slot) {
        if let Some(Some(id)) = self.node.outputs.get(j) {
            self.model.slots[id.index()] = Some(slot);
        }
    }

    /// Elements that are known before the step, one table for each node that asks under this name.
    pub(super) fn table(
        &mut self,
        what: &str,
        kind: Kind,
        shape: Vec<usize>,
        values: impl Fn() -> Vec<f64> + Send + Sync + 'static,
    ) -> Slot {
        let name = format!("{}: {what}", self.node.name);
        self.shared_table(name, kind, shape, values)
    }

    /// Elements that are known before the step, one table under this name. They are made where the step is run.
    pub(super) fn shared_table(
        &mut self,
        name: String,
        kind: Kind,
        shape: Vec<usize>,
        values: impl Fn() -> Vec<f64> + Send + Sync + 'static,
    ) -> Slot {
        if let Some(known) = self.program.index.tables.get(&*name) {
            return *known;
        }
        if let Some(why) = too_large(&shape) {
            self.refuse(why);
        }
        let (slot, layer) = (self.program.slot(kind, shape), self.layer);
        let fill = Fill::Values(Elements::made(values));
        let (kind, name): (_, Arc<str>) = (SourceKind::Buffer, name.into());
        self.program.index.tables.insert(name.clone(), slot);
        self.program.add_source(Source { slot, kind, name, tensor: None, fill, layer });
        slot
    }

    /// An axis counted from the back when negative.
    pub(super) fn axis(&self, axis: i64, rank: usize) -> Result<usize, Refusal> {
        usize::try_from(from_front(axis, rank))
            .ok()
            .filter(|at| *at < rank)
            .ok_or_else(|| format!("there is no axis {axis}"))
    }
}

impl Model<'_> {
    pub(super) fn shape(&self, id: TensorId) -> Result<Vec<usize>, Refusal> {
        let shape = self.inferred.shape(id).and_then(|s| s.known());
        let name = &self.graph.tensor(id).name;
        let mut shape = shape.ok_or_else(|| format!("the size of {name} depends on the data"))?;
        if shape.is_empty() {
            // Burn's tensors have an axis at least.
            shape.push(1);
        }
        shape.iter().map(|d| usize::try_from(*d).map_err(|_| format!("{name} is too large"))).collect()
    }

    /// A tensor on the device, made before the step if no call has made it.
    pub(super) fn slot(&mut self, program: &mut Program, id: TensorId, layer: u32) -> Result<Slot, Refusal> {
        if let Some(slot) = self.slots[id.index()] {
            return Ok(slot);
        }
        let tensor = self.graph.tensor(id);
        let value = self.inferred.value(id).and_then(Value::floats);
        let kind = kind(self.inferred.dtype(id));
        let stored = match (self.kinds[id.index()], tensor.role) {
            (Some(Stored::Parameter), _) if self.training && kind.is_float() => SourceKind::Parameter,
            (Some(Stored::Parameter | Stored::Frozen), _) => SourceKind::Frozen,
            (None, Role::Input) => SourceKind::Input,
            _ => SourceKind::Buffer,
        };
        if tensor.role == Role::Intermediate && value.is_none() {
            return Err(format!("{} is made by an operator that is not run", tensor.name));
        }
        let shape = self.shape(id)?;
        let fill = match value {
            Some(values) => Fill::Values(values.into()),
            None => self.fill(id, kind, &shape),
        };
        let slot = program.slot(kind, shape);
        let name = tensor.name.clone();
        program.add_source(Source { slot, kind: stored, name, tensor: Some(id), fill, layer });
        self.slots[id.index()] = Some(slot);
        Ok(slot)
    }

    /// Random values with which nothing overflows: weights as their layer's fan-in asks, indices inside of their table.
    fn fill(&self, id: TensorId, kind: Kind, shape: &[usize]) -> Fill {
        let table = self.consumers[id.index()].iter().find_map(|n| {
            let node = &self.graph.nodes[n.index()];
            let reads = node.op.name() == "Gather" && node.inputs.get(1).copied().flatten() == Some(id);
            let table = node.inputs.first().copied().flatten().filter(|_| reads)?;
            self.inferred.shape(table)?.dims().first()?.known()
        });
        match (kind, table, shape) {
            (Kind::Int, Some(rows), _) => Fill::Uniform(0.0, rows as f64),
            (Kind::Int | Kind::Bool, ..) => Fill::Uniform(1.0, 2.0),
            (Kind::Float(_), _, [] | [_]) if self.kinds[id.index()].is_some() => Fill::Uniform(0.5, 1.5),
            (Kind::Float(_), _, [_, inner @ ..]) if self.kinds[id.index()].is_some() => {
                let fan = inner.iter().product::<usize>().max(shape[0]).max(1) as f64;
                Fill::Uniform(-fan.sqrt().recip(), fan.sqrt().recip())
            }
            _ => Fill::Uniform(-1.0, 1.0),
        }
    }
}

/// A place among `size`, counted from the front: the file counts from the back where it is negative.
pub(super) fn from_front(at: i64, size: usize) -> i64 {
    if at < 0 { at.saturating_add_unsigned(size as u64) } else { at }
}

/// What a dtype of the file is to Burn.
pub(super) fn kind(dtype: DType) -> Kind {
    match dtype {
        DType::Bool => Kind::Bool,
        d if d.is_integer() => Kind::Int,
        _ => Kind::FLOAT,
    }
}
