//! RandomNormal, RandomUniform, their `Like` forms, Bernoulli, Multinomial. ONNX 1, 7, 15, 22.
//!
//! Each draws a new tensor; nothing is kept and no gradient flows (stochastic depth is written with these by exporters).

use super::rebatch;
use crate::kernels::TfLowering;
use crate::{
    Attributes, Call, DType, Dim, Grad, Infer, Lowering, Op, OpError, OpSpec, Operand, OutDtype, Place, Shape,
};
use std::sync::Arc;

/// Where the shape comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// An attribute.
    Given(Vec<u64>),
    /// The input's, whose type it also is where none is given.
    Like,
    /// So many samples for each row of the input.
    Rows(u64),
}

/// A tensor of random elements.
#[derive(Clone, Debug)]
pub struct Random {
    /// The operator's name.
    pub name: &'static str,
    /// ATen's name.
    pub function: &'static str,
    /// Where the shape comes from.
    pub source: Source,
    /// The element type, where one is given.
    pub dtype: Option<DType>,
}

/// How the six are found.
pub const SPECS: &[OpSpec] = &[
    OpSpec {
        domain: "",
        name: "Bernoulli",
        since: &[15, 22],
        build: |a, _| build("Bernoulli", "bernoulli", Source::Like, a),
    },
    OpSpec {
        domain: "",
        name: "Multinomial",
        since: &[7, 22],
        build: |a, _| {
            let n = a.int("sample_size")?.unwrap_or(1);
            let rows =
                u64::try_from(n).map_err(|_| OpError::attribute("sample_size", "a count", n.to_string()))?;
            build("Multinomial", "multinomial", Source::Rows(rows), a)
        },
    },
    OpSpec {
        domain: "",
        name: "RandomNormal",
        since: &[1, 22],
        build: |a, _| build("RandomNormal", "randn", given(a)?, a),
    },
    OpSpec {
        domain: "",
        name: "RandomNormalLike",
        since: &[1, 22],
        build: |a, _| build("RandomNormalLike", "randn_like", Source::Like, a),
    },
    OpSpec {
        domain: "",
        name: "RandomUniform",
        since: &[1, 22],
        build: |a, _| build("RandomUniform", "rand", given(a)?, a),
    },
    OpSpec {
        domain: "",
        name: "RandomUniformLike",
        since: &[1, 22],
        build: |a, _| build("RandomUniformLike", "rand_like", Source::Like, a),
    },
];

fn given(a: &Attributes) -> Result<Source, OpError> {
    a.sizes("shape")?.map(Source::Given).ok_or_else(|| OpError::missing_attribute("shape"))
}

fn build(
    name: &'static str,
    function: &'static str,
    source: Source,
    a: &Attributes,
) -> Result<Arc<dyn Op>, OpError> {
    let default = match source {
        Source::Given(_) => Some(DType::Float32),
        Source::Like => None,
        Source::Rows(_) => Some(DType::Int32),
    };
    Ok(Arc::new(Random { name, function, source, dtype: super::dtype_attribute(a, "dtype")?.or(default) }))
}

impl Op for Random {
    fn name(&self) -> &str {
        self.name
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        let shape = match &self.source {
            Source::Given(shape) => {
                let mut shape = Shape::from(&shape[..]);
                rebatch::leading(cx, &mut shape);
                Some(shape)
            }
            Source::Like => {
                cx.require(0)?;
                cx.shape(0).cloned()
            }
            Source::Rows(samples) => {
                cx.require(0)?;
                let rows =
                    cx.shape_of_rank(0, 2)?.map_or_else(|| cx.fresh_dim("rows", None), |x| x[0].clone());
                Some([rows, Dim::Known(*samples)].into_iter().collect())
            }
        };
        cx.set(0, self.dtype.unwrap_or(cx.dtype(0)), shape);
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        l.allocate("RandomUniform");
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let dtype = OutDtype::Is(l.out_dtype(0));
        let call = Call::new(self.function);
        l.finish(match self.source {
            Source::Given(_) => call.output(l.out_shape(0), dtype, Place::New),
            // derivatives.yaml: `bernoulli` hands back zeros_like(grad); the others nothing.
            Source::Like => {
                let grad = if self.name == "Bernoulli" { Grad::Pointwise } else { Grad::None };
                call.input(Operand::Input(0), grad).output(l.out_shape(0), dtype, Place::Pointwise)
            }
            Source::Rows(_) => {
                call.input(Operand::Input(0), Grad::None).output(l.out_shape(0), dtype, Place::New)
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{In, float, rebatched, run, shape};
    use super::*;
    use crate::Attribute;

    fn typed(op: &str, a: Attributes, inputs: &[In]) -> (Option<DType>, String) {
        let ty = run(op, 22, a, inputs, 1).unwrap().remove(0).0;
        (ty.dtype(), ty.shape().unwrap().to_string())
    }

    #[test]
    fn shape_and_type_are_given_or_copied() {
        let given = Attributes::from([("shape", Attribute::Ints(vec![2, 3])), ("dtype", Attribute::Int(11))]);
        assert_eq!(typed("RandomNormal", given.clone(), &[]), (Some(DType::Float64), "2x3".into()));
        assert_eq!(typed("RandomNormalLike", Attributes::default(), &[float(&[4])]).0, Some(DType::Float32));
        assert_eq!(typed("Bernoulli", given, &[float(&[4])]), (Some(DType::Float64), "4".into()));
        let samples = Attributes::from([("sample_size", Attribute::Int(5))]);
        assert_eq!(typed("Multinomial", samples, &[float(&[3, 9])]), (Some(DType::Int32), "3x5".into()));
        assert!(shape("RandomUniform", 1, Attributes::default(), &[]).is_err());
        assert!(
            rebatched("RandomUniformLike", Attributes::default(), &[float(&[2, 3])], 8).unwrap() == "8x3"
        );
    }
}
