//! Arithmetic and functions of single elements. A number beside a tensor is an argument, as it is in Rust code.

use super::Family;
use crate::frameworks::burn::builder::Refusal;
use crate::frameworks::burn::lower::Lower;
use crate::frameworks::burn::program::{Binary, Compare, Kind, Prim, Slot, Unary};
use memfit_graph::ops::modulo::Mod;

pub(super) const FAMILIES: &[Family] = &[
    Family { names: &["Add", "Sub", "Mul", "Div", "Pow"], rule: arithmetic },
    Family { names: &["Mod"], rule: remainder },
    Family { names: &["Sum", "Mean", "Max", "Min"], rule: variadic },
    Family {
        names: &[
            "Abs",
            "Ceil",
            "Cos",
            "Erf",
            "Exp",
            "Floor",
            "Log",
            "Log1p",
            "Neg",
            "Reciprocal",
            "Round",
            "Sign",
            "Sin",
            "Sqrt",
        ],
        rule: function,
    },
];

fn arithmetic(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let function = match l.node.op.name() {
        "Add" => Binary::Add,
        "Sub" => Binary::Sub,
        "Mul" => Binary::Mul,
        "Div" => Binary::Div,
        _ => Binary::Pow,
    };
    let output = l.output_shape(0)?;
    let y = match (l.number(0), l.number(1)) {
        (_, Some(by)) if l.input_shape(0)? == output => {
            let x = l.input(0)?;
            l.scalar(function, x, by)
        }
        (Some(by), _) if l.input_shape(1)? == output && function != Binary::Pow => {
            let x = l.input(1)?;
            match function {
                Binary::Sub => {
                    let x = l.unary(Unary::Neg, x);
                    l.scalar(Binary::Add, x, by)
                }
                Binary::Div => {
                    let x = l.unary(Unary::Recip, x);
                    if by == 1.0 { x } else { l.scalar(Binary::Mul, x, by) }
                }
                _ => l.scalar(function, x, by),
            }
        }
        _ => {
            let (a, mut b) = (l.input(0)?, l.input(1)?);
            if function == Binary::Pow {
                let kind = l.kind(a);
                b = l.convert(b, kind);
            }
            l.binary(function, a, b)?
        }
    };
    l.set(0, y);
    Ok(())
}

/// What is left of a division that rounds down, or towards zero as C's `fmod`. Whole numbers of Burn's are divided towards zero.
fn remainder(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let fmod = l.node.op.downcast::<Mod>().is_some_and(|op| op.fmod);
    let (a, b) = (l.input(0)?, l.input(1)?);
    let is_whole = l.kind(a) == Kind::Int;
    let rest = |l: &mut Lower<'_, '_>, a: Slot| -> Result<Slot, Refusal> {
        let mut times = l.binary(Binary::Div, a, b)?;
        if !is_whole && fmod {
            let sign = l.unary(Unary::Sign, times);
            let size = l.unary(Unary::Abs, times);
            let size = l.unary(Unary::Floor, size);
            times = l.binary(Binary::Mul, sign, size)?;
        } else if !is_whole {
            times = l.unary(Unary::Floor, times);
        }
        let whole = l.binary(Binary::Mul, times, b)?;
        l.binary(Binary::Sub, a, whole)
    };
    let mut y = rest(l, a)?;
    if is_whole && !fmod {
        // Once more from the divisor on: then it has the divisor's sign.
        let from = l.binary(Binary::Add, y, b)?;
        y = rest(l, from)?;
    }
    l.set(0, y);
    Ok(())
}

fn variadic(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let mut y = l.input(0)?;
    let count = l.node.inputs.len();
    for i in 1..count {
        let x = l.input(i)?;
        y = match l.node.op.name() {
            "Sum" | "Mean" => l.binary(Binary::Add, y, x)?,
            name => {
                // `max_pair`: where the other one wins, it is taken.
                let (a, b, shape) = l.align(y, x)?;
                let (a, b) = (l.expand(a, shape.clone()), l.expand(b, shape));
                let function = if name == "Max" { Compare::Lower } else { Compare::Greater };
                let mask = l.compare(function, a, b)?;
                l.like(Prim::MaskWhere, &[a, mask, b])
            }
        };
    }
    if l.node.op.name() == "Mean" {
        y = l.scalar(Binary::Div, y, count as f64);
    }
    l.set(0, y);
    Ok(())
}

fn function(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let function = match l.node.op.name() {
        "Abs" => Unary::Abs,
        "Ceil" => Unary::Ceil,
        "Cos" => Unary::Cos,
        "Erf" => Unary::Erf,
        "Exp" => Unary::Exp,
        "Floor" => Unary::Floor,
        "Log" => Unary::Log,
        "Log1p" => Unary::Log1p,
        "Neg" => Unary::Neg,
        "Reciprocal" => Unary::Recip,
        "Round" => Unary::Round,
        "Sign" => Unary::Sign,
        "Sin" => Unary::Sin,
        _ => Unary::Sqrt,
    };
    let x = l.input(0)?;
    let y = l.unary(function, x);
    l.set(0, y);
    Ok(())
}
