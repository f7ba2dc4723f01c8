//! What one operator sees of the graph while its outputs are inferred.

use crate::infer::{Known, run};
use crate::{DType, Dim, Graph, Inferred, Node, Num, OpError, Shape, TensorId, TensorType, Type, Value};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A node that was inferred before, with the shapes of its first input and output: in the file as exported (`old`), and with
/// the new batch.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Step<'a> {
    pub op: &'a str,
    pub old_input: Option<&'a Shape>,
    pub new_input: Option<&'a Shape>,
    pub old_output: Option<&'a Shape>,
    pub new_output: Option<&'a Shape>,
}

/// What one operator sees while its outputs are inferred.
pub struct Infer<'a> {
    graph: &'a Graph,
    node: &'a Node,
    inferred: &'a Inferred,
    before: Option<&'a Inferred>,
    depth: u32,
    fuel: &'a Cell<u64>,
    pub(crate) outputs: Vec<(Type, Option<Value>)>,
}

impl<'a> Infer<'a> {
    /// Bodies nested deeper than this are an error.
    const MAX_DEPTH: u32 = 32;

    pub(crate) fn new(
        graph: &'a Graph,
        node: &'a Node,
        inferred: &'a Inferred,
        before: Option<&'a Inferred>,
        depth: u32,
        fuel: &'a Cell<u64>,
        mut outputs: Vec<(Type, Option<Value>)>,
    ) -> Self {
        outputs.clear();
        outputs.resize_with(node.outputs.len(), Default::default);
        Infer { graph, node, inferred, before, depth, fuel, outputs }
    }

    /// How many inputs the node has, omitted ones included.
    pub fn input_count(&self) -> usize {
        self.node.inputs.len()
    }

    /// How many outputs the node has, unused ones included.
    pub fn output_count(&self) -> usize {
        self.node.outputs.len()
    }

    /// Whether input `i` is given.
    pub fn has(&self, i: usize) -> bool {
        matches!(self.node.inputs.get(i), Some(Some(_)))
    }

    /// Whether output `j` is used.
    pub fn wants(&self, j: usize) -> bool {
        matches!(self.node.outputs.get(j), Some(Some(_)))
    }

    /// The type of input `i`; unknown where it is omitted.
    pub fn ty(&self, i: usize) -> &'a Type {
        match self.node.inputs.get(i) {
            Some(Some(id)) => &self.inferred.types[id.index()],
            _ => &Type::Unknown,
        }
    }

    /// The type of input `i`, which the operator cannot do without.
    pub fn require(&self, i: usize) -> Result<&'a Type, OpError> {
        if self.has(i) { Ok(self.ty(i)) } else { Err(OpError::MissingInput { index: i }) }
    }

    /// The shape of input `i`, where its rank is known.
    pub fn shape(&self, i: usize) -> Option<&'a Shape> {
        self.ty(i).shape()
    }

    /// The shape of input `i`, where its rank is known; an error where it has another rank than `rank`.
    pub fn shape_of_rank(&self, i: usize, rank: usize) -> Result<Option<&'a Shape>, OpError> {
        match self.shape(i) {
            Some(s) if s.rank() != rank => {
                Err(OpError::input(i, format!("rank {rank}"), format!("shape {s}")))
            }
            shape => Ok(shape),
        }
    }

    /// The dtype of input `i`; undefined where it is not known.
    pub fn dtype(&self, i: usize) -> DType {
        self.ty(i).dtype().unwrap_or(DType::Undefined)
    }

    /// The folded elements of input `i`.
    pub fn value(&self, i: usize) -> Option<&'a Value> {
        match self.node.inputs.get(i) {
            Some(Some(id)) => self.inferred.value(*id),
            _ => None,
        }
    }

    /// The elements of input `i` as integers, where all are known.
    pub fn ints(&self, i: usize) -> Option<Vec<i64>> {
        self.value(i)?.ints()
    }

    /// Sets output `j` to a tensor of `dtype`, with `shape` where its rank is known.
    pub fn set(&mut self, j: usize, dtype: DType, shape: Option<Shape>) {
        self.set_type(j, Type::Tensor(TensorType { dtype, shape }));
    }

    /// Sets the type of output `j`.
    pub fn set_type(&mut self, j: usize, ty: Type) {
        if let Some(slot) = self.outputs.get_mut(j) {
            slot.0 = ty;
        }
    }

    /// Sets output `j` to a folded value, its type included.
    pub fn set_value(&mut self, j: usize, value: Value) {
        if let Some(slot) = self.outputs.get_mut(j) {
            *slot = (Type::tensor(value.dtype, value.dims()), Some(value));
        }
    }

    /// Passes the type and value of input `i` on to output `j`.
    pub fn forward(&mut self, i: usize, j: usize) {
        let (ty, value) = (self.ty(i).clone(), self.value(i).cloned());
        if let Some(slot) = self.outputs.get_mut(j) {
            *slot = (ty, value);
        }
    }

    /// A dim that depends on the data, named after the first output and `label`, never above `upper`.
    pub fn fresh_dim(&self, label: &str, upper: Option<u64>) -> Dim {
        let name = self.node.outputs.iter().flatten().next().map_or("", |id| &self.graph.tensor(*id).name);
        Dim::unknown(&format!("{name}.{label}"), upper)
    }

    /// The shapes that input `i` and output `j` had in the file as exported, when a fixed batch is being replaced.
    pub fn before(&self, i: usize, j: usize) -> Option<(&'a Shape, &'a Shape)> {
        let before = self.before?;
        let input = before.shape((*self.node.inputs.get(i)?)?)?;
        let output = before.shape((*self.node.outputs.get(j)?)?)?;
        Some((input, output))
    }

    /// Input `i`, where the file stores it.
    pub fn stored(&self, i: usize) -> Option<&'a crate::Tensor> {
        let tensor = self.graph.tensor((*self.node.inputs.get(i)?)?);
        matches!(tensor.role, crate::Role::Initializer | crate::Role::Constant).then_some(tensor)
    }

    /// Whether input `i` is as it was before a size was replaced.
    pub fn stays(&self, i: usize) -> bool {
        let Some(Some(id)) = self.node.inputs.get(i) else { return true };
        self.before.is_some_and(|before| {
            before.types[id.index()] == self.inferred.types[id.index()]
                && before.values[id.index()] == self.inferred.values[id.index()]
        })
    }

    /// The folded elements that input `i` had in the file as exported, when a fixed batch is being replaced.
    pub fn value_before(&self, i: usize) -> Option<&'a Value> {
        self.before?.value((*self.node.inputs.get(i)?)?)
    }

    /// The exported batch size, or another size, and the one that replaces it: the first that differs among the model's inputs.
    pub fn batch(&self) -> Option<(u64, u64)> {
        self.replaced().map(|(_, old, new)| (old, new))
    }

    /// The exported size and the one that replaces it, where it is not the leading one of an input: the length of a sequence, not
    /// the batch.
    pub fn length(&self) -> Option<(u64, u64)> {
        self.replaced().filter(|(axis, ..)| *axis > 0).map(|(_, old, new)| (old, new))
    }

    fn replaced(&self) -> Option<(usize, u64, u64)> {
        let before = self.before?;
        let dims = |id: &crate::TensorId| Some((before.shape(*id)?.dims(), self.inferred.shape(*id)?.dims()));
        let pairs = self.graph.inputs.iter().filter_map(dims);
        let mut pairs = pairs.flat_map(|(old, new)| old.iter().zip(new).enumerate());
        pairs.find_map(|(axis, (old, new))| {
            let (old, new) = (old.known()?, new.known()?);
            (old != new).then_some((axis, old, new))
        })
    }

    /// The new batch where `size`, a number baked into the file, can only be the exported batch: no other size of the model's
    /// inputs is the same.
    pub fn rebatched(&self, size: u64) -> Option<u64> {
        let (old, new) = self.batch().filter(|(old, _)| *old == size)?;
        let dims =
            |id: &crate::TensorId| Some((self.before?.shape(*id)?.dims(), self.inferred.shape(*id)?.dims()));
        let pairs = self.graph.inputs.iter().filter_map(dims).flat_map(|(old, new)| old.iter().zip(new));
        let same = |(was, is): (&Dim, &Dim)| was.known() == Some(old) && is.known() != Some(new);
        (!pairs.into_iter().any(same)).then_some(new)
    }

    /// The nodes that made input `i` with what each made, the nearest first, each through its first input.
    fn makers(&self, i: usize) -> impl Iterator<Item = (&'a Node, TensorId)> + use<'a> {
        let graph = self.graph;
        let mut tensor = self.node.inputs.get(i).copied().flatten();
        // Nodes are sorted, so each is looked for before the one that reads from it.
        let mut until = graph.nodes.iter().position(|n| std::ptr::eq(n, self.node)).unwrap_or(0);
        std::iter::from_fn(move || {
            let output = tensor?;
            until = graph.nodes[..until].iter().rposition(|n| n.outputs.contains(&Some(output)))?;
            let node = &graph.nodes[until];
            tensor = node.inputs.first().copied().flatten();
            Some((node, output))
        })
    }

    /// The nodes that made input `i`, the nearest first, each through its first input, while a fixed batch is being replaced.
    pub fn history(&self, i: usize) -> impl Iterator<Item = Step<'a>> + use<'a> {
        let (inferred, makers) = (self.inferred, self.makers(i));
        let replaced = self.before.map(|before| {
            makers.map(move |(node, output)| {
                let input = node.inputs.first().copied().flatten();
                Step {
                    op: node.op.name(),
                    old_input: input.and_then(|id| before.shape(id)),
                    new_input: input.and_then(|id| inferred.shape(id)),
                    old_output: before.shape(output),
                    new_output: inferred.shape(output),
                }
            })
        });
        replaced.into_iter().flatten()
    }

    /// How many indices from zero on input `i` holds, where it was counted (`Range`) and no more than laid out anew since.
    pub fn counted(&self, i: usize) -> Option<u64> {
        let is_layout =
            |node: &Node| matches!(node.op.name(), "Unsqueeze" | "Expand" | "Reshape" | "Cast" | "Identity");
        let (node, output) = self.makers(i).find(|(node, _)| !is_layout(node))?;
        let number = |i: usize| self.inferred.value((*node.inputs.get(i)?)?)?.single()?.as_i64();
        let from_zero = node.op.name() == "Range" && number(0) == Some(0) && number(2) == Some(1);
        self.inferred.shape(output)?.dims().first()?.known().filter(|_| from_zero)
    }

    /// Whether a body can be inferred `times` times, leaving as much work for others.
    pub fn affords(&self, body: &Graph, times: u64) -> bool {
        Infer::work(body).checked_mul(times).is_some_and(|work| work <= self.fuel.get() / 2)
    }

    /// What one inference of a body costs, without bodies inside of it.
    fn work(body: &Graph) -> u64 {
        (body.nodes.len() + body.tensors.len() + 1) as u64
    }

    /// Infers a body with these inputs; gives its outputs' types and elements.
    ///
    /// # Errors
    /// All problems of the body, as one [`OpError::Body`].
    pub fn body(
        &self,
        body: &Graph,
        inputs: &[(Type, Option<Value>)],
    ) -> Result<Vec<(Type, Option<Value>)>, OpError> {
        if self.depth >= Self::MAX_DEPTH {
            return Err(OpError::overflow("the nesting of bodies"));
        }
        let capture = |id: &crate::TensorId| {
            (self.inferred.types[id.index()].clone(), self.inferred.values[id.index()].clone())
        };
        let captured: Vec<_> = self.node.captures.iter().map(capture).collect();
        let inputs: Vec<Known> =
            inputs.iter().map(|(ty, value)| (ty.clone(), value.clone().map(Arc::new))).collect();
        let declared = |id: &crate::TensorId| (body.tensor(*id).declared.clone(), None);
        let Some(left) = self.fuel.get().checked_sub(Infer::work(body)) else {
            return Ok(body.outputs.iter().map(declared).collect());
        };
        self.fuel.set(left);
        let none = BTreeMap::new();
        let (inferred, problems) = run(body, &inputs, &captured, &none, None, self.depth + 1, self.fuel);
        if !problems.is_empty() {
            return Err(OpError::Body(problems));
        }
        let output = |id: &crate::TensorId| {
            (inferred.types[id.index()].clone(), inferred.values[id.index()].as_deref().cloned())
        };
        Ok(body.outputs.iter().map(output).collect())
    }

    /// The elements of input `i` as dims, where each is a size.
    pub fn dims(&self, i: usize) -> Option<Vec<Dim>> {
        self.value(i)?.data.iter().map(Num::as_dim).collect()
    }
}
