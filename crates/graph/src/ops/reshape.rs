//! Reshape. ONNX 1, 5, 13, 14, 19, 21, 23, 24, 25; Keras `Reshape`.
//!
//! Autograd keeps nothing. `aten::reshape` is a view where strides allow it and a copy where they don't, forward and
//! backward.

use super::{fold, rebatch};
use crate::kernels::TfLowering;
use crate::value::listed;
use crate::{
    Call, Dim, Grad, Infer, Lowering, Num, Op, OpError, OpSpec, Operand, OutDtype, Place, Shape, View,
};
use std::sync::Arc;

/// The same elements in another shape, given by input 1 (or the attribute of opset 1).
#[derive(Clone, Debug)]
pub struct Reshape {
    /// Whether 0 means an empty dim rather than "as in the input".
    pub allow_zero: bool,
    /// The target of opset 1.
    pub target: Option<Vec<i64>>,
}

/// How Reshape is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "Reshape",
    since: &[1, 5, 13, 14, 19, 21, 23, 24, 25],
    build: |a, _| Ok(Arc::new(Reshape { allow_zero: a.flag("allowzero")?, target: a.ints("shape")? })),
}];

impl Reshape {
    fn shape(&self, cx: &Infer<'_>, target: &[Num]) -> Result<Option<Shape>, OpError> {
        let input = cx.shape(0);
        let mut dims: Vec<Option<Dim>> = Vec::with_capacity(target.len());
        let mut inferred = None;
        for (k, n) in target.iter().enumerate() {
            dims.push(match n {
                Num::Int(-1) if inferred.is_some() => {
                    return Err(OpError::mismatch("at most one -1 in the target shape", listed(target)));
                }
                Num::Int(-1) => {
                    inferred = Some(k);
                    None
                }
                Num::Int(0) if !self.allow_zero => input.and_then(|s| s.dims().get(k).cloned()),
                Num::Int(n) if *n < 0 => return Err(OpError::mismatch("sizes of -1 or more", n)),
                n => n.as_dim(),
            });
        }
        let elements = match input {
            Some(s) => Some(s.product().ok_or_else(|| OpError::overflow("the element count of the input"))?),
            None => None,
        };
        let unknown: Vec<usize> = (0..dims.len()).filter(|k| dims[*k].is_none()).collect();
        if let (Some(elements), [k]) = (&elements, &unknown[..]) {
            dims[*k] = remaining_dim(elements, dims.iter().flatten(), inferred.is_some())?;
        }
        let shape: Shape = (0..dims.len())
            .map(|k| dims[k].clone().unwrap_or_else(|| cx.fresh_dim(&format!("dim{k}"), None)))
            .collect();
        if let (Some(have), Some(want)) = (elements.as_ref().and_then(Dim::known), shape.elements())
            && have != want
        {
            return Err(OpError::mismatch(format!("{have} elements"), format!("a target shape of {shape}")));
        }
        Ok(Some(shape))
    }
}

/// The dim that `-1` stands for. A symbolic remainder that does not divide stays unknown, a numeric one is an error.
fn remaining_dim<'d>(
    elements: &Dim,
    others: impl Iterator<Item = &'d Dim>,
    must_divide: bool,
) -> Result<Option<Dim>, OpError> {
    let others: Shape = others.cloned().collect();
    let product = others.product().ok_or_else(|| OpError::overflow("the target shape"))?;
    if product == Dim::Known(0) {
        return Ok(Some(Dim::Known(0)));
    }
    match elements.div_exact(&product) {
        Some(dim) => Ok(Some(dim)),
        None if must_divide && elements.known().is_some() && product.known().is_some() => {
            Err(OpError::mismatch(format!("a target that divides {elements} elements"), format!("{others}")))
        }
        None => Ok(elements.div_floor(&product)),
    }
}

impl Op for Reshape {
    fn name(&self) -> &str {
        "Reshape"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        let target: Option<Vec<Num>> = match &self.target {
            Some(target) => Some(target.iter().copied().map(Num::Int).collect()),
            None => {
                cx.require(1)?;
                cx.value(1).map(|v| v.data.clone())
            }
        };
        let shape = match (rebatch::reshaped(cx), target) {
            (Some(shape), _) => Some(shape),
            (None, Some(target)) => self.shape(cx, &target)?,
            (None, None) => {
                let rank = cx.shape(1).filter(|s| s.rank() == 1).and_then(|s| s[0].known());
                rank.filter(|r| *r <= 64)
                    .map(|r| (0..r).map(|k| cx.fresh_dim(&format!("dim{k}"), None)).collect())
            }
        };
        let folded = cx.value(0).zip(shape.as_ref()).and_then(|(v, s)| fold::reshaped(v, s));
        cx.set(0, cx.dtype(0), shape);
        if let Some(value) = folded {
            cx.set_value(0, value);
        }
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let (x, shape) = (l.raw(0), l.out_shape(0));
        let y = l.view("Reshape", x, shape);
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let call = Call::new("reshape").input(Operand::Input(0), Grad::Unview);
        l.finish(call.output(l.out_shape(0), OutDtype::Like(0), Place::View(0, View::Reshape)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attributes, Binding, DType, Graph, Role, Type, Value, infer};

    fn reshaped(input: &[u64], target: &[i64]) -> Result<String, String> {
        let mut g = Graph::default();
        let x = g.add_tensor("x", Type::tensor(DType::Float32, Shape::from(input)), Role::Input);
        g.inputs = vec![x];
        let t = g.add_constant("t", Value::vector(DType::Int64, target.iter().copied()));
        let y = g.push("Reshape", Attributes::default(), &[x, t], "y").unwrap();
        match infer(&g, &Binding::default()) {
            Ok(inferred) => Ok(inferred.shape(y).unwrap().to_string()),
            Err(problems) => Err(problems[0].to_string()),
        }
    }

    #[test]
    fn minus_one_and_zero_are_filled_in() {
        assert_eq!(reshaped(&[2, 3, 4], &[0, -1]).unwrap(), "2x12");
        assert_eq!(reshaped(&[2, 3, 4], &[4, 6]).unwrap(), "4x6");
        assert_eq!(reshaped(&[0, 3], &[0, -1]).unwrap(), "0x0");
        assert!(reshaped(&[2, 3, 4], &[5, -1]).is_err());
        assert!(reshaped(&[2, 3, 4], &[-1, -1]).unwrap_err().ends_with("found [-1, -1]"));
        assert!(reshaped(&[2, 3, 4], &[-2, 12]).is_err());
        assert!(reshaped(&[2, 3], &[7]).unwrap_err().contains("6 elements"));
    }

    #[test]
    fn a_baked_batch_is_found_by_position() {
        // Windows folded into the batch, as in Swin: [1, 64, 49, 96] to [64, 49, 96].
        let mut g = Graph::default();
        let x = g.add_tensor("x", Type::tensor(DType::Float32, Shape::from([1, 64, 49, 96])), Role::Input);
        g.inputs = vec![x];
        let t = g.add_constant("t", Value::vector(DType::Int64, [64, 49, 96]));
        let y = g.push("Reshape", Attributes::default(), &[x, t], "y").unwrap();
        let inferred = infer(&g, &Binding { batch: Some(3), ..Binding::default() }).unwrap();
        assert_eq!(inferred.shape(y), Some(&Shape::from([192, 49, 96])));
    }
}
