//! Add, Sub, Mul, Div: elementwise with broadcasting. ONNX 1, 6, 7, 13, 14; Keras `Add`, `Subtract`, `Multiply`.
//!
//! derivatives.yaml: `add` and `sub` keep nothing; `mul` keeps each factor only where the other one needs a gradient;
//! `div` keeps the divisor, and the dividend where the divisor needs a gradient. `add` hands the same gradient tensor
//! to both inputs. A sum that is written over its first operand (`out += identity`) has the dtype of that one.

use super::{fold, legacy};
use crate::kernels::TfLowering;
use crate::{Call, DType, Grad, Infer, Lowering, Num, Op, OpError, OpSpec, Operand, OutDtype, Place, Saved};
use std::sync::Arc;

/// Which of the four.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Arithmetic {
    Add,
    /// `a += b`. No file holds it: recomposition finds it.
    AddTo,
    Sub,
    Mul,
    Div,
}

/// How the four are found.
pub const SPECS: &[OpSpec] = &[
    OpSpec {
        domain: "",
        name: "Add",
        since: &[1, 6, 7, 13, 14],
        build: |a, version| legacy::wrap(Arc::new(Arithmetic::Add), None, a, version),
    },
    OpSpec {
        domain: "",
        name: "Sub",
        since: &[1, 6, 7, 13, 14],
        build: |a, version| legacy::wrap(Arc::new(Arithmetic::Sub), None, a, version),
    },
    OpSpec {
        domain: "",
        name: "Mul",
        since: &[1, 6, 7, 13, 14],
        build: |a, version| legacy::wrap(Arc::new(Arithmetic::Mul), None, a, version),
    },
    OpSpec {
        domain: "",
        name: "Div",
        since: &[1, 6, 7, 13, 14],
        build: |a, version| legacy::wrap(Arc::new(Arithmetic::Div), None, a, version),
    },
];

impl Arithmetic {
    fn fold(self, a: &Num, b: &Num, dtype: DType) -> Num {
        let known = match (a, b) {
            (Num::Float(_), _) | (_, Num::Float(_)) => a.as_f64().zip(b.as_f64()).map(|(a, b)| {
                Num::Float(match self {
                    Arithmetic::Add | Arithmetic::AddTo => a + b,
                    Arithmetic::Sub => a - b,
                    Arithmetic::Mul => a * b,
                    Arithmetic::Div => a / b,
                })
            }),
            (Num::Int(a), Num::Int(b)) => match self {
                Arithmetic::Add | Arithmetic::AddTo => a.checked_add(*b),
                Arithmetic::Sub => a.checked_sub(*b),
                Arithmetic::Mul => a.checked_mul(*b),
                Arithmetic::Div if dtype.is_float() => None,
                Arithmetic::Div => a.checked_div(*b),
            }
            .map(Num::Int),
            _ => None,
        };
        known.or_else(|| self.fold_dim(a, b)).unwrap_or(Num::Unknown)
    }

    /// Symbolic sizes: `batch * 12`, `seq / 2`, `batch + 1`.
    fn fold_dim(self, a: &Num, b: &Num) -> Option<Num> {
        let dims = || Some((a.as_dim()?, b.as_dim()?));
        let offset = |a: &Num, b: i64| Some(a.as_dim()?.offset(b));
        let dim = match (self, b) {
            (Arithmetic::Add | Arithmetic::AddTo, Num::Int(n)) => offset(a, *n)?,
            (Arithmetic::Sub, Num::Int(n)) => offset(a, n.checked_neg()?)?,
            (Arithmetic::Add | Arithmetic::AddTo, _) => dims().and_then(|(a, b)| a.add(&b))?,
            (Arithmetic::Mul, _) => dims().and_then(|(a, b)| a.mul(&b))?,
            (Arithmetic::Div, _) => dims().and_then(|(a, b)| a.div_floor(&b))?,
            (Arithmetic::Sub, _) => {
                let (a, b) = dims()?;
                if a == b { crate::Dim::Known(0) } else { return None }
            }
        };
        Some(dim.into())
    }
}

impl Op for Arithmetic {
    fn name(&self) -> &str {
        match self {
            Arithmetic::Add | Arithmetic::AddTo => "Add",
            Arithmetic::Sub => "Sub",
            Arithmetic::Mul => "Mul",
            Arithmetic::Div => "Div",
        }
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        super::infer_broadcast(cx, None)?;
        if let (Some(a), Some(b)) = (cx.value(0), cx.value(1))
            && let Some(value) = fold::binary(a, b, a.dtype, |x, y| self.fold(x, y, a.dtype))
        {
            cx.set_value(0, value);
        }
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let name = match self {
            Arithmetic::Add | Arithmetic::AddTo => "AddV2",
            Arithmetic::Sub => "Sub",
            Arithmetic::Mul => "Mul",
            Arithmetic::Div => "RealDiv",
        };
        let y = match (l.is_constant(0), l.is_constant(1)) {
            (false, true) => {
                let x = l.input(0);
                match self {
                    Arithmetic::Add | Arithmetic::AddTo | Arithmetic::Sub => l.shifted(name, x),
                    Arithmetic::Mul | Arithmetic::Div => l.scaled(name, x),
                }
            }
            (true, false) => {
                let x = l.input(1);
                match self {
                    Arithmetic::Add | Arithmetic::AddTo => l.shifted(name, x),
                    Arithmetic::Sub => l.scaled("Neg", x),
                    Arithmetic::Mul => l.scaled(name, x),
                    Arithmetic::Div => l.unary("Reciprocal", x),
                }
            }
            _ => {
                let (a, b) = (l.input(0), l.input(1));
                l.binary(name, a, b)
            }
        };
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        // In place and out of place differ in what is left only where autocast has brought two dtypes together.
        if *self == Arithmetic::AddTo && (!l.dtype(0).is_half() || l.dtype(0) == l.dtype(1)) {
            return Arithmetic::Add.pytorch(l);
        }
        let (a, b) = match self {
            Arithmetic::Add | Arithmetic::AddTo => (Grad::Pass, Grad::Pass),
            Arithmetic::Sub => (Grad::Pass, Grad::Pointwise),
            Arithmetic::Mul | Arithmetic::Div => (Grad::Pointwise, Grad::Pointwise),
        };
        let name = match self {
            Arithmetic::Add => "add",
            Arithmetic::AddTo => "add_",
            Arithmetic::Sub => "sub",
            Arithmetic::Mul => "mul",
            Arithmetic::Div => "div",
        };
        let saved: &[Saved] = match self {
            Arithmetic::Add | Arithmetic::AddTo | Arithmetic::Sub => &[],
            Arithmetic::Mul => {
                &[Saved::InputFor { input: 0, needed_by: 1 }, Saved::InputFor { input: 1, needed_by: 0 }]
            }
            Arithmetic::Div => &[Saved::InputFor { input: 0, needed_by: 1 }, Saved::Input(1)],
        };
        let (dtype, place) = match self {
            Arithmetic::AddTo => (OutDtype::Like(0), Place::InPlace(0)),
            _ => (OutDtype::Promoted, Place::Pointwise),
        };
        let mut call = Call::new(name)
            .input(Operand::Input(0), a)
            .input(Operand::Input(1), b)
            .output(l.out_shape(0), dtype, place)
            .saves(saved.iter().copied());
        if *self == Arithmetic::Div && l.state(1).is_some_and(|s| s.requires_grad) {
            // FunctionsManual.cpp, `div_tensor_other_grad`: -grad * ((self / other) / other), all four alive at its end, before
            // the other gradient is made.
            let also_self = l.state(0).is_some_and(|s| s.requires_grad);
            for _ in usize::from(also_self)..3 {
                call = call.backward_scratch(l.out_shape(0), OutDtype::Promoted);
            }
        }
        l.finish(call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attributes, Binding, Dim, Graph, OutState, Role, Shape, TensorState, Type, Value, infer};

    #[test]
    fn sizes_fold_symbolically() {
        let fold = |op: Arithmetic, a: Num, b: Num| op.fold(&a, &b, DType::Int64);
        let batch = || Num::Dim(Dim::symbol("batch"));
        assert_eq!(fold(Arithmetic::Mul, batch(), Num::Int(12)).as_dim().unwrap().to_string(), "12*batch");
        assert_eq!(fold(Arithmetic::Sub, batch(), batch()), Num::Int(0));
        assert_eq!(fold(Arithmetic::Div, Num::Int(7), Num::Int(0)), Num::Unknown);
        assert_eq!(fold(Arithmetic::Add, Num::Int(i64::MAX), Num::Int(1)), Num::Unknown);
    }

    #[test]
    fn a_sum_in_place_keeps_the_dtype_of_what_it_writes_over() {
        let lower = |first, second| {
            let state = |dtype| {
                Some(TensorState { shape: &[2, 3], dtype, requires_grad: true, is_initializer: false })
            };
            let inputs = [state(first), state(second)];
            let outputs = [Some(OutState { shape: &[2, 3], dtype: DType::Float32 })];
            let mut l = Lowering::new(&inputs, &outputs, Some(DType::Bfloat16), true);
            Arithmetic::AddTo.pytorch(&mut l);
            let call = l.into_parts().0.remove(0);
            (call.outputs[0].dtype, call.outputs[0].place.clone())
        };
        let (half, single) = (DType::Bfloat16, DType::Float32);
        assert_eq!(lower(half, single), (OutDtype::Like(0), Place::InPlace(0)));
        assert_eq!(lower(half, half), (OutDtype::Promoted, Place::Pointwise));
        assert_eq!(lower(single, half), (OutDtype::Promoted, Place::Pointwise));
    }

    #[test]
    fn broadcasting_conflicts_are_errors() {
        let mut g = Graph::default();
        let x = g.add_tensor("x", Type::tensor(DType::Float32, Shape::from([2, 3])), Role::Input);
        g.inputs = vec![x];
        let c = g.add_constant("c", Value::vector(DType::Float32, [1.0, 2.0]));
        g.push("Add", Attributes::default(), &[x, c], "y").unwrap();
        let problems = infer(&g, &Binding::default()).unwrap_err();
        assert!(problems[0].message.contains("2x3"), "{}", problems[0]);
    }

    #[test]
    fn the_gradient_of_a_divisor_holds_four_tensors_at_once() {
        for (requires, scratch) in [([true, true], 2), ([false, true], 3), ([true, false], 0)] {
            let state = |requires_grad| {
                Some(TensorState {
                    shape: &[4, 6],
                    dtype: DType::Float32,
                    requires_grad,
                    is_initializer: false,
                })
            };
            let outputs = [Some(OutState { shape: &[4, 6], dtype: DType::Float32 })];
            let inputs = requires.map(state);
            let mut l = Lowering::new(&inputs, &outputs, None, true);
            Arithmetic::Div.pytorch(&mut l);
            assert_eq!(l.into_parts().0[0].backward_scratch.len(), scratch);
        }
    }
}
