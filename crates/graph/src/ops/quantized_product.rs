//! Products and convolutions of quantised values. ONNX MatMulInteger (10), QLinearMatMul (10, 21), ConvInteger (10),
//! QLinearConv (10); com.microsoft's MatMulInteger16, MatMulIntegerToFloat, DynamicQuantizeMatMul, QGemm, MatMulNBits,
//! MatMulBnb4, MatMulPacked, QLinearConv.
//!
//! Made for inference: integer operands have no gradient and nothing is kept.

use super::calls::positive;
use super::conv::convolved;
use super::matmul::product_shape;
use super::quantize::without_gradient;
use super::spatial::Window;
use crate::{Attributes, DType, Dim, Infer, Lowering, Op, OpError, OpSpec, Shape};
use std::sync::Arc;

/// A product or convolution with scales and zero points beside.
#[derive(Clone, Debug)]
pub struct QuantizedProduct {
    /// The operator's name.
    pub name: &'static str,
    /// What is multiplied, and where.
    pub form: Form,
    /// Where the result's type comes from.
    pub output: Source,
}

/// What is multiplied.
#[derive(Clone, Debug)]
pub enum Form {
    /// Inputs at these positions, by numpy's rules.
    Matrices([usize; 2]),
    /// Matrices at these positions, either one transposed.
    Gemm([usize; 2], [bool; 2]),
    /// Input 0 by a packed weight of this many columns.
    Packed(u64),
    /// A convolution of inputs at these positions.
    Convolution {
        /// Positions of input and weight.
        at: [usize; 2],
        /// Kernel, strides, pads, dilations.
        window: Box<Window>,
        /// Channel groups.
        groups: u64,
        /// Whether the channels are the last axis.
        channels_last: bool,
    },
}

/// Where a result's type comes from.
#[derive(Clone, Copy, Debug)]
pub enum Source {
    /// It is always this one.
    Fixed(DType),
    /// An input has it.
    Input(usize),
    /// An input has it, or it is float32 where that is absent.
    ZeroPoint(usize),
}

type Built = Result<Arc<dyn Op>, OpError>;

fn matrices(name: &'static str, at: [usize; 2], output: Source) -> Built {
    Ok(Arc::new(QuantizedProduct { name, form: Form::Matrices(at), output }))
}

fn packed(name: &'static str, a: &mut Attributes) -> Built {
    if !a.has("N") {
        return Err(OpError::missing_attribute("N"));
    }
    let form = Form::Packed(positive(a, "N", 1)?);
    Ok(Arc::new(QuantizedProduct { name, form, output: Source::Input(0) }))
}

fn convolution(name: &'static str, a: &mut Attributes, at: [usize; 2], output: Source) -> Built {
    let (window, groups) = (Box::new(Window::read(a)?), positive(a, "group", 1)?);
    let form = Form::Convolution { at, window, groups, channels_last: a.flag("channels_last")? };
    Ok(Arc::new(QuantizedProduct { name, form, output }))
}

const fn spec(
    domain: &'static str,
    name: &'static str,
    since: &'static [i64],
    build: crate::Build,
) -> OpSpec {
    OpSpec { domain, name, since, build }
}

/// How they are found.
pub const SPECS: &[OpSpec] = &[
    spec("", "MatMulInteger", &[10], |_, _| matrices("MatMulInteger", [0, 1], Source::Fixed(DType::Int32))),
    spec("", "QLinearMatMul", &[10, 21], |_, _| matrices("QLinearMatMul", [0, 3], Source::Input(7))),
    spec("", "ConvInteger", &[10], |a, _| convolution("ConvInteger", a, [0, 1], Source::Fixed(DType::Int32))),
    spec("", "QLinearConv", &[10], |a, _| convolution("QLinearConv", a, [0, 3], Source::Input(7))),
    spec("com.microsoft", "QLinearConv", &[1], |a, _| {
        convolution("com.microsoft.QLinearConv", a, [0, 3], Source::Input(7))
    }),
    spec("com.microsoft", "MatMulInteger16", &[1], |_, _| {
        matrices("com.microsoft.MatMulInteger16", [0, 1], Source::Fixed(DType::Int32))
    }),
    spec("com.microsoft", "MatMulIntegerToFloat", &[1], |_, _| {
        matrices("com.microsoft.MatMulIntegerToFloat", [0, 1], Source::Input(2))
    }),
    spec("com.microsoft", "DynamicQuantizeMatMul", &[1], |_, _| {
        matrices("com.microsoft.DynamicQuantizeMatMul", [0, 1], Source::Input(0))
    }),
    spec("com.microsoft", "MatMulNBits", &[1], |a, _| packed("com.microsoft.MatMulNBits", a)),
    spec("com.microsoft", "MatMulPacked", &[1], |a, _| packed("com.microsoft.MatMulPacked", a)),
    spec("com.microsoft", "MatMulBnb4", &[1], |a, _| packed("com.microsoft.MatMulBnb4", a)),
    spec("com.microsoft", "QGemm", &[1], |a, _| {
        let form = Form::Gemm([0, 3], [a.flag("transA")?, a.flag("transB")?]);
        let output = Source::ZeroPoint(8);
        Ok(Arc::new(QuantizedProduct { name: "com.microsoft.QGemm", form, output }))
    }),
];

impl QuantizedProduct {
    fn shape(&self, cx: &Infer<'_>) -> Result<Option<Shape>, OpError> {
        match &self.form {
            Form::Convolution { at, window, groups, channels_last } => {
                convolved(cx, window, *groups, *at, *channels_last)
            }
            Form::Packed(columns) => {
                cx.require(0)?;
                let Some(mut shape) = cx.shape(0).cloned() else { return Ok(None) };
                let last = shape.dims_mut().last_mut();
                *last.ok_or_else(|| OpError::input(0, "at least one axis", "a scalar"))? =
                    Dim::Known(*columns);
                Ok(Some(shape))
            }
            Form::Matrices([a, b]) => {
                cx.require(*a)?;
                cx.require(*b)?;
                cx.shape(*a).zip(cx.shape(*b)).map(|(a, b)| product_shape(a, b)).transpose()
            }
            Form::Gemm([a, b], trans) => {
                cx.require(*a)?;
                cx.require(*b)?;
                let turned = |i: usize, trans: bool| -> Result<Option<Shape>, OpError> {
                    let shape = cx.shape_of_rank(i, 2)?;
                    let (rows, columns) = if trans { (1, 0) } else { (0, 1) };
                    Ok(shape.map(|s| [s[rows].clone(), s[columns].clone()].into_iter().collect()))
                };
                let (a, b) = (turned(*a, trans[0])?, turned(*b, trans[1])?);
                a.zip(b).map(|(a, b)| product_shape(&a, &b)).transpose()
            }
        }
    }
}

impl Op for QuantizedProduct {
    fn name(&self) -> &str {
        self.name
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        let shape = self.shape(cx)?;
        let dtype = match self.output {
            Source::Fixed(dtype) => dtype,
            Source::ZeroPoint(i) if !cx.has(i) => DType::Float32,
            Source::Input(i) | Source::ZeroPoint(i) => cx.dtype(i),
        };
        cx.set(0, dtype, shape);
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        without_gradient(l, "quantized");
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{self, In};
    use super::*;
    use crate::{Attribute, Type};

    fn int8(dims: &[u64]) -> In {
        In::Typed(Type::tensor(DType::Int8, Shape::from(dims)))
    }

    #[test]
    fn the_result_has_the_type_of_its_zero_point() {
        let (scale, zero) = (testing::float(&[]), int8(&[]));
        let pair = |dims: &[u64]| [int8(dims), scale.clone(), zero.clone()];
        let inputs: Vec<In> = [pair(&[2, 3]), pair(&[3, 4])]
            .concat()
            .into_iter()
            .chain([scale.clone(), zero.clone()])
            .collect();
        let out = testing::run("QLinearMatMul", 21, Attributes::default(), &inputs, 1).unwrap();
        assert_eq!(out[0].0, Type::tensor(DType::Int8, Shape::from([2, 4])));
        let inputs = [int8(&[2, 3]), int8(&[3, 4])];
        let out = testing::run("MatMulInteger", 10, Attributes::default(), &inputs, 1).unwrap();
        assert_eq!(out[0].0.dtype(), Some(DType::Int32));
    }

    #[test]
    fn a_packed_weight_says_its_columns() {
        let build = |a| SPECS.iter().find(|s| s.name == "MatMulNBits").unwrap().build(a, 1);
        assert!(build(Attributes::from([("N", Attribute::Int(-1))])).is_err());
        assert!(build(Attributes::default()).is_err());
        assert!(build(Attributes::from([("N", Attribute::Int(4096))])).is_ok());
    }
}
