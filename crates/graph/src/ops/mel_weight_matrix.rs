//! MelWeightMatrix. ONNX 17.
//!
//! A constant matrix `[dft_length / 2 + 1, mel bins]`; preprocessing, so nothing to differentiate.

use super::{calls, dtype_attribute};
use crate::{DType, Dim, Infer, Lowering, Op, OpError, OpSpec, Shape};
use std::sync::Arc;

/// The weights that turn a spectrum into mel bands.
#[derive(Clone, Copy, Debug)]
pub struct MelWeightMatrix {
    /// The dtype of the result.
    pub dtype: DType,
}

/// How MelWeightMatrix is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "MelWeightMatrix",
    since: &[17],
    build: |a, _| {
        let dtype = dtype_attribute(a, "output_datatype")?.unwrap_or(DType::Float32);
        Ok(Arc::new(MelWeightMatrix { dtype }))
    },
}];

impl Op for MelWeightMatrix {
    fn name(&self) -> &str {
        "MelWeightMatrix"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        cx.require(1)?;
        let size = |i| cx.value(i).and_then(|v| v.single()?.as_dim());
        let bins = size(1).and_then(|n| n.div_floor(&Dim::Known(2))).map(|n| n.offset(1));
        let bins = bins.unwrap_or_else(|| cx.fresh_dim("bins", None));
        let bands = size(0).unwrap_or_else(|| cx.fresh_dim("bands", None));
        cx.set(0, self.dtype, Some([bins, bands].into_iter().collect::<Shape>()));
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        calls::without_gradient(l, "mel_weight_matrix");
    }
}

#[cfg(test)]
mod tests {
    use crate::Attributes;
    use crate::ops::testing::{float, int, shape};

    #[test]
    fn half_the_spectrum_by_the_bands() {
        let inputs = [int(8), int(16), int(8192), float(&[]), float(&[])];
        assert_eq!(shape("MelWeightMatrix", 17, Attributes::default(), &inputs).unwrap(), "9x8");
    }
}
