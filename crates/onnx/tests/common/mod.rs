//! What the tests over the reference corpus share.

#![allow(dead_code, clippy::unwrap_used, clippy::print_stdout, unreachable_pub)]

use memfit_graph::{DType, Graph, Role, Type};
use std::path::PathBuf;
use std::sync::Mutex;

/// A path of the reference corpus; `None`, with a printed line, where it is absent.
pub fn shared(path: &str) -> Option<PathBuf> {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared")).join(path);
    if !path.exists() {
        println!("skipped: {} is not there", path.display());
        return None;
    }
    Some(path)
}

/// The files with this ending in a folder of the reference corpus, by name.
pub fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let Some(dir) = shared(folder) else { return Vec::new() };
    let paths = std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().path());
    let mut files: Vec<_> = paths.filter(|p| p.to_str().is_some_and(|p| p.ends_with(ending))).collect();
    files.sort();
    files
}

/// The dtype that numpy or ONNX calls by this name.
pub fn dtype(name: &str) -> DType {
    let name = name.to_ascii_lowercase();
    let name = match name.as_str() {
        "float" => "float32",
        "double" => "float64",
        "object" => "string",
        name => name,
    };
    let found = DType::ALL.into_iter().find(|d| d.name() == name);
    found.unwrap_or_else(|| panic!("no dtype is called {name}"))
}

/// Forgets what the file says of the tensors that nodes make, so that inference has to find it.
pub fn forget_declared(graph: &mut Graph) {
    for tensor in &mut graph.tensors {
        if tensor.role == Role::Intermediate {
            tensor.declared = Type::Unknown;
        }
    }
}

/// Does something with each item, on all cores; the results come in no particular order.
pub fn in_parallel<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let items = Mutex::new(items.into_iter());
    let next = || items.lock().unwrap().next();
    std::thread::scope(|scope| {
        let worker = || std::iter::from_fn(next).map(&work).collect::<Vec<R>>();
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|w| w.join().unwrap()).collect()
    })
}
