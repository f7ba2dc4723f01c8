//! What every format of `report`, `diff`, `check` and `explain` looks like, as files in `snapshots/`. After a change that is meant,
//! `UPDATE_EXPECT=1 cargo test -p memfit --test cli snapshots` writes them anew: read the difference.

use crate::models::Builder;
use crate::{Run, command, file};
use expect_test::expect_file;
use memfit_graph::Bytes;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A folder with two models, budgets for one and a log; what is written names its files without it.
fn folder(name: &str) -> PathBuf {
    let mut wider = Builder::conv();
    wider.weight("head.weight", &[6, 4, 1, 1]);
    wider.node("Conv", "/head/Conv", &["y", "head.weight"], "z");
    wider.output("z");
    let place = file(&format!("{name}/conv.onnx"), &Builder::conv().bytes());
    let place = Path::new(&place).parent().unwrap().to_owned();
    std::fs::write(place.join("wider.onnx"), wider.bytes()).unwrap();
    std::fs::write(place.join("memfit.toml"), include_str!("snapshots/memfit.toml")).unwrap();
    std::fs::write(place.join("baseline.json"), "{\"grown\": 1000}\n").unwrap();
    std::fs::write(place.join("run.log"), include_str!("snapshots/run.log")).unwrap();
    place
}

fn run(folder: &Path, args: &[&str]) -> Run {
    command(args).current_dir(folder).output().unwrap().into()
}

/// Compares what was written with a file, without what a release changes.
fn same(name: &str, run: Run, code: i32) -> String {
    assert_eq!((run.code, &*run.err), (code, ""), "{name}");
    expect_file![format!("snapshots/{name}")]
        .assert_eq(&run.out.replace(env!("CARGO_PKG_VERSION"), "VERSION"));
    run.out
}

const PLAN: [&str; 4] = ["-b", "4", "--gpu", "rtx-4090"];

#[test]
fn every_document_of_a_report() {
    let folder = folder("snapshot-report");
    let report = |kind: &str, name: &str| {
        let flags = ["report", "conv.onnx", "--as", kind];
        same(&format!("report.{name}"), run(&folder, &[&flags[..], &PLAN].concat()), 0)
    };
    let json: Value = serde_json::from_str(&report("json", "json")).unwrap();
    let known = sizes(&json);
    for (kind, name) in
        [("markdown", "md"), ("text", "txt"), ("svg", "svg"), ("badge", "badge.svg"), ("html", "html")]
    {
        let document = report(kind, name);
        let shown = shown(&document);
        assert!(!shown.is_empty(), "{kind}");
        let others: Vec<_> = shown.iter().filter(|size| !known.contains(size)).collect();
        assert!(others.is_empty(), "{kind} says {others:?}, which the JSON does not");
    }
    for (kind, name) in
        [("jsonl", "jsonl"), ("csv", "csv"), ("shields", "shields.json"), ("netron", "netron.json")]
    {
        report(kind, name);
    }
}

/// Every number of a JSON document as a size is written, with what follows from two of them.
fn sizes(json: &Value) -> Vec<String> {
    fn numbers(value: &Value, into: &mut Vec<u64>) {
        match value {
            Value::Number(n) => into.extend(n.as_u64()),
            Value::Array(items) => items.iter().for_each(|item| numbers(item, into)),
            Value::Object(map) => {
                map.values().for_each(|item| numbers(item, into));
                // A row is the sum of its columns.
                into.push(map.values().filter_map(Value::as_u64).sum());
            }
            _ => {}
        }
    }
    let mut all = Vec::new();
    numbers(json, &mut all);
    all.into_iter().map(|n| Bytes(n).to_string()).collect()
}

/// The sizes that a text shows: `1.50 MiB`.
fn shown(text: &str) -> Vec<String> {
    let words: Vec<&str> = text.split(|c: char| c.is_whitespace() || "<>()\",;|".contains(c)).collect();
    let pairs = words.windows(2).filter(|pair| {
        ["B", "KiB", "MiB", "GiB", "TiB"].contains(&pair[1].trim_end_matches('.'))
            && pair[0].starts_with(|c: char| c.is_ascii_digit())
    });
    pairs.map(|pair| format!("{} {}", pair[0], pair[1].trim_end_matches('.'))).collect()
}

#[test]
fn every_format_of_a_difference() {
    let folder = folder("snapshot-diff");
    for (format, name) in [("text", "txt"), ("markdown", "md"), ("json", "json")] {
        let flags = ["diff", "conv.onnx", "wider.onnx", "--format", format];
        same(&format!("diff.{name}"), run(&folder, &[&flags[..], &PLAN].concat()), 0);
        let flags = ["diff", "conv.onnx", "conv.onnx", "--format", format];
        same(&format!("diff-same.{name}"), run(&folder, &[&flags[..], &PLAN].concat()), 0);
    }
}

#[test]
fn every_format_of_a_check() {
    let folder = folder("snapshot-check");
    for (format, name) in [
        ("text", "txt"),
        ("markdown", "md"),
        ("json", "json"),
        ("sarif", "sarif.json"),
        ("github", "github.txt"),
    ] {
        let out = same(&format!("check.{name}"), run(&folder, &["check", "--format", format]), 1);
        if format == "sarif" {
            let sarif = serde_json::from_str(&out).unwrap();
            assert_eq!(crate::schema::against(include_str!("sarif/schema.json"), &sarif), [""; 0]);
        }
    }
}

#[test]
fn every_format_of_an_explanation() {
    let folder = folder("snapshot-explain");
    for (format, name) in [("text", "txt"), ("json", "json")] {
        same(&format!("explain.{name}"), run(&folder, &["explain", "run.log", "--format", format]), 1);
        let flags = ["explain", "run.log", "wider.onnx", "-b", "4000000", "--format", format];
        same(&format!("explain-model.{name}"), run(&folder, &flags), 1);
    }
}
