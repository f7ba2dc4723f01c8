//! IndexAdd: slices added to the places along one axis that a list of indices names. Made by recomposition only.
//!
//! `torch.index_add(self, dim, index, source)` keeps the source for its rank alone, and the indices (derivatives.yaml: `index_add`, 2.15:
//! `source: source.dim() > 0 ? grad.index_select(dim, index).expand_as(source) : …`); the gradient of what is added to is the
//! incoming one.

use crate::{Call, Grad, Infer, Lowering, Op, OpError, OpSpec, Operand, OutDtype, Place, Saved};

/// Inputs: what is added to, one index for each slice, and the slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexAdd;

/// No file holds it.
pub const SPECS: &[OpSpec] = &[];

impl Op for IndexAdd {
    fn name(&self) -> &str {
        "IndexAdd"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(1)?;
        cx.require(2)?;
        let ty = cx.require(0)?.clone();
        cx.set_type(0, ty);
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let call = Call::new("index_add")
            .input(Operand::Input(0), Grad::Pass)
            .input(Operand::Input(1), Grad::None)
            .input(Operand::Input(2), Grad::New)
            .output(l.out_shape(0), OutDtype::Like(0), Place::New)
            .saves([1, 2].map(|input| Saved::InputFor { input, needed_by: 2 }));
        l.finish(call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, OutState, TensorState};

    #[test]
    fn the_source_is_kept_and_not_the_sum() {
        let state = |shape, dtype: DType| {
            Some(TensorState { shape, dtype, requires_grad: dtype.is_float(), is_initializer: false })
        };
        let inputs =
            [state(&[9, 8][..], DType::Float32), state(&[5], DType::Int64), state(&[5, 8], DType::Float32)];
        let out = [Some(OutState { shape: &[9, 8], dtype: DType::Float32 })];
        let mut l = Lowering::new(&inputs, &out, None, true);
        IndexAdd.pytorch(&mut l);
        let call = l.into_parts().0.remove(0);
        assert!(call.saved.contains(&Saved::InputFor { input: 2, needed_by: 2 }));
        assert!(!call.saved.contains(&Saved::Output(0)));
        assert_eq!(call.grads[..], [Grad::Pass, Grad::None, Grad::New]);
    }
}
