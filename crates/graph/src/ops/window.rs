//! BlackmanWindow, HammingWindow, HannWindow. ONNX 17; `torch.hann_window` and its like.
//!
//! A vector whose length input 0 gives. Nothing to differentiate.

use super::{calls, dtype_attribute};
use crate::{DType, Infer, Lowering, Op, OpError, OpSpec, Shape};
use std::sync::Arc;

/// One of the windows; they differ in their coefficients only.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    name: &'static str,
    function: &'static str,
    /// The dtype of the result.
    pub dtype: DType,
}

macro_rules! window {
    ($($name:literal $function:literal;)*) => {
        /// How the three are found.
        pub const SPECS: &[OpSpec] = &[$(OpSpec {
            domain: "",
            name: $name,
            since: &[17],
            build: |a, _| {
                let dtype = dtype_attribute(a, "output_datatype")?.unwrap_or(DType::Float32);
                Ok(Arc::new(Window { name: $name, function: $function, dtype }))
            },
        }),*];
    };
}

window! {
    "BlackmanWindow" "blackman_window";
    "HammingWindow" "hamming_window";
    "HannWindow" "hann_window";
}

impl Op for Window {
    fn name(&self) -> &str {
        self.name
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        let size =
            cx.value(0).and_then(|v| v.single()?.as_dim()).unwrap_or_else(|| cx.fresh_dim("size", None));
        cx.set(0, self.dtype, Some([size].into_iter().collect::<Shape>()));
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        calls::without_gradient(l, self.function);
    }
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::{int, run};
    use crate::{Attribute, Attributes, DType, Shape, Type};

    #[test]
    fn the_length_is_the_inputs_value() {
        let double = Attributes::from([("output_datatype", Attribute::Int(11))]);
        let out = run("HannWindow", 17, double, &[int(400)], 1).unwrap().remove(0).0;
        assert_eq!(out, Type::tensor(DType::Float64, Shape::from([400])));
        let wrong = Attributes::from([("output_datatype", Attribute::Int(99))]);
        assert!(run("HannWindow", 17, wrong, &[int(400)], 1).is_err());
    }
}
