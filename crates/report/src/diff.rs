//! What changed from one estimate to another, for people, for a pull request and for programs.

use crate::amounts::grouped;
use crate::markdown::escape;
use crate::words;
use memfit_engine::diff::{Change, Diff, LayerChange};
use memfit_graph::Bytes;
use memfit_graph::order::largest_first;
use serde_json::{Value, json};
use std::fmt::Write;

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

/// As text; at most `top` layers.
pub fn text(diff: &Diff, [old, new]: [&str; 2], top: usize) -> String {
    if diff.is_empty() {
        return format!("{old} and {new} take the same memory, layer by layer.\n");
    }
    let mut out = format!("{old} -> {new}\n\n");
    for (name, pair) in totals(diff) {
        let _ = writeln!(
            out,
            "  {name:<20} {:>12} -> {:>12}  {:>12}",
            pair[0].to_string(),
            pair[1].to_string(),
            signed(pair)
        );
    }
    let [before, after] = diff.parameters.map(grouped);
    let _ = writeln!(out, "  {:<20} {before:>12} -> {after:>12}", "parameters");
    if !diff.categories.is_empty() {
        out.push_str("\nAt the peak\n");
        for (category, pair) in &diff.categories {
            let name = words::category(*category);
            let _ = writeln!(
                out,
                "  {name:<20} {:>12} -> {:>12}  {:>12}",
                pair[0].to_string(),
                pair[1].to_string(),
                signed(*pair)
            );
        }
    }
    if !diff.layers.is_empty() {
        let _ = writeln!(out, "\nLayers that differ ({})", diff.layers.len());
        for layer in sorted(diff).into_iter().take(top) {
            let _ =
                writeln!(out, "  {:<8} {:>12}  {}", word(&layer.change), signed(layer.at_peak), name(layer));
        }
        if diff.layers.len() > top {
            let _ = writeln!(out, "  and {} more (--top all)", diff.layers.len() - top);
        }
    }
    out
}

/// As Markdown for a comment.
pub fn markdown(diff: &Diff, [old, new]: [&str; 2], top: usize) -> String {
    if diff.is_empty() {
        return format!(
            "**{}** and **{}** take the same memory, layer by layer.\n",
            escape(old),
            escape(new)
        );
    }
    let mut out = format!(
        "### GPU memory: {} → {}\n\n| | before | after | change |\n| --- | ---: | ---: | ---: |\n",
        escape(old),
        escape(new)
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
pub fn json(diff: &Diff, [old, new]: [&str; 2]) -> String {
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
        assert!(text(&memfit_engine::diff::diff(&old, &new), ["a", "b"], 5).contains("the same memory"));
        new.layers[1].name = "features.zero".into();
        new.peak.device += Bytes::mib(1);
        let found = memfit_engine::diff::diff(&old, &new);
        let text = text(&found, ["a", "b"], 5);
        assert!(text.contains("+1.0 MiB") && text.contains("features.zero (was features.0)"), "{text}");
    }
}
