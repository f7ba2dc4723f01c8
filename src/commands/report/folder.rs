//! A folder or a glob of models: one document for each and an index, or JSON Lines.
//!
//! Models are read by several threads; one that cannot be read is told in the index and does not stop the rest. What was done is
//! noted beside the documents ([`super::done`]), so that a run that was stopped is gone on with.

use super::done::{Done, Note};
use super::{lines, write};
use crate::args::{Document, ReportArgs};
use crate::failure::Failure;
use crate::progress::Progress;
use crate::step::Step;
use crate::{Finding, output, threads};
use memfit_report::html;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

const MODELS: [&str; 4] = ["onnx", "keras", "h5", "hdf5"];

/// Whether a path stands for several models: a folder that is no unpacked Keras model, or a glob.
pub(super) fn is_many(path: &Path) -> bool {
    if path.is_dir() {
        return !path.join("config.json").exists();
    }
    is_glob(path) && !path.exists()
}

fn is_glob(path: &Path) -> bool {
    path.to_string_lossy().contains(['*', '?'])
}

/// The folder that names are below: of a glob, what stands before its first `*` or `?`.
fn root(path: &Path) -> PathBuf {
    if path.is_dir() {
        return path.to_owned();
    }
    let plain = |part: &std::path::Component<'_>| !is_glob(Path::new(part.as_os_str()));
    let root: PathBuf = path.components().take_while(plain).collect();
    if root.as_os_str().is_empty() { ".".into() } else { root }
}

/// The models below a folder: regular files alone, since a named pipe would be waited for.
fn models(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() && !path.is_symlink() {
            models(&path, found);
        } else if path.is_file() && is_model(&path) {
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

/// Writes what was asked of every model.
pub(super) fn report(args: &ReportArgs) -> Result<Finding, Failure> {
    let asked = &args.model.file;
    let root = root(asked);
    let mut files = Vec::new();
    models(&root, &mut files);
    if !asked.is_dir() {
        let path = |file: &Path| file.strip_prefix(".").unwrap_or(file).display().to_string();
        let glob = path(&asked.components().collect::<PathBuf>());
        files.retain(|file| memfit_engine::glob_matches(&glob, &path(file)));
    }
    files.sort();
    if files.is_empty() {
        let what = if asked.is_dir() { "there is no model below this folder" } else { "no model matches" };
        return Err(Failure::new(asked.display().to_string(), what));
    }
    let kind = args.document()?;
    let results = if kind == Document::Jsonl {
        lines::write(args, &root, &files)?
    } else {
        let Some(target) = args.file() else {
            let message = "a folder of models becomes a folder of reports";
            return Err(Failure::new(asked.display().to_string(), message).hint("say where: -o reports"));
        };
        documents(args, kind, (&root, &files), target)?
    };
    for note in results.iter().filter(|note| note.error.is_some()) {
        output::warn(&format!("{}: {}", note.name, note.error.as_deref().unwrap_or_default()));
    }
    let missing = results.iter().filter(|note| note.error.is_some()).count();
    if missing > 0 {
        let message = format!("{missing} of {} models could not be estimated", results.len());
        return Err(Failure::new(asked.display().to_string(), message));
    }
    Ok(Finding::fine_if(results.iter().all(|note| note.fits)))
}

fn documents(
    args: &ReportArgs,
    kind: Document,
    (root, files): (&Path, &[PathBuf]),
    target: &Path,
) -> Result<Vec<Note>, Failure> {
    fs::create_dir_all(target)
        .map_err(|error| Failure::new(target.display().to_string(), format!("cannot be made: {error}")))?;
    let done = Done::open(target, args)?;
    // A folder of the models is one of the documents, too: no two share a name.
    let save = |path: &Path, text: &str| {
        let made = path.parent().map_or(Ok(()), fs::create_dir_all);
        made.map_err(|error| Failure::unwritten(path, &error)).and_then(|()| output::save(path, text))
    };
    let results = all(root, files, |_, name, file| {
        let whole = |note: &&Note| note.error.is_none() && target.join(&note.document).is_file();
        if let Some(note) = done.find(name, file).filter(whole) {
            return note.clone();
        }
        let document = format!("{}.{}", name.replace(std::path::MAIN_SEPARATOR, "/"), kind.extension());
        let mut note = Note::new(name, document, file);
        let step = Step::new(&args.model.of(file), &args.plan, &args.gpu);
        let written = step.and_then(|step| {
            note.estimated(&step);
            save(&target.join(&note.document), &write(kind, &step))
        });
        note.error = written.err().map(|failure| failure.to_string());
        done.add(&note);
        note
    });
    let rows: Vec<html::Row> = results
        .iter()
        .map(|note| html::Row {
            name: &note.name,
            document: &note.document,
            device: note.device,
            error: note.error.as_deref(),
            fits: note.fits,
        })
        .collect();
    output::save(&target.join("index.html"), &html::index(&rows))?;
    Ok(results)
}

/// What `each` gives for every file, told its place and its name below the root; in the order of the files.
pub(super) fn all(
    root: &Path,
    files: &[PathBuf],
    each: impl Fn(usize, &str, &Path) -> Note + Sync,
) -> Vec<Note> {
    let progress = Progress::new("models", files.len());
    threads::each(files, |at, file| {
        let note = each(at, &name(root, file), file);
        progress.step();
        note
    })
}

/// A model's path below the folder.
pub(super) fn name(root: &Path, file: &Path) -> String {
    file.strip_prefix(root).unwrap_or(file).display().to_string()
}
