//! Masks: comparisons, connectives, Where, Cast, Trilu of a constant triangle.

use super::Family;
use crate::frameworks::burn::builder::Refusal;
use crate::frameworks::burn::lower::Lower;
use crate::frameworks::burn::program::{Compare, Fill, Kind, Prim, Slot, Source, SourceKind};

pub(super) const FAMILIES: &[Family] = &[
    Family {
        names: &["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or"],
        rule: comparison,
    },
    Family { names: &["Not"], rule: not },
    Family { names: &["Where"], rule: select },
    Family { names: &["Cast", "CastLike"], rule: cast },
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

/// True where a later position is hidden, made once before the step: `[…, queries, keys]` of scores.
pub(super) fn causal(l: &mut Lower<'_, '_>, scores: &[usize]) -> Result<Slot, Refusal> {
    let [.., queries, keys] = *scores else { return Err("scores without positions".into()) };
    let name = format!("causal mask {queries}x{keys}");
    let known = l.program.sources.iter().find(|s| *s.name == name).map(|s| s.slot);
    let slot = known.unwrap_or_else(|| {
        let offset = keys as i64 - queries as i64;
        let hidden = |i: usize, j: usize| f64::from(u8::from(j as i64 > i as i64 + offset));
        let values: Vec<f64> = (0..queries).flat_map(|i| (0..keys).map(move |j| hidden(i, j))).collect();
        let slot = l.program.slot(Kind::Bool, vec![queries, keys]);
        let layer = l.layer;
        l.program.sources.push(Source {
            slot,
            kind: SourceKind::Buffer,
            name: name.into(),
            tensor: None,
            fill: Fill::Values(values.into()),
            layer,
        });
        slot
    });
    Ok(l.expand(slot, scores.to_vec()))
}
