//! What TensorFlow runs for an operator: kernels of a dataflow graph, with their registered gradients.
//!
//! In graph mode nothing but data flow decides what lives how long: the executor frees a buffer when the last kernel that
//! reads it has run, and a kernel may write into the buffer of an input that nobody else reads any more
//! (`OpKernelContext::forward_input_or_allocate_output`). So an operator says which kernels it runs and on what, each
//! kernel says how its gradient is made of further kernels ([`Gradient`], tensorflow/python/ops/*_grad.py, 2.21), and
//! memory follows from the whole step's graph. Scalars that a step passes along (learning rates, epsilons) are left out.

mod arithmetic;
mod build;
mod layers;
mod lowering;
mod nn;
mod recurrence;
mod shape;
mod turns;

pub use lowering::{Compute, Source, TfLowering};
pub use turns::{Loop, PARALLEL, Turn};

use crate::DType;
use std::collections::BTreeMap;

/// One output of one kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wire {
    /// Index into [`Flow::kernels`].
    pub kernel: u32,
    /// Index of its output.
    pub output: u32,
}

/// Where an output lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A new buffer.
    New,
    /// The buffer of an input of the same dtype and size that nobody else reads any more, else a new one.
    Reuse,
    /// The buffer of the first input (`Reshape`, `Identity`, `Squeeze`, `ExpandDims`).
    Alias,
    /// In host memory: a constant scalar, a shape.
    Host,
}

/// What a kernel makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// Dims.
    pub shape: Vec<u64>,
    /// Element type.
    pub dtype: DType,
    /// Storage.
    pub place: Place,
}

impl Made {
    /// How many elements.
    pub fn elements(&self) -> u64 {
        crate::elements(&self.shape)
    }
}

/// What a kernel does besides computing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    #[default]
    None,
    /// It gives the batch's input of this index.
    Feed(u32),
    /// It reads a variable; the output is the variable's own buffer.
    Read(u32),
    /// It adds to or subtracts from a variable in place. Where a read of the old value is still held, the variable gets
    /// a new buffer (`PrepareToUpdateVariable`, training_op_helpers.h).
    Update(u32),
    /// It puts its input in place of the variable's value (`AssignVariableOp`).
    Assign(u32),
    /// It scatters rows into a variable, in place (`ResourceScatterAdd`).
    Scatter(u32),
}

impl Effect {
    /// The variable that it reads or writes.
    pub fn variable(self) -> Option<u32> {
        match self {
            Effect::Read(v) | Effect::Update(v) | Effect::Assign(v) | Effect::Scatter(v) => Some(v),
            Effect::None | Effect::Feed(_) => None,
        }
    }
}

/// The part of the step that a kernel belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Stage {
    #[default]
    Forward,
    Backward,
    Update,
}

/// The scope of an operation between layers: that of the model. Functions that an operation calls have scopes that begin so.
pub const OF_MODEL: &str = "..";

/// Makes the gradients of a kernel's inputs from those of its outputs. The wire is the kernel's first output.
pub type Gradient = fn(&mut Flow, &Kernel, Wire, &[Option<Wire>]) -> Vec<Option<Wire>>;

/// A node of the step's graph.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// TensorFlow's name, such as `Conv2D`.
    pub name: &'static str,
    /// What it reads.
    pub inputs: Vec<Wire>,
    /// What it makes.
    pub outputs: Vec<Made>,
    /// What else it does.
    pub effect: Effect,
    /// Kernels that run before it though it reads nothing of theirs (control dependencies).
    pub after: Vec<u32>,
    /// How its gradient is made; none where it is not differentiable.
    pub gradient: Option<Gradient>,
    /// Set by whoever builds the graph.
    pub layer: u32,
    /// Set by whoever builds the graph.
    pub stage: Stage,
    /// Where in the layer it belongs: a layer inside of it, or a function.
    pub scope: &'static str,
    /// The forward kernel whose gradient it is a part of.
    pub gradient_of: Option<u32>,
    /// The step of a loop that it belongs to.
    pub turn: Option<Turn>,
}

/// A resource that outlives the step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Dims.
    pub shape: Vec<u64>,
    /// Element type.
    pub dtype: DType,
    /// Whether a gradient is made for it.
    pub trainable: bool,
    /// Whether a read copies it: a variable that is updated row by row is in copy-on-read mode
    /// (`EnsureSparseVariableAccess`, training_op_helpers.h).
    pub copy_on_read: bool,
}

/// The graph of a step.
#[derive(Clone, Debug, Default)]
pub struct Flow {
    /// In the order in which they were made.
    pub kernels: Vec<Kernel>,
    /// Weights, state and slots.
    pub variables: Vec<Variable>,
    /// The layer of kernels that are made now.
    pub layer: u32,
    /// The stage of kernels that are made now.
    pub stage: Stage,
    /// Where in the layer kernels that are made now belong.
    pub scope: &'static str,
    /// The forward kernel whose gradient kernels that are made now are.
    pub gradient_of: Option<u32>,
    /// The step of a loop that kernels which are made now belong to.
    turn: Option<Turn>,
    /// Loops over time.
    loops: Vec<Loop>,
    /// Whether grappler folds what gradients make of constants: one value everywhere takes no room (constant_folding.cc).
    pub folds: bool,
    /// Whether a layer says that XLA does not compile it (`supports_jit`, keras/src/layers/layer.py): then none of the model is compiled.
    pub uncompiled: bool,
    /// The release of Keras 2 whose layers they are: the number after the point.
    pub keras_2: Option<u32>,
    /// Whether a list has a tensor for each of its items, as TensorFlow's kernels have it; XLA has one array.
    pub lists: bool,
    /// By the kernel that makes a list, the one that makes zeros like it.
    zeros: BTreeMap<u32, u32>,
    /// Scalars that layers add to the loss.
    pub penalties: Vec<Wire>,
}

impl Flow {
    /// Adds a kernel; gives its first output.
    pub fn push(
        &mut self,
        name: &'static str,
        inputs: &[Wire],
        outputs: Vec<Made>,
        gradient: Option<Gradient>,
    ) -> Wire {
        self.effect(name, inputs, outputs, Effect::None, gradient)
    }

    /// Adds a kernel with an effect.
    pub fn effect(
        &mut self,
        name: &'static str,
        inputs: &[Wire],
        outputs: Vec<Made>,
        effect: Effect,
        gradient: Option<Gradient>,
    ) -> Wire {
        let kernel = u32::try_from(self.kernels.len()).unwrap_or(u32::MAX);
        let turn = self.turn;
        self.turn.iter_mut().for_each(|turn| turn.place += 1);
        self.kernels.push(Kernel {
            name,
            inputs: inputs.to_vec(),
            outputs,
            effect,
            // What reads nothing starts with the step.
            after: turn.filter(|_| inputs.is_empty()).map(|turn| turn.start()).into_iter().collect(),
            gradient,
            layer: self.layer,
            stage: self.stage,
            scope: self.scope,
            gradient_of: self.gradient_of,
            turn,
        });
        Wire { kernel, output: 0 }
    }

    /// What is made in a name scope.
    pub fn within<T>(&mut self, scope: &'static str, make: impl FnOnce(&mut Flow) -> T) -> T {
        let outer = std::mem::replace(&mut self.scope, scope);
        let made = make(self);
        self.scope = outer;
        made
    }

    /// Lets the kernel that makes `wire` wait for another one (`ops.control_dependencies([grad])`): what a gradient function
    /// computes of forward's tensors alone would otherwise run in forward.
    pub fn wait(&mut self, wire: Wire, until: Wire) {
        self.kernels[wire.kernel as usize].after.push(until.kernel);
    }

    /// The kernel that makes a wire.
    pub fn kernel(&self, wire: Wire) -> &Kernel {
        &self.kernels[wire.kernel as usize]
    }

    /// What is known of a wire.
    pub fn made(&self, wire: Wire) -> &Made {
        &self.kernels[wire.kernel as usize].outputs[wire.output as usize]
    }

    /// The dims of a wire.
    pub fn shape(&self, wire: Wire) -> &[u64] {
        &self.made(wire).shape
    }

    /// The dtype of a wire.
    pub fn dtype(&self, wire: Wire) -> DType {
        self.made(wire).dtype
    }

    /// Adds a variable.
    pub fn variable(&mut self, shape: &[u64], dtype: DType, trainable: bool) -> u32 {
        self.variables.push(Variable { shape: shape.to_vec(), dtype, trainable, copy_on_read: false });
        u32::try_from(self.variables.len() - 1).unwrap_or(u32::MAX)
    }

    /// Reads a variable.
    pub fn read(&mut self, variable: u32) -> Wire {
        let v = &self.variables[variable as usize];
        let place = if v.copy_on_read { Place::New } else { Place::Alias };
        let made = Made { shape: v.shape.clone(), dtype: v.dtype, place };
        self.effect("ReadVariableOp", &[], vec![made], Effect::Read(variable), None)
    }
}
