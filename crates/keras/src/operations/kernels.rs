//! The TensorFlow kernels of an operation between layers (keras/src/backend/tensorflow/numpy.py, math.py, nn.py).

use super::Operation;
use super::{contraction, indexing};
use crate::activation::Activation;
use crate::run::Run;
use memfit_graph::kernels::Wire;

/// Operations of one tensor that are one elementwise kernel.
const UNARY: &[(&str, &str)] = &[
    ("Abs", "Abs"),
    ("Absolute", "Abs"),
    ("Arccos", "Acos"),
    ("Arccosh", "Acosh"),
    ("Arcsin", "Asin"),
    ("Arcsinh", "Asinh"),
    ("Arctan", "Atan"),
    ("Arctanh", "Atanh"),
    ("Ceil", "Ceil"),
    ("Cos", "Cos"),
    ("Cosh", "Cosh"),
    ("Erf", "Erf"),
    ("Erfc", "Erfc"),
    ("Exp", "Exp"),
    ("Expm1", "Expm1"),
    ("Floor", "Floor"),
    ("Log", "Log"),
    ("Log1p", "Log1p"),
    ("Negative", "Neg"),
    ("Reciprocal", "Reciprocal"),
    ("Round", "Rint"),
    ("Rsqrt", "Rsqrt"),
    ("Sign", "Sign"),
    ("Sin", "Sin"),
    ("Sinh", "Sinh"),
    ("Sqrt", "Sqrt"),
    ("Square", "Square"),
    ("Tan", "Tan"),
];

/// Operations of two tensors that are one elementwise kernel, which may be one with a scalar.
const BINARY: &[(&str, &str)] = &[
    ("Add", "AddV2"),
    ("Subtract", "Sub"),
    ("Multiply", "Mul"),
    ("Divide", "RealDiv"),
    ("DivideNoNan", "DivNoNan"),
    ("TrueDivide", "RealDiv"),
    ("Maximum", "Maximum"),
    ("Minimum", "Minimum"),
    ("Power", "Pow"),
    ("SquaredDifference", "SquaredDifference"),
];

/// Operations that are views of their tensor.
pub(super) const VIEWS: &[&str] = &["Reshape", "Squeeze", "ExpandDims", "Ravel"];

/// Operations that copy elements to other places.
const MOVES: &[(&str, &str)] = &[
    ("GetItem", "StridedSlice"),
    ("Transpose", "Transpose"),
    ("Swapaxes", "Transpose"),
    ("Moveaxis", "Transpose"),
    ("Pad", "Pad"),
    ("Flip", "ReverseV2"),
    ("Roll", "Roll"),
    ("Tril", "MatrixBandPart"),
    ("Triu", "MatrixBandPart"),
    ("Cumsum", "Cumsum"),
    ("CropImages", "StridedSlice"),
    ("Diagonal", "MatrixDiagPartV3"),
    ("Fliplr", "ReverseV2"),
    ("Flipud", "ReverseV2"),
    ("Rot90", "Transpose"),
    ("Rearrange", "Transpose"),
    ("Slice", "Slice"),
    ("DepthToSpace", "DepthToSpace"),
    ("PadImages", "Pad"),
    ("SpaceToDepth", "SpaceToDepth"),
    ("Take", "GatherV2"),
    ("TakeAlongAxis", "GatherNd"),
];

/// Operations of tensors that no gradient flows through (math_grad.py and array_grad.py have none, or zeros).
const CONSTANT: &[&str] = &[
    "EmptyLike",
    "FloorDivide",
    "FullLike",
    "Heaviside",
    "MultiHot",
    "Nextafter",
    "OneHot",
    "OnesLike",
    "Trunc",
    "ZerosLike",
];

const COMPARISONS: &[&str] = &[
    "Equal",
    "NotEqual",
    "Greater",
    "GreaterEqual",
    "Less",
    "LessEqual",
    "LogicalAnd",
    "LogicalOr",
    "LogicalNot",
];

fn listed(table: &[(&'static str, &'static str)], class: &str) -> Option<&'static str> {
    table.iter().find(|(name, _)| *name == class).map(|(_, kernel)| *kernel)
}

impl Operation {
    /// Writes the kernels, or the bound where the class has none here.
    pub(super) fn kernels(&self, run: &mut Run<'_, '_>) {
        let class = self.class.as_str();
        let no_gradient = CONSTANT.contains(&class) || COMPARISONS.contains(&class);
        if run.tensors() == 0 || run.out_dtype(0).is_integer() || no_gradient {
            return run.allocate("Compare");
        }
        let shape = run.out_shape(0).to_vec();
        let mut x = run.x(0);
        // Operands come to one dtype first (`dtypes.result_type`): a constant of float32 makes half precision float32.
        let promoted = Some(run.out_dtype(0)).filter(|d| d.is_float() && listed(BINARY, class).is_some());
        if let Some(dtype) = promoted {
            x = run.cast(x, dtype);
        }
        let y = match class {
            _ if VIEWS.contains(&class) => run.view("Reshape", x, &shape),
            "Identity" | "Copy" | "ConvertToTensor" | "Conjugate" | "Real" => x,
            "StopGradient" => run.stop(x),
            "Cast" => {
                let dtype = run.out_dtype(0);
                run.cast(x, dtype)
            }
            "Gelu" => {
                let approximate = self.flag(run.call, 1, &["approximate"]);
                run.gelu(x, approximate)
            }
            "Softmax" => run.softmax(x),
            "LogSoftmax" => run.log_softmax(x),
            "Clip" | "ClipByValue" => run.clipped(x),
            "BroadcastTo" | "Tile" | "Repeat" => run.broadcast_to(x, &shape),
            "Sum" | "Mean" | "Max" | "Min" | "Prod" | "Amax" | "Amin" => {
                let name = match class {
                    "Mean" => "Mean",
                    "Max" | "Amax" => "Max",
                    "Min" | "Amin" => "Min",
                    "Prod" => "Prod",
                    _ => "Sum",
                };
                match name {
                    // `ops.mean` of half precision computes in float32.
                    "Mean" => run.in_f32(x, |flow, x| flow.reduce(name, x, &shape)),
                    _ => run.reduce(name, x, &shape),
                }
            }
            "MaxPool" | "AveragePool" | "AdaptiveMaxPool" | "AdaptiveAveragePool" => {
                return match super::windows::pooling(self, run.shape(x).len()) {
                    Some(layer) => layer.tensorflow(run),
                    None => run.not_modelled(),
                };
            }
            "Conv" | "DepthwiseConv" => {
                let Some(kernel) = self.second(run) else { return run.not_modelled() };
                let name = match (class, shape.len()) {
                    ("DepthwiseConv", _) => "DepthwiseConv2dNative",
                    (_, 5) => "Conv3D",
                    _ => "Conv2D",
                };
                run.convolution(name, x, kernel, &shape)
            }
            "Concatenate" | "Append" | "Dstack" | "Hstack" | "Vstack" => {
                let parts: Vec<Wire> = (0..run.tensors()).map(|i| run.x(i)).collect();
                run.concat(&parts, &shape)
            }
            "Stack" => {
                let parts: Vec<Wire> = (0..run.tensors()).map(|i| run.x(i)).collect();
                run.concat(&parts, &shape)
            }
            "ArraySplit" | "Dsplit" | "Hsplit" | "Split" | "Unstack" | "Vsplit" => {
                let shapes: Vec<Vec<u64>> =
                    (0..run.output_count()).map(|j| run.out_shape(j).to_vec()).collect();
                let first = run.split(x, &shapes);
                for (output, j) in (0..).zip(0..shapes.len()) {
                    let part = run.output(first, output);
                    run.bind(j, part);
                }
                return;
            }
            "Matmul" | "Dot" | "Einsum" if run.tensors() <= 2 => {
                let Some(other) = self.second(run) else {
                    return match self.composed(run, x) {
                        Some(y) => run.finish(y),
                        None => run.not_modelled(),
                    };
                };
                let equation = self.parameter(run.call, 0, &["subscripts", "equation"]);
                match equation.filter(|_| class == "Einsum") {
                    Some(equation) => {
                        let equation = equation.as_str().unwrap_or_default().to_owned();
                        contraction::einsum(run, &equation, x, other, &shape)
                    }
                    None => {
                        run.matmul(if shape.len() > 2 { "BatchMatMulV2" } else { "MatMul" }, x, other, &shape)
                    }
                }
            }
            "Where" if run.tensors() == 3 => {
                let (mask, a, b) = (run.raw(0), run.x(1), run.x(2));
                run.choose(mask, a, b)
            }
            // The other choice is a number.
            "Where" if run.tensors() == 2 && run.call.arguments.tensor(0, "condition") == Some(0) => {
                let (mask, x) = (run.raw(0), run.x(1));
                run.select(mask, x)
            }
            "Take" if self.integer(run.call, 2, &["axis"]).unwrap_or(0) != 0 => run.gathered(x, &shape),
            "DotProductAttention" if run.tensors() >= 3 => {
                // [batch, length, heads, size], each transposed before its product
                let (key, value) = (run.x(1), run.x(2));
                let turned = |run: &mut Run<'_, '_>, x: Wire| {
                    let mut shape = run.shape(x).to_vec();
                    if shape.len() == 4 {
                        shape.swap(1, 2);
                    }
                    run.moved("Transpose", x, &shape)
                };
                let operands = (turned(run, x), turned(run, key), turned(run, value));
                let y = run.attention(operands, None, false);
                run.moved("Transpose", y, &shape)
            }
            "GetItem" if indexing::is_stretch(self, run.call) => run.stretch(x, &shape),
            _ if listed(UNARY, class).is_some() => run.unary(listed(UNARY, class).unwrap_or(""), x),
            _ if listed(MOVES, class).is_some() => run.moved(listed(MOVES, class).unwrap_or(""), x, &shape),
            _ => match (listed(BINARY, class), run.tensors()) {
                (Some(name), 2) => {
                    let other = run.x(1);
                    let other = promoted.map_or(other, |dtype| run.cast(other, dtype));
                    run.binary(name, x, other)
                }
                (Some(name @ ("AddV2" | "Sub")), 1) => run.shifted(name, x),
                (Some("Maximum" | "Minimum"), 1) => run.clip_side("Maximum", x),
                (Some("Pow"), 1) => run.unary("Pow", x),
                (Some("RealDiv"), 1) if run.call.arguments.tensor(0, "x1").is_none() => {
                    run.unary("RealDiv", x)
                }
                (Some(name), 1) => run.scaled(name, x),
                _ => {
                    if let Some(y) = self.composed(run, x) {
                        return run.finish(y);
                    }
                    match Activation::of_class(class) {
                        Activation::Other(_) => return run.not_modelled(),
                        function => run.activate(&function, x),
                    }
                }
            },
        };
        run.finish(y);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_that_are_activations_are_found_by_their_names() {
        assert_eq!(Activation::of_class("HardSigmoid"), Activation::HardSigmoid);
        assert_eq!(Activation::of_class("Relu6"), Activation::Relu6);
        assert_eq!(listed(BINARY, "Add"), Some("AddV2"));
    }
}
