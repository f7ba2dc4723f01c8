//! What changed from one estimate to another, for people, for a pull request and for programs.

use crate::amounts::grouped;
use crate::markdown::escape;
use crate::text::list;
use crate::text::style::WARN;
use crate::text::table::{printable, shorten};
use crate::words;
use memfit_engine::diff::{Change, Diff, LayerChange};
use memfit_engine::{Framework, Word};
use memfit_graph::Bytes;
use memfit_graph::order::largest_first;
use serde_json::{Value, json};
use std::fmt::Write;
use unicode_width::UnicodeWidthStr;

/// A difference with its sign: `+1.5 MiB`.
fn signed([old, new]: [Bytes; 2]) -> String {
    match old.cmp(&new) {
        std::cmp::Ordering::Less => format!("+{}", new - old),
        std::cmp::Ordering::Equal => "0 B".into(),
        std::cmp::Ordering::Greater => format!("-{}", old - new),
    }
}

/// Layers, those that change the peak most first.
fn sorted(diff: &Diff) -> Vec<&LayerChange> {
    largest_first(diff.layers.iter().collect(), |l: &&LayerChange| l.at_peak[0].0.abs_diff(l.at_peak[1].0))
}

fn word(change: &Change) -> &'static str {
    match change {
        Change::Changed => "changed",
        Change::Renamed { .. } => "renamed",
        Change::Added => "added",
        Change::Removed => "removed",
    }
}

fn name(layer: &LayerChange) -> String {
    match &layer.change {
        Change::Renamed { from } => format!("{} (was {from})", layer.name),
        _ => layer.name.clone(),
    }
}

/// The totals with their names.
fn totals(diff: &Diff) -> [(&'static str, [Bytes; 2]); 3] {
    [("on the device", diff.device), ("live tensors", diff.allocated), ("saved for backward", diff.saved)]
}

/// The two that are compared, the one before first.
#[derive(Clone, Copy, Debug)]
pub struct Sides<'a> {
    /// What their files are called.
    pub names: [&'a str; 2],
    /// Whose rules applied.
    pub frameworks: [Framework; 2],
    /// What the reader should know of how they were compared.
    pub warnings: &'a [String],
}

/// A row of sizes, 60 columns wide.
fn row(out: &mut String, name: &str, pair: [Bytes; 2]) {
    let [before, after] = pair.map(|bytes| bytes.to_string());
    let _ = writeln!(out, "  {name:<20} {before:>10} -> {after:>10}  {:>11}", signed(pair));
}

/// As text; at most `top` layers.
pub fn text(diff: &Diff, sides: &Sides<'_>, top: usize, width: usize) -> String {
    let width = width.max(60);
    let [old, new] = sides.names.map(printable);
    let mut warned = String::new();
    list(&mut warned, "Warnings", WARN, sides.warnings, width);
    if diff.is_empty() {
        return format!("{old} and {new} take the same memory, layer by layer.\n{warned}");
    }
    let head = format!("{old} -> {new}");
    let mut out = if head.width() > width { format!("{old}\n-> {new}\n\n") } else { format!("{head}\n\n") };
    for (name, pair) in totals(diff) {
        row(&mut out, name, pair);
    }
    let [before, after] = diff.parameters.map(grouped);
    let _ = writeln!(out, "  {:<20} {before:>10} -> {after:>10}", "parameters");
    if !diff.categories.is_empty() {
        out.push_str("\nAt the peak\n");
        for (category, pair) in &diff.categories {
            row(&mut out, words::category(*category), *pair);
        }
    }
    if !diff.layers.is_empty() {
        let _ = writeln!(out, "\nLayers that differ ({})", diff.layers.len());
        for layer in sorted(diff).into_iter().take(top) {
            let name = shorten(&printable(&name(layer)), width - 25);
            let _ = writeln!(out, "  {:<8} {:>12}  {name}", word(&layer.change), signed(layer.at_peak));
        }
        if diff.layers.len() > top {
            let _ = writeln!(out, "  and {} more (--top all)", diff.layers.len() - top);
        }
    }
    out + &warned
}

/// As Markdown for a comment.
pub fn markdown(diff: &Diff, sides: &Sides<'_>, top: usize) -> String {
    let [old, new] = sides.names.map(escape);
    let warned: String = sides.warnings.iter().map(|w| format!("\n**Warning:** {}\n", escape(w))).collect();
    if diff.is_empty() {
        return format!("**{old}** and **{new}** take the same memory, layer by layer.\n{warned}");
    }
    let mut out = format!(
        "### GPU memory: {old} → {new}\n{warned}\n| | before | after | change |\n| --- | ---: | ---: | ---: |\n"
    );
    let categories = diff.categories.iter().map(|(category, pair)| (words::category(*category), *pair));
    for (name, pair) in totals(diff).into_iter().chain(categories) {
        let _ = writeln!(out, "| {name} | {} | {} | {} |", pair[0], pair[1], signed(pair));
    }
    let [before, after] = diff.parameters.map(grouped);
    let _ = writeln!(out, "| parameters | {before} | {after} | |\n");
    if !diff.layers.is_empty() {
        let _ = writeln!(
            out,
            "<details><summary>{} layers differ</summary>\n\n| | layer | at the peak |\n| --- | --- | ---: |",
            diff.layers.len()
        );
        for layer in sorted(diff).into_iter().take(top) {
            let _ = writeln!(
                out,
                "| {} | {} | {} |",
                word(&layer.change),
                escape(&name(layer)),
                signed(layer.at_peak)
            );
        }
        out.push_str("\n</details>\n");
    }
    out
}

/// As JSON; every layer that differs.
pub fn json(diff: &Diff, sides: &Sides<'_>) -> String {
    let ([old, new], [old_framework, new_framework]) = (sides.names, sides.frameworks.map(Word::name));
    let pair = |[old, new]: [Bytes; 2]| json!({"old_bytes": old.0, "new_bytes": new.0});
    let layers: Vec<Value> = diff
        .layers
        .iter()
        .map(|l| {
            let from = match &l.change {
                Change::Renamed { from } => Some(from),
                _ => None,
            };
            json!({"name": l.name, "change": word(&l.change), "old_name": from, "at_peak": pair(l.at_peak), "saved": pair(l.saved),
                "old_parameters": l.parameters[0], "new_parameters": l.parameters[1]})
        })
        .collect();
    let categories: serde_json::Map<String, Value> = diff
        .categories
        .iter()
        .map(|(category, bytes)| (words::category_key(*category).to_owned(), pair(*bytes)))
        .collect();
    crate::json::to_text(&json!({
        "schema_version": crate::json::SCHEMA_VERSION,
        "tool": crate::json::TOOL,
        "old": old,
        "new": new,
        "old_framework": old_framework,
        "new_framework": new_framework,
        "warnings": sides.warnings,
        "same": diff.is_empty(),
        "device": pair(diff.device),
        "allocated": pair(diff.allocated),
        "saved_for_backward": pair(diff.saved),
        "old_parameters": diff.parameters[0],
        "new_parameters": diff.parameters[1],
        "categories": categories,
        "layers": layers,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_and_something() {
        let old = crate::sample::estimate();
        let mut new = old.clone();
        let warnings = ["under another framework".to_owned()];
        let sides = Sides { names: ["a", "b"], frameworks: [Framework::Tensorflow; 2], warnings: &warnings };
        let same = memfit_engine::diff::diff(&old, &new);
        assert!(text(&same, &sides, 5, 80).contains("the same memory"));
        new.layers[1].name = "features.zero".into();
        new.layers[2].name = "a.module.in.a.module.in.a.module.of.a.rather.long.name".into();
        new.peak.device += Bytes::mib(1);
        let found = memfit_engine::diff::diff(&old, &new);
        let json: Value = serde_json::from_str(&json(&found, &sides)).unwrap();
        assert_eq!(
            (&json["new_framework"], &json["warnings"][0]),
            (&json!("tensorflow"), &json!(warnings[0]))
        );
        assert!(markdown(&found, &sides, 5).contains("**Warning:** under another framework"));
        let text = crate::sample::plain(&text(&found, &sides, 5, 60));
        assert!(text.ends_with("\nWarnings\n- under another framework\n"), "{text}");
        assert!(text.lines().all(|line| line.width() <= 60), "{text}");
        assert!(text.contains("+1.0 MiB") && text.contains("features.zero (was features.0)"), "{text}");
    }
}
