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
            "Relu",
            "Relu6",
            "Round",
            "Selu",
            "Sign",
            "SoftShrink",
            "StopGradient",
            "TanhShrink",
            "Threshold",
            "Flip",
            "Fliplr",
            "Flipud",
            "Roll",
            "Tril",
            "Triu",
            "Sort",
            "NanToNum",
            "Abs",
            "Real",
            "GaussianBlur",
            "BitwiseInvert",
            "BitwiseNot",
            "Conj",
            "Fabs",
            "AssociativeScan",
            "Gelu",
            "Imag",
            "Polar",
            "Sigmoid",
            "Softmax",
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
            "Silu",
            "Sin",
            "Sinh",
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
            "Corrcoef",
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
            "Fmax",
            "Fmin",
            "Fmod",
            "FloorDivide",
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
            "Lcm",
            "LeftShift",
            "RightShift",
        ],
        broadcast,
    ),
    (
        &[
            "Arctan2",
            "Divide",
            "DivideNoNan",
            "Heaviside",
            "Hypot",
            "Ldexp",
            "Logaddexp",
            "Logaddexp2",
            "Nextafter",
            "TrueDivide",
        ],
        divide,
    ),
    (&["Clip", "ClipByValue", "Square"], number),
    (&["Cumprod", "Cumsum", "Nancumprod", "Nancumsum"], running),
    (&["ConvertToTensor", "EmptyLike", "FullLike", "OnesLike", "ZerosLike"], like),
    (
        &[
            "Equal",
            "Greater",
            "GreaterEqual",
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
    (
        &["IsIn", "Isfinite", "Isinf", "Isnan", "Isneginf", "Isposinf", "Isreal", "LogicalNot", "Signbit"],
        truth,
    ),
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
    let all = || call.arguments.positional.iter().chain(call.arguments.named.values());
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
    // What the file holds with its elements: a number has no dtype of its own, but a fraction makes a float of integers.
    let fraction = all().any(|a| matches!(a, Argument::Json(v) if v.is_f64()));
    for constant in all().filter(|a| a.tensors().is_empty()) {
        let weak = dtype.unwrap_or(DType::Int32);
        let Some(constant) = constant.spec(&[], weak).filter(|c| c.rank() > 0) else { continue };
        if let Some(both) = shape.broadcast(&constant.shape) {
            shape = both;
            dtype = Some(weak.promote(constant.dtype));
        }
    }
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

/// Truth values become numbers.
fn number(_: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    Ok(vec![Spec { dtype: if x.dtype == DType::Bool { DType::Int32 } else { x.dtype }, ..x.clone() }])
}

/// Sums or products so far: along an axis, or of all elements in one row.
fn running(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let flat = op.config.get("axis").is_some_and(serde_json::Value::is_null);
    let y = if flat { x.with([crate::spec::product(x.dims())?]) } else { x.clone() };
    let dtype = op.dtype().unwrap_or(x.dtype);
    Ok(vec![Spec { dtype: if dtype == DType::Bool { DType::Int32 } else { dtype }, ..y }])
}

/// The same shape, in a dtype that may be given.
fn like(op: &Operation, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
    let x = operand(call, inputs)?;
    let named = call.arguments.named.get("dtype").and_then(|a| policy::dtype(a.as_str()?));
    Ok(vec![Spec { dtype: named.or(op.dtype()).unwrap_or(x.dtype), ..x.clone() }])
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
    let dtype = match values.reduce(DType::promote) {
        Some(dtype) => dtype,
        // Numbers alone are chosen from; they have no dtype of their own.
        None => {
            call.arguments.get(1, "x1").and_then(|a| a.spec(&[], DType::Int32)).map_or(y.dtype, |s| s.dtype)
        }
    };
    Ok(vec![Spec { dtype, ..y }])
}
