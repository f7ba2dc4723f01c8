//! `memfit report`: an estimate as a document; of a folder, one document for each model and an index.
//!
//! Models of a folder are read by several threads; one that cannot be read is told in the index and does not stop the rest. A document
//! that is there already and was made from the same structure, plan and version is left alone, so that a run can be resumed.

use crate::args::{Document, ReportArgs};
use crate::failure::Failure;
use crate::step::Step;
use crate::{Finding, output};
use memfit_report::{Provenance, csv, html, json, markdown, netron, svg, text};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const MODELS: [&str; 4] = ["onnx", "keras", "h5", "hdf5"];

/// Writes what was asked.
pub(crate) fn report(args: &ReportArgs) -> Result<Finding, Failure> {
    if args.model.file.is_dir() && !args.model.file.join("config.json").exists() {
        return folder(args);
    }
    let kind = args.document()?;
    let step = Step::new(&args.model, &args.plan, &args.gpu)?;
    let text = write(kind, &step);
    match &args.output {
        Some(path) => save(path, &text)?,
        None => output::print(&text)?,
    }
    Ok(Finding::fine_if(step.fits()))
}

fn write(kind: Document, step: &Step) -> String {
    let e = &step.estimate;
    let from = || Provenance::new(&step.file, step.model.graph());
    match kind {
        Document::Html => html::estimate(e, &from()),
        Document::Markdown => markdown::estimate(e, &from()),
        Document::Svg => svg::card(e, &from()),
        Document::Json => json::estimate(e),
        Document::Jsonl => json::line(e),
        Document::Csv => csv::estimate(e),
        Document::Text => {
            anstream::adapter::strip_str(&text::estimate(e, &text::Options::default())).to_string()
        }
        Document::Badge => svg::badge(e),
        Document::Shields => svg::endpoint(e),
        Document::Netron => netron::attachment(e, step.model.graph()),
    }
}

fn save(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text)
        .map_err(|error| Failure::new(path.display().to_string(), format!("cannot be written: {error}")))
}

/// The models below a folder.
fn models(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() && !path.is_symlink() {
            models(&path, found);
        } else if is_model(&path) {
            found.push(path);
        }
    }
}

/// As the name says; JSON only where it begins as a Keras config does.
fn is_model(path: &Path) -> bool {
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or("").to_ascii_lowercase();
    if extension == "json" {
        let mut start = Vec::new();
        let read = fs::File::open(path).and_then(|file| file.take(4096).read_to_end(&mut start));
        return read.is_ok() && String::from_utf8_lossy(&start).contains("\"class_name\"");
    }
    MODELS.contains(&&*extension)
}

fn folder(args: &ReportArgs) -> Result<Finding, Failure> {
    let root = &args.model.file;
    let mut files = Vec::new();
    models(root, &mut files);
    files.sort();
    if files.is_empty() {
        return Err(Failure::new(root.display().to_string(), "there is no model below this folder"));
    }
    let kind = args.document()?;
    let lines = kind == Document::Jsonl;
    let target = match (&args.output, lines) {
        (Some(path), _) => path.clone(),
        (None, true) => PathBuf::new(),
        (None, false) => {
            return Err(Failure::new(
                root.display().to_string(),
                "a folder of models becomes a folder of reports",
            )
            .hint("say where: -o reports"));
        }
    };
    if !lines {
        fs::create_dir_all(&target).map_err(|error| {
            Failure::new(target.display().to_string(), format!("cannot be made: {error}"))
        })?;
    }
    let done: Vec<Mutex<Option<Entry>>> = files.iter().map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(files.len());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some(file) = files.get(i) else { return };
                    let entry = one(args, root, file, kind, (!lines).then_some(&*target));
                    if let Ok(mut slot) = done[i].lock() {
                        *slot = Some(entry);
                    }
                }
            });
        }
    });
    let entries: Vec<Entry> = done.into_iter().filter_map(|slot| slot.into_inner().ok().flatten()).collect();
    if lines {
        let text: String = entries.iter().map(|e| e.line.as_str()).collect();
        match &args.output {
            Some(path) => save(path, &text)?,
            None => output::print(&text)?,
        }
    } else {
        save(&target.join("index.html"), &index(&entries))?;
    }
    for entry in entries.iter().filter(|e| e.error.is_some()) {
        output::warn(&format!("{}: {}", entry.name, entry.error.as_deref().unwrap_or_default()));
    }
    Ok(Finding::fine_if(entries.iter().all(|e| e.error.is_none() && e.fits)))
}

/// One model of a folder.
struct Entry {
    /// Its path below the folder.
    name: String,
    /// Its document, below the target.
    document: String,
    peak: String,
    error: Option<String>,
    fits: bool,
    /// As a line of JSON.
    line: String,
}

fn one(args: &ReportArgs, root: &Path, file: &Path, kind: Document, target: Option<&Path>) -> Entry {
    let name = file.strip_prefix(root).unwrap_or(file).display().to_string();
    let document = format!("{}.{}", name.replace(['/', '\\'], "__"), kind.extension());
    let mut entry =
        Entry { name, document, peak: String::new(), error: None, fits: false, line: String::new() };
    let model = args.model.of(file);
    let written = Step::new(&model, &args.plan, &args.gpu).and_then(|step| {
        entry.peak = step.estimate.peak.device.to_string();
        entry.fits = step.fits();
        let text = write(kind, &step);
        let Some(target) = target else {
            entry.line = text;
            return Ok(());
        };
        let path = target.join(&entry.document);
        // Identical input gives identical bytes: a file that says the same is left as it is.
        let same = fs::read_to_string(&path).is_ok_and(|old| old == text);
        if same { Ok(()) } else { save(&path, &text) }
    });
    if let Err(failure) = written {
        let message = failure.to_string();
        entry.line = json::failure(&entry.name, &message);
        entry.error = Some(message);
    }
    entry
}

fn index(entries: &[Entry]) -> String {
    let rows: Vec<html::Row> = entries
        .iter()
        .map(|e| html::Row {
            name: &e.name,
            document: &e.document,
            peak: &e.peak,
            error: e.error.as_deref(),
            fits: e.fits,
        })
        .collect();
    html::index(&rows)
}
