//! Masks: comparisons, connectives, Where, Cast, triangles.

use super::Family;
use crate::frameworks::burn::builder::Refusal;
use crate::frameworks::burn::lower::Lower;
use crate::frameworks::burn::program::{Compare, Kind, Prim, Slot};
use memfit_graph::ops::trilu::Trilu;

pub(super) const FAMILIES: &[Family] = &[
    Family {
        names: &["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or"],
        rule: comparison,
    },
    Family { names: &["Not"], rule: not },
    Family { names: &["Where"], rule: select },
    Family { names: &["Cast", "CastLike"], rule: cast },
    Family { names: &["Trilu"], rule: triangle },
    Family { names: &["IsNaN"], rule: is_nan },
];

fn comparison(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let function = match l.node.op.name() {
        "Equal" => Compare::Equal,
        "Greater" => Compare::Greater,
        "GreaterOrEqual" => Compare::GreaterEqual,
        "Less" => Compare::Lower,
        "LessOrEqual" => Compare::LowerEqual,
        "And" => Compare::And,
        _ => Compare::Or,
    };
    let connects = matches!(function, Compare::And | Compare::Or);
    let y = match l.number(1) {
        Some(by) if !connects && l.input_shape(0)? == l.output_shape(0)? => {
            let x = l.input(0)?;
            l.compare_scalar(function, x, by)
        }
        _ => {
            let (a, b) = (l.input(0)?, l.input(1)?);
            l.compare(function, a, b)?
        }
    };
    l.set(0, y);
    Ok(())
}

fn not(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let x = l.input(0)?;
    let y = l.like(Prim::Not, &[x]);
    l.set(0, y);
    Ok(())
}

fn select(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let shape = l.output_shape(0)?;
    let mask = l.input(0)?;
    let mask = l.expand(mask, shape.clone());
    let y = match (l.number(1), l.number(2)) {
        (Some(value), _) if l.input_shape(2)? == shape => {
            let x = l.input(2)?;
            l.like(Prim::MaskFill(value), &[x, mask])
        }
        (_, Some(value)) if l.input_shape(1)? == shape => {
            let x = l.input(1)?;
            let mask = l.like(Prim::Not, &[mask]);
            l.like(Prim::MaskFill(value), &[x, mask])
        }
        _ => {
            let (yes, no) = (l.input(1)?, l.input(2)?);
            let (yes, no) = (l.expand(yes, shape.clone()), l.expand(no, shape));
            l.like(Prim::MaskWhere, &[no, mask, yes])
        }
    };
    l.set(0, y);
    Ok(())
}

fn cast(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let x = l.input(0)?;
    let kind = l.output_kind(0);
    let y = l.convert(x, kind);
    l.set(0, y);
    Ok(())
}

/// What lies outside of the triangle is zero.
fn triangle(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let upper = l.node.op.downcast::<Trilu>().is_none_or(|op| op.upper);
    let offset = match l.id(1) {
        None => 0,
        Some(_) => l.number(1).ok_or("a diagonal that is not known")? as i64,
    };
    let x = l.input(0)?;
    let shape = l.shape(x);
    let [.., rows, columns] = shape[..] else { return Err("not two axes".into()) };
    let outside = move |i: usize, j: usize| {
        let above = (j as i64 - i as i64).saturating_sub(offset);
        f64::from(u8::from(if upper { above < 0 } else { above > 0 }))
    };
    let values = move || (0..rows).flat_map(|i| (0..columns).map(move |j| outside(i, j))).collect();
    let side = if upper { "upper" } else { "lower" };
    let name = format!("{side} triangle {rows}x{columns} from {offset}");
    let mask = l.shared_table(name, Kind::Bool, vec![rows, columns], values);
    let mask = l.expand(mask, shape);
    let y = l.like(Prim::MaskFill(0.0), &[x, mask]);
    l.set(0, y);
    Ok(())
}

/// Nothing but it differs from itself.
fn is_nan(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let x = l.input(0)?;
    let same = l.compare(Compare::Equal, x, x)?;
    let y = l.like(Prim::Not, &[same]);
    l.set(0, y);
    Ok(())
}

/// True where a later position is hidden, made once before the step: `[…, queries, keys]` of scores. The first query sees `offset` keys
/// beside its own.
pub(super) fn causal(l: &mut Lower<'_, '_>, scores: &[usize], offset: i64) -> Result<Slot, Refusal> {
    let [.., queries, keys] = *scores else { return Err("scores without positions".into()) };
    let hidden = move |i: usize, j: usize| f64::from(u8::from(j as i64 > offset.saturating_add(i as i64)));
    let values = move || (0..queries).flat_map(|i| (0..keys).map(move |j| hidden(i, j))).collect();
    let name = format!("causal mask {queries}x{keys} from {offset}");
    let slot = l.shared_table(name, Kind::Bool, vec![queries, keys], values);
    Ok(l.expand(slot, scores.to_vec()))
}
