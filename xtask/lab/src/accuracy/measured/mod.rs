//! Estimates beside what others have measured on real GPUs.
//!
//! The figures and the models lie in `../shared`, not in this repository; where they are absent nothing is compared. What is
//! particular to a source's own training loop (its optimizer, batches that a loader has ready) is set here, never in a rule.

mod sources;
mod tables;
mod tensorflow;

use super::compare::{Pair, caught, load};
use anyhow::Result;
use memfit_engine::devices::Card;
use memfit_engine::{Model, Plan, Verdict};
use memfit_graph::{Binding, Bytes};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What was measured of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    /// What nvidia-smi showed at most.
    Device(Bytes),
    /// The largest batch that ran, and the next that was tried and failed.
    Bracket { ran: u64, failed: u64 },
}

/// A measurement.
#[derive(Clone, Debug)]
pub(super) struct Measurement {
    pub(super) source: &'static str,
    pub(super) model: String,
    pub(super) file: PathBuf,
    /// Further words: the card, the precision.
    pub(super) setting: &'static str,
    pub(super) card: &'static str,
    pub(super) batch: u64,
    pub(super) plan: Plan,
    pub(super) value: Value,
    /// Whether the source's loader holds the next batch on the card as well.
    pub(super) prefetches: bool,
    /// The parameters of the model that was measured, in hundredths of a million, where that is stated.
    pub(super) parameters: Option<u64>,
}

/// A measurement beside an estimate.
#[derive(Serialize)]
pub(super) struct Judged {
    pub(super) source: &'static str,
    pub(super) model: String,
    pub(super) setting: &'static str,
    pub(super) batch: u64,
    /// Bytes on the device; for a bracket, whether the two batches ran (measured: 1 and 0).
    pub(super) device: Option<Pair>,
    pub(super) range: (u64, u64),
    /// For a bracket: the largest batch that ran, the next; whether the estimates say so.
    pub(super) bracket: Option<(u64, u64, bool, bool)>,
    /// More than the card has, so that what was measured is another run.
    pub(super) beyond: bool,
    /// The model that was measured has another number of parameters than the file: a definition of another release.
    pub(super) redefined: bool,
    pub(super) allocated: u64,
    /// What the replay's segments come to.
    pub(super) reserved: u64,
}

impl Judged {
    /// Whether what was measured lies in the range.
    pub(super) fn is_inside(&self) -> bool {
        self.device.is_some_and(|d| self.range.0 <= d.reference && d.reference <= self.range.1)
    }
}

/// A job's number, and by model what came of each measurement.
type Done = (usize, Vec<(String, Result<Judged, String>)>);

/// All that was compared.
pub(super) struct Measured {
    pub(super) rows: Vec<Judged>,
    pub(super) failures: Vec<(String, String)>,
    /// The TensorFlow part of the page; nothing where rows are chosen.
    pub(super) tensorflow: String,
}

/// Compares every measurement whose model is there; nothing where the figures are not.
pub(super) fn compare(filter: &[String]) -> Result<Option<Measured>> {
    let shared = crate::root().join("../shared");
    if !shared.join("truth/measured").exists() {
        return Ok(None);
    }
    let mut jobs: Vec<(PathBuf, Vec<Measurement>)> = Vec::new();
    for measurement in sources::all(&shared)? {
        let key = format!("{} {} b{}", measurement.source, measurement.model, measurement.batch);
        if !filter.iter().all(|part| key.contains(part.as_str())) {
            continue;
        }
        match jobs.iter_mut().find(|(file, _)| *file == measurement.file) {
            Some((_, all)) => all.push(measurement),
            None => jobs.push((measurement.file.clone(), vec![measurement])),
        }
    }
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some((at, (file, all))) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            jobs.get(at).map(|job| (at, job))
        } {
            let judged = match load(file) {
                Ok(model) => all.iter().map(|m| (m.model.clone(), judge(&model, m))).collect(),
                Err(why) => vec![(file.display().to_string(), Err(why))],
            };
            done.push((at, judged));
        }
        done
    };
    let mut done: Vec<Done> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..super::cores()).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|w| w.join().unwrap_or_else(|p| std::panic::resume_unwind(p))).collect()
    });
    done.sort_by_key(|(at, _)| *at);
    let tensorflow = match filter {
        [] => tensorflow::section(&shared.join("truth/measured"))?,
        _ => String::new(),
    };
    let mut measured = Measured { rows: Vec::new(), failures: Vec::new(), tensorflow };
    for (model, result) in done.into_iter().flat_map(|(_, judged)| judged) {
        match result {
            Ok(row) => measured.rows.push(row),
            Err(why) => measured.failures.push((model, why)),
        }
    }
    Ok(Some(measured))
}

fn judge(model: &Model, m: &Measurement) -> Result<Judged, String> {
    let card = Card::find(m.card).map_err(|e| e.to_string())?;
    let estimate = |batch: u64| {
        let binding = Binding { batch: Some(batch), ..Binding::default() };
        caught(|| model.estimate_on(&binding, &m.plan, Some(&card)))
    };
    let mut judged = Judged {
        source: m.source,
        model: m.model.clone(),
        setting: m.setting,
        batch: m.batch,
        device: None,
        range: (0, 0),
        bracket: None,
        beyond: false,
        redefined: false,
        allocated: 0,
        reserved: 0,
    };
    if let Some(stated) = m.parameters {
        let summary = estimate(m.batch.min(8))?.model;
        let own = (summary.parameters_trainable + summary.parameters_frozen + 5_000) / 10_000;
        judged.redefined = own.abs_diff(stated) > 1;
    }
    match m.value {
        Value::Device(measured) => {
            let e = estimate(m.batch)?;
            let loader = if m.prefetches { sources::loader(e.breakdown.inputs) } else { Bytes::ZERO };
            let device = e.peak.device + loader;
            judged.device = Some(Pair { reference: measured.0, estimate: device.0 });
            judged.range = ((e.peak.device_low + loader).0, (e.peak.device_high + loader).0);
            judged.beyond = device > card.device.usable();
            judged.allocated = e.peak.allocated.0;
            judged.reserved = e.peak.reserved.0;
        }
        Value::Bracket { ran, failed } => {
            let fits = |batch| {
                Ok::<_, String>(estimate(batch)?.fit.is_some_and(|f| f.verdict != Verdict::DoesNotFit))
            };
            judged.bracket = Some((ran, failed, fits(ran)?, fits(failed)?));
        }
    }
    Ok(judged)
}

pub(super) use tables::{page, print};
