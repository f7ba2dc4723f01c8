//! Burn's functions on tensors of any rank and kind, generic over the backend. One file a family; [`call`] finds the right one.
//!
//! Everything here takes its inputs by value: who still needs a tensor has cloned the handle, so that Burn writes in place where
//! it would in hand-written code.

mod elementwise;
mod layout;
mod mask;
mod plane;
mod product;
mod reduce;

use burn_backend::tensor::{BoolTensor, Device, FloatTensor, IntTensor};
use burn_backend::{Backend, DType, FloatDType, Shape, TensorMetadata};
use memfit_engine::frameworks::burn::{Float, Instr, Kind, Prim, Program};

/// A tensor of any kind.
#[derive(Debug)]
pub enum Value<B: Backend> {
    /// Floats.
    Float(FloatTensor<B>),
    /// Integers.
    Int(IntTensor<B>),
    /// Truth values.
    Bool(BoolTensor<B>),
}

impl<B: Backend> Clone for Value<B> {
    fn clone(&self) -> Value<B> {
        match self {
            Value::Float(t) => Value::Float(t.clone()),
            Value::Int(t) => Value::Int(t.clone()),
            Value::Bool(t) => Value::Bool(t.clone()),
        }
    }
}

impl<B: Backend> Value<B> {
    /// The dims.
    pub fn shape(&self) -> Shape {
        match self {
            Value::Float(t) => t.shape(),
            Value::Int(t) => t.shape(),
            Value::Bool(t) => t.shape(),
        }
    }

    /// Whether it holds what is said of a tensor of the program.
    pub(crate) fn is_of(&self, kind: Kind) -> bool {
        match self {
            Value::Float(t) => float(kind).is_ok_and(|dtype| t.dtype() == DType::from(dtype)),
            Value::Int(_) => kind == Kind::Int,
            Value::Bool(_) => kind == Kind::Bool,
        }
    }

    /// The floats inside.
    ///
    /// # Errors
    /// Where it holds something else.
    pub fn float(self) -> Result<FloatTensor<B>, String> {
        match self {
            Value::Float(t) => Ok(t),
            _ => Err("expected floats".into()),
        }
    }

    fn int(self) -> Result<IntTensor<B>, String> {
        match self {
            Value::Int(t) => Ok(t),
            _ => Err("expected integers".into()),
        }
    }

    fn bool(self) -> Result<BoolTensor<B>, String> {
        match self {
            Value::Bool(t) => Ok(t),
            _ => Err("expected truth values".into()),
        }
    }
}

/// Burn's dtype of floats.
///
/// # Errors
/// Where it is not of floats.
pub(crate) fn float(kind: Kind) -> Result<FloatDType, String> {
    match kind {
        Kind::Float(Float::F32) => Ok(FloatDType::F32),
        Kind::Float(Float::F16) => Ok(FloatDType::F16),
        Kind::Float(Float::Bf16) => Ok(FloatDType::BF16),
        _ => Err("expected floats".into()),
    }
}

/// The inputs of one call.
pub(crate) struct Inputs<B: Backend>(std::vec::IntoIter<Value<B>>);

impl<B: Backend> Inputs<B> {
    fn next(&mut self) -> Result<Value<B>, String> {
        self.0.next().ok_or_else(|| "an input is absent".into())
    }

    fn float(&mut self) -> Result<FloatTensor<B>, String> {
        self.next()?.float()
    }
}

/// What a call makes, beside its inputs.
pub(crate) struct Output<'a, B: Backend> {
    pub(crate) kind: Kind,
    pub(crate) shape: &'a [usize],
    pub(crate) device: &'a Device<B>,
}

impl<B: Backend> Output<'_, B> {
    fn shape(&self) -> Shape {
        Shape::from(self.shape.to_vec())
    }
}

/// Runs one call.
///
/// # Errors
/// Where an input has another kind than the function takes.
pub fn call<B: Backend>(
    program: &Program,
    instr: &Instr,
    inputs: Vec<Value<B>>,
    device: &Device<B>,
) -> Result<Value<B>, String> {
    let ty = program.ty(instr.output);
    let out = Output { kind: ty.kind, shape: &ty.shape, device };
    let mut inputs = Inputs(inputs.into_iter());
    match &instr.prim {
        Prim::Unary(_)
        | Prim::Binary(_)
        | Prim::AddScalar(_)
        | Prim::MulScalar(_)
        | Prim::DivScalar(_)
        | Prim::PowScalar(_)
        | Prim::Bernoulli(_)
        | Prim::Uniform
        | Prim::Full(_) => elementwise::call(&instr.prim, &mut inputs, &out),
        Prim::Compare(_)
        | Prim::CompareScalar(..)
        | Prim::Not
        | Prim::MaskWhere
        | Prim::MaskFill(_)
        | Prim::Convert => mask::call(&instr.prim, &mut inputs, &out),
        Prim::MatMul | Prim::Linear | Prim::Conv { .. } | Prim::ConvTranspose { .. } => {
            product::call(&instr.prim, &mut inputs)
        }
        Prim::MaxPool2d(_) | Prim::AvgPool2d(..) | Prim::AdaptiveAvgPool2d(_) | Prim::Interpolate { .. } => {
            plane::call(&instr.prim, &mut inputs)
        }
        Prim::Sum
        | Prim::Mean
        | Prim::SumDim(_)
        | Prim::MeanDim(_)
        | Prim::MaxDim(_)
        | Prim::MinDim(_)
        | Prim::ArgMax(_)
        | Prim::ArgMin(_)
        | Prim::ArgSort { .. }
        | Prim::CumSum(_) => reduce::call(&instr.prim, &mut inputs, device),
        Prim::Reshape
        | Prim::Permute(_)
        | Prim::Expand
        | Prim::Slice(_)
        | Prim::Cat(_)
        | Prim::Select(_)
        | Prim::Gather(_)
        | Prim::SelectAdd(_)
        | Prim::ScatterAdd(_)
        | Prim::Embedding
        | Prim::Detach => layout::call(&instr.prim, &mut inputs, &out),
    }
}
