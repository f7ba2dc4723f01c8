//! ConstantOfShape. ONNX 9, 20, 21, 23, 24, 25.

use super::rebatch;
use crate::kernels::TfLowering;
use crate::{
    Call, DType, Grad, Infer, Lowering, Num, Op, OpError, OpSpec, Operand, OutDtype, Place, Shape, Value,
};
use std::sync::Arc;

/// A tensor of the shape in input 0, filled with one element. Where recomposition gives the tensor of that shape instead, as input
/// 1, it is `torch.full_like`: of the dtype that this tensor has when the step runs.
#[derive(Clone, Debug)]
pub struct ConstantOfShape {
    /// The element's type.
    pub dtype: DType,
    /// The element.
    pub fill: Num,
}

/// How ConstantOfShape is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "ConstantOfShape",
    since: &[9, 20, 21, 23, 24, 25],
    build: |a, _| {
        let Some(t) = a.tensor("value")? else {
            return Ok(Arc::new(ConstantOfShape { dtype: DType::Float32, fill: Num::Float(0.0) }));
        };
        let fill = t.value.as_ref().and_then(|v| v.single().cloned()).unwrap_or(Num::Unknown);
        Ok(Arc::new(ConstantOfShape { dtype: t.dtype, fill }))
    },
}];

impl Op for ConstantOfShape {
    fn name(&self) -> &str {
        "ConstantOfShape"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        if !cx.has(0) && cx.has(1) {
            let shape = cx.shape(1).cloned();
            cx.set(0, self.dtype, shape);
            return Ok(());
        }
        cx.require(0)?;
        let Some(target) = cx.value(0) else {
            let rank = cx.shape(0).filter(|s| s.rank() == 1).and_then(|s| s[0].known());
            let dims = |r| (0..r).map(|k| cx.fresh_dim(&format!("dim{k}"), None)).collect::<Shape>();
            cx.set(0, self.dtype, rank.filter(|r| *r <= 64).map(dims));
            return Ok(());
        };
        if let Some(n) = target.data.iter().filter_map(Num::as_i64).find(|n| *n < 0) {
            return Err(OpError::input(0, "sizes that are not negative", n));
        }
        let dim =
            |(k, n): (usize, &Num)| n.as_dim().unwrap_or_else(|| cx.fresh_dim(&format!("dim{k}"), None));
        let mut shape: Shape = target.data.iter().enumerate().map(dim).collect();
        if cx.value(0) == cx.value_before(0) {
            rebatch::leading(cx, &mut shape);
        }
        let folded = shape.known().and_then(|dims| Value::filled(self.dtype, &dims, self.fill.clone()));
        cx.set(0, self.dtype, Some(shape));
        if let Some(value) = folded {
            cx.set_value(0, value);
        }
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        l.allocate("Fill");
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let full = match l.state(1) {
            Some(_) => {
                let like = Call::new("full_like").input(Operand::Input(1), Grad::None);
                like.output(l.out_shape(0), OutDtype::Like(0), Place::New)
            }
            None => Call::new("full").output(l.out_shape(0), OutDtype::Is(l.out_dtype(0)), Place::New),
        };
        l.finish(full);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{In, folded, ints, shape};
    use super::*;
    use crate::{Attribute, Attributes, Dim, TensorAttribute, Type};

    #[test]
    fn the_shape_comes_from_elements_or_at_least_their_count() {
        let filled = |x| shape("ConstantOfShape", 9, Attributes::default(), &[x]);
        assert_eq!(filled(ints(&[2, 0, 3])).unwrap(), "2x0x3");
        assert_eq!(filled(ints(&[])).unwrap(), "scalar");
        assert!(filled(ints(&[-1])).is_err());
        let unknown = In::Typed(Type::tensor(DType::Int64, Shape::from([2])));
        assert_eq!(filled(unknown).unwrap(), "y0.dim0xy0.dim1");
        let sizes = Value::vector(DType::Int64, [Num::Dim(Dim::symbol("batch")), Num::Int(4)]);
        assert_eq!(filled(In::Value(sizes)).unwrap(), "batchx4");
        let one = Value::vector(DType::Int64, [1_i64]);
        let one = TensorAttribute { dtype: DType::Int64, shape: vec![1], value: Some(one) };
        let ones = Attributes::from([("value", Attribute::Tensor(one))]);
        assert_eq!(folded("ConstantOfShape", ones, &[ints(&[3])]).unwrap(), [1, 1, 1]);
    }
}
