//! A list of runs, each a process of its own. Records are added to a file line by line; what it has already is not run again.
//!
//! ```toml
//! version = 1
//!
//! [defaults]                     # any flag of `memfit validate`, with _ for -
//! steps = 2
//!
//! [[run]]
//! model = "lenet.ts_train.onnx"  # beside this file
//! batch_sizes = [4, 8]           # a run each
//! precisions = ["fp32"]          # and with each of these
//! optimizers = ["adam"]
//! ```

use super::child::{self, Ran};
use super::{INTERRUPTED, asked, read};
use crate::args::{self, Format, ValidateArgs};
use crate::failure::Failure;
use crate::table::flag;
use crate::{Finding, output};
use memfit_validate::record::{self, Ended, Record};
use serde::Deserialize;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::Ordering;

/// The version of the file that is understood.
const VERSION: u32 = 1;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u32,
    #[serde(default)]
    defaults: toml::Table,
    #[serde(default)]
    run: Vec<toml::Table>,
}

/// Keys that stand for a run each, and the flag that each of their items is.
const MANY: [(&str, &str); 3] =
    [("batch_sizes", "batch_size"), ("precisions", "precision"), ("optimizers", "optimizer")];

/// Runs all that the file's records do not answer yet.
pub(super) fn run(args: &ValidateArgs) -> Result<Finding, Failure> {
    let path = &args.model.file;
    let Some(into) = &args.record else { return Err(Failure::new("--suite", "--record says where to")) };
    let text = crate::text::of(path)?;
    let runs = runs(&text, path, &common(args))?;
    let old = read(into)?.unwrap_or_default();
    let about = |message: String| Failure::new(into.display().to_string(), message);
    let mut records = record::read(&old).map_err(about)?;
    records.iter_mut().for_each(|record| super::complete(&mut record.plan));
    // What a crash cut short goes, so that the next line begins anew.
    if !old.is_empty() && !old.ends_with('\n') {
        output::save(into, &records.iter().map(Record::line).collect::<String>())?;
    }
    let described = super::describe(args)?;
    let (mut ran, mut skipped, mut failed) = (0_usize, 0_usize, Vec::new());
    let mut told: Vec<String> = Vec::new();
    for (i, (words, typed)) in runs.iter().enumerate() {
        if INTERRUPTED.load(Ordering::Relaxed) {
            break;
        }
        let name = super::file_name(typed);
        output::progress(&format!("{} of {}: {name}", i + 1, runs.len()));
        let known = match asked(typed) {
            Ok(asked) => Record {
                framework: described.framework.clone(),
                backend: described.backend.clone(),
                device: described.device.clone(),
                ..asked.record
            },
            Err(failure) => {
                failed.push(failure.to_string());
                continue;
            }
        };
        if records.iter().any(|record| record.answers(&known, typed.steps)) {
            skipped += 1;
            continue;
        }
        // The record keeps them; what several runs say is told once.
        let notes = known.notes.iter().map(|note| format!("{name}: {note}"));
        for note in notes.collect::<Vec<_>>() {
            if !told.contains(&note) {
                output::warn(&note);
                told.push(note);
            }
        }
        let record = match child::run(words, None)? {
            Ran::Record(record) => *record,
            Ran::Crashed(message) => Record { ended: Some(Ended::new("crashed", message)), ..known },
            // No end was given.
            Ran::Late => continue,
            Ran::Refused(message) => {
                failed.push(format!("{name}: {message}"));
                continue;
            }
        };
        ran += 1;
        if let Some(ended) = record.ended.as_ref().filter(|ended| !ended.is_final()) {
            failed.push(format!("{name}: {}: {}", ended.kind, ended.message));
        }
        append(into, &record)?;
        // A run that is tried again replaces what there was of it.
        records.retain(|old| old.key() != record.key());
        records.push(record);
    }
    output::progress("");
    output::print(&match args.format.format {
        Format::Json => records.iter().map(Record::line).collect(),
        Format::Text => summary(&records, args) + &format!("{ran} run, {skipped} there already\n"),
    })?;
    for failure in &failed {
        output::warn(failure);
    }
    let good = records.iter().all(|r| r.ended.is_none() && super::within(r, args));
    Ok(Finding::fine_if(good && failed.is_empty()))
}

/// What each run is called with, whatever the file says of it.
fn common(args: &ValidateArgs) -> Vec<String> {
    let mut words = vec!["--format".to_owned(), "json".into(), "--runner".into(), args.runner.name().into()];
    if let Some(backend) = args.backend {
        words.extend(["--backend".into(), backend.name().into()]);
    }
    if let Some(python) = &args.python {
        words.extend(["--python".into(), python.display().to_string()]);
    }
    if let Some(limit) = args.limit {
        words.extend(["--limit".into(), format!("{}B", limit.0)]);
    }
    words
}

/// The words of each run and what they mean, in the file's order. What is wrong with one is told before the first is run.
fn runs(text: &str, path: &Path, common: &[String]) -> Result<Vec<(Vec<String>, ValidateArgs)>, Failure> {
    let about = path.display().to_string();
    let failure = |message: String| Failure::new(&about, message);
    let file: File = toml::from_str(text)
        .map_err(|e| failure(e.to_string()).hint("version = 1, then [[run]] with model = \"…\""))?;
    if file.version != VERSION {
        return Err(failure(format!("expected version = {VERSION}, found {}", file.version)));
    }
    if file.run.is_empty() {
        return Err(failure("no [[run]] is listed".into()));
    }
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut runs = Vec::new();
    for own in file.run {
        let mut table = file.defaults.clone();
        table.extend(own);
        let Some(toml::Value::String(model)) = table.remove("model") else {
            return Err(failure("every [[run]] needs a model = \"…\"".into()));
        };
        let mut every = vec![Vec::new()];
        for (key, one) in MANY {
            let Some(items) = table.remove(key) else { continue };
            let toml::Value::Array(items) = items else {
                return Err(failure(format!("{model}: {key} should be a list")));
            };
            let with = |words: &Vec<String>, item: &toml::Value| {
                let mut words = words.clone();
                flag(&mut words, one, item).map_err(|m| failure(format!("{model}: {m}"))).map(|()| words)
            };
            let pairs = every.iter().flat_map(|words| items.iter().map(move |item| (words, item)));
            every = pairs.map(|(words, item)| with(words, item)).collect::<Result<_, _>>()?;
        }
        let mut rest = Vec::new();
        for (key, value) in &table {
            flag(&mut rest, key, value).map_err(|m| failure(format!("{model}: {m}")))?;
        }
        let file = folder.join(&model).display().to_string();
        let head = ["validate".to_owned(), file];
        runs.extend(every.iter().map(|words| [&head[..], words, &rest, common].concat()));
    }
    let typed = |words: Vec<String>| {
        let typed = args::validate(words.iter().cloned()).map_err(|e| usage(path, &e))?;
        Ok((words, typed))
    };
    runs.into_iter().map(typed).collect()
}

fn usage(path: &Path, error: &clap::Error) -> Failure {
    let message = error.to_string();
    let first = message.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    Failure::new(path.display().to_string(), first)
        .hint("keys are the flags of memfit validate, with _ for -")
}

fn append(path: &Path, record: &Record) -> Result<(), Failure> {
    let opened = std::fs::OpenOptions::new().create(true).append(true).open(path);
    let written = opened.and_then(|mut file| file.write_all(record.line().as_bytes()));
    written.map_err(|e| Failure::new(path.display().to_string(), format!("cannot be written: {e}")))
}

/// A line a run.
fn summary(records: &[Record], args: &ValidateArgs) -> String {
    let width = records.iter().map(|r| r.model.file.len()).max().unwrap_or(0);
    let mut out = String::new();
    for record in records {
        let batch = record.plan.get("batch_size").and_then(serde_json::Value::as_u64).unwrap_or(0);
        let error = |what: &str| {
            let error = record.row(what).and_then(record::Row::error_percent);
            error.map_or_else(String::new, |e| format!("{what} {e:+.2} %"))
        };
        let end = match &record.ended {
            Some(ended) => ended.kind.clone(),
            None if super::within(record, args) => "ok".into(),
            None => "off".into(),
        };
        let line = format!(
            "{:<width$} b{batch:<5} {end:<13} {:<16} {}",
            record.model.file,
            error("peak"),
            error("reserved")
        );
        out += line.trim_end();
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_runs_and_keys_are_flags() {
        let text = "version = 1\n[defaults]\nsteps = 2\n[[run]]\nmodel = \"a.onnx\"\nbatch_sizes = [4, 8]\noptimizers = [\"sgd\", \"adam\"]\n\
                    [[run]]\nmodel = \"b.onnx\"\nset = [\"seq=64\"]\nsteps = 3\n";
        let runs = runs(text, Path::new("models/suite.toml"), &[]).unwrap();
        let lines: Vec<String> = runs.iter().map(|(words, _)| words.join(" ")).collect();
        assert_eq!(
            lines,
            [
                "validate models/a.onnx --batch-size 4 --optimizer sgd --steps 2",
                "validate models/a.onnx --batch-size 4 --optimizer adam --steps 2",
                "validate models/a.onnx --batch-size 8 --optimizer sgd --steps 2",
                "validate models/a.onnx --batch-size 8 --optimizer adam --steps 2",
                "validate models/b.onnx --set seq=64 --steps 3",
            ]
        );
    }

    /// Keys that came since do not make anybody run them again.
    #[test]
    fn the_records_of_this_repository_answer_its_suites() {
        let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("models");
        for (suite, file) in [("suite", "burn_lavapipe"), ("suite_half", "burn_lavapipe_half")] {
            let path = models.join(suite).with_extension("toml");
            let old = models.join("measurements").join(file).with_extension("jsonl");
            let mut records = record::read(&std::fs::read_to_string(old).unwrap()).unwrap();
            records.iter_mut().for_each(|record| super::super::complete(&mut record.plan));
            let mut answered = 0;
            for (words, typed) in runs(&std::fs::read_to_string(&path).unwrap(), &path, &[]).unwrap() {
                let Record { framework, backend, device, .. } = records[0].clone();
                let known = Record { framework, backend, device, ..asked(&typed).unwrap().record };
                // An operator that reads more of its file than it did has another hash.
                if records.iter().all(|record| record.model.structure != known.model.structure) {
                    continue;
                }
                assert!(records.iter().any(|record| record.answers(&known, typed.steps)), "{words:?}");
                answered += 1;
            }
            assert!(answered > 1, "{suite}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_before_anything_runs() {
        let wrong = |text: &str| runs(text, Path::new("s.toml"), &[]).unwrap_err().to_string();
        assert!(wrong("version = 2").contains("expected version = 1"));
        assert!(wrong("version = 1").contains("no [[run]]"));
        assert!(wrong("version = 1\n[[run]]\nsteps = 1").contains("needs a model"));
        assert!(wrong("version = 1\n[[run]]\nmodel = \"a\"\nbatch_sizes = 4").contains("should be a list"));
        assert!(wrong("version = 1\n[[run]]\nmodel = \"a\"\nstepps = 4").contains("--stepps"));
    }
}
