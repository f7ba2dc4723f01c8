//! memfit for a browser and for Node: a file and a plan in JSON go in, the command line's JSON comes out.
//!
//! There is no logic here. The same functions answer natively, which is how a check proves that both give the same bytes. With
//! the feature `javascript` the crate is also what JavaScript calls: `open` a file through slices, then ask it.

mod compact;
#[cfg(feature = "javascript")]
pub mod javascript;
mod opened;
mod request;
#[cfg(feature = "slices")]
mod slices;

pub use opened::Opened;
pub use request::{Asked, read as read_request, read_for as read_request_for};
#[cfg(feature = "slices")]
pub use slices::Slices;

#[cfg(feature = "explain")]
use memfit_engine::Estimate;
use memfit_graph::Problem;
use std::io::Cursor;

/// What one training step of an ONNX or Keras model holds, as JSON.
///
/// `plan` is the object that an estimate shows under `plan`, all of it optional, with `set` for symbols
/// (`{"seq": 512}`), `input` for whole shapes (`{"x": [8, 3, 224, 224]}`) and `layer` for what a Keras file does not say of a custom
/// layer (`{"scale": {"shape": [64], "params": 64}}`).
///
/// # Errors
/// All problems found, one a line.
pub fn estimate_json(model: &[u8], plan: &str) -> Result<String, String> {
    open(model, plan).and_then(|m| m.estimate_json(plan)).map_err(|p| lines(&p))
}

/// Every tensor of an ONNX or Keras model with its dtype and shape, as JSON. Of `plan` only the sizes are read.
///
/// # Errors
/// All problems found, one a line.
pub fn inspect_json(model: &[u8], plan: &str) -> Result<String, String> {
    open(model, plan).and_then(|m| m.inspect_json(plan)).map_err(|p| lines(&p))
}

fn open(model: &[u8], plan: &str) -> Result<Opened, Vec<Problem>> {
    Opened::read_with(Cursor::new(model), None, &request::read(plan)?.options)
}

/// Why the run of a log ran out of memory, as `memfit explain --format json` writes it.
#[cfg(feature = "explain")]
pub fn explain_json(log: &str) -> String {
    memfit_explain::json(&log_of(log), None)
}

/// The same in words, beside a model's estimates where one is given: `estimate` gives the step at a batch size, which is `batch`
/// where the log does not tell it.
#[cfg(feature = "explain")]
pub fn explain_text(
    log: &str,
    batch: Option<u64>,
    estimate: Option<&mut dyn FnMut(u64) -> Option<Estimate>>,
) -> String {
    let log = log_of(log);
    let beside = estimate.and_then(|estimate| {
        let told = memfit_explain::model::beside(&log, None, &mut *estimate);
        told.filter(|told| told.batch.is_some() || batch.is_none())
            .or_else(|| memfit_explain::model::beside(&log, batch, estimate))
    });
    memfit_explain::text(&log, beside.as_ref(), 100)
}

#[cfg(feature = "explain")]
fn log_of(text: &str) -> memfit_explain::Log {
    // Reading from memory does not fail.
    memfit_explain::read(text.as_bytes()).unwrap_or_default()
}

/// Problems as the command line words them, one a line.
pub fn lines(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
