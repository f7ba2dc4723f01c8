//! Col2Im. ONNX 18 (PyTorch's `fold`).
//!
//! Autograd keeps nothing (derivatives.yaml: the gradient of `col2im` is an `im2col`).

use crate::{Call, Dim, Grad, Infer, Lowering, Num, Op, OpError, OpSpec, Operand, OutDtype, Place, Shape};
use std::sync::Arc;

/// Sums blocks `[N, C * block, L]` into images `[N, C, …]` of the sizes in input 1; input 2 is the block.
#[derive(Clone, Copy, Debug)]
pub struct Col2Im;

/// How Col2Im is found.
pub const SPECS: &[OpSpec] =
    &[OpSpec { domain: "", name: "Col2Im", since: &[18], build: |_, _| Ok(Arc::new(Col2Im)) }];

impl Op for Col2Im {
    fn name(&self) -> &str {
        "Col2Im"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        for i in 0..3 {
            cx.require(i)?;
        }
        let x = cx.shape_of_rank(0, 3)?;
        let sizes = match cx.value(1) {
            Some(v) => v.data.clone(),
            None => {
                let axes = cx.shape(1).or(cx.shape(2)).and_then(|s| s.dims().first()?.known());
                let Some(axes) = axes.and_then(|n| usize::try_from(n).ok()).filter(|n| *n <= 64) else {
                    cx.set(0, cx.dtype(0), None);
                    return Ok(());
                };
                vec![Num::Unknown; axes]
            }
        };
        let block =
            cx.value(2).and_then(|v| v.data.iter().try_fold(Dim::Known(1), |acc, n| acc.mul(&n.as_dim()?)));
        let channels = match (x, &block) {
            (Some(x), Some(block)) => match (x[1].div_exact(block), x[1].known(), block.known()) {
                (Some(channels), ..) => channels,
                (None, Some(n), Some(block)) => {
                    return Err(OpError::input(0, format!("channels that a block of {block} divides"), n));
                }
                _ => cx.fresh_dim("channels", x[1].upper()),
            },
            _ => cx.fresh_dim("channels", x.and_then(|x| x[1].upper())),
        };
        let batch = x.map_or_else(|| cx.fresh_dim("batch", None), |x| x[0].clone());
        let size =
            |(k, n): (usize, &Num)| n.as_dim().unwrap_or_else(|| cx.fresh_dim(&format!("size{k}"), None));
        let shape: Shape = [batch, channels].into_iter().chain(sizes.iter().enumerate().map(size)).collect();
        cx.set(0, cx.dtype(0), Some(shape));
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let call = Call::new("col2im").input(Operand::Input(0), Grad::New);
        l.finish(call.output(l.out_shape(0), OutDtype::Like(0), Place::New));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{float, ints, shape};
    use crate::Attributes;

    #[test]
    fn blocks_become_images() {
        let of = |x: &[u64], size: &[i64], block: &[i64]| {
            shape("Col2Im", 18, Attributes::default(), &[float(x), ints(size), ints(block)])
        };
        assert_eq!(of(&[1, 10, 12], &[3, 4, 5], &[1, 1, 5]).unwrap(), "1x2x3x4x5");
        assert!(of(&[1, 9, 12], &[5, 5], &[1, 5]).is_err());
        assert!(of(&[1, 10], &[5, 5], &[1, 5]).is_err());
    }
}
