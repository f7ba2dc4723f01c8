//! Operations element by element. Their operands broadcast; numbers in the place of tensors take part in the dtype alone.

use super::{Operation, Rule, operand};
use crate::arguments::Argument;
use crate::layer::Call;
use crate::policy;
use crate::spec::Spec;
use memfit_graph::{DType, OpError, Shape};

pub(super) const RULES: &[(&[&str], Rule)] = &[
    (
        &[
            "Absolute",
            "Celu",
            "Clip",
            "ClipByValue",
            "Conjugate",
            "Copy",
            "Elu",
            "HardSigmoid",
            "HardShrink",
            "HardSilu",
            "HardTanh",
            "Identity",
            "LeakyRelu",
            "LogSoftmax",
            "Negative",
            "OnesLike",
            "Relu",
            "Relu6",
            "Round",
            "Selu",
            "Sign",
            "SoftShrink",
            "Square",
            "StopGradient",
            "TanhShrink",
            "Threshold",
            "ZerosLike",
            "Flip",
            "Fliplr",
            "Flipud",
            "Roll",
            "Cumsum",
            "Cumprod",
            "Tril",
            "Triu",
            "Sort",
            "NanToNum",
            "Abs",
            "Real",
            "ConvertToTensor",
            "GaussianBlur",
            "BitwiseInvert",
            "BitwiseNot",
            "Conj",
            "Fabs",
            "FullLike",
            "EmptyLike",
            "Nancumprod",
            "Nancumsum",
            "Polar",
            "Trunc",
        ],
        same,
    ),
    (
        &[
            "Arccos",
            "Arccosh",
            "Arcsin",
            "Arcsinh",
            "Arctan",
            "Arctanh",
            "Cbrt",
            "Ceil",
            "Cos",
            "Cosh",
            "Erf",
            "Erfc",
            "Erfinv",
            "Exp",
            "Exp2",
            "Expm1",
            "Floor",
            "Gelu",
            "LayerNorm",
            "Log",
            "Log10",
            "Log1p",
            "Log2",
            "LogSigmoid",
            "Normalize",
            "RMSNorm",
            "Reciprocal",
            "Rsqrt",
            "Sigmoid",
            "Silu",
            "Sin",
            "Sinh",
            "Softmax",
            "Softplus",
            "Softsign",
            "SparsePlus",
            "SparseSigmoid",
            "Sparsemax",
            "Sqrt",
            "Squareplus",
            "Tan",
            "Tanh",
            "Angle",
            "BatchNorm",
            "Deg2rad",
            "I0",
            "Rad2deg",
            "Sinc",
        ],
        float,
    ),
    (
        &[
            "Add",
            "AddN",
            "Arctan2",
            "Fmax",
            "Fmin",
            "Fmod",
            "FloorDivide",
            "Hypot",
            "Logaddexp",
            "Maximum",
            "Minimum",
            "Mod",
            "Multiply",
            "MultiplyNoNan",
            "Power",
            "Subtract",
            "BitwiseAnd",
            "BitwiseOr",
            "BitwiseXor",
            "BitwiseLeftShift",
            "BitwiseRightShift",
            "Gcd",
            "Heaviside",
            "Lcm",
            "Ldexp",
            "LeftShift",
            "Logaddexp2",
            "Nextafter",
            "RightShift",
        ],
        broadcast,
    ),
    (&["Divide", "DivideNoNan", "TrueDivide"], divide),
    (
        &[
            "Equal",
            "Greater",
            "GreaterEqual",
            "IsIn",
            "Isclose",
            "Less",
            "LessEqual",
            "LogicalAnd",
            "LogicalOr",
            "LogicalXor",
            "NotEqual",
        ],
        compare,
    ),
    (&["Isfinite", "Isinf", "Isnan", "Isneginf", "Isposinf", "Isreal", "LogicalNot", "Signbit"], truth),
    (&["Cast", "SaturateCast"], cast),
    (&["Where"], choose),
];

pub(super) fn same(_: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    Ok(vec![operand(call, inputs)?.clone()])
}

/// Integers become floats.
fn float(_: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    Ok(vec![Spec { dtype: floating(x.dtype), ..x.clone() }])
}

pub(super) fn floating(dtype: DType) -> DType {
    if dtype.is_float() { dtype } else { DType::Float32 }
}

/// The shape of all operands together, and their dtype.
fn together(call: &Call<'_>, inputs: &[Spec]) -> Result<Spec, OpError> {
    let mut shape = Shape::scalar();
    let mut dtype: Option<DType> = None;
    for (i, input) in inputs.iter().enumerate() {
        shape = shape.broadcast(&input.shape).ok_or_else(|| {
            OpError::input(
                i,
                format!("a shape that broadcasts with {shape}"),
                format!("shape {}", input.shape),
            )
        })?;
        dtype = Some(dtype.map_or(input.dtype, |d| d.promote(input.dtype)));
    }
    // A fraction makes a float of integers; it has no dtype of its own.
    let all = call.arguments.positional.iter().chain(call.arguments.named.values());
    let fraction = all.into_iter().any(|a| matches!(a, Argument::Json(v) if v.is_f64()));
    let dtype = dtype.unwrap_or(call.compute());
    Ok(Spec::new(shape, if fraction { floating(dtype) } else { dtype }))
}

fn broadcast(_: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    Ok(vec![together(call, inputs)?])
}

fn divide(_: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let y = together(call, inputs)?;
    Ok(vec![Spec { dtype: floating(y.dtype), ..y }])
}

fn compare(_: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    Ok(vec![Spec { dtype: DType::Bool, ..together(call, inputs)? }])
}

fn truth(_: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    Ok(vec![Spec { dtype: DType::Bool, ..operand(call, inputs)?.clone() }])
}

fn cast(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    // A layer's own dtype is in the config too, so the call's argument goes first.
    let named = call.arguments.get(1, "dtype").and_then(|a| a.as_str().map(str::to_owned));
    let made = || op.config.get("dtype").and_then(|d| d.as_str().map(str::to_owned));
    let dtype = named.or_else(made).as_deref().and_then(policy::dtype);
    Ok(vec![Spec { dtype: dtype.unwrap_or(x.dtype), ..x.clone() }])
}

fn choose(_: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let y = together(call, inputs)?;
    let values = inputs.iter().filter(|x| x.dtype != DType::Bool).map(|x| x.dtype);
    Ok(vec![Spec { dtype: values.reduce(DType::promote).unwrap_or(y.dtype), ..y }])
}
