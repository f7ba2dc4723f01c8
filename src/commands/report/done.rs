//! What was done of a folder of models: a line of JSON for each, written as soon as its document is, or its line of JSON Lines.
//!
//! A run that finds a note with the same flags, card, version, size and time of the file, and what it wrote, does not read that model again.
//! A note that was cut off when a run was stopped is no note.

use crate::args::ReportArgs;
use crate::failure::Failure;
use crate::step::Step;
use memfit_report::text_hash;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::time::UNIX_EPOCH;

/// The file's name beside documents, and the end of its name beside JSON Lines.
const FILE: &str = ".memfit-done.jsonl";

/// One model.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct Note {
    /// The model's path below the folder.
    pub(super) name: String,
    /// Its document, below the target.
    pub(super) document: String,
    /// What it takes on the device.
    pub(super) device: u64,
    /// Whether it fits, or no card was named.
    pub(super) fits: bool,
    /// Why there is no document.
    pub(super) error: Option<String>,
    /// The file's size, and when it changed, in nanoseconds.
    size: u64,
    changed: u64,
    /// The flags, the card and the version.
    asked: String,
}

impl Note {
    pub(super) fn new(name: &str, document: String, file: &Path) -> Note {
        let (size, changed) = state(file).unwrap_or_default();
        Note { name: name.to_owned(), document, size, changed, ..Note::default() }
    }

    /// Takes over what an estimate says.
    pub(super) fn estimated(&mut self, step: &Step) {
        self.device = step.estimate.peak.device.0;
        self.fits = step.fits();
    }
}

/// The notes of a folder.
pub(super) struct Done {
    notes: HashMap<String, Note>,
    asked: String,
    file: Mutex<File>,
}

impl Done {
    /// Reads the notes of earlier runs that wrote to `target`: a folder, or a file of lines.
    pub(super) fn open(target: &Path, args: &ReportArgs) -> Result<Done, Failure> {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let path = match target.is_dir() {
            true => target.join(FILE),
            false => target.with_file_name(format!(".{name}{FILE}")),
        };
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        // Of the card what it is, too: a profile's file may say something else by now, and `auto` be another card.
        let asked = format!("{} {args:?} {:?}", env!("CARGO_PKG_VERSION"), args.gpu.card());
        let notes = text.lines().filter_map(|line| serde_json::from_str::<Note>(line).ok());
        let notes = notes.map(|note| (note.name.clone(), note)).collect();
        let mut file = OpenOptions::new().create(true).append(true).open(&path);
        if let (Ok(file), false) = (&mut file, text.is_empty() || text.ends_with('\n')) {
            let _ = file.write_all(b"\n");
        }
        let file = file.map_err(|error| Failure::unwritten(&path, &error))?;
        Ok(Done { notes, asked: text_hash(&asked), file: Mutex::new(file) })
    }

    /// The note of a model that would be made the same again.
    pub(super) fn find(&self, name: &str, file: &Path) -> Option<&Note> {
        let note = self.notes.get(name).filter(|note| note.asked == self.asked)?;
        (state(file) == Some((note.size, note.changed))).then_some(note)
    }

    /// Notes a model. Where that cannot be written, the next run does it again.
    pub(super) fn add(&self, note: &Note) {
        let note = Note { asked: self.asked.clone(), ..note.clone() };
        let mut line = serde_json::to_string(&note).unwrap_or_default();
        line.push('\n');
        if let Ok(mut file) = self.file.lock() {
            let _ = file.write_all(line.as_bytes());
        }
    }
}

fn state(file: &Path) -> Option<(u64, u64)> {
    let data = file.metadata().ok()?;
    let changed = data.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some((data.len(), u64::try_from(changed.as_nanos()).ok()?))
}
