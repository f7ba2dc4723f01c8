//! A model from a file or from standard input.

use crate::failure::Failure;
use memfit_onnx::Model;
use std::fs::File;
use std::io::{BufReader, Cursor, ErrorKind, Read};
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
    let failure = |error: std::io::Error| {
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
    // A pipe (`<(gunzip -c …)`) has no length to seek in.
    let model = if metadata.is_file() {
        memfit_onnx::import_from(BufReader::new(opened))
    } else {
        memfit_onnx::import(&read_all(opened).map_err(failure)?)
    };
    let model = model.map_err(|problems| Failure::of_file(&file, problems))?;
    let name = path.file_stem().map_or_else(|| file.clone(), |s| s.to_string_lossy().into_owned());
    Ok(Loaded { file, name, model })
}

fn from_stdin() -> Result<Loaded, Failure> {
    let file = "standard input".to_owned();
    let bytes = read_all(std::io::stdin().lock())
        .map_err(|error| Failure::new(&file, format!("cannot be read: {error}")))?;
    let model = memfit_onnx::import_from(Cursor::new(bytes)).map_err(|p| Failure::of_file(&file, p))?;
    let name = if model.graph.name.is_empty() { "model".into() } else { model.graph.name.clone() };
    Ok(Loaded { file, name, model })
}

fn read_all(mut reader: impl Read) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes)?;
    Ok(bytes)
}
