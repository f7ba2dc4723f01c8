//! Det. ONNX 11, 22.
//!
//! Autograd keeps the input, the result, its LU factors and the pivots (derivatives.yaml: `_linalg_det`).

use crate::{
    Call, DType, Grad, Infer, Lowering, Op, OpError, OpSpec, Operand, OutDtype, Place, Saved, Shape,
};
use std::sync::Arc;

/// The determinant of each matrix in the last two axes.
#[derive(Clone, Copy, Debug)]
pub struct Det;

/// How Det is found.
pub const SPECS: &[OpSpec] =
    &[OpSpec { domain: "", name: "Det", since: &[11, 22], build: |_, _| Ok(Arc::new(Det)) }];

impl Op for Det {
    fn name(&self) -> &str {
        "Det"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        let shape: Option<Shape> = match cx.shape(0) {
            Some(x) => {
                let square = match x.dims() {
                    [.., a, b] => a.known().is_none() || b.known().is_none() || a == b,
                    _ => false,
                };
                if !square {
                    return Err(OpError::input(0, "square matrices", format!("shape {x}")));
                }
                Some(x.dims()[..x.rank() - 2].iter().cloned().collect())
            }
            None => None,
        };
        cx.set(0, cx.dtype(0), shape);
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let x = l.shape(0);
        let pivots = &x[..x.len().saturating_sub(1)];
        let call = Call::new("_linalg_det")
            .input(Operand::Input(0), Grad::New)
            .output(l.out_shape(0), OutDtype::Promoted, Place::New)
            .output(x, OutDtype::Promoted, Place::New)
            .output(pivots, OutDtype::Is(DType::Int32), Place::New)
            .saves([Saved::Input(0), Saved::Output(0), Saved::Output(1), Saved::Output(2)]);
        l.finish(call);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{float, shape};
    use crate::Attributes;

    #[test]
    fn matrices_become_numbers() {
        let det = |x| shape("Det", 11, Attributes::default(), &[float(x)]);
        assert_eq!(det(&[2, 2]).unwrap(), "scalar");
        assert_eq!(det(&[3, 2, 2]).unwrap(), "3");
        assert!(det(&[3]).is_err());
        assert!(det(&[3, 2]).is_err());
    }
}
