//! ImageDecoder. ONNX 20.
//!
//! `[height, width, channels]` of bytes; only the file inside of the input knows the first two. Nothing to differentiate.

use super::calls;
use crate::{DType, Dim, Infer, Lowering, Op, OpError, OpSpec, Shape};
use std::sync::Arc;

/// Decodes an image file.
#[derive(Clone, Copy, Debug)]
pub struct ImageDecoder {
    /// One channel rather than three.
    pub gray: bool,
}

/// How ImageDecoder is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "ImageDecoder",
    since: &[20],
    build: |a, _| {
        Ok(Arc::new(ImageDecoder { gray: a.text("pixel_format")?.as_deref() == Some("Grayscale") }))
    },
}];

impl Op for ImageDecoder {
    fn name(&self) -> &str {
        "ImageDecoder"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        let channels = Dim::Known(if self.gray { 1 } else { 3 });
        let shape = [cx.fresh_dim("height", None), cx.fresh_dim("width", None), channels];
        cx.set(0, DType::Uint8, Some(shape.into_iter().collect::<Shape>()));
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        calls::without_gradient(l, "decode_image");
    }
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::{float, shape};
    use crate::{Attribute, Attributes};

    #[test]
    fn the_channels_are_known() {
        let gray = Attributes::from([("pixel_format", Attribute::Text("Grayscale".into()))]);
        assert_eq!(shape("ImageDecoder", 20, gray, &[float(&[99])]).unwrap(), "y0.heightxy0.widthx1");
    }
}
