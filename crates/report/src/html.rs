//! An estimate as one HTML file that needs nothing else: no network, no script to be read, light and dark, good to print.
//!
//! Layers fold by module with `<details>`, so that it works without JavaScript; a script of a few lines makes the table
//! of all layers sortable where there is one.

use crate::amounts::grouped;
use crate::svg::{self, escape};
use crate::{Provenance, words};
use memfit_engine::{Breakdown, Estimate, LayerRow};
use memfit_graph::{Bytes, Dims};
use std::collections::BTreeMap;
use std::fmt::Write;

const STYLE: &str = include_str!("html/style.css");
const SCRIPT: &str = include_str!("html/sort.js");
/// How deep modules nest in the page; below that, layers stand in one list.
const DEEPEST: usize = 12;

/// The whole document.
pub fn estimate(e: &Estimate, from: &Provenance) -> String {
    let name = escape(&e.model.name);
    let mut out = begin(&format!("{name}: memory of one training step"), &name, &colours());
    let _ = writeln!(out, "<p class=\"plan\">{}</p>", escape(&words::plan(e).join(" · ")));
    answer(&mut out, e);
    picture(&mut out, e);
    parts(&mut out, e);
    let _ = writeln!(out, "<h2>The step</h2>\n<figure>{}</figure>", svg::step(e));
    let _ = writeln!(out, "<h2>Modules</h2>");
    module(&mut out, &e.layers.iter().collect::<Vec<_>>(), 0);
    table(&mut out, e);
    largest(&mut out, e);
    list(&mut out, &format!("{}: {}", words::NOT_EXACT, words::NOT_KNOWN), &e.unknown);
    list(&mut out, "Warnings", &e.warnings);
    list(&mut out, "Assumptions", &e.assumptions);
    let _ = writeln!(
        out,
        "<footer><p>{}</p><p>SHA-256 of the structure: <code>{}</code></p></footer></main><script>{SCRIPT}</script></body></html>",
        escape(&from.line()),
        from.structure
    );
    out
}

/// A document up to its heading; `style` stands after what all have.
fn begin(title: &str, heading: &str, style: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
<meta name=\"generator\" content=\"memfit {}\"><title>{title}</title><style>{STYLE}{style}</style></head><body><main>\n<h1>{heading}</h1>\n",
        env!("CARGO_PKG_VERSION")
    )
}

/// A class for the colour of each part.
fn colours() -> String {
    svg::COLOURS.iter().enumerate().map(|(i, colour)| format!(".c{i}{{background:{colour}}}")).collect()
}

fn answer(out: &mut String, e: &Estimate) {
    let exact = if e.unknown.is_empty() { "" } else { ", not exact," };
    let _ = writeln!(
        out,
        "<p class=\"answer\"><strong>{}</strong>{exact} on the device, between {} and {}.</p>\n<p>The peak is in {}, at <code>{}</code>: {} of live tensors, {} reserved by the allocator. {} are kept for backward at the end of forward.</p>",
        e.peak.device,
        e.peak.device_low,
        e.peak.device_high,
        e.peak.phase.name(),
        escape(&e.peak.layer),
        e.peak.allocated,
        e.peak.reserved,
        e.saved_for_backward
    );
    if let Some(fit) = &e.fit {
        let verdict = words::verdict(fit.verdict);
        let _ = writeln!(
            out,
            "<p class=\"verdict {verdict}\"><strong>{}</strong> on {}: {} wanted, {} usable of {}.</p>",
            words::verdict_in_words(fit.verdict),
            escape(&fit.gpu),
            fit.reserved,
            fit.usable,
            fit.capacity
        );
    }
}

fn picture(out: &mut String, e: &Estimate) {
    let whole = e.fit.as_ref().map_or(e.peak.device, |fit| fit.capacity.max(e.peak.device));
    out.push_str("<figure><svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 720 34\" role=\"img\" aria-label=\"The parts of the peak; the table below has the numbers\">");
    svg::bar(out, &e.breakdown, whole, (0, 3), (720, 28));
    out.push_str("<rect x=\"0.5\" y=\"2.5\" width=\"719\" height=\"29\" fill=\"none\" stroke=\"currentColor\" stroke-opacity=\"0.4\"/></svg></figure>\n");
}

fn parts(out: &mut String, e: &Estimate) {
    out.push_str("<table class=\"parts\"><thead><tr><th scope=\"col\">at the peak</th><th scope=\"col\">bytes</th><th scope=\"col\">size</th></tr></thead><tbody>\n");
    for (i, (name, bytes)) in words::parts(&e.breakdown).into_iter().enumerate() {
        if bytes > Bytes::ZERO {
            let _ = writeln!(
                out,
                "<tr><th scope=\"row\"><i class=\"c{i}\"></i>{name}</th><td data-n=\"{}\">{}</td><td>{bytes}</td></tr>",
                bytes.0,
                grouped(bytes.0)
            );
        }
    }
    let _ = writeln!(
        out,
        "</tbody><tfoot><tr><th scope=\"row\">on the device</th><td data-n=\"{}\">{}</td><td>{}</td></tr></tfoot></table>",
        e.peak.device.0,
        grouped(e.peak.device.0),
        e.peak.device
    );
}

/// The layers below one module, folded by the next part of their path.
fn module(out: &mut String, rows: &[&LayerRow], depth: usize) {
    let mut order: Vec<&str> = Vec::new();
    let mut groups: BTreeMap<&str, Vec<&LayerRow>> = BTreeMap::new();
    for row in rows {
        let key = row.name.split(['.', '/']).filter(|p| !p.is_empty()).nth(depth).unwrap_or("");
        let group = groups.entry(key).or_default();
        if group.is_empty() {
            order.push(key);
        }
        group.push(row);
    }
    out.push_str("<ul class=\"modules\">");
    for key in order {
        let Some(group) = groups.get(key) else { continue };
        let at_peak: Bytes = group.iter().map(|r| r.at_peak.allocated()).sum();
        let own = key.is_empty() || group.len() == 1 || depth >= DEEPEST;
        if own {
            for row in group {
                let name = if key.is_empty() { "(itself)" } else { &*row.name };
                let _ = write!(
                    out,
                    "<li><code>{}</code> <span>{}</span> <b>{}</b></li>",
                    escape(name),
                    escape(&row.op),
                    row.at_peak.allocated()
                );
            }
        } else {
            let _ = write!(
                out,
                "<li><details><summary><code>{}</code> <span>{} layers</span> <b>{at_peak}</b></summary>",
                escape(key),
                group.len()
            );
            module(out, group, depth + 1);
            out.push_str("</details></li>");
        }
    }
    out.push_str("</ul>\n");
}

fn table(out: &mut String, e: &Estimate) {
    out.push_str("<details class=\"all\"><summary>All layers</summary>\n<table class=\"layers\"><thead><tr>");
    let columns =
        ["layer", "type", "output", "parameters", "saved", "activations at the peak", "at the peak"];
    for column in columns {
        let _ = write!(out, "<th scope=\"col\">{column}</th>");
    }
    out.push_str("</tr></thead><tbody>\n");
    for row in &e.layers {
        let shape = |dims: &Dims| dims.iter().map(u64::to_string).collect::<Vec<_>>().join("×");
        let shapes: Vec<String> = row.output_shapes.iter().map(shape).collect();
        let Breakdown { activations, .. } = row.at_peak;
        let cell = |bytes: Bytes| format!("<td data-n=\"{}\">{bytes}</td>", bytes.0);
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td data-n=\"{}\">{}</td>{}{}{}</tr>",
            escape(&row.name),
            escape(&row.op),
            shapes.join(" "),
            row.parameters,
            grouped(row.parameters),
            cell(row.saved_bytes),
            cell(activations),
            cell(row.at_peak.allocated())
        );
    }
    out.push_str("</tbody></table></details>\n");
}

fn largest(out: &mut String, e: &Estimate) {
    out.push_str("<h2>Largest tensors at the peak</h2>\n<ol>");
    for tensor in &e.largest {
        let _ = write!(
            out,
            "<li><code>{}</code> of <code>{}</code>, {}: {}</li>",
            escape(&tensor.label),
            escape(&tensor.layer),
            words::category(tensor.category),
            tensor.bytes
        );
    }
    out.push_str("</ol>\n");
}

fn list(out: &mut String, title: &str, items: &[String]) {
    if items.is_empty() {
        return;
    }
    let _ = write!(out, "<h2>{title}</h2>\n<ul>");
    for item in items {
        let _ = write!(out, "<li>{}</li>", escape(item));
    }
    out.push_str("</ul>\n");
}

/// A line of an index.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// The model.
    pub name: &'a str,
    /// Its report, relative to the index.
    pub document: &'a str,
    /// What it takes on the device, in bytes.
    pub device: u64,
    /// Why there is no report.
    pub error: Option<&'a str>,
    /// Whether it fits, or no card was named.
    pub fits: bool,
}

/// An index of reports.
pub fn index(rows: &[Row<'_>]) -> String {
    let title = "Memory of one training step";
    let mut out = begin(title, title, "");
    let failed = rows.iter().filter(|row| row.error.is_some()).count();
    let over = rows.iter().filter(|row| row.error.is_none() && !row.fits).count();
    let mut counts = vec![format!("{} {}", rows.len(), if rows.len() == 1 { "model" } else { "models" })];
    counts.extend((over > 0).then(|| format!("{over} do not fit")));
    counts.extend((failed > 0).then(|| format!("{failed} could not be read")));
    let _ = writeln!(out, "<p class=\"plan\">{}</p>", counts.join(" · "));
    out.push_str("<table class=\"layers index\"><thead><tr><th scope=\"col\">model</th><th scope=\"col\">on the device</th><th scope=\"col\">note</th></tr></thead><tbody>\n");
    for row in rows {
        let name = escape(row.name);
        let cells = match row.error {
            Some(error) => {
                format!("<th scope=\"row\">{name}</th><td data-n=\"0\"></td><td>{}</td>", escape(error))
            }
            None => format!(
                "<th scope=\"row\"><a href=\"{}\">{name}</a></th><td data-n=\"{}\">{}</td><td>{}</td>",
                link(row.document),
                row.device,
                Bytes(row.device),
                if row.fits { "" } else { "does not fit" }
            ),
        };
        let _ = writeln!(out, "<tr>{cells}</tr>");
    }
    let _ = writeln!(out, "</tbody></table></main><script>{SCRIPT}</script></body></html>");
    out
}

/// A file's path as a relative link.
fn link(name: &str) -> String {
    let mut out = String::from("./");
    for byte in name.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'/' => out.push(char::from(byte)),
            other => {
                let _ = write!(out, "%{other:02X}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_text_and_numbers_are_there() {
        let mut e = crate::sample::estimate();
        e.model.name = "<script>alert(1)</script>".into();
        let from = Provenance { file: "x.onnx".into(), structure: "0".repeat(64) };
        let page = estimate(&e, &from);
        assert!(!page.contains("<script>alert"));
        assert!(page.contains(&format!("<td data-n=\"{}\">", e.peak.device.0)));
        assert_eq!(page.matches("<details").count(), page.matches("</details>").count());
        assert_eq!(page, estimate(&e, &from));
    }
}
