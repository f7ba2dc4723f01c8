//! `memfit diff`: what changed in memory from one model to another, and in which layers.

use crate::args::{DiffArgs, DiffFormat};
use crate::failure::Failure;
use crate::output;
use crate::step::Step;
use memfit_engine::Word;
use memfit_report::diff::{self, Sides};

/// Estimates both under the same plan and writes what differs.
pub(crate) fn diff(args: &DiffArgs) -> Result<(), Failure> {
    if [&args.old, &args.new].iter().all(|path| path.as_os_str() == "-") {
        return Err(Failure::new(
            "- -",
            "standard input is one model; only one of the two can be read from it",
        ));
    }
    let old = Step::new(&args.models.of(&args.old), &args.plan, &args.gpu)?;
    let new = Step::after(&old, &args.models.of(&args.new), &args.plan, &args.gpu)?;
    let found = memfit_engine::diff::diff(&old.estimate, &new.estimate);
    let warnings = warnings(&old, &new, args.plan.framework().is_some());
    let sides = Sides {
        names: [&*old.file, &*new.file],
        frameworks: [old.plan.framework, new.plan.framework],
        warnings: &warnings,
    };
    output::print(&match args.format {
        DiffFormat::Text => diff::text(&found, &sides, args.top, output::width()),
        DiffFormat::Markdown => diff::markdown(&found, &sides, args.top),
        DiffFormat::Json => diff::json(&found, &sides),
    })
}

/// Where the files by themselves would not have been trained in the same way.
fn warnings(old: &Step, new: &Step, is_typed: bool) -> Vec<String> {
    let (one, other) = (old.usual.name(), new.usual.name());
    let mut warnings = Vec::new();
    if one != other && !is_typed {
        let (old, new) = (&old.file, &new.file);
        warnings.push(format!(
            "{old} by itself is a model of {one}, {new} one of {other}: both are estimated under {one}; --framework says another"
        ));
    }
    if old.plan.xla != new.plan.xla {
        let (with, without) = if old.plan.xla { (old, new) } else { (new, old) };
        warnings.push(format!(
            "the step of {} is compiled with XLA, that of {} is not, as the Keras that wrote each does: --xla or --no-xla says it of both",
            with.file, without.file
        ));
    }
    warnings
}
