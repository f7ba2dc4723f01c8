//! `memfit estimate`: the peak of one training step.

use crate::args::{EstimateArgs, Format};
use crate::failure::Failure;
use crate::{Finding, load, output};
use memfit_engine::{Model, Verdict};
use memfit_report::{json, text};

/// Estimates the step and writes it as asked.
pub(crate) fn estimate(args: &EstimateArgs) -> Result<Finding, Failure> {
    // What is wrong with the flags alone is told before a file is opened.
    args.plan.framework()?;
    let card = args.gpu.card()?;
    let loaded = load::load(&args.model)?;
    let (plan, plan_warnings) = args.plan.plan(loaded.framework())?;
    let failure = |problems| Failure::of_file(&loaded.file, problems);
    let binding = args.model.binding(&loaded.model.graph).map_err(failure)?;
    let model = Model::new(loaded.model.graph, &loaded.name, loaded.format, loaded.model.operators);
    let mut estimate = model.estimate_on(&binding, &plan, card.as_ref()).map_err(failure)?;
    estimate.warnings.extend(loaded.model.warnings.iter().map(ToString::to_string));
    estimate.warnings.extend(plan_warnings);
    estimate.warnings.extend(args.gpu.warnings());
    let fits = estimate.fit.as_ref().is_none_or(|fit| fit.verdict != Verdict::DoesNotFit);
    output::print(&match args.format.format {
        Format::Json => json::estimate(&estimate),
        Format::Text => {
            let options = text::Options {
                width: output::width(),
                depth: args.depth,
                top: args.top,
                ..Default::default()
            };
            text::estimate(&estimate, &options)
        }
    })?;
    Ok(Finding::fine_if(fits))
}
