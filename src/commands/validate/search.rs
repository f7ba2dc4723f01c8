//! The largest batch that runs, by bisection: each try is a process of its own. What was tried is kept in the file of `--record`,
//! so that a search that was ended goes on.

use super::child::{self, Ran};
use super::{INTERRUPTED, asked, burn, python, read};
use crate::args::{Format, Runner, ValidateArgs};
use crate::failure::Failure;
use crate::{Finding, output};
use memfit_validate::key::{Given, Key};
use memfit_validate::record::{ModelId, Record, SCHEMA_VERSION};
use memfit_validate::search::{Found, Outcome, search};
use serde::{Deserialize, Serialize};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The most that a search tries.
pub(super) const LARGEST_BATCH: u64 = 1 << 20;

/// A search as its file has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Search {
    schema_version: u32,
    tool: String,
    runner: String,
    framework: String,
    backend: String,
    device: String,
    model: ModelId,
    /// But for its batch.
    plan: serde_json::Value,
    #[serde(flatten)]
    given: Given,
    /// Of each try.
    #[serde(default)]
    steps: u32,
    limit_bytes: Option<u64>,
    /// The largest that ran; 0 where none did.
    largest_batch: u64,
    /// Whether the next larger one was seen to fail.
    bounded: bool,
    /// The largest that was predicted to run, where the device's memory is known.
    predicted_batch: Option<u64>,
    tried: Vec<Try>,
}

/// One try.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Try {
    batch_size: u64,
    ran: bool,
    /// Where it failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    layer: String,
    peak_bytes: Option<u64>,
}

impl Try {
    fn outcome(&self) -> Outcome {
        if self.ran { Outcome::Ran } else { Outcome::OutOfMemory }
    }
}

impl Search {
    /// What decides how a try goes, but for its batch.
    fn key(&self) -> (Key<'_>, u32) {
        let key = Key {
            tool: &self.tool,
            runner: &self.runner,
            framework: &self.framework,
            backend: &self.backend,
            device: &self.device,
            structure: &self.model.structure,
            plan: &self.plan,
            given: &self.given,
            limit_bytes: self.limit_bytes,
        };
        (key, self.steps)
    }
}

/// Searches and writes what was found.
pub(super) fn run(args: &ValidateArgs) -> Result<Finding, Failure> {
    let mut state = begin(args)?;
    if let Some(text) = args.record.as_deref().map(read).transpose()?.flatten()
        && let Ok(mut before) = serde_json::from_str::<Search>(&text)
    {
        super::complete(&mut before.plan);
        if before.key() == state.key() {
            state.tried = before.tried;
        }
    }
    state.predicted_batch = match args.runner {
        Runner::Burn => burn::largest(args)?,
        Runner::Torch | Runner::Keras => python::largest(args)?,
    };
    let known: Vec<(u64, Outcome)> = state.tried.iter().map(|t| (t.batch_size, t.outcome())).collect();
    let begin = Instant::now();
    let limit = Duration::from_secs(args.search_seconds);
    let go_on = || !INTERRUPTED.load(Ordering::Relaxed) && begin.elapsed() < limit;
    // Close to what is predicted the search is shortest.
    let start = state.predicted_batch.unwrap_or(1).max(1);
    let words = words();
    let attempt = |batch: u64| {
        let left = limit.saturating_sub(begin.elapsed()).as_secs();
        output::progress(&format!("batch {batch}, at most {left} s left"));
        let Some(tried) = attempt(&words, batch, begin + limit)? else { return Ok(None) };
        let outcome = tried.outcome();
        state.tried.push(tried);
        if let Some(path) = &args.record {
            output::save(path, &json(&state))?;
        }
        Ok(Some(outcome))
    };
    let found = search(start, LARGEST_BATCH, &known, go_on, attempt)?;
    output::progress("");
    (state.largest_batch, state.bounded) = (found.largest, found.bounded);
    if let Some(path) = &args.record {
        output::save(path, &json(&state))?;
    }
    output::print(&match args.format.format {
        Format::Json => json(&state),
        Format::Text => text(&state, &found),
    })?;
    Ok(Finding::fine_if(found.largest > 0))
}

fn begin(args: &ValidateArgs) -> Result<Search, Failure> {
    let described = super::describe(args)?;
    let mut record = asked(args)?.record;
    record.notes.iter().for_each(|note| output::warn(note));
    if let Some(plan) = record.plan.as_object_mut() {
        plan.remove("batch_size");
    }
    Ok(Search {
        schema_version: SCHEMA_VERSION,
        tool: record.tool,
        runner: record.runner,
        framework: described.framework,
        backend: described.backend,
        device: described.device,
        model: record.model,
        plan: record.plan,
        given: record.given,
        steps: args.steps,
        limit_bytes: record.limit_bytes,
        ..Search::default()
    })
}

/// What this program was called with, without what makes it a search.
fn words() -> Vec<String> {
    let mut kept = Vec::new();
    let mut skip = false;
    for word in std::env::args().skip(1) {
        let value_follows =
            matches!(&*word, "-b" | "--batch-size" | "--record" | "--format" | "--search-seconds");
        let joined = ["-b", "--batch-size=", "--record=", "--format=", "--search-seconds="];
        let ours = word == "--search" || joined.iter().any(|flag| word.starts_with(flag));
        if !skip && !ours && !value_follows {
            kept.push(word);
        }
        skip = value_follows && !skip;
    }
    kept
}

/// Nothing where it was ended, by the user or the clock, before it showed anything.
fn attempt(words: &[String], batch: u64, end: Instant) -> Result<Option<Try>, Failure> {
    let more = ["--batch-size".to_owned(), batch.to_string(), "--format".into(), "json".into()];
    let failed = |layer: String| Try { batch_size: batch, ran: false, layer, peak_bytes: None };
    let peak = |record: &Record| record.row("peak").map(|row| row.measured_bytes);
    let ran = child::run(&[words, &more[..]].concat(), Some(end))?;
    let is_interrupted = INTERRUPTED.load(Ordering::Relaxed);
    Ok(match ran {
        Ran::Record(record) => match &record.ended {
            None => {
                let (layer, peak_bytes) = (String::new(), peak(&record));
                Some(Try { batch_size: batch, ran: true, layer, peak_bytes })
            }
            Some(ended) if ended.kind == "out-of-memory" => Some(failed(ended.layer.clone())),
            Some(_) if is_interrupted => None,
            Some(ended) => return Err(Failure::new(format!("batch {batch}"), ended.message.clone())),
        },
        // Ctrl-C reaches it too.
        Ran::Crashed(_) | Ran::Refused(_) if is_interrupted => None,
        // Who takes too much is killed.
        Ran::Crashed(_) => Some(failed(String::new())),
        Ran::Refused(message) => return Err(Failure::new(format!("batch {batch}"), message)),
        Ran::Late => None,
    })
}

fn json(state: &Search) -> String {
    serde_json::to_string_pretty(state).unwrap_or_default() + "\n"
}

fn text(state: &Search, found: &Found) -> String {
    let end = if found.bounded { "" } else { " (the search ended before the next larger one was tried)" };
    let on = format!("{} ({})", state.device, state.backend);
    let mut out = format!("largest batch on {on}: {}{end}, {} tries\n", found.largest, found.tried.len());
    if let Some(predicted) = state.predicted_batch {
        out += &format!("predicted: {predicted}\n");
    }
    if let Some(failed) =
        state.tried.iter().filter(|t| !t.ran && !t.layer.is_empty()).min_by_key(|t| t.batch_size)
    {
        out += &format!("batch {} ran out in {}\n", failed.batch_size, failed.layer);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_are_of_the_sizes_and_steps_they_were_made_with() {
        let of = |seq: u64, steps| {
            let given = Given { sizes: [("seq".to_owned(), seq)].into(), ..Given::default() };
            Search { given, steps, ..Search::default() }
        };
        assert_eq!(of(128, 3).key(), Search { largest_batch: 7, ..of(128, 3) }.key());
        assert!(of(128, 3).key() != of(512, 3).key() && of(128, 3).key() != of(128, 1).key());
        let read = serde_json::from_str::<Search>(&json(&of(128, 3))).unwrap();
        assert_eq!(read, of(128, 3));
        // A search of before says neither.
        let mut before = serde_json::to_value(of(128, 3)).unwrap();
        before.as_object_mut().unwrap().retain(|key, _| key != "sizes" && key != "steps");
        let before: Search = serde_json::from_value(before).unwrap();
        assert!(before.key() != of(128, 3).key());
    }
}
