//! `memfit check`: budgets of models, kept in a file beside them.
//!
//! ```toml
//! version = 1
//! baseline = "memfit.baseline.json"   # written by --update
//!
//! [[model]]
//! path = "models/detector.onnx"
//! batch_size = 32                     # any flag of `memfit estimate`, with _ for -
//! precision = "mixed-bf16"
//! gpu = "rtx-4090"                    # must fit
//! budget = "20GiB"                    # on the device
//! max_growth = "1%"                   # over the baseline; a size works too
//! ```
//!
//! Estimates are deterministic, so a growth of 0 is a gate that works.

mod config;
mod formats;

use crate::args::{CheckArgs, CheckFormat, EstimateArgs};
use crate::failure::Failure;
use crate::step::Step;
use crate::{Finding, output};
use config::{Config, Growth, Model};
use memfit_engine::{Estimate, Peak, Verdict};
use memfit_graph::Bytes;
use memfit_report::tight;

/// Whether something is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Error,
    Warning,
}

/// One thing that was found.
struct Found {
    level: Level,
    /// `not-estimated`, `does-not-fit`, `tight`, `over-budget`, `growth`, `no-baseline`.
    rule: &'static str,
    message: String,
}

/// One model, checked.
struct Checked {
    name: String,
    path: String,
    /// None where it could not be estimated.
    took: Option<Took>,
    baseline: Option<Bytes>,
    found: Vec<Found>,
}

/// What a step takes, or the largest part of the process around it.
struct Took {
    device: Bytes,
    allocated: Bytes,
}

impl Took {
    /// A part that holds more than the step does is told by its tensors: the rest of the device is the step's.
    fn of(estimate: &Estimate) -> Took {
        let Peak { device, allocated, .. } = estimate.peak;
        let largest = estimate.scenario.as_ref().and_then(|process| process.largest());
        let more = largest.map_or(Bytes::ZERO, |part| part.allocated.saturating_sub(allocated));
        Took { device: device + more, allocated: allocated + more }
    }
}

/// Checks every model of the file and writes what was found. A model that cannot be estimated does not keep the others from it.
pub(crate) fn check(args: &CheckArgs) -> Result<Finding, Failure> {
    let config = Config::read(&args.config)?;
    let baseline = config.baseline(args.update)?;
    let one = |(model, asked): (&Model, &EstimateArgs)| {
        let before = baseline.get(&model.name).copied().map(Bytes);
        let (took, found) = match Step::asked(asked) {
            Ok(Step { estimate, .. }) => {
                let took = Took::of(&estimate);
                let found = judge(model, &estimate, took.device, before, args.update);
                (Some(took), found)
            }
            Err(failure) => {
                let (level, rule, message) = (Level::Error, "not-estimated", failure.to_string());
                (None, vec![Found { level, rule, message }])
            }
        };
        let path = config.folder.join(&model.path).display().to_string();
        Checked { name: model.name.clone(), path, took, baseline: before, found }
    };
    let checked: Vec<Checked> = config.models.iter().zip(&config.asked).map(one).collect();
    let file = args.config.display().to_string();
    output::print(&match args.format {
        CheckFormat::Text => formats::text(&checked),
        CheckFormat::Markdown => formats::markdown(&checked),
        CheckFormat::Json => formats::json(&checked),
        CheckFormat::Sarif => formats::sarif(&checked),
        CheckFormat::Github => formats::github(&checked, &file),
    })?;
    let missing = checked.iter().filter(|c| c.took.is_none()).count();
    if missing > 0 {
        let unwritten = if args.update { "; the baseline was not written" } else { "" };
        let of = checked.len();
        return Err(Failure::new(
            file,
            format!("{missing} of {of} models could not be estimated{unwritten}"),
        ));
    }
    if args.update {
        let device = |c: &Checked| Some((c.name.clone(), c.took.as_ref()?.device.0));
        config.write_baseline(&checked.iter().filter_map(device).collect())?;
    }
    let errors = checked.iter().flat_map(|c| &c.found).any(|f| f.level == Level::Error);
    Ok(Finding::fine_if(!errors))
}

/// What is wrong with a model's estimate, in the order of [`Found::rule`].
fn judge(
    model: &Model,
    estimate: &Estimate,
    device: Bytes,
    before: Option<Bytes>,
    update: bool,
) -> Vec<Found> {
    let mut found = Vec::new();
    let mut tell = |level, rule, message| found.push(Found { level, rule, message });
    if let Some(fit) = &estimate.fit {
        let missing = Bytes(fit.headroom().unsigned_abs());
        match fit.verdict {
            Verdict::DoesNotFit => tell(
                Level::Error,
                "does-not-fit",
                format!("does not fit on {}: {missing} are missing", fit.gpu),
            ),
            Verdict::Tight => tell(
                Level::Warning,
                "tight",
                format!("tight on {}: {}", fit.gpu, tight(estimate.timeline.is_partial)),
            ),
            Verdict::Fits => {}
        }
    }
    if let Some(budget) = model.budget
        && device > budget
    {
        tell(Level::Error, "over-budget", format!("{device} on the device, over the budget of {budget}"));
    }
    if let (Some(growth), false) = (model.max_growth, update) {
        match before {
            None => tell(
                Level::Warning,
                "no-baseline",
                "has no baseline yet: memfit check --update writes it".into(),
            ),
            Some(before) if device > growth.over(before) => {
                let grown = device - before;
                tell(
                    Level::Error,
                    "growth",
                    format!("grew by {grown} from {before}, more than {growth} allow"),
                );
            }
            Some(_) => {}
        }
    }
    found
}

impl Growth {
    /// What may be reached from `before`.
    fn over(self, before: Bytes) -> Bytes {
        match self {
            Growth::Thousandths(n) => {
                let more = u128::from(before.0) * u128::from(n) / 1000;
                before + Bytes(u64::try_from(more).unwrap_or(u64::MAX))
            }
            Growth::Size(bytes) => before + bytes,
        }
    }
}
