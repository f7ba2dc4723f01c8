//! A training step as the list of Burn's own primitives that it calls.
//!
//! It is data: what runs it on a device and what predicts its memory read the same list, so that what is run is what is
//! predicted. Every instruction is one function of `burn-backend` 0.21 (`FloatTensorOps`, `ModuleOps`, `ActivationOps`) with
//! one output; what Burn composes of several (softmax, attention, norms) is written out here in its order.

use super::elements::Elements;
use memfit_graph::TensorId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Index of a tensor in [`Program::slots`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

impl Slot {
    /// As an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// How precise floats are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Float {
    #[default]
    F32,
    F16,
    Bf16,
}

impl Float {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Float::F32 => "float32",
            Float::F16 => "float16",
            Float::Bf16 => "bfloat16",
        }
    }

    /// Bytes of an element.
    pub fn bytes(self) -> u64 {
        if self == Float::F32 { 4 } else { 2 }
    }

    /// The lowest number, and the smallest above zero that has all its digits (`finfo` of burn-std).
    pub(super) fn bounds(self) -> [f64; 2] {
        match self {
            Float::F32 => [f32::MIN.into(), f32::MIN_POSITIVE.into()],
            Float::F16 => [-65_504.0, (-14_f64).exp2()],
            Float::Bf16 => [-((2.0 - (-7_f64).exp2()) * 127_f64.exp2()), f32::MIN_POSITIVE.into()],
        }
    }
}

/// What a tensor holds. On a device integers have 4 or 8 bytes, truth values 1 or 4: that is the backend's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    Float(Float),
    Int,
    Bool,
}

impl Kind {
    /// Floats of the precision in which a step stores them, wherever a program is written.
    pub(super) const FLOAT: Kind = Kind::Float(Float::F32);

    /// Whether it holds floats, of any precision.
    pub fn is_float(self) -> bool {
        matches!(self, Kind::Float(_))
    }
}

/// A tensor of the program.
#[derive(Clone, Debug, PartialEq)]
pub struct SlotType {
    /// What it holds.
    pub kind: Kind,
    /// Its dims.
    pub shape: Vec<usize>,
}

impl SlotType {
    /// How many elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().fold(1, |n: usize, d| n.saturating_mul(*d))
    }
}

/// Elementwise functions of one float.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Unary {
    Abs,
    Ceil,
    Cos,
    Erf,
    Exp,
    Floor,
    Gelu,
    Log,
    Log1p,
    Neg,
    Recip,
    Relu,
    Round,
    Sigmoid,
    LogSigmoid,
    Sign,
    Sin,
    Sqrt,
    Tanh,
}

/// Elementwise functions of two tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Pow,
}

/// Comparisons, and the two connectives of truth values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Compare {
    Equal,
    Greater,
    GreaterEqual,
    Lower,
    LowerEqual,
    And,
    Or,
}

/// A range of a slice along one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First index.
    pub start: usize,
    /// The index after the last.
    pub end: usize,
    /// Distance; negative ones walk from the end.
    pub step: isize,
}

/// How a window moves; one number a spatial axis.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Window {
    pub kernel: Vec<usize>,
    pub stride: Vec<usize>,
    pub padding: Vec<usize>,
    pub dilation: Vec<usize>,
    pub ceil_mode: bool,
}

/// One function of Burn.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Prim {
    Unary(Unary),
    Binary(Binary),
    AddScalar(f64),
    MulScalar(f64),
    DivScalar(f64),
    PowScalar(f64),
    /// Inputs: two of one kind; a truth value.
    Compare(Compare),
    CompareScalar(Compare, f64),
    Not,
    /// Inputs: tensor, mask, value.
    MaskWhere,
    MaskFill(f64),
    MatMul,
    /// Inputs: x, weight `[in, out]`, maybe bias.
    Linear,
    /// Inputs: x, weight, maybe bias.
    Conv {
        window: Window,
        groups: usize,
    },
    ConvTranspose {
        window: Window,
        padding_out: Vec<usize>,
        groups: usize,
    },
    MaxPool2d(Window),
    AvgPool2d(Window, bool),
    AdaptiveAvgPool2d([usize; 2]),
    /// To this size; bilinear rather than nearest, with the corners' elements on each other.
    Interpolate {
        size: [usize; 2],
        bilinear: bool,
        corners: bool,
    },
    Sum,
    Mean,
    SumDim(usize),
    MeanDim(usize),
    MaxDim(usize),
    MinDim(usize),
    /// Where the largest is: integers, without a gradient.
    ArgMax(usize),
    ArgMin(usize),
    CumSum(usize),
    Reshape,
    Permute(Vec<usize>),
    Expand,
    Slice(Vec<Range>),
    /// Any number of inputs.
    Cat(usize),
    /// Inputs: tensor, indices of one axis.
    Select(usize),
    /// Inputs: tensor, indices of the tensor's rank.
    Gather(usize),
    /// Inputs: tensor, values, indices of one axis. What is given is added there.
    SelectAdd(usize),
    /// Inputs: tensor, values, indices of their shape.
    ScatterAdd(usize),
    /// Where the elements lie in order along an axis, the largest first or the smallest.
    ArgSort {
        axis: usize,
        descending: bool,
    },
    /// Inputs: weight, indices `[batch, length]`.
    Embedding,
    /// To the output's kind, floats of another precision among them.
    Convert,
    /// Cuts the gradient.
    Detach,
    /// No inputs: 1 with this probability, else 0.
    Bernoulli(f64),
    /// No inputs: anything from 0 to 1.
    Uniform,
    /// No inputs: one number everywhere.
    Full(f64),
}

/// One call.
#[derive(Clone, Debug, PartialEq)]
pub struct Instr {
    /// The function.
    pub prim: Prim,
    /// What it reads.
    pub inputs: Vec<Slot>,
    /// What it makes.
    pub output: Slot,
    /// Index into [`Program::layers`].
    pub layer: u32,
}

/// What a tensor that exists before the step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum SourceKind {
    Parameter,
    Frozen,
    Buffer,
    Input,
    Target,
    /// The optimizer's, of the parameter at this index of [`Program::parameters`].
    State(usize),
}

/// What a source is filled with.
#[derive(Clone, Debug, PartialEq)]
pub enum Fill {
    /// These elements.
    Values(Elements),
    /// Random numbers in this range; whole ones where the tensor is not of floats.
    Uniform(f64, f64),
}

/// A tensor that exists before the step.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Source {
    pub slot: Slot,
    pub kind: SourceKind,
    pub name: Arc<str>,
    /// The graph's tensor, where it is one.
    pub tensor: Option<TensorId>,
    pub fill: Fill,
    pub layer: u32,
}

/// The update of one parameter, run without autodiff.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    /// The parameter.
    pub parameter: Slot,
    /// Stands for its gradient.
    pub gradient: Slot,
    /// The calls.
    pub instrs: Vec<Instr>,
    /// What takes the place of the parameter and of its state: (old, new).
    pub replaced: Vec<(Slot, Slot)>,
}

/// A training step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// How precise floats are that are stored.
    pub stored: Float,
    /// How precise floats are that products and convolutions read and make.
    pub products: Float,
    /// All tensors.
    pub slots: Vec<SlotType>,
    /// What exists before the step, in the order in which it is made.
    pub sources: Vec<Source>,
    /// Forward and loss.
    pub instrs: Vec<Instr>,
    /// The model's outputs.
    pub outputs: Vec<Slot>,
    /// The loss; none for a forward pass alone.
    pub loss: Option<Slot>,
    /// Buffers that forward replaces: (old, new).
    pub replaced: Vec<(Slot, Slot)>,
    /// How many batches go forward and backward before an update; none is one.
    pub accumulate: u32,
    /// Whether autodiff runs under `BalancedCheckpointing`: what is cheap to make is made again in backward.
    pub balanced: bool,
    /// One a trained parameter, in the order of the model.
    pub updates: Vec<Update>,
    /// Layer names.
    pub layers: Vec<Arc<str>>,
    /// What was assumed.
    pub assumptions: Vec<String>,
    /// Where to find what was written.
    pub(super) index: Index,
}

/// Places in a program by what they are asked for by.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Index {
    /// Of layers by name.
    pub(super) layers: BTreeMap<Arc<str>, u32>,
    /// Tensors whose elements are known before the step, by name.
    pub(super) tables: BTreeMap<Arc<str>, Slot>,
    /// Of sources.
    pub(super) sources: BTreeMap<Slot, usize>,
}

impl Program {
    /// A tensor's type.
    pub fn ty(&self, slot: Slot) -> &SlotType {
        &self.slots[slot.index()]
    }

    /// How many batches go forward and backward in a step.
    pub fn batches(&self) -> u32 {
        self.accumulate.max(1)
    }

    /// One more tensor that exists before the step.
    pub(super) fn add_source(&mut self, source: Source) {
        self.index.sources.insert(source.slot, self.sources.len());
        self.sources.push(source);
    }

    /// The source that a tensor is, if it is one.
    pub(super) fn source(&self, slot: Slot) -> Option<&Source> {
        self.sources.get(*self.index.sources.get(&slot)?)
    }

    /// The trained parameters.
    pub fn parameters(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter().filter(|s| s.kind == SourceKind::Parameter)
    }

    /// For each call, which of its inputs nobody reads afterwards: Rust code moves a tensor there and clones it elsewhere. `kept`
    /// are read after the last call.
    pub fn last_uses(instrs: &[Instr], kept: &[Slot]) -> Vec<Vec<bool>> {
        let mut seen: std::collections::BTreeSet<Slot> = kept.iter().copied().collect();
        let mut moved: Vec<Vec<bool>> = instrs
            .iter()
            .rev()
            .map(|instr| {
                let mut flags: Vec<bool> = instr.inputs.iter().rev().map(|slot| seen.insert(*slot)).collect();
                flags.reverse();
                flags
            })
            .collect();
        moved.reverse();
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_reader_of_a_tensor_takes_it() {
        let call = |inputs: &[u32], output| Instr {
            prim: Prim::Binary(Binary::Mul),
            inputs: inputs.iter().copied().map(Slot).collect(),
            output: Slot(output),
            layer: 0,
        };
        let instrs = [call(&[0, 0], 1), call(&[1, 2], 3)];
        assert_eq!(Program::last_uses(&instrs, &[Slot(2)]), [vec![false, true], vec![true, false]]);
    }
}
