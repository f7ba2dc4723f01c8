//! DepthToSpace, SpaceToDepth. ONNX DepthToSpace 1, 11 (`mode`), 13, 28; SpaceToDepth 1, 13, 28 (`mode`).
//!
//! Autograd keeps nothing: the gradient of `pixel_shuffle` is a `pixel_unshuffle` and the other way round; both copy.

use crate::kernels::TfLowering;
use crate::{
    Attributes, Call, Dim, Grad, Infer, Lowering, Op, OpError, OpSpec, Operand, OutDtype, Place, Shape,
};
use std::sync::Arc;

/// Moves blocks of channels into space, or back.
#[derive(Clone, Copy, Debug)]
pub struct DepthSpace {
    /// Whether channels become space.
    pub to_space: bool,
    /// The side of a block.
    pub block: u64,
    /// Whether the channel, rather than the place in the block, is what of the depth changes slowest: `CRD`, as PyTorch's
    /// `pixel_shuffle`.
    pub channel_first: bool,
}

/// How the two are found.
pub const SPECS: &[OpSpec] = &[
    OpSpec { domain: "", name: "DepthToSpace", since: &[1, 11, 13, 28], build: |a, _| build(true, a) },
    OpSpec { domain: "", name: "SpaceToDepth", since: &[1, 13, 28], build: |a, _| build(false, a) },
];

fn build(to_space: bool, a: &mut Attributes) -> Result<Arc<dyn Op>, OpError> {
    let n = a.int("blocksize")?.ok_or_else(|| OpError::missing_attribute("blocksize"))?;
    let block = u64::try_from(n).ok().filter(|n| *n > 0);
    let block = block.ok_or_else(|| OpError::attribute("blocksize", "a positive number", n.to_string()))?;
    let channel_first = a.text("mode")?.as_deref() == Some("CRD");
    Ok(Arc::new(DepthSpace { to_space, block, channel_first }))
}

/// `dim / by`, an error where a number is not divided.
fn divided(dim: &Dim, by: u64) -> Result<Dim, OpError> {
    let by = Dim::Known(by);
    match (dim.known(), dim.div_exact(&by)) {
        (_, Some(quotient)) => Ok(quotient),
        (Some(n), None) => Err(OpError::input(0, format!("a size that {by} divides"), n)),
        (None, None) => dim.div_floor(&by).ok_or_else(|| OpError::overflow("the block")),
    }
}

impl Op for DepthSpace {
    fn name(&self) -> &str {
        if self.to_space { "DepthToSpace" } else { "SpaceToDepth" }
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        let Some(x) = cx.shape_of_rank(0, 4)? else {
            cx.set(0, cx.dtype(0), None);
            return Ok(());
        };
        let too_large = || OpError::overflow("the output");
        let (side, area) = (self.block, self.block.checked_mul(self.block).ok_or_else(too_large)?);
        let times = |dim: &Dim, n: u64| dim.mul(&Dim::Known(n)).ok_or_else(too_large);
        let (c, h, w) = if self.to_space {
            (divided(&x[1], area)?, times(&x[2], side)?, times(&x[3], side)?)
        } else {
            (times(&x[1], area)?, divided(&x[2], side)?, divided(&x[3], side)?)
        };
        cx.set(0, cx.dtype(0), Some([x[0].clone(), c, h, w].into_iter().collect::<Shape>()));
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let (x, shape) = (l.raw(0), l.out_shape(0));
        let y = l.moved(if self.to_space { "DepthToSpace" } else { "SpaceToDepth" }, x, shape);
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let name = if self.to_space { "pixel_shuffle" } else { "pixel_unshuffle" };
        let call = Call::new(name).input(Operand::Input(0), Grad::New);
        l.finish(call.output(l.out_shape(0), OutDtype::Like(0), Place::New));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{float, shape, symbolic};
    use crate::{Attribute, Attributes};

    #[test]
    fn blocks_move() {
        let of = |op, x, n| shape(op, 13, Attributes::from([("blocksize", Attribute::Int(n))]), &[x]);
        assert_eq!(of("DepthToSpace", float(&[1, 8, 2, 3]), 2).unwrap(), "1x2x4x6");
        assert_eq!(of("SpaceToDepth", symbolic(&["b", "2", "4", "6"]), 2).unwrap(), "bx8x2x3");
        assert!(of("DepthToSpace", float(&[1, 6, 2, 3]), 2).is_err());
        assert!(of("SpaceToDepth", float(&[1, 2, 4]), 2).is_err());
        assert!(of("DepthToSpace", float(&[1, 8, 2, 3]), i64::MAX).is_err());
        assert!(of("DepthToSpace", float(&[1, 8, 2, 3]), 0).is_err());
    }
}
