//! A model from a file or from standard input.

use crate::failure::Failure;
use memfit_graph::Problem;
use memfit_onnx::Model;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// A model with the name it is called by.
pub(crate) struct Loaded {
    /// What messages call it: the path as typed.
    pub(crate) file: String,
    /// The file's name without its extension, or the graph's.
    pub(crate) name: String,
    pub(crate) model: Model,
}

/// Reads the model at `path`; `-` is standard input.
pub(crate) fn load(path: &Path) -> Result<Loaded, Failure> {
    if path.as_os_str() == "-" {
        return from_stdin();
    }
    let file = path.display().to_string();
    let failure = |error: io::Error| {
        let message = match error.kind() {
            ErrorKind::NotFound => "no such file".into(),
            ErrorKind::PermissionDenied => "it may not be read".into(),
            _ => error.to_string(),
        };
        Failure::new(&file, message)
    };
    let opened = File::open(path).map_err(failure)?;
    let metadata = opened.metadata().map_err(failure)?;
    if metadata.is_dir() {
        return Err(Failure::new(&file, "expected an .onnx file, found a directory"));
    }
    let model = import(opened).map_err(failure)?.map_err(|problems| Failure::of_file(&file, problems))?;
    let name = path.file_stem().map_or_else(|| file.clone(), |s| s.to_string_lossy().into_owned());
    Ok(Loaded { file, name, model })
}

fn from_stdin() -> Result<Loaded, Failure> {
    let file = "standard input".to_owned();
    let read = standard_input().map_err(|error| Failure::new(&file, format!("cannot be read: {error}")))?;
    let model = read.map_err(|problems| Failure::of_file(&file, problems))?;
    let name = if model.graph.name.is_empty() { "model".into() } else { model.graph.name.clone() };
    Ok(Loaded { file, name, model })
}

type Imported = Result<Model, Vec<Problem>>;

/// A file behind standard input (`memfit inspect - < model.onnx`) is read like one, its weights skipped.
#[cfg(unix)]
fn standard_input() -> io::Result<Imported> {
    use std::os::fd::AsFd;
    import(File::from(io::stdin().as_fd().try_clone_to_owned()?))
}

#[cfg(not(unix))]
fn standard_input() -> io::Result<Imported> {
    import_whole(io::stdin().lock())
}

/// Imports an open file. A pipe has no length to seek in, so it is read as a whole.
fn import(file: File) -> io::Result<Imported> {
    if file.metadata()?.is_file() { Ok(memfit_onnx::import_from(file)) } else { import_whole(file) }
}

fn import_whole(mut reader: impl Read) -> io::Result<Imported> {
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes)?;
    Ok(memfit_onnx::import(&bytes))
}
