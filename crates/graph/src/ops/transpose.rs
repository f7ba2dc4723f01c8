//! Transpose. ONNX 1, 13, 21, 23, 24, 25; Keras `Permute`.
//!
//! Autograd keeps nothing: `aten::permute` is a view, and so is its gradient (derivatives.yaml: `permute_backwards`).

use super::calls::Traced;
use super::fold;
use crate::kernels::TfLowering;
use crate::{Attributes, Infer, Lowering, Op, OpError, OpSpec, Shape};
use std::sync::Arc;

/// Axes in another order.
#[derive(Clone, Debug)]
pub struct Transpose {
    /// Output axis `i` is input axis `perm[i]`; all axes reversed where absent.
    pub perm: Option<Vec<u64>>,
    /// Whether `contiguous()` follows, which no file says: recomposition finds it.
    pub copies: bool,
}

/// How Transpose is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "Transpose",
    since: &[1, 13, 21, 23, 24, 25],
    build: |a: &mut Attributes, _| Ok(Arc::new(Transpose { perm: a.sizes("perm")?, copies: false })),
}];

impl Transpose {
    /// The permutation of `rank` axes.
    pub fn permutation(&self, rank: usize) -> Result<Vec<usize>, OpError> {
        let Some(perm) = &self.perm else { return Ok((0..rank).rev().collect()) };
        let perm: Vec<usize> = perm.iter().map(|p| usize::try_from(*p).unwrap_or(usize::MAX)).collect();
        let mut sorted = perm.clone();
        sorted.sort_unstable();
        if sorted.iter().copied().eq(0..rank) {
            Ok(perm)
        } else {
            Err(OpError::attribute(
                "perm",
                format!("the axes 0 to {rank}, each once"),
                format!("{:?}", self.perm.as_deref().unwrap_or_default()),
            ))
        }
    }
}

impl Op for Transpose {
    fn name(&self) -> &str {
        "Transpose"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        let Some(x) = cx.shape(0) else {
            cx.set(0, cx.dtype(0), None);
            return Ok(());
        };
        let perm = self.permutation(x.rank())?;
        let shape: Shape = perm.iter().map(|p| x[*p].clone()).collect();
        let folded = cx.value(0).zip(shape.known()).and_then(|(v, shape)| {
            fold::pick(v, &shape, |index| {
                let mut source = vec![0; index.len()];
                perm.iter().zip(index).for_each(|(p, i)| source[*p] = *i);
                Some(source)
            })
        });
        cx.set(0, cx.dtype(0), Some(shape));
        if let Some(value) = folded {
            cx.set_value(0, value);
        }
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let (x, shape) = (l.raw(0), l.out_shape(0));
        let y = l.moved("Transpose", x, shape);
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let perm = self.permutation(l.shape(0).len()).unwrap_or_default();
        let y = Traced::input(l, 0).permute(l, &perm);
        let y = if self.copies { y.copy(l) } else { y };
        y.bind(l, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{In, float, folded, shape};
    use super::*;
    use crate::{Attribute, DType, Num, Value};

    #[test]
    fn axes_move_with_their_elements() {
        let perm = |p: &[i64]| Attributes::from([("perm", Attribute::Ints(p.to_vec()))]);
        assert_eq!(shape("Transpose", 13, perm(&[0, 2, 1]), &[float(&[2, 3, 4])]).unwrap(), "2x4x3");
        assert_eq!(shape("Transpose", 13, Attributes::default(), &[float(&[2, 3, 4])]).unwrap(), "4x3x2");
        assert!(shape("Transpose", 13, perm(&[0, 0, 1]), &[float(&[2, 3, 4])]).is_err());
        assert!(shape("Transpose", 13, perm(&[0, 1]), &[float(&[2, 3, 4])]).is_err());
        let data = (0..6).map(Num::Int).collect();
        let matrix = In::Value(Value { dtype: DType::Int64, shape: vec![2, 3], data });
        assert_eq!(folded("Transpose", Attributes::default(), &[matrix]).unwrap(), [0, 3, 1, 4, 2, 5]);
    }
}
