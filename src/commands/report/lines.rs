//! A folder or a glob of models as JSON Lines: a line for each, in the order of the names as they come, so that thousands of models
//! need the memory of a few.
//!
//! A file of lines that is there already is gone on with where its run was stopped: the lines are kept up to the first model that
//! is new, changed or was asked for with other flags ([`super::done`]).

use super::done::{Done, Note};
use super::folder::{all, name};
use crate::args::ReportArgs;
use crate::failure::Failure;
use crate::step::Step;
use memfit_report::json;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Error, ErrorKind, Result as Io, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Writes a line for each model that has none yet.
pub(super) fn write(args: &ReportArgs, root: &Path, files: &[PathBuf]) -> Result<Vec<Note>, Failure> {
    let place = args.file().map_or_else(|| "standard output".into(), Path::to_owned);
    let failure = |error: Error| Failure::unwritten(&place, &error);
    let mut notes = Vec::new();
    let (out, done): (Box<dyn Write + Send>, _) = match args.file() {
        // A pipe has nothing to go on with.
        Some(path) if path.exists() && !path.is_file() => {
            (Box::new(File::create(path).map_err(failure)?), None)
        }
        Some(path) => {
            let done = Done::open(path, args)?;
            let made = files.iter().map_while(|file| done.find(&name(root, file), file).cloned());
            notes.extend(made);
            let (file, kept) = keep(path, &notes).map_err(failure)?;
            notes.truncate(kept);
            (Box::new(file), Some(done))
        }
        None => (Box::new(std::io::stdout()), None),
    };
    let out = BufWriter::new(out);
    let ordered = Mutex::new(Ordered { out, done, next: 0, early: BTreeMap::new(), failed: None });
    let rest = all(root, &files[notes.len()..], |at, name, file| {
        let (line, note) = line(args, name, file);
        ordered.lock().unwrap_or_else(PoisonError::into_inner).push(at, line, note.clone());
        note
    });
    notes.extend(rest);
    let mut ordered = ordered.into_inner().unwrap_or_else(PoisonError::into_inner);
    let failed = ordered.failed.take().or_else(|| ordered.out.flush().err());
    match failed.filter(|error| error.kind() != ErrorKind::BrokenPipe) {
        Some(error) => Err(failure(error)),
        None => Ok(notes),
    }
}

fn line(args: &ReportArgs, name: &str, file: &Path) -> (String, Note) {
    let mut note = Note::new(name, String::new(), file);
    let line = match Step::new(&args.model.of(file), &args.plan, &args.gpu) {
        Ok(step) => {
            note.estimated(&step);
            json::line(&step.estimate, name)
        }
        Err(failure) => {
            let message = failure.to_string();
            let line = json::failure(name, &message);
            note.error = Some(message);
            line
        }
    };
    (line, note)
}

/// What a line says of where it comes from.
#[derive(Deserialize)]
struct Line {
    file: String,
}

/// Opens a file to write after the lines of these models, or after as many whole ones as it has in their order: how many that is.
/// A model that came or went since has moved the lines behind it.
fn keep(path: &Path, notes: &[Note]) -> Io<(File, usize)> {
    let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path)?;
    let mut reader = BufReader::new(&file);
    let (mut kept, mut length, mut line) = (0, 0, Vec::new());
    for note in notes {
        line.clear();
        reader.read_until(b'\n', &mut line)?;
        let is_its = serde_json::from_slice::<Line>(&line).is_ok_and(|line| line.file == note.name);
        if !is_its || !line.ends_with(b"\n") {
            break;
        }
        (kept, length) = (kept + 1, length + line.len() as u64);
    }
    file.set_len(length)?;
    (&file).seek(SeekFrom::Start(length))?;
    Ok((file, kept))
}

/// Lines that come in any order and are written in that of their numbers, each noted when it is written.
struct Ordered {
    out: BufWriter<Box<dyn Write + Send>>,
    done: Option<Done>,
    next: usize,
    early: BTreeMap<usize, (String, Note)>,
    failed: Option<Error>,
}

impl Ordered {
    fn push(&mut self, number: usize, line: String, note: Note) {
        self.early.insert(number, (line, note));
        while let Some((line, note)) = self.early.remove(&self.next) {
            self.next += 1;
            if self.failed.is_none() {
                self.failed = self.write(&line, &note).err();
            }
        }
    }

    fn write(&mut self, line: &str, note: &Note) -> Io<()> {
        self.out.write_all(line.as_bytes())?;
        if let Some(done) = &self.done {
            self.out.flush()?;
            done.add(note);
        }
        Ok(())
    }
}
