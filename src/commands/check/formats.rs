//! What was found, as people, code hosts and other programs read it.

use super::{Checked, Level, Took};
use memfit_graph::Bytes;
use memfit_report::markdown::escape;
use serde_json::{Value, json};
use std::fmt::Write;

fn word(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warning => "warning",
    }
}

/// Nothing where it is not known.
fn device(model: &Checked) -> String {
    model.took.as_ref().map_or_else(String::new, |took| took.device.to_string())
}

pub(super) fn text(checked: &[Checked]) -> String {
    let mut out = String::new();
    for model in checked {
        let sign = match model.found.iter().map(|f| f.level).min_by_key(|l| *l != Level::Error) {
            Some(Level::Error) => "FAIL",
            Some(Level::Warning) => "warn",
            None => "ok",
        };
        let _ = writeln!(out, "{sign:<5} {:>12}  {}", device(model), model.name);
        for found in &model.found {
            let message = found.message.replace('\n', &format!("\n{:20}", ""));
            let _ = writeln!(out, "      {:>12}  {}: {message}", "", word(found.level));
        }
    }
    out
}

pub(super) fn markdown(checked: &[Checked]) -> String {
    let mut out = String::from(
        "### GPU memory\n\n| | model | on the device | baseline | |\n| --- | --- | ---: | ---: | --- |\n",
    );
    for model in checked {
        let failed = model.found.iter().any(|f| f.level == Level::Error);
        let sign = if failed {
            "❌"
        } else if model.found.is_empty() {
            "✅"
        } else {
            "⚠️"
        };
        let messages: Vec<&str> = model.found.iter().map(|f| f.message.as_str()).collect();
        let baseline = model.baseline.map_or_else(String::new, |b| b.to_string());
        let _ = writeln!(
            out,
            "| {sign} | {} | {} | {baseline} | {} |",
            escape(&model.name),
            device(model),
            escape(&messages.join("; ").replace('\n', " "))
        );
    }
    out
}

pub(super) fn json(checked: &[Checked]) -> String {
    let models: Vec<Value> = checked
        .iter()
        .map(|m| {
            let found: Vec<Value> =
                m.found.iter().map(|f| json!({"level": word(f.level), "rule": f.rule, "message": f.message})).collect();
            let took = |bytes: fn(&Took) -> Bytes| m.took.as_ref().map(|took| bytes(took).0);
            json!({"name": m.name, "path": m.path, "device_bytes": took(|t| t.device), "allocated_bytes": took(|t| t.allocated),
                "baseline_bytes": m.baseline.map(|b| b.0), "findings": found})
        })
        .collect();
    let failed = checked.iter().flat_map(|m| &m.found).any(|f| f.level == Level::Error);
    pretty(
        &json!({"schema_version": 1, "tool": {"name": "memfit", "version": env!("CARGO_PKG_VERSION")}, "passed": !failed, "models": models}),
    )
}

const RULES: [(&str, &str); 6] = [
    ("not-estimated", "The model cannot be estimated"),
    ("does-not-fit", "The step does not fit on the card"),
    ("tight", "The step fits only if all goes as expected"),
    ("over-budget", "The step takes more than its budget"),
    ("growth", "The step grew more than is allowed"),
    ("no-baseline", "There is nothing to compare with"),
];

/// SARIF 2.1.0, as code hosts take it for their alerts.
pub(super) fn sarif(checked: &[Checked]) -> String {
    let rules: Vec<Value> =
        RULES.iter().map(|(id, text)| json!({"id": id, "shortDescription": {"text": text}})).collect();
    let results: Vec<Value> = checked
        .iter()
        .flat_map(|m| m.found.iter().map(move |f| (m, f)))
        .map(|(m, f)| {
            let index = RULES.iter().position(|(id, _)| *id == f.rule);
            json!({"ruleId": f.rule, "ruleIndex": index, "level": word(f.level), "message": {"text": format!("{}: {}", m.name, f.message)},
                "locations": [{"physicalLocation": {"artifactLocation": {"uri": reference(&m.path)}}}]})
        })
        .collect();
    pretty(&json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": {"name": "memfit", "version": env!("CARGO_PKG_VERSION"), "rules": rules}}, "results": results}],
    }))
}

/// A path as a URI reference (RFC 3986).
fn reference(path: &str) -> String {
    let mut out = String::new();
    for byte in path.replace('\\', "/").bytes() {
        match byte {
            b'/' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            byte if byte.is_ascii_alphanumeric() => out.push(char::from(byte)),
            byte => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

/// Workflow commands that GitHub turns into annotations.
pub(super) fn github(checked: &[Checked], file: &str) -> String {
    let data = |text: &str| text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    let property = |text: &str| data(text).replace(':', "%3A").replace(',', "%2C");
    let mut out = String::new();
    for model in checked {
        for found in &model.found {
            let _ = writeln!(
                out,
                "::{} file={},title={}::{}",
                word(found.level),
                property(file),
                property(&model.name),
                data(&found.message)
            );
        }
    }
    out
}

fn pretty(value: &Value) -> String {
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    text
}
