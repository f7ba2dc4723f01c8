//! Rare operators of com.microsoft whose shapes follow from their inputs: CDist, MurmurHash3, WordConvEmbedding, NGramRepeatBlock,
//! BifurcationDetector, MaxpoolWithMask, ConvTransposeWithDynamicPads, Rfft, Irfft, TorchEmbedding, MulInteger, ReduceSumInteger,
//! QLinearReduceMean.
//!
//! onnxruntime/core/graph/contrib_ops/contrib_defs.cc and quantization_defs.cc. No exporter of a training framework writes them, so they
//! only allocate what they give.

use super::calls::without_gradient;
use super::pool::pooled_shape;
use super::reduction::Axes;
use super::spatial::Window;
use crate::{Attributes, DType, Dim, Infer, Lowering, Op, OpError, OpSpec, Shape};
use std::sync::Arc;

/// One of the operators.
#[derive(Clone, Debug)]
pub struct Contrib {
    name: &'static str,
    rule: Rule,
}

#[derive(Clone, Debug)]
enum Rule {
    /// `[M, K]` and `[N, K]` to `[M, N]`.
    Distances,
    /// The shape of an input, of this dtype or that of the input.
    Same(usize, Option<DType>),
    /// Characters of words to features of words: the last axis becomes as long as the filters are many.
    Words,
    /// A length that the tokens tell, and one position.
    Suffix,
    /// Max pooling.
    Pool(Box<Window>),
    /// A transposed convolution whose pads are an input.
    Unconvolved(Box<Window>, Vec<u64>, u64),
    /// Real numbers to complex ones: both parts on a new last axis.
    Spectrum { onesided: bool },
    /// The reverse.
    Signal { onesided: bool },
    /// Rows of a table.
    Rows,
    /// Both inputs broadcast: the first, and the one at this position.
    Product(usize),
    /// Some axes reduced.
    Reduced(Axes, Option<DType>),
}

macro_rules! contrib {
    ($($name:literal $qualified:literal $rule:expr;)*) => {
        /// How each of them is found.
        pub const SPECS: &[OpSpec] = &[$(OpSpec {
            domain: "com.microsoft",
            name: $name,
            since: &[1],
            build: |a, _| {
                let rule: fn(&mut Attributes) -> Result<Rule, OpError> = $rule;
                Ok(Arc::new(Contrib { name: $qualified, rule: rule(a)? }))
            },
        }),*];
    };
}

contrib! {
    "BifurcationDetector" "com.microsoft.BifurcationDetector" |_| Ok(Rule::Suffix);
    "CDist" "com.microsoft.CDist" |_| Ok(Rule::Distances);
    "ConvTransposeWithDynamicPads" "com.microsoft.ConvTransposeWithDynamicPads" |a| {
        let extra = a.sizes("output_padding")?.unwrap_or_default();
        Ok(Rule::Unconvolved(Box::new(Window::read(a)?), extra, super::calls::positive(a, "group", 1)?))
    };
    "Irfft" "com.microsoft.Irfft" |a| Ok(Rule::Signal { onesided: a.int("onesided")?.unwrap_or(1) != 0 });
    "MaxpoolWithMask" "com.microsoft.MaxpoolWithMask" |a| Ok(Rule::Pool(Box::new(Window::read(a)?)));
    "MulInteger" "com.microsoft.MulInteger" |_| Ok(Rule::Product(2));
    "MurmurHash3" "com.microsoft.MurmurHash3" |a| {
        let is_unsigned = a.int("positive")?.unwrap_or(1) != 0;
        Ok(Rule::Same(0, Some(if is_unsigned { DType::Uint32 } else { DType::Int32 })))
    };
    "NGramRepeatBlock" "com.microsoft.NGramRepeatBlock" |_| Ok(Rule::Same(1, None));
    "QLinearReduceMean" "com.microsoft.QLinearReduceMean" |a| Ok(Rule::Reduced(axes(a)?, None));
    "ReduceSumInteger" "com.microsoft.ReduceSumInteger" |a| Ok(Rule::Reduced(axes(a)?, Some(DType::Int32)));
    "Rfft" "com.microsoft.Rfft" |a| Ok(Rule::Spectrum { onesided: a.int("onesided")?.unwrap_or(1) != 0 });
    "TorchEmbedding" "com.microsoft.TorchEmbedding" |_| Ok(Rule::Rows);
    "WordConvEmbedding" "com.microsoft.WordConvEmbedding" |_| Ok(Rule::Words);
}

/// The axes are an attribute; input 1 is a scale.
fn axes(a: &Attributes) -> Result<Axes, OpError> {
    let read = Axes::read(a)?;
    Ok(Axes { listed: Some(read.listed.clone().unwrap_or_default()), ..read })
}

impl Rule {
    fn shape(&self, cx: &Infer<'_>) -> Result<Option<Shape>, OpError> {
        let (Some(x), other) = (cx.shape(0), cx.shape(1)) else { return Ok(None) };
        let last = x.rank().checked_sub(1);
        let with_last = |dim: Option<Dim>| {
            let mut shape = x.clone();
            *shape.dims_mut().get_mut(last?)? = dim?;
            Some(shape)
        };
        Ok(match self {
            Rule::Distances => match (cx.shape_of_rank(0, 2)?, cx.shape_of_rank(1, 2)?) {
                (Some(a), Some(b)) => Some([a[0].clone(), b[0].clone()].into_iter().collect()),
                _ => None,
            },
            Rule::Same(i, _) => cx.shape(*i).cloned(),
            Rule::Words => with_last(other.and_then(|w| w.dims().first().cloned())),
            Rule::Suffix => {
                let longest = [cx.shape(0), cx.shape(1)].map(|s| s.and_then(|s| s.dims().first()?.upper()));
                let upper = longest[0].zip(longest[1]).and_then(|(a, b)| a.checked_add(b)?.checked_add(1));
                Some([cx.fresh_dim("tokens", upper)].into_iter().collect())
            }
            Rule::Pool(window) => Some(pooled_shape(window, x, false)?),
            Rule::Unconvolved(window, extra, groups) => {
                let (Some(w), Some(pads)) = (other, cx.ints(2)) else { return Ok(None) };
                if x.rank() < 3 || w.rank() != x.rank() || pads.len() != 2 * (x.rank() - 2) {
                    let expected = format!("a weight and two pads for each of the axes of {x}");
                    return Err(OpError::mismatch(expected, format!("{w} and {} pads", pads.len())));
                }
                let axes = x.rank() - 2;
                let channels = w[1].mul(&Dim::Known(*groups));
                let mut shape: Shape = [Some(x[0].clone()), channels].into_iter().flatten().collect();
                for i in 0..axes {
                    let at = |list: &[u64], or: u64| i128::from(list.get(i).copied().unwrap_or(or));
                    let (Some(size), Some(kernel)) = (x[i + 2].known(), w[i + 2].known()) else {
                        return Ok(None);
                    };
                    let window_size = (i128::from(kernel) - 1).checked_mul(at(&window.dilations, 1));
                    let grown = (i128::from(size) - 1).checked_mul(at(&window.strides, 1));
                    let whole = window_size.zip(grown).and_then(|(a, b)| a.checked_add(b));
                    let whole = whole.ok_or_else(|| OpError::overflow("the output size"))? + 1 + at(extra, 0);
                    let size = whole - i128::from(pads[i]) - i128::from(pads[axes + i]);
                    shape.push(u64::try_from(size).map_err(|_| OpError::overflow("the output size"))?);
                }
                Some(shape)
            }
            Rule::Spectrum { onesided } => {
                let half = |d: &Dim| Some(d.div_floor(&Dim::Known(2))?.offset(1));
                let end = x.dims().last().and_then(|d| if *onesided { half(d) } else { Some(d.clone()) });
                with_last(end).map(|mut shape| {
                    shape.push(2_u64);
                    shape
                })
            }
            Rule::Signal { onesided } => {
                let mut dims = x.dims().to_vec();
                dims.pop();
                if let (Some(end), true) = (dims.last_mut(), *onesided) {
                    *end =
                        end.offset(-1).mul(&Dim::Known(2)).ok_or_else(|| OpError::overflow("the length"))?;
                }
                Some(dims.into_iter().collect())
            }
            Rule::Rows => {
                let rest = x.dims().get(1..).unwrap_or_default();
                other.map(|rows| rows.dims().iter().chain(rest).cloned().collect())
            }
            Rule::Product(second) => cx.shape(*second).and_then(|b| x.broadcast(b)),
            Rule::Reduced(axes, _) => axes.shape(cx, axes.resolve(cx)?.as_deref())?,
        })
    }
}

impl Op for Contrib {
    fn name(&self) -> &str {
        self.name
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        let dtype = match &self.rule {
            Rule::Same(_, Some(dtype)) | Rule::Reduced(_, Some(dtype)) => *dtype,
            Rule::Same(i, None) => cx.dtype(*i),
            Rule::Words => cx.dtype(1),
            Rule::Product(_) => DType::Int32,
            _ => cx.dtype(0),
        };
        let shape = self.rule.shape(cx)?;
        cx.set(0, dtype, shape);
        if matches!(self.rule, Rule::Suffix) {
            cx.set(1, DType::Int64, Some([Dim::Known(1)].into_iter().collect()));
        }
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        without_gradient(l, "contrib");
    }
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::{float, ints, shape};
    use crate::{Attribute, Attributes};

    #[test]
    fn shapes_are_those_that_onnx_runtime_gives() {
        let of = |name: &str, attributes: Attributes, inputs: &[crate::ops::testing::In]| {
            shape(&format!("com.microsoft.{name}"), 1, attributes, inputs).unwrap()
        };
        let none = Attributes::default;
        assert_eq!(of("CDist", none(), &[float(&[3, 4]), float(&[5, 4])]), "3x5");
        let words = [float(&[2, 6]), float(&[5, 1, 3, 4]), float(&[5]), float(&[8, 4])];
        assert_eq!(of("WordConvEmbedding", none(), &words), "2x5");
        let grown = [float(&[1, 2, 4, 4]), float(&[2, 3, 3, 3]), ints(&[1, 1, 1, 1])];
        assert_eq!(of("ConvTransposeWithDynamicPads", none(), &grown), "1x3x4x4");
        let window = Attributes::from([("kernel_shape", Attribute::Ints(vec![3, 3]))]);
        assert_eq!(of("MaxpoolWithMask", window, &[float(&[1, 1, 6, 6]), float(&[1, 1, 6, 6])]), "1x1x4x4");
        assert_eq!(of("Rfft", none(), &[float(&[2, 8])]), "2x5x2");
        assert_eq!(of("Irfft", none(), &[float(&[2, 5, 2])]), "2x8");
        assert_eq!(of("TorchEmbedding", none(), &[float(&[5, 3]), ints(&[0, 1])]), "2x3");
        let rows = Attributes::from([("axes", Attribute::Ints(vec![1])), ("keepdims", Attribute::Int(0))]);
        assert_eq!(of("QLinearReduceMean", rows, &[float(&[2, 3, 4]), float(&[])]), "2x4");
    }
}
