//! The headline and the breakdown of the peak with its bars.

use super::style::{self, HEAD, NOTE, WARN};
use super::table::{printable, shorten};
use crate::amounts::{Unit, shares, tenths};
use crate::words;
use memfit_engine::{Estimate, Mode, Phase};
use memfit_graph::Bytes;
use memfit_graph::order::largest_first;
use unicode_width::UnicodeWidthStr;

const INDENT: &str = "      ";

/// Writes `Peak …` and the table below it.
pub(super) fn write(out: &mut String, e: &Estimate, width: usize) {
    headline(out, e, width);
    breakdown(out, e, width);
}

fn headline(out: &mut String, e: &Estimate, width: usize) {
    let p = &e.peak;
    let exact = if e.unknown.is_empty() { "" } else { ", not exact" };
    let place = match p.phase {
        Phase::Setup => "before the step".to_owned(),
        Phase::Forward => "in forward".into(),
        Phase::Backward => "in backward".into(),
        Phase::OptimizerStep => "in the optimizer step".into(),
    };
    let sizes = [p.allocated, p.reserved, p.device, e.saved_for_backward].map(|b| b.to_string());
    let column = sizes.iter().map(String::len).max().unwrap_or(0);
    let [allocated, reserved, device, saved] = sizes;
    let mut text = format!("{allocated:>column$} allocated{exact}, {place}");
    if !p.layer.is_empty() {
        let layer = format!(", at {}", printable(&p.layer));
        if INDENT.len() + text.len() + layer.width() > width {
            text.push_str(&format!(
                ",\n{INDENT}{:column$} {}",
                "",
                shorten(&layer[2..], width - INDENT.len() - column - 1)
            ));
        } else {
            text.push_str(&layer);
        }
    }
    let style = if e.unknown.is_empty() { HEAD } else { WARN };
    out.push_str(&format!("{HEAD}Peak{HEAD:#}  {style}{text}{style:#}\n"));
    if e.breakdown.allocator > Bytes::ZERO {
        out.push_str(&format!("{INDENT}{reserved:>column$} reserved by the framework's allocator\n"));
    }
    if e.breakdown.context > Bytes::ZERO {
        let mut line = format!("{INDENT}{device:>column$} on the device");
        if p.device_low < p.device_high {
            let range = format!("between {} and {}", p.device_low, p.device_high);
            let fits = line.len() + 2 + range.len() <= width;
            line += &if fits { format!(", {range}") } else { format!(",\n{INDENT}{:column$} {range}", "") };
        }
        out.push_str(&format!("{line}\n"));
    }
    if e.plan.mode == Mode::Train {
        out.push_str(&format!("{INDENT}{saved:>column$} saved for backward at the end of forward\n"));
    }
}

/// Longest first: what to look at stands on top. Empty categories are left out.
fn breakdown(out: &mut String, e: &Estimate, width: usize) {
    let mut rows = e.breakdown.categories().to_vec();
    rows.retain(|(_, bytes)| *bytes > Bytes::ZERO);
    let rows = largest_first(rows, |(_, bytes)| bytes.0);
    let parts: Vec<Bytes> = rows.iter().map(|(_, bytes)| *bytes).collect();
    let total: Bytes = parts.iter().copied().sum();
    let unit = Unit::of(total);
    let sizes = unit.column(&parts);
    let shares = shares(&parts);
    let label = LABEL;
    out.push_str(&format!("\n{HEAD}{:label$}  {:>12}{HEAD:#}\n", "At the peak", unit.name()));
    let room = width.saturating_sub(label + 2 + 12 + 2 + 7 + 2).min(40);
    for (((category, _), size), share) in rows.iter().zip(&sizes).zip(&shares) {
        let style = style::category(*category);
        let bar = bar(*share, room);
        out.push_str(&line(
            words::category(*category),
            &unit.text(*size),
            &format!("{:>5} %", tenths(*share)),
        ));
        out.push_str(&format!("  {style}{bar}{style:#}\n"));
    }
    // The rows below continue the sum, so that each is the difference of two shown totals.
    let mut sum = total;
    let mut totals = |add: Option<(&str, Bytes)>, name: &str| {
        if let Some((what, bytes)) = add {
            let shown = unit.round(sum + bytes).saturating_sub(unit.round(sum));
            out.push_str(&format!("{}\n", line(what, &unit.text(shown), "").trim_end()));
            sum += bytes;
        }
        out.push_str(&format!("{NOTE}{}{NOTE:#}\n", "─".repeat(label + 2 + 12)));
        let text = line(name, &unit.text(unit.round(sum)), "");
        out.push_str(&format!("{HEAD}{}{HEAD:#}\n", text.trim_end()));
    };
    totals(None, "allocated");
    if e.breakdown.allocator > Bytes::ZERO {
        totals(Some((words::ALLOCATOR, e.breakdown.allocator)), "reserved");
    }
    if e.breakdown.context > Bytes::ZERO {
        totals(Some((words::CONTEXT, e.breakdown.context)), "on the device");
    } else {
        let more = "+ the CUDA context and what the allocator holds beyond tensors, not predicted here";
        out.push_str(&format!("{NOTE}{more}{NOTE:#}\n"));
    }
}

const LABEL: usize = 22;

fn line(name: &str, size: &str, share: &str) -> String {
    format!("{name:LABEL$}  {size:>12}  {share}")
}

/// A bar of `share` thousandths of `room`, in eighths of a column; nothing that exists is invisible.
fn bar(share: u64, room: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let room = u64::try_from(room).unwrap_or(0);
    let eighths = ((share * room * 8 + 500) / 1000).max(1);
    let full = usize::try_from(eighths / 8).unwrap_or(0);
    let part = usize::try_from(eighths % 8).unwrap_or(0);
    format!("{}{}", "█".repeat(full), EIGHTHS[part])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_share() {
        assert_eq!(bar(1000, 10), "██████████");
        assert_eq!(bar(500, 10), "█████");
        assert_eq!(bar(250, 10), "██▌");
        assert_eq!(bar(0, 10), "▏");
    }
}
