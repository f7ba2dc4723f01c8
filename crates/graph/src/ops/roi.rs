//! RoiAlign (ONNX 10, 16, 22), MaxRoiPool (1, 22) and com.microsoft.CropAndResize: `torchvision.ops.roi_align`,
//! `roi_pool`.
//!
//! torchvision's backward keeps the regions (csrc/ops/autograd/roi_align_kernel.cpp), and for max pooling an int32 index
//! per output element beside (roi_pool_kernel.cpp). Its autocast wrapper casts to float32 and back.

use super::calls::{Traced, positive};
use crate::{
    Autocast, Call, DType, Dim, Grad, Infer, Lowering, Op, OpError, OpSpec, OutDtype, Place, Saved, Shape,
};
use std::sync::Arc;

/// Reads a fixed number of points from each region of an image.
#[derive(Clone, Copy, Debug)]
pub struct RegionPool {
    /// The operator's name.
    pub name: &'static str,
    /// Height and width of the result, where attributes give it.
    pub size: Option<[u64; 2]>,
    /// Whether the largest element is taken and its index kept.
    pub max: bool,
}

/// How they are found.
pub const SPECS: &[OpSpec] = &[
    OpSpec {
        domain: "",
        name: "RoiAlign",
        since: &[10, 16, 22],
        build: |a, _| {
            let size = Some([positive(a, "output_height", 1)?, positive(a, "output_width", 1)?]);
            Ok(Arc::new(RegionPool { name: "RoiAlign", size, max: false }))
        },
    },
    OpSpec {
        domain: "",
        name: "MaxRoiPool",
        since: &[1, 22],
        build: |a, _| match &a.sizes("pooled_shape")?.unwrap_or_default()[..] {
            [height, width] => {
                Ok(Arc::new(RegionPool { name: "MaxRoiPool", size: Some([*height, *width]), max: true }))
            }
            other => Err(OpError::attribute("pooled_shape", "two sizes", format!("{other:?}"))),
        },
    },
    OpSpec {
        domain: "com.microsoft",
        name: "CropAndResize",
        since: &[1],
        build: |_, _| {
            Ok(Arc::new(RegionPool { name: "com.microsoft.CropAndResize", size: None, max: false }))
        },
    },
];

impl Op for RegionPool {
    fn name(&self) -> &str {
        self.name
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        cx.require(1)?;
        let (x, regions) = (cx.shape_of_rank(0, 4)?, cx.shape_of_rank(1, 2)?);
        let dim = |k: usize| {
            let given = self.size.map(|size| Dim::Known(size[k]));
            let folded = || cx.value(3).and_then(|v| v.data.get(k)?.as_dim());
            given.or_else(folded).unwrap_or_else(|| cx.fresh_dim(&format!("dim{}", k + 2), None))
        };
        let count = regions.map_or_else(|| cx.fresh_dim("regions", None), |s| s[0].clone());
        let channels = x.map_or_else(|| cx.fresh_dim("channels", None), |s| s[1].clone());
        let shape: Shape = [count, channels, dim(0), dim(1)].into_iter().collect();
        cx.set(0, cx.dtype(0), Some(shape));
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let x = Traced::input(l, 0).autocast(l, Autocast::Fp32);
        let mut regions = Traced::input(l, 1);
        if let Some(batch) = Traced::optional(l, 2) {
            // torchvision wants [index, x1, y1, x2, y2] in one tensor.
            let shape = [regions.shape.first().copied().unwrap_or(0), 5];
            let call = Call::new("cat").input(batch.operand, Grad::None).input(regions.operand, Grad::None);
            regions = Traced::of(l, call.output(&shape, OutDtype::Like(1), Place::New), &shape, &[]);
        }
        let shape = l.out_shape(0);
        let mut call = Call::new(if self.max { "roi_pool" } else { "roi_align" })
            .input(x.operand, Grad::New)
            .input(regions.operand, Grad::None)
            .output(shape, OutDtype::Like(0), Place::New)
            .saves([Saved::Input(1)]);
        if self.max {
            call = call.output(shape, OutDtype::Is(DType::Int32), Place::New).saves([Saved::Output(1)]);
        }
        Traced::of(l, call, shape, &[&x]).back_to(l, l.dtype(0)).bind(l, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{self, In, float};
    use super::*;
    use crate::{Attribute, Attributes, Type};

    #[test]
    fn one_result_a_region() {
        let size =
            Attributes::from([("output_height", Attribute::Int(5)), ("output_width", Attribute::Int(6))]);
        let index = In::Typed(Type::tensor(DType::Int64, Shape::from([100])));
        let inputs = [float(&[2, 256, 50, 50]), float(&[100, 4]), index];
        assert_eq!(testing::shape("RoiAlign", 16, size.clone(), &inputs).unwrap(), "100x256x5x6");
        let calls = testing::calls("RoiAlign", 16, size, &inputs, 1);
        // The regions with their index, not the image.
        assert_eq!(calls[1].saved[..], [Saved::Input(1)]);
        assert_eq!(calls[1].inputs[1], crate::Operand::Result { call: 0, output: 0 });
        let pooled = Attributes::from([("pooled_shape", Attribute::Ints(vec![7]))]);
        assert!(testing::shape("MaxRoiPool", 1, pooled, &inputs[..2]).is_err());
    }
}
