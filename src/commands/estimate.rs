//! `memfit estimate`: the peak of one training step.

use crate::args::{EstimateArgs, Format};
use crate::failure::Failure;
use crate::step::Step;
use crate::{Finding, output};
use memfit_report::{compare, json, text};

/// Estimates the step and writes it as asked.
pub(crate) fn estimate(args: &EstimateArgs) -> Result<Finding, Failure> {
    let step = Step::asked(args)?;
    let other = step.elsewhere()?;
    let estimate = &step.estimate;
    output::print(&match args.format.format {
        Format::Json => match &other {
            Some(other) => compare::json(estimate, other),
            None => json::estimate(estimate),
        },
        Format::Text => {
            let options = text::Options {
                width: output::width(),
                depth: args.depth,
                top: args.top,
                ..Default::default()
            };
            let comparison = other.as_ref().map(|other| compare::text(estimate, other, options.width));
            text::estimate(estimate, &options) + &comparison.unwrap_or_default()
        }
    })?;
    Ok(Finding::fine_if(step.fits()))
}
