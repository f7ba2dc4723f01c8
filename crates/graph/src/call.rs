//! What a framework does to run one operator, as plain data.
//!
//! An operator writes a list of [`Call`]s: kernels with their outputs (a new storage, or a view of an input), what
//! autograd keeps of them for backward, and what the backward function makes. The engine runs these lists; an operator
//! file never touches a timeline. The vocabulary is ATen's, since PyTorch's memory follows from it call by call
//! (derivatives.yaml and autograd/FunctionsManual.cpp, PyTorch 2.15).

use crate::DType;
use smallvec::SmallVec;

/// The dims of a tensor that a call makes.
pub type Dims = SmallVec<[u64; 4]>;

/// A value inside one operator's list of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// Input `i` of the node.
    Input(usize),
    /// Output `output` of call `call` of this list.
    Result {
        /// Index of the call.
        call: usize,
        /// Index of its output.
        output: usize,
    },
}

/// What autocast does to a call's inputs (PyTorch 2.15, aten/src/ATen/autocast_mode.h, CUDA lists).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Autocast {
    /// On no list: runs in the dtype it gets.
    #[default]
    Keep,
    /// `lower_precision_fp`: float inputs are cast to the autocast dtype (convolution, linear, matmul, attention).
    Lower,
    /// `fp32`: half inputs are cast up (softmax, losses, norms, exp, pow, sum).
    Fp32,
    /// `promote`: inputs are cast to the widest among them (addcmul, grid_sampler, index_put).
    Promote,
}

/// The dtype of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutDtype {
    /// The promoted dtype of the call's float inputs after autocast.
    Promoted,
    /// The dtype of one input after autocast.
    Like(usize),
    /// This dtype: masks, indices, statistics.
    Is(DType),
}

/// A view that shares its input's storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum View {
    /// The same elements in another shape; a copy where strides do not allow a view (`aten::reshape`).
    Reshape,
    /// Axes reordered: output axis `i` is input axis `perm[i]`.
    Permute(Vec<usize>),
    /// Axes of one repeated (stride zero), aligned from the right.
    Expand,
    /// Part of the input: along `axis` from `start`, every `step`-th element.
    Slice {
        /// Axis.
        axis: usize,
        /// First index.
        start: u64,
        /// Step.
        step: u64,
    },
    /// The same tensor (detach, identity, dropout in evaluation).
    Alias,
}

/// Where an output lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A new contiguous storage.
    New,
    /// A new storage laid out as TensorIterator does: like the inputs where they agree, else contiguous.
    Pointwise,
    /// A view of input `i` of the call.
    View(usize, View),
    /// Input `i` itself, overwritten (`relu_`).
    InPlace(usize),
    /// What a library keeps for its own backward; of fake tensors, for which it does not run, nothing.
    Reserve,
}

/// One output of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// Dims.
    pub shape: Dims,
    /// Element type.
    pub dtype: OutDtype,
    /// Storage.
    pub place: Place,
}

/// What autograd keeps, if the call needs a gradient at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saved {
    /// Input `i`.
    Input(usize),
    /// Input `i`, only where input `needed_by` needs a gradient (the factor of a product).
    InputFor {
        /// The input that is kept.
        input: usize,
        /// The input whose gradient reads it.
        needed_by: usize,
    },
    /// Output `i`.
    Output(usize),
}

/// How the backward function makes the gradient of one input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grad {
    /// None: not differentiable in this input.
    None,
    /// A new tensor of the input's shape, contiguous.
    New,
    /// A new tensor of the input's shape and layout: a matrix product transposes the product where the input is a
    /// transposed matrix (FunctionsManual.cpp, `mm_mat1_backward`, `mm_mat2_backward`).
    Like,
    /// A new tensor laid out like the incoming gradient; where the input was broadcast, a tensor of the output's
    /// shape is made first and then summed.
    Pointwise,
    /// The incoming gradient itself; summed where the input was broadcast (add).
    Pass,
    /// The gradient seen through the inverse of the output's view (reshape back, permute back; a slice gives a new
    /// zero tensor of the input's shape; an expand is summed).
    Unview,
    /// This input's part of the gradient of a concatenation: a view.
    Narrow,
    /// The gradient of one output expanded to the input's shape without a copy (sum, mean before its division).
    Expand,
}

/// One ATen call as autograd sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// ATen's name, such as `convolution`.
    pub function: &'static str,
    /// Inputs.
    pub inputs: SmallVec<[Operand; 5]>,
    /// Outputs, hidden ones (masks, statistics) included.
    pub outputs: Vec<Output>,
    /// What autocast does to the inputs.
    pub autocast: Autocast,
    /// What is kept for backward.
    pub saved: SmallVec<[Saved; 4]>,
    /// The gradient of each input; inputs beyond the list have none.
    pub grads: SmallVec<[Grad; 5]>,
    /// Tensors that live only while the kernel runs, in elements and dtype.
    pub scratch: Vec<(Vec<u64>, DType)>,
    /// Tensors that live only while the backward function runs.
    pub backward_scratch: Vec<(Vec<u64>, OutDtype)>,
    /// Tensors that live only inside of a kernel that the backward function calls. A run on fake tensors, which computes
    /// nothing, does not have them.
    pub backward_workspace: Vec<(Vec<u64>, OutDtype)>,
}

impl Call {
    /// A call without inputs or outputs, to build on.
    #[inline]
    pub fn new(function: &'static str) -> Call {
        Call {
            function,
            inputs: SmallVec::new(),
            outputs: Vec::new(),
            autocast: Autocast::Keep,
            saved: SmallVec::new(),
            grads: SmallVec::new(),
            scratch: Vec::new(),
            backward_scratch: Vec::new(),
            backward_workspace: Vec::new(),
        }
    }

    /// The sum of all elements, whose gradient is a view.
    pub fn sum_of_all(operand: Operand) -> Call {
        let call = Call::new("sum").input(operand, Grad::Expand);
        call.output(&[], OutDtype::Promoted, Place::New)
    }

    /// Adds an input and how its gradient is made.
    #[inline]
    pub fn input(mut self, operand: Operand, grad: Grad) -> Call {
        self.inputs.push(operand);
        self.grads.push(grad);
        self
    }

    /// Adds an output.
    #[inline]
    pub fn output(mut self, shape: &[u64], dtype: OutDtype, place: Place) -> Call {
        self.outputs.push(Output { shape: Dims::from_slice(shape), dtype, place });
        self
    }

    /// Adds what is kept.
    #[inline]
    pub fn saves(mut self, saved: impl IntoIterator<Item = Saved>) -> Call {
        self.saved.extend(saved);
        self
    }

    /// Sets what autocast does.
    #[inline]
    pub fn autocast(mut self, autocast: Autocast) -> Call {
        self.autocast = autocast;
        self
    }

    /// Adds a tensor that lives only while the kernel runs.
    pub fn scratch(mut self, shape: &[u64], dtype: DType) -> Call {
        self.scratch.push((shape.to_vec(), dtype));
        self
    }

    /// Adds a tensor that lives only while the backward function runs.
    pub fn backward_scratch(mut self, shape: &[u64], dtype: OutDtype) -> Call {
        self.backward_scratch.push((shape.to_vec(), dtype));
        self
    }

    /// Adds a tensor that lives only inside of a kernel that the backward function calls.
    pub fn backward_workspace(mut self, shape: &[u64], dtype: OutDtype) -> Call {
        self.backward_workspace.push((shape.to_vec(), dtype));
        self
    }
}
