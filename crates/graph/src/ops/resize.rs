//! Resize (ONNX 10, 11, 13, 18, 19) and Upsample (1, 7, 9, 10); PyTorch's `F.interpolate`, Keras `UpSampling*D`,
//! `Resizing`.
//!
//! Autograd keeps nothing (derivatives.yaml: `upsample_nearest2d`, `upsample_bilinear2d`, `upsample_bicubic2d` read
//! sizes only). All of them are on autocast's fp32 list. A size that was baked into a file for one batch says nothing of
//! an axis that it leaves whole: that axis keeps the new batch.

use crate::kernels::TfLowering;
use crate::{
    Attributes, Autocast, Call, Dim, Grad, Infer, Lowering, Num, Op, OpError, OpSpec, Operand, OutDtype,
    Place, Shape,
};
use std::sync::Arc;

/// Resamples to other sizes.
#[derive(Clone, Debug, Default)]
pub struct Resize {
    /// The operator's name.
    pub name: &'static str,
    /// `nearest`, `linear` or `cubic`.
    pub mode: String,
    /// The axes that scales and sizes are for; all where absent.
    pub axes: Option<Vec<i64>>,
    /// How sizes are read.
    pub policy: Policy,
    /// The factors of Upsample's first opsets.
    pub factors: Option<Vec<f64>>,
    /// Which input holds the factors.
    pub factors_at: usize,
    /// Whether the corners' elements lie on each other (`align_corners`).
    pub corners: bool,
    /// Where an element of the output lies in the input, and which elements make it.
    pub sampling: Sampling,
}

/// What of Resize changes values alone; names are ONNX's.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// `coordinate_transformation_mode`.
    pub coordinates: String,
    /// `nearest_mode`.
    pub rounding: String,
    /// `cubic_coeff_a`.
    pub cubic: f64,
    /// Whether an element of a smaller output is made of all that it covers.
    pub antialias: bool,
    /// Whether what lies outside has no weight, rather than the edge's value.
    pub excludes_outside: bool,
}

/// As Upsample and Resize of opset 10.
impl Default for Sampling {
    fn default() -> Sampling {
        Sampling {
            coordinates: "asymmetric".into(),
            rounding: "floor".into(),
            cubic: -0.75,
            antialias: false,
            excludes_outside: false,
        }
    }
}

fn sampling(a: &mut Attributes) -> Result<Sampling, OpError> {
    Ok(Sampling {
        coordinates: a.text("coordinate_transformation_mode")?.unwrap_or_else(|| "half_pixel".into()),
        rounding: a.text("nearest_mode")?.unwrap_or_else(|| "round_prefer_floor".into()),
        cubic: a.float("cubic_coeff_a")?.unwrap_or(-0.75),
        antialias: a.flag("antialias")?,
        excludes_outside: a.flag("exclude_outside")?,
    })
}

/// `keep_aspect_ratio_policy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Each size as given.
    #[default]
    Stretch,
    /// One factor for all axes, so that no size is above the given one.
    NotLarger,
    /// One factor for all axes, so that no size is below the given one.
    NotSmaller,
}

/// How they are found.
pub const SPECS: &[OpSpec] = &[
    OpSpec {
        domain: "",
        name: "Resize",
        since: &[10, 11, 13, 18, 19],
        build: |a, version| {
            let policy = match a.text("keep_aspect_ratio_policy")?.as_deref() {
                None | Some("stretch") => Policy::Stretch,
                Some("not_larger") => Policy::NotLarger,
                Some("not_smaller") => Policy::NotSmaller,
                Some(other) => {
                    let expected = "stretch, not_larger or not_smaller";
                    return Err(OpError::attribute("keep_aspect_ratio_policy", expected, other));
                }
            };
            Ok(Arc::new(Resize {
                name: "Resize",
                mode: a.text("mode")?.unwrap_or_else(|| "nearest".into()),
                axes: a.ints("axes")?,
                policy,
                factors: None,
                factors_at: if version < 11 { 1 } else { 2 },
                corners: a.text("coordinate_transformation_mode")?.is_some_and(|how| how == "align_corners"),
                sampling: if version < 11 { Sampling::default() } else { sampling(a)? },
            }))
        },
    },
    OpSpec { domain: "", name: "Upsample", since: &[1, 7, 9, 10], build: |a, _| upsample(a) },
];

fn upsample(a: &mut Attributes) -> Result<Arc<dyn Op>, OpError> {
    let factors = match (a.float("height_scale")?, a.float("width_scale")?) {
        (Some(height), Some(width)) => Some(vec![1.0, 1.0, height, width]),
        _ => a.floats("scales")?,
    };
    let mode = a.text("mode")?.unwrap_or_else(|| "nearest".into());
    Ok(Arc::new(Resize { name: "Upsample", mode, factors, factors_at: 1, ..Resize::default() }))
}

/// `floor(dim * factor)`, in the single precision that the runtimes use.
fn scaled(dim: &Dim, factor: f64, fresh: impl Fn() -> Dim) -> Result<Dim, OpError> {
    let out_of_range = || OpError::overflow(format!("{dim} times {factor}"));
    if !factor.is_finite() || factor < 0.0 {
        return Err(out_of_range());
    }
    if let Some(n) = dim.known() {
        // Only sizes below 2^24 are exact in single precision.
        let size = if n < 1 << 24 {
            f64::from((n as f32 * factor as f32).floor())
        } else {
            (n as f64 * factor).floor()
        };
        return whole(size).map(Dim::Known).ok_or_else(out_of_range);
    }
    if let Some(times) = whole(factor) {
        return dim.mul(&Dim::Known(times)).ok_or_else(out_of_range);
    }
    match whole(1.0 / factor) {
        Some(part) => dim.div_floor(&Dim::Known(part)).ok_or_else(out_of_range),
        None => Ok(fresh()),
    }
}

/// A float as a size, where it is one.
fn whole(x: f64) -> Option<u64> {
    ((0.0..9.0e15).contains(&x) && x.fract() == 0.0).then_some(x as u64)
}

impl Resize {
    /// The axes that factors and sizes are for.
    fn axes(&self, x: &Shape) -> Result<Vec<usize>, OpError> {
        match &self.axes {
            None => Ok((0..x.rank()).collect()),
            Some(axes) => axes
                .iter()
                .map(|axis| {
                    x.axis(*axis).ok_or_else(|| {
                        OpError::attribute("axes", format!("axes of shape {x}"), axis.to_string())
                    })
                })
                .collect(),
        }
    }

    fn by_factors(&self, cx: &Infer<'_>, x: &Shape, factors: &[Num]) -> Result<Shape, OpError> {
        let mut shape = x.clone();
        for (axis, factor) in self.pairs(x, factors, self.factors_at)? {
            let fresh = || cx.fresh_dim(&format!("dim{axis}"), None);
            let dim = match factor.as_f64() {
                Some(factor) => scaled(&x[axis], factor, fresh)?,
                None => fresh(),
            };
            shape.dims_mut()[axis] = dim;
        }
        Ok(shape)
    }

    fn by_sizes(&self, cx: &Infer<'_>, x: &Shape, sizes: &[Num]) -> Result<Shape, OpError> {
        let mut shape = x.clone();
        let pairs = self.pairs(x, sizes, 3)?;
        let ratios = pairs.iter().map(|(axis, size)| Some(size.as_f64()? / x[*axis].known()? as f64));
        let ratio = match self.policy {
            Policy::Stretch => None,
            Policy::NotLarger => ratios.reduce(|a, b| Some(a?.min(b?))).flatten(),
            Policy::NotSmaller => ratios.reduce(|a, b| Some(a?.max(b?))).flatten(),
        };
        for (axis, size) in pairs {
            let fresh = || cx.fresh_dim(&format!("dim{axis}"), None);
            shape.dims_mut()[axis] = match (self.policy, ratio) {
                (Policy::Stretch, _) if matches!(size.as_i64(), Some(n) if n < 0) => {
                    return Err(OpError::input(3, "sizes that are not negative", size));
                }
                (Policy::Stretch, _) => size.as_dim().unwrap_or_else(fresh),
                (_, Some(ratio)) => {
                    let n = x[axis].known().unwrap_or(0) as f64 * ratio;
                    whole((n + 0.5).floor()).map_or_else(fresh, Dim::Known)
                }
                (_, None) => fresh(),
            };
        }
        // Baked for the exported batch: an axis that was left whole stays whole.
        if let Some((old_in, old_out)) = cx.before(0, 0)
            && cx.value(3) == cx.value_before(3)
            && old_in.rank() == x.rank()
            && old_out.rank() == x.rank()
        {
            for axis in (0..x.rank()).filter(|k| old_in[*k] == old_out[*k]) {
                shape.dims_mut()[axis] = x[axis].clone();
            }
        }
        Ok(shape)
    }

    /// Each axis with its number.
    fn pairs<'n>(
        &self,
        x: &Shape,
        numbers: &'n [Num],
        input: usize,
    ) -> Result<Vec<(usize, &'n Num)>, OpError> {
        let axes = self.axes(x)?;
        if axes.len() != numbers.len() {
            let expected = format!("{} numbers, one an axis", axes.len());
            return Err(OpError::input(input, expected, numbers.len()));
        }
        Ok(axes.into_iter().zip(numbers).collect())
    }
}

impl Op for Resize {
    fn name(&self) -> &str {
        self.name
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        let elements = |i: usize| cx.value(i).map(|v| &v.data[..]).filter(|d| !d.is_empty());
        let given = self.factors.as_ref().map(|f| f.iter().copied().map(Num::Float).collect::<Vec<_>>());
        let factors = given.as_deref().or_else(|| elements(self.factors_at));
        let sizes = if self.factors_at == 2 { elements(3) } else { None };
        let shape = match (cx.shape(0), factors, sizes) {
            (Some(x), Some(factors), None) => Some(self.by_factors(cx, x, factors)?),
            (Some(x), _, Some(sizes)) => Some(self.by_sizes(cx, x, sizes)?),
            (Some(x), None, None) => {
                let axes = self.axes(x)?;
                let dim = |k: usize| {
                    if axes.contains(&k) { cx.fresh_dim(&format!("dim{k}"), None) } else { x[k].clone() }
                };
                Some((0..x.rank()).map(dim).collect())
            }
            (None, _, _) => None,
        };
        cx.set(0, cx.dtype(0), shape);
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let (x, shape) = (l.input(0), l.out_shape(0));
        let y = match &*self.mode {
            "linear" | "bilinear" | "trilinear" => l.resized("ResizeBilinear", x, shape),
            "cubic" => l.resized("ResizeBicubic", x, shape),
            _ => l.moved("ResizeNearestNeighbor", x, shape),
        };
        let y = l.to_compute(y);
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let name = match &*self.mode {
            "cubic" => "upsample_bicubic2d",
            "linear" | "bilinear" | "trilinear" => "upsample_bilinear2d",
            _ => "upsample_nearest2d",
        };
        let call = Call::new(name).autocast(Autocast::Fp32).input(Operand::Input(0), Grad::New);
        l.finish(call.output(l.out_shape(0), OutDtype::Promoted, Place::New));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{self, In, float, ints, symbolic};
    use super::*;
    use crate::{Attribute, DType, Value};

    fn factors(numbers: &[f64]) -> In {
        In::Value(Value::vector(DType::Float32, numbers.iter().copied()))
    }

    fn resize(attributes: Attributes, x: In, scales: In, sizes: In) -> Result<String, String> {
        testing::shape("Resize", 19, attributes, &[x, In::Absent, scales, sizes])
    }

    #[test]
    fn factors_keep_symbols() {
        let x = symbolic(&["batch", "3", "h", "7"]);
        let doubled = resize(Attributes::default(), x.clone(), factors(&[1.0, 1.0, 2.0, 0.6]), In::Absent);
        assert_eq!(doubled.unwrap(), "batchx3x2*hx4");
        let halved = resize(Attributes::default(), x.clone(), factors(&[1.0, 1.0, 0.5, 1.0]), In::Absent);
        assert_eq!(halved.unwrap(), "batchx3xfloor(h/2)x7");
        let two = resize(Attributes::default(), x, factors(&[1.0, 2.0]), In::Absent);
        assert!(two.unwrap_err().contains("4 numbers"));
    }

    #[test]
    fn sizes_may_keep_the_ratio() {
        let policy = |name: &str| {
            Attributes::from([
                ("axes", Attribute::Ints(vec![2, -1])),
                ("keep_aspect_ratio_policy", Attribute::Text(name.into())),
            ])
        };
        let to = |name| resize(policy(name), float(&[1, 3, 2, 4]), In::Absent, ints(&[7, 8]));
        assert_eq!(to("not_larger").unwrap(), "1x3x4x8");
        assert_eq!(to("not_smaller").unwrap(), "1x3x7x14");
        assert_eq!(to("stretch").unwrap(), "1x3x7x8");
        assert!(to("squash").is_err());
    }

    #[test]
    fn a_baked_size_keeps_the_new_batch() {
        let inputs = [float(&[1, 3, 8, 8]), In::Absent, In::Absent, ints(&[1, 3, 16, 16])];
        assert_eq!(testing::rebatched("Resize", Attributes::default(), &inputs, 5).unwrap(), "5x3x16x16");
    }

    #[test]
    fn the_first_upsample_has_its_factors_as_attributes() {
        let attributes = Attributes::from([
            ("height_scale", Attribute::Float(2.0)),
            ("width_scale", Attribute::Float(3.0)),
        ]);
        assert_eq!(testing::shape("Upsample", 1, attributes, &[float(&[1, 1, 2, 2])]).unwrap(), "1x1x4x6");
    }
}
