//! `memfit diff`: what changed in memory from one model to another, and in which layers.

use crate::args::{DiffArgs, DiffFormat};
use crate::failure::Failure;
use crate::output;
use crate::step::Step;
use memfit_report::diff;

/// Estimates both under the same plan and writes what differs.
pub(crate) fn diff(args: &DiffArgs) -> Result<(), Failure> {
    if [&args.old, &args.new].iter().all(|path| path.as_os_str() == "-") {
        return Err(Failure::new(
            "- -",
            "standard input is one model; only one of the two can be read from it",
        ));
    }
    let old = Step::new(&args.models.of(&args.old), &args.plan, &args.gpu)?;
    let new = Step::new(&args.models.of(&args.new), &args.plan, &args.gpu)?;
    let found = memfit_engine::diff::diff(&old.estimate, &new.estimate);
    let names = [&*old.file, &*new.file];
    output::print(&match args.format {
        DiffFormat::Text => diff::text(&found, names, args.top),
        DiffFormat::Markdown => diff::markdown(&found, names, args.top),
        DiffFormat::Json => diff::json(&found, names),
    })
}
