//! `memfit explain`: why the run of a log ran out of memory.

use crate::args::{ExplainArgs, Format};
use crate::failure::Failure;
use crate::{Finding, load, output};
use memfit_engine::{Aside, Framework};
use memfit_explain::model::{Beside, beside};
use memfit_explain::{Log, Outcome};
use std::fs::File;
use std::path::Path;

/// Reads the log, beside the model where one is given, and writes what it says.
pub(crate) fn explain(args: &ExplainArgs) -> Result<Finding, Failure> {
    let log = read(&args.log)?;
    let beside = match &args.model {
        Some(model) => with_model(&log, model, args)?,
        None => None,
    };
    output::print(&match args.format.format {
        Format::Json => memfit_explain::json(&log, beside.as_ref()),
        Format::Text => memfit_explain::text(&log, beside.as_ref(), output::width()),
    })?;
    Ok(Finding::fine_if(log.outcome() != Outcome::OutOfMemory))
}

fn read(path: &Path) -> Result<Log, Failure> {
    if path.as_os_str() == "-" {
        let read = memfit_explain::read(std::io::stdin());
        return read.map_err(|error| Failure::new("standard input", format!("cannot be read: {error}")));
    }
    let read = File::open(path).and_then(memfit_explain::read);
    read.map_err(|error| Failure::new(path.display().to_string(), format!("cannot be read: {error}")))
}

/// Estimates of the model at the batches that the log may have been run with. Sizes that stay open make an estimate
/// impossible, which is said as `memfit estimate` says it.
fn with_model(log: &Log, path: &Path, args: &ExplainArgs) -> Result<Option<Beside>, Failure> {
    let loaded = load::load_with(path, &args.sizes)?;
    // Who wrote the log is who ran the model.
    let usual = match log.failure().map(|m| m.family) {
        Some("tensorflow") => loaded.usual().with(Framework::Tensorflow),
        Some("pytorch") => loaded.usual().with(Framework::Pytorch),
        _ => loaded.usual(),
    };
    let (plan, warnings) = args.plan.plan(usual, Aside::default())?;
    let mut ready = loaded.bind(&args.sizes)?;
    let mut notices = ready.notices(std::slice::from_ref(&plan));
    notices.extend(warnings);
    ready.binding.batch = Some(args.sizes.batch_size.unwrap_or(1));
    ready.model.estimate(&ready.binding, &plan).map_err(|problems| ready.failure(problems))?;
    let (model, mut binding) = (ready.model, ready.binding);
    let mut beside = beside(log, args.sizes.batch_size, |batch| {
        binding.batch = Some(batch);
        model.estimate(&binding, &plan).ok()
    });
    if let Some(beside) = &mut beside {
        beside.advise(log, &model, &binding, &plan);
        beside.warnings = notices;
    }
    Ok(beside)
}
