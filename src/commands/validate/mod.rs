//! `memfit validate`: real steps, measured beside predicted.
//!
//! Who runs the steps is a runner: Burn inside of this program (`burn`), or the host's own frameworks (`python`). Each gives a
//! [`Record`]; what is done with it is here. A `suite` and a `search` run this program again, once for each run, so that each has a
//! fresh context and none can take the others down.

mod burn;
mod child;
mod python;
mod search;
mod suite;

use crate::args::{Format, Runner, ValidateArgs};
use crate::failure::Failure;
use crate::load::{self, Ready};
use crate::{Finding, output};
use memfit_engine::{Aside, Framework, Plan};
use memfit_graph::infer;
use memfit_report::json::plan_value;
use memfit_validate::key::Given;
use memfit_validate::record::{ModelId, Record, SCHEMA_VERSION};
use memfit_validate::text;
use serde_json::Value;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set by Ctrl-C: what runs ends after its step, and what is recorded until then is whole.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// What prepares a run, whoever runs it.
struct Asked {
    ready: Ready,
    plan: Plan,
    /// With the model, the plan and the versions in it, and what is to be known of the plan as its notes.
    record: Record,
}

/// Runs the steps and writes what they showed.
pub(crate) fn validate(args: &ValidateArgs) -> Result<Finding, Failure> {
    // A second Ctrl-C ends it at once, which is what happens without a handler too.
    let _ = ctrlc::set_handler(|| {
        if INTERRUPTED.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    });
    if args.describe {
        return output::print(&describe(args)?.line()).map(|()| Finding::Fine);
    }
    if args.suite {
        return suite::run(args);
    }
    if args.search {
        return search::run(args);
    }
    if args.print_script {
        let asked = asked(args)?;
        let program = python::script(args, &asked)?;
        asked.record.notes.iter().for_each(|note| output::warn(note));
        return output::print(&program).map(|()| Finding::Fine);
    }
    let record = match args.runner {
        Runner::Burn => burn::run(args)?,
        Runner::Torch | Runner::Keras => python::run(args)?,
    };
    let json = serde_json::to_string_pretty(&record).unwrap_or_default() + "\n";
    if let Some(path) = &args.record {
        output::save(path, &json)?;
    }
    output::print(&match args.format.format {
        Format::Json => json,
        Format::Text => text::text(&record),
    })?;
    Ok(Finding::fine_if(record.ended.is_none() && within(&record, args)))
}

/// Whether the peak is as predicted, and for Burn what its pools hold. Tensors of another device's kernels prove nothing about either.
fn within(record: &Record, args: &ValidateArgs) -> bool {
    let burn = record.runner == "burn";
    let met = |what: &str, tolerance: f64| {
        let off = record.row(what).and_then(|row| row.error_percent());
        off.is_none_or(|error| error.abs() <= tolerance)
    };
    let counted = !burn && record.backend == "cpu";
    counted || met("peak", args.tolerance) && (!burn || met("reserved", args.reserved_tolerance))
}

/// Who would run and where: what of a record is known beforehand.
fn describe(args: &ValidateArgs) -> Result<Record, Failure> {
    match args.runner {
        Runner::Burn => burn::describe(args),
        Runner::Torch | Runner::Keras => python::describe(args),
    }
}

/// Whose profile predicts what a runner does.
fn framework(runner: Runner) -> Framework {
    match runner {
        Runner::Burn => Framework::Burn,
        Runner::Torch => Framework::Pytorch,
        Runner::Keras => Framework::Tensorflow,
    }
}

/// The model's file without its folders.
fn file_name(args: &ValidateArgs) -> String {
    args.model.file.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// Reads the model and makes the plan.
fn asked(args: &ValidateArgs) -> Result<Asked, Failure> {
    let framework = framework(args.runner);
    // What is wrong with the flags alone is told before a file is opened.
    args.plan.check()?;
    if args.plan.framework().is_some_and(|named| named != framework) {
        let name = args.runner.name();
        return Err(Failure::new(
            "--framework",
            format!("--runner {name} is compared with its own framework"),
        ));
    }
    let loaded = load::load(&args.model)?;
    let usual = loaded.usual();
    let (plan, warnings) = args.plan.plan(usual.with(framework), Aside::default())?;
    let ready = loaded.bind(&args.model.sizes)?;
    let mut notes = args.plan.kept_to(usual, &plan);
    notes.extend(ready.notices(std::slice::from_ref(&plan)));
    notes.extend(warnings);
    let inferred = infer(ready.model.graph(), &ready.binding).map_err(|problems| ready.failure(problems))?;
    let record = Record {
        schema_version: SCHEMA_VERSION,
        tool: format!("memfit {}", env!("CARGO_PKG_VERSION")),
        runner: args.runner.name().into(),
        model: ModelId { file: file_name(args), structure: memfit_report::fingerprint(ready.model.graph()) },
        plan: plan_value(&plan, inferred.batch),
        given: Given::of(&ready.binding),
        limit_bytes: args.limit.map(|bytes| bytes.0),
        notes,
        ..Record::default()
    };
    Ok(Asked { ready, plan, record })
}

/// Gives the plan of an older record the keys that came since: what they say of a plan that nobody told anything.
fn complete(plan: &mut Value) {
    let (Some(plan), Value::Object(usual)) = (plan.as_object_mut(), plan_value(&Plan::default(), None))
    else {
        return;
    };
    for (key, value) in usual.into_iter().filter(|(_, value)| !value.is_null()) {
        plan.entry(key).or_insert(value);
    }
}

/// The records of a file; none where there is no file yet.
fn read(path: &Path) -> Result<Option<String>, Failure> {
    match crate::text::read(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::new(path.display().to_string(), format!("cannot be read: {error}"))),
    }
}
