//! What an operator sees while it writes its kernels into the step's graph.

use super::{Flow, Made, Place, Wire};
use crate::{DType, Value};
use std::ops::{Deref, DerefMut};

/// What an input of a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Made by another node, or fed.
    Wire(Wire),
    /// A weight or a table: an index into [`Flow::variables`].
    Variable(u32),
    /// A number or a small constant.
    Constant,
}

/// The dtypes of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compute {
    /// What its weights and inputs are cast to, where the policy is mixed.
    pub autocast: Option<DType>,
    /// Whether the model trains.
    pub training: bool,
    /// Whether grappler turns images channels first for convolutions in float32: on a GPU, where XLA is off
    /// (generic_layout_optimizer.cc; half precision stays channels last for tensor cores).
    pub channels_first: bool,
}

/// The kernels that a node runs, as they are written.
pub struct TfLowering<'a> {
    flow: &'a mut Flow,
    sources: &'a [Option<Source>],
    inputs: &'a [Made],
    outputs: &'a [Option<Made>],
    values: &'a [Option<&'a Value>],
    /// The dtypes that the plan gives this node.
    pub compute: Compute,
    bound: Vec<(usize, Wire)>,
    modelled: bool,
}

impl<'a> TfLowering<'a> {
    /// A list of kernels for a node with these inputs (`inputs` says what they are, omitted ones included) and outputs.
    pub fn new(
        flow: &'a mut Flow,
        sources: &'a [Option<Source>],
        inputs: &'a [Made],
        outputs: &'a [Option<Made>],
        values: &'a [Option<&'a Value>],
        compute: Compute,
    ) -> TfLowering<'a> {
        TfLowering { flow, sources, inputs, outputs, values, compute, bound: Vec::new(), modelled: true }
    }

    /// How many inputs the node has, omitted ones included.
    pub fn input_count(&self) -> usize {
        self.sources.len()
    }

    /// Whether input `i` is given.
    pub fn has(&self, i: usize) -> bool {
        matches!(self.sources.get(i), Some(Some(_)))
    }

    /// Whether input `i` is a number or a small constant, which no kernel makes.
    pub fn is_constant(&self, i: usize) -> bool {
        matches!(self.sources.get(i), Some(Some(Source::Constant)))
    }

    /// The folded elements of input `i`.
    pub fn value(&self, i: usize) -> Option<&'a Value> {
        self.values.get(i).copied().flatten()
    }

    /// What input `i` is.
    pub fn source(&self, i: usize) -> Option<Source> {
        self.sources.get(i).copied().flatten()
    }

    /// What inference says of input `i`.
    pub fn in_made(&self, i: usize) -> Option<&'a Made> {
        self.inputs.get(i)
    }

    /// Says that a part of the operator has no rule.
    pub fn unmodelled(&mut self) {
        self.modelled = false;
    }

    /// The dims of input `i`; empty where it is omitted.
    pub fn in_shape(&self, i: usize) -> &'a [u64] {
        self.inputs.get(i).map_or(&[], |made| &made.shape)
    }

    /// The dims of output `j`; empty where it is unused.
    pub fn out_shape(&self, j: usize) -> &'a [u64] {
        self.outputs.get(j).and_then(Option::as_ref).map_or(&[], |made| &made.shape)
    }

    /// The dtype of output `j` in the model's own precision.
    pub fn out_dtype(&self, j: usize) -> DType {
        self.outputs.get(j).and_then(Option::as_ref).map_or(DType::Float32, |made| made.dtype)
    }

    /// How many outputs the node has.
    pub fn output_count(&self) -> usize {
        self.outputs.len()
    }

    /// Whether output `j` is used.
    pub fn wants(&self, j: usize) -> bool {
        matches!(self.outputs.get(j), Some(Some(_)))
    }

    /// Input `i` as it is: a variable is read, nothing is cast.
    pub fn raw(&mut self, i: usize) -> Wire {
        match self.sources.get(i).copied().flatten() {
            Some(Source::Wire(wire)) => wire,
            Some(Source::Variable(variable)) => self.flow.read(variable),
            Some(Source::Constant) | None => {
                let (shape, dtype) =
                    self.inputs.get(i).map_or((&[][..], DType::Float32), |m| (&m.shape, m.dtype));
                self.flow.constant(shape, dtype)
            }
        }
    }

    /// Input `i` in the layer's dtype: a float is cast to it where the policy is mixed, a weight on each read
    /// (`AutocastScope`, keras/src/backend/common/variables.py).
    pub fn input(&mut self, i: usize) -> Wire {
        let wire = self.raw(i);
        match self.compute.autocast {
            Some(half) if self.flow.dtype(wire).is_float() => self.flow.cast(wire, half),
            _ => wire,
        }
    }

    /// Input `i` in float32, for layers that compute in it.
    pub fn input_f32(&mut self, i: usize) -> Wire {
        let wire = self.raw(i);
        if self.flow.dtype(wire).is_float() { self.flow.cast(wire, DType::Float32) } else { wire }
    }

    /// The dtype that the layer gives back.
    pub fn compute_dtype(&self) -> DType {
        self.compute.autocast.unwrap_or(DType::Float32)
    }

    /// Casts to the dtype that the layer gives back.
    pub fn to_compute(&mut self, wire: Wire) -> Wire {
        let dtype = self.compute_dtype();
        self.flow.cast(wire, dtype)
    }

    /// Says that node output `j` is this wire.
    pub fn bind(&mut self, j: usize, wire: Wire) {
        self.bound.push((j, wire));
    }

    /// New outputs that nothing flows back through: integers, random numbers, comparisons.
    pub fn allocate(&mut self, name: &'static str) {
        let wire = |source: &Option<Source>| match source {
            Some(Source::Wire(wire)) => Some(*wire),
            _ => None,
        };
        let reads: Vec<Wire> = self.sources.iter().filter_map(wire).collect();
        self.outputs_of(name, &reads, None);
    }

    fn outputs_of(&mut self, name: &'static str, reads: &[Wire], gradient: Option<super::Gradient>) {
        let used: Vec<usize> = (0..self.outputs.len()).filter(|j| self.wants(*j)).collect();
        let made = used
            .iter()
            .map(|j| Made {
                shape: self.out_shape(*j).to_vec(),
                dtype: self.out_dtype(*j),
                place: Place::New,
            })
            .collect();
        let wire = self.flow.push(name, reads, made, gradient);
        for (output, j) in (0..).zip(used) {
            self.bind(j, Wire { output, ..wire });
        }
    }

    /// A function of which nothing is known: a bound from above, whose gradient reads its input and its result.
    pub fn bound(&mut self, x: Wire) -> Wire {
        self.modelled = false;
        let (shape, dtype) = (self.shape(x).to_vec(), self.dtype(x));
        self.make("Unknown", &[x], &shape, dtype, Some(super::nn::BOUND))
    }

    /// A bound from above for an operator whose rule is not known: its gradient reads all inputs and outputs.
    pub fn not_modelled(&mut self) {
        self.modelled = false;
        let given: Vec<usize> = (0..self.sources.len()).filter(|i| self.has(*i)).collect();
        let reads: Vec<Wire> = given.into_iter().map(|i| self.input(i)).collect();
        self.outputs_of("Unknown", &reads, Some(super::nn::BOUND));
    }

    /// The outputs that have been bound.
    pub fn given(&self) -> &[(usize, Wire)] {
        &self.bound
    }

    /// The bound outputs, and whether the operator has a rule.
    pub fn into_parts(self) -> (Vec<(usize, Wire)>, bool) {
        (self.bound, self.modelled)
    }
}

impl Deref for TfLowering<'_> {
    type Target = Flow;

    fn deref(&self) -> &Flow {
        self.flow
    }
}

impl DerefMut for TfLowering<'_> {
    fn deref_mut(&mut self) -> &mut Flow {
        self.flow
    }
}
