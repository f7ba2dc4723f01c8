//! A model from a file, a directory or standard input, whatever its format.

use crate::args::{ModelArgs, SizeArgs};
use crate::failure::Failure;
use crate::spool::{self, Spooled};
use memfit_engine::{self as engine, Plan, Usual};
use memfit_graph::{Binding, Imported, Problem};
use memfit_keras::Options;
use std::fs::File;
use std::io::{self, Cursor, ErrorKind, Read, Seek};
use std::path::Path;

/// A model with the name it is called by.
pub(crate) struct Loaded {
    /// What messages call it: the path as typed.
    pub(crate) file: String,
    /// The file's name without its extension, or the graph's.
    pub(crate) name: String,
    pub(crate) model: Imported,
}

/// A model made ready, with its open sizes bound.
pub(crate) struct Ready {
    pub(crate) file: String,
    pub(crate) name: String,
    /// `onnx` or `keras`.
    pub(crate) format: &'static str,
    pub(crate) model: engine::Model,
    pub(crate) binding: Binding,
    /// What the importer noticed.
    pub(crate) warnings: Vec<Problem>,
}

impl Ready {
    /// What the user should know of the file under these plans, and what the importer noticed.
    pub(crate) fn notices(&self, plans: &[Plan]) -> Vec<String> {
        let mut notices = self.model.notices(plans);
        notices.extend(self.warnings.iter().map(ToString::to_string));
        notices
    }

    /// What is wrong with the model under a plan.
    pub(crate) fn failure(&self, problems: Vec<Problem>) -> Failure {
        Failure::of_file(&self.file, problems)
    }
}

impl Loaded {
    /// Binds the sizes that were given and recomposes the graph.
    pub(crate) fn bind(self, sizes: &SizeArgs) -> Result<Ready, Failure> {
        let Loaded { file, name, mut model } = self;
        let format = model.format;
        model.warnings.extend(sizes.idle(format));
        let binding = sizes.binding(&model.graph).map_err(|problems| Failure::of_file(&file, problems))?;
        let made = engine::Model::new(model.graph, &name, format, model.operators);
        Ok(Ready { file, name, format, model: made, binding, warnings: model.warnings })
    }

    /// What applies where nobody says it.
    pub(crate) fn usual(&self) -> Usual {
        Usual::of_file(&self.model)
    }
}

/// Reads the model that was named; `-` is standard input.
pub(crate) fn load(args: &ModelArgs) -> Result<Loaded, Failure> {
    load_with(&args.file, &args.sizes)
}

/// Reads the model at `path`; `-` is standard input.
pub(crate) fn load_with(path: &Path, sizes: &SizeArgs) -> Result<Loaded, Failure> {
    let options = sizes.options();
    if path.as_os_str() == "-" {
        return from_stdin(&options);
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
    let mut opened = File::open(path).map_err(failure)?;
    if opened.metadata().map_err(failure)?.is_dir() {
        opened = in_directory(path, &file)?;
    }
    let read = import(opened, &options).map_err(failure)?;
    let model = read.map_err(|problems| Failure::of_file(&file, problems))?;
    let name = path.file_stem().map_or_else(|| file.clone(), |s| s.to_string_lossy().into_owned());
    Ok(Loaded { file, name, model })
}

/// The config in an unpacked Keras archive.
fn in_directory(path: &Path, file: &str) -> Result<File, Failure> {
    if let Ok(config) = File::open(path.join("config.json")) {
        return Ok(config);
    }
    let failure = Failure::new(file, "expected an .onnx file or a Keras model, found a directory");
    if path.join("saved_model.pb").exists() {
        return Err(failure.hint(
            "a SavedModel holds a TensorFlow graph; save the Keras model with model.save(\"model.keras\")",
        ));
    }
    Err(failure.hint("a directory is read only where it holds the config.json of a Keras model"))
}

fn from_stdin(options: &Options) -> Result<Loaded, Failure> {
    let file = "standard input".to_owned();
    let read =
        standard_input(options).map_err(|error| Failure::new(&file, format!("cannot be read: {error}")))?;
    let model = read.map_err(|problems| Failure::of_file(&file, problems))?;
    let name = if model.graph.name.is_empty() { "model".into() } else { model.graph.name.clone() };
    Ok(Loaded { file, name, model })
}

type Answer = Result<Imported, Vec<Problem>>;

/// A file behind standard input (`memfit inspect - < model.onnx`) is read like one, its weights skipped.
#[cfg(unix)]
fn standard_input(options: &Options) -> io::Result<Answer> {
    use std::os::fd::AsFd;
    import(File::from(io::stdin().as_fd().try_clone_to_owned()?), options)
}

#[cfg(not(unix))]
fn standard_input(options: &Options) -> io::Result<Answer> {
    import_stream(io::stdin().lock(), options)
}

/// Imports an open file. A pipe has no length to seek in.
fn import(file: File, options: &Options) -> io::Result<Answer> {
    if file.metadata()?.is_file() { import_from(file, options) } else { import_stream(file, options) }
}

/// Imports what cannot be sought in. What does not begin as a model is refused before the rest, which may have no end, is read.
fn import_stream(reader: impl Read, options: &Options) -> io::Result<Answer> {
    let refusal = |head: &[u8]| if memfit_keras::is_keras(head) { None } else { memfit_onnx::refusal(head) };
    match spool::spool(reader, refusal)? {
        Spooled::File(file) => import_from(file, options),
        Spooled::Whole(bytes) => import_from(Cursor::new(bytes), options),
        Spooled::Refused(problem) => Ok(Err(vec![problem])),
    }
}

/// Tells the format by how the stream begins.
fn import_from(mut reader: impl Read + Seek, options: &Options) -> io::Result<Answer> {
    let head = memfit_onnx::head(&mut reader)?;
    if head.is_empty() {
        let empty = Problem::new("file", "expected an ONNX or a Keras model, found an empty file");
        return Ok(Err(vec![empty.hint("download or save it again")]));
    }
    if memfit_keras::is_keras(&head) {
        return Ok(memfit_keras::import_from(reader, options).map(Imported::from));
    }
    Ok(memfit_onnx::import_from(reader).map(Imported::from))
}
