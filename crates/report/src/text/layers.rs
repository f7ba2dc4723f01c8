//! The layer table and the largest tensors alive at the peak.

use super::Options;
use super::style::{HEAD, NOTE};
use super::table::{Column, Table};
use crate::amounts::{Unit, grouped, shares, tenths};
use crate::fold::{Group, fold};
use crate::words;
use memfit_engine::Estimate;
use memfit_graph::{Bytes, Dims};

/// Layers in forward order with what they own, keep and hold at the peak.
pub(super) fn write(out: &mut String, e: &Estimate, options: &Options) {
    if e.layers.is_empty() {
        return;
    }
    let folded = fold(&e.layers, options.depth, options.top);
    let groups: Vec<&Group> = folded.groups.iter().chain(&folded.other).collect();
    let saved: Vec<Bytes> = groups.iter().map(|g| g.saved).collect();
    let at_peak: Vec<Bytes> = groups.iter().map(|g| g.at_peak.allocated()).collect();
    let (saved_total, peak_total): (Bytes, Bytes) =
        (saved.iter().copied().sum(), at_peak.iter().copied().sum());
    let unit = Unit::of(saved_total.max(peak_total));
    let (saved, sizes, shares) = (unit.column(&saved), unit.column(&at_peak), shares(&at_peak));
    let mut table = Table::new(&[
        Column::text("layer", 30),
        Column::text("operators", 12).end().rank(1),
        Column::text("output", 14).rank(2),
        Column::number("parameters"),
        Column::number("saved"),
        Column::number("at peak"),
        Column::number("%"),
    ]);
    for (((group, saved), size), share) in groups.iter().zip(saved).zip(sizes).zip(shares) {
        table.row(vec![
            if group.name.is_empty() { "(unnamed)".into() } else { group.name.clone() },
            operators(group),
            shape(&group.output_shapes),
            grouped(group.parameters),
            unit.text(saved),
            unit.text(size),
            tenths(share),
        ]);
    }
    table.line();
    let parameters = groups.iter().fold(0_u64, |acc, g| acc.saturating_add(g.parameters));
    let count = groups.iter().map(|g| g.layers).sum::<usize>();
    table.row(vec![
        "total".into(),
        format!("{count} layers"),
        String::new(),
        grouped(parameters),
        unit.text(unit.round(saved_total)),
        unit.text(unit.round(peak_total)),
        tenths(if peak_total > Bytes::ZERO { 1000 } else { 0 }),
    ]);
    out.push_str(&format!("\n{HEAD}Layers{HEAD:#}  {NOTE}sizes in {}{NOTE:#}\n", unit.name()));
    table.write(out, options.width, NOTE);
}

/// `Conv`, or `Conv×3 Relu×2` of several layers.
fn operators(group: &Group) -> String {
    let name = |(op, count): &(String, usize)| match count {
        1 => op.clone(),
        n => format!("{op}×{n}"),
    };
    group.ops.iter().filter(|(op, _)| !op.is_empty()).map(name).collect::<Vec<_>>().join(" ")
}

/// The first output's shape, and how many more outputs there are.
fn shape(shapes: &[Dims]) -> String {
    let Some(first) = shapes.first() else { return String::new() };
    let dims: Vec<String> = first.iter().map(u64::to_string).collect();
    let dims = if dims.is_empty() { "scalar".into() } else { dims.join("x") };
    match shapes.len() {
        1 => dims,
        n => format!("{dims} +{}", n - 1),
    }
}

/// The largest tensors alive at the peak, with what the rest takes.
pub(super) fn write_tensors(out: &mut String, e: &Estimate, options: &Options) {
    let shown = &e.largest[..e.largest.len().min(options.tensors)];
    if shown.is_empty() {
        return;
    }
    // Equal tensors show equal sizes: what rounding leaves over is left to the rest.
    let total = e.breakdown.allocated();
    let unit = Unit::of(total);
    let share = |bytes: Bytes| {
        let (bytes, total) = (u128::from(bytes.0), u128::from(total.0.max(1)));
        u64::try_from((bytes * 1000 + total / 2) / total).unwrap_or(u64::MAX)
    };
    let mut rows: Vec<(u64, u64)> = shown.iter().map(|t| (unit.round(t.bytes), share(t.bytes))).collect();
    let listed: Bytes = shown.iter().map(|t| t.bytes).sum();
    let left = |whole: u64, of: fn(&(u64, u64)) -> u64| whole.saturating_sub(rows.iter().map(of).sum());
    rows.push((left(unit.round(total), |r| r.0), left(1000, |r| r.1)));
    let mut table = Table::new(&[
        Column::text("tensor", 16),
        Column::text("layer", 16).rank(2),
        Column::text("what it is", 20).rank(1),
        Column::number(unit.name()),
        Column::number("%"),
    ]);
    let rest = (total > listed).then(|| ["all others".to_owned(), String::new(), String::new()]);
    let labels = shown
        .iter()
        .map(|t| [t.label.clone(), t.layer.clone(), words::category(t.category).to_owned()])
        .chain(rest);
    for (labels, (size, share)) in labels.zip(rows) {
        let mut cells = labels.to_vec();
        cells.extend([unit.text(size), tenths(share)]);
        table.row(cells);
    }
    out.push_str(&format!("\n{HEAD}Largest tensors alive at the peak{HEAD:#}\n"));
    table.write(out, options.width, NOTE);
}
