//! `memfit fit`: the largest batch, image or sequence on each card.

use crate::args::{FitArgs, Format};
use crate::failure::Failure;
use crate::progress::Progress;
use crate::{Finding, load, output};
use memfit_engine::fit::{self, Axis};
use memfit_report::fit as report;

/// Searches and writes the matrix as asked.
pub(crate) fn fit(args: &FitArgs) -> Result<Finding, Failure> {
    // What is wrong with the flags alone is told before a file is opened.
    args.plan.framework()?;
    let cards = args.gpus.cards()?;
    let axis = Axis::parse(&args.max);
    let loaded = load::load(&args.model)?;
    let (plans, mut warnings) = args.plan.plans(loaded.framework())?;
    let ready = loaded.bind(&args.model.sizes)?;
    let (model, binding) = (&ready.model, &ready.binding);
    let mut progress = Progress::new("searching");
    let cells = fit::matrix(model, binding, &plans, &cards, &axis, &mut |done, of| progress.tell(done, of));
    drop(progress);
    let cells = cells.map_err(|problems| ready.failure(problems))?;
    warnings.splice(0..0, ready.notices());
    let matrix = report::Matrix {
        model: &ready.name,
        axis: axis.name(),
        batch: binding.batch,
        cells: &cells,
        warnings: &warnings,
    };
    output::print(&match args.format.format {
        Format::Json => report::json(&matrix),
        Format::Text => report::text(&matrix, output::width()),
    })?;
    Ok(Finding::fine_if(matrix.any()))
}
