//! An estimate as Markdown that code hosts render: the answer, its parts, the layers, what was assumed.

use crate::amounts::{Unit, grouped, shares, tenths};
use crate::{Depth, Provenance, fold, words};
use memfit_engine::{Estimate, Verdict};
use memfit_graph::Bytes;
use std::fmt::Write;

/// How many groups of layers are shown.
const TOP: usize = 25;

/// The whole report.
pub fn estimate(e: &Estimate, from: &Provenance) -> String {
    let mut out = format!("# {}\n\n", escape(&e.model.name));
    let _ = writeln!(out, "{}\n", headline(e));
    let _ = writeln!(out, "{}\n", escape(&words::plan(e).join(" · ")));
    parts(&mut out, e);
    layers(&mut out, e);
    list(&mut out, &format!("{}: {}", words::NOT_EXACT, words::NOT_KNOWN), &e.unknown);
    list(&mut out, "Warnings", &e.warnings);
    list(&mut out, "Assumptions", &e.assumptions);
    let _ = writeln!(out, "<sub>{}</sub>", escape(&from.line()));
    out
}

/// The answer in a sentence or two, in bold where it matters.
pub(crate) fn headline(e: &Estimate) -> String {
    let exact = if e.unknown.is_empty() { "" } else { ", not exact," };
    let mut text = format!(
        "Peak **{}**{exact} on the device ({} to {}), of which {} are live tensors; {}, at `{}`.",
        e.peak.device,
        e.peak.device_low,
        e.peak.device_high,
        e.peak.allocated,
        e.peak.phase.name(),
        code(&e.peak.layer),
    );
    if let Some(fit) = &e.fit {
        let size = if fit.verdict == Verdict::DoesNotFit { "missing" } else { "left" };
        let verdict = words::verdict_in_words(fit.verdict);
        let _ = write!(
            text,
            " On {}: **{verdict}**, {} {size}.",
            escape(&fit.gpu),
            Bytes(fit.headroom().unsigned_abs())
        );
    }
    text
}

fn parts(out: &mut String, e: &Estimate) {
    let mut rows = words::parts(&e.breakdown);
    rows.retain(|(_, bytes)| *bytes > Bytes::ZERO);
    let sizes: Vec<Bytes> = rows.iter().map(|(_, bytes)| *bytes).collect();
    let unit = Unit::of(e.peak.device);
    let (column, shares) = (unit.column(&sizes), shares(&sizes));
    let _ = writeln!(out, "| at the peak | {} | share |\n| --- | ---: | ---: |", unit.name());
    for (((name, _), steps), share) in rows.iter().zip(&column).zip(&shares) {
        let _ = writeln!(out, "| {name} | {} | {} % |", unit.text(*steps), tenths(*share));
    }
    let _ = writeln!(out, "| **on the device** | **{}** | |\n", unit.text(column.iter().sum()));
}

fn layers(out: &mut String, e: &Estimate) {
    let folded = fold(&e.layers, Depth::Auto, TOP);
    let groups: Vec<_> = folded.groups.iter().chain(&folded.other).collect();
    let unit = Unit::of(e.peak.allocated);
    let at_peak: Vec<Bytes> = groups.iter().map(|g| g.at_peak.allocated()).collect();
    let column = unit.column(&at_peak);
    let _ = writeln!(
        out,
        "| layer | type | parameters | saved | at the peak, {} |\n| --- | --- | ---: | ---: | ---: |",
        unit.name()
    );
    for (group, steps) in groups.iter().zip(column) {
        let ops: Vec<String> = group
            .ops
            .iter()
            .take(3)
            .map(|(op, n)| if *n > 1 { format!("{n} {op}") } else { op.clone() })
            .collect();
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} |",
            escape(&group.name),
            escape(&ops.join(", ")),
            grouped(group.parameters),
            group.saved,
            unit.text(steps)
        );
    }
    out.push('\n');
}

fn list(out: &mut String, title: &str, items: &[String]) {
    if items.is_empty() {
        return;
    }
    let _ = writeln!(out, "<details><summary>{title} ({})</summary>\n", items.len());
    for item in items {
        let _ = writeln!(out, "- {}", escape(item));
    }
    out.push_str("\n</details>\n\n");
}

/// The same inside of a code span, where nothing is markup but what ends it: its mark, and an empty line.
fn code(text: &str) -> String {
    text.chars().map(|c| if c == '`' { '\'' } else { printed(c) }).collect()
}

/// A character as a document may have it: no line of its own, no command to a terminal, and no turn of the reading direction.
pub(crate) fn printed(c: char) -> char {
    let turns = matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if c.is_control() || turns { ' ' } else { c }
}

/// Names come from files: what Markdown or HTML would read as markup is taken literally.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' => {
                out.push('\\');
                out.push(c);
            }
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            c => out.push(printed(c)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_no_markup() {
        let mut e = crate::sample::estimate();
        e.model.name = "<b>|*x*".into();
        let from = Provenance { file: "x.onnx".into(), structure: "0".repeat(64) };
        let text = estimate(&e, &from);
        assert!(text.starts_with("# &lt;b&gt;\\|\\*x\\*\n"));
        assert!(text.contains(&format!("**{}**", e.peak.device)));
        assert_eq!(text, estimate(&e, &from));
    }

    #[test]
    fn a_layers_name_stays_inside_of_its_code_span() {
        let mut e = crate::sample::estimate();
        e.peak.layer = "a`<img>`\n\n# b\u{1b}[31m\u{202e}".into();
        let text = headline(&e);
        assert!(text.ends_with("at `a'<img>'  # b [31m `."), "{text}");
    }
}
