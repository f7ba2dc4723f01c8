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

use crate::args::{CheckArgs, CheckFormat};
use crate::failure::Failure;
use crate::step::Step;
use crate::{Finding, output};
use config::{Config, Growth};
use memfit_engine::Verdict;
use memfit_graph::Bytes;
use std::collections::BTreeMap;
use std::fs;

/// Whether something is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Error,
    Warning,
}

/// One thing that was found.
struct Found {
    level: Level,
    /// `does-not-fit`, `tight`, `over-budget`, `growth`, `no-baseline`.
    rule: &'static str,
    message: String,
}

/// One model, checked.
struct Checked {
    name: String,
    path: String,
    device: Bytes,
    allocated: Bytes,
    baseline: Option<Bytes>,
    found: Vec<Found>,
}

/// Checks every model of the file and writes what was found.
pub(crate) fn check(args: &CheckArgs) -> Result<Finding, Failure> {
    let config = Config::read(&args.config)?;
    let baseline = config.baseline(args.update)?;
    let mut checked = Vec::new();
    let mut next = BTreeMap::new();
    for model in &config.models {
        let asked = model.arguments(&config.folder)?;
        let step = Step::new(&asked.model, &asked.plan, &asked.gpu)?;
        let peak = &step.estimate.peak;
        next.insert(model.name.clone(), peak.device.0);
        let before = baseline.get(&model.name).copied().map(Bytes);
        let mut found = Vec::new();
        let mut tell = |level, rule, message| found.push(Found { level, rule, message });
        if let Some(fit) = &step.estimate.fit {
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
                    format!("tight on {}: the high end of the range does not fit", fit.gpu),
                ),
                Verdict::Fits => {}
            }
        }
        if let Some(budget) = model.budget
            && peak.device > budget
        {
            tell(
                Level::Error,
                "over-budget",
                format!("{} on the device, over the budget of {budget}", peak.device),
            );
        }
        if let (Some(growth), false) = (model.max_growth, args.update) {
            match before {
                None => tell(
                    Level::Warning,
                    "no-baseline",
                    "has no baseline yet: memfit check --update writes it".into(),
                ),
                Some(before) if peak.device > growth.over(before) => {
                    let grown = peak.device - before;
                    tell(
                        Level::Error,
                        "growth",
                        format!("grew by {grown} from {before}, more than {growth} allow"),
                    );
                }
                Some(_) => {}
            }
        }
        checked.push(Checked {
            name: model.name.clone(),
            path: config.folder.join(&model.path).display().to_string(),
            device: peak.device,
            allocated: peak.allocated,
            baseline: before,
            found,
        });
    }
    if args.update {
        config.write_baseline(&next)?;
    }
    let file = args.config.display().to_string();
    output::print(&match args.format {
        CheckFormat::Text => formats::text(&checked),
        CheckFormat::Markdown => formats::markdown(&checked),
        CheckFormat::Json => formats::json(&checked),
        CheckFormat::Sarif => formats::sarif(&checked),
        CheckFormat::Github => formats::github(&checked, &file),
    })?;
    let errors = checked.iter().flat_map(|c| &c.found).any(|f| f.level == Level::Error);
    Ok(Finding::fine_if(!errors))
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

fn read(path: &std::path::Path) -> Result<String, Failure> {
    fs::read_to_string(path)
        .map_err(|error| Failure::new(path.display().to_string(), format!("cannot be read: {error}")))
}
