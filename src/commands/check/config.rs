//! `memfit.toml` and the baseline beside it.

use crate::args::{self, EstimateArgs};
use crate::failure::Failure;
use crate::table::flag;
use crate::{output, text};
use memfit_graph::{Bytes, Problem};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// The version of the file that is understood.
const VERSION: u32 = 1;

/// The whole file.
pub(super) struct Config {
    /// The folder it stands in; paths are relative to it.
    pub(super) folder: PathBuf,
    pub(super) models: Vec<Model>,
    /// What `memfit estimate` would be called with, for each of them.
    pub(super) asked: Vec<EstimateArgs>,
    baseline: Option<PathBuf>,
}

/// One model with what it may take.
pub(super) struct Model {
    pub(super) name: String,
    pub(super) path: String,
    pub(super) budget: Option<Bytes>,
    pub(super) max_growth: Option<Growth>,
    flags: Vec<String>,
}

/// How much more than the baseline is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Growth {
    /// Of the baseline.
    Thousandths(u64),
    Size(Bytes),
}

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Growth::Thousandths(n) => write!(f, "{}.{} %", n / 10, n % 10),
            Growth::Size(bytes) => write!(f, "{bytes}"),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u32,
    baseline: Option<String>,
    #[serde(default)]
    model: Vec<toml::Table>,
}

impl Config {
    /// Reads the file; everything wrong with it is told at once.
    pub(super) fn read(path: &Path) -> Result<Config, Failure> {
        let about = path.display().to_string();
        let text = text::of(path)?;
        let file: File = toml::from_str(&text).map_err(|error| {
            let wrong = Failure::new(&about, told(&text, &error));
            wrong.hint("version = 1, then [[model]] with path = \"…\"")
        })?;
        if file.version != VERSION {
            return Err(Failure::new(
                &about,
                format!("expected version = {VERSION}, found {}", file.version),
            ));
        }
        if file.model.is_empty() {
            return Err(Failure::new(&about, "no [[model]] is listed"));
        }
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        let (mut models, mut asked, mut problems) = (Vec::<Model>::new(), Vec::new(), Vec::new());
        for table in file.model {
            let model = match Model::new(table) {
                Ok(model) => model,
                Err(wrong) => {
                    problems.extend(wrong);
                    continue;
                }
            };
            match model.arguments(&folder) {
                Ok(arguments) => asked.push(arguments),
                Err(problem) => problems.push(problem),
            }
            if models.iter().any(|other| other.name == model.name) {
                let twice = "is listed twice, and what a model took before is kept by its name";
                problems.push(Problem::new(&*model.name, twice).hint("give each one a name = \"…\""));
            }
            models.push(model);
        }
        if !problems.is_empty() {
            return Err(Failure::of_file(&about, problems));
        }
        Ok(Config { baseline: file.baseline.map(|b| folder.join(b)), folder, models, asked })
    }

    /// Device bytes by model; empty where there is no file yet, or one that is damaged is about to be written anew.
    pub(super) fn baseline(&self, update: bool) -> Result<BTreeMap<String, u64>, Failure> {
        let Some(path) = &self.baseline else {
            let wanted = update.then(|| {
                Failure::new("--update", "the file names no baseline")
                    .hint("baseline = \"memfit.baseline.json\"")
            });
            return wanted.map_or_else(|| Ok(BTreeMap::new()), Err);
        };
        if !path.exists() {
            return Ok(BTreeMap::new());
        }
        let read = text::of(path).and_then(|text| {
            serde_json::from_str(&text).map_err(|error| {
                Failure::new(path.display().to_string(), format!("is no baseline: {error}"))
                    .hint("memfit check --update writes it anew")
            })
        });
        if update { Ok(read.unwrap_or_default()) } else { read }
    }

    pub(super) fn write_baseline(&self, device: &BTreeMap<String, u64>) -> Result<(), Failure> {
        let Some(path) = &self.baseline else { return Ok(()) };
        let text = format!("{}\n", serde_json::to_string_pretty(device).unwrap_or_default());
        // Whoever is interrupted here has what was there before.
        output::save(path, &text)
    }
}

/// What is wrong with the text, with the line that it stands in, unless that is none for people to read.
fn told(text: &str, error: &toml::de::Error) -> String {
    const LONG: usize = 400;
    let whole = error.to_string();
    if whole.lines().all(|line| line.len() <= LONG) {
        return whole;
    }
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    format!("line {}: {}", before.lines().count().max(1), error.message())
}

impl Model {
    fn new(mut table: toml::Table) -> Result<Model, Vec<Problem>> {
        let Some(toml::Value::String(path)) = table.remove("path") else {
            return Err(vec![Problem::new("", "every [[model]] needs a path = \"…\"")]);
        };
        let mut text = |key: &str| match table.remove(key) {
            None => Ok(None),
            Some(toml::Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(format!("{key} should be text in quotes, found {}", other.type_str())),
        };
        let name = text("name");
        let budget = text("budget").and_then(|given| given.map(|given| args::memory(&given)).transpose());
        let growth = text("max_growth").and_then(|given| given.map(|given| Growth::read(&given)).transpose());
        let mut flags = Vec::new();
        let rest = table.iter().filter_map(|(key, value)| flag(&mut flags, key, value).err());
        let mut wrong: Vec<Problem> = rest.map(|message| Problem::new(&*path, message)).collect();
        match (name, budget, growth) {
            (Ok(name), Ok(budget), Ok(max_growth)) if wrong.is_empty() => {
                Ok(Model { name: name.unwrap_or_else(|| path.clone()), path, budget, max_growth, flags })
            }
            (name, budget, growth) => {
                let messages = [name.err(), budget.err(), growth.err()].into_iter().flatten();
                wrong.splice(0..0, messages.map(|message| Problem::new(&*path, message)));
                Err(wrong)
            }
        }
    }

    /// What `memfit estimate` would be called with.
    fn arguments(&self, folder: &Path) -> Result<EstimateArgs, Problem> {
        let file = folder.join(&self.path).display().to_string();
        let line = ["estimate".to_owned(), file].into_iter().chain(self.flags.iter().cloned());
        let mut asked = args::estimate(line).map_err(|error| {
            let message = error.to_string();
            let first = message.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
            Problem::new(&*self.name, first).hint("keys are the flags of memfit estimate, with _ for -")
        })?;
        asked.read_from(folder);
        Ok(asked)
    }
}

impl Growth {
    /// `1.5%` or `100MiB`.
    fn read(given: &str) -> Result<Growth, String> {
        match given.trim().strip_suffix('%') {
            Some(percent) => thousandths(percent.trim())
                .map(Growth::Thousandths)
                .ok_or_else(|| format!("max_growth is like \"1.5%\" or \"100MiB\", found {given}")),
            None => args::memory(given).map(Growth::Size),
        }
    }
}

/// `1.5` as 15.
fn thousandths(percent: &str) -> Option<u64> {
    let (whole, part) = percent.split_once('.').unwrap_or((percent, "0"));
    let part = match part.len() {
        1 => part.parse::<u64>().ok()?,
        _ => return None,
    };
    whole.parse::<u64>().ok()?.checked_mul(10)?.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_too_long_to_show_is_counted() {
        let wrong = |text: &str| told(text, &toml::from_str::<File>(text).err().unwrap());
        assert!(wrong("version = 1\nversion").contains("2 | version"));
        let long = wrong(&format!("version = 1\n{}", "A".repeat(1 << 20)));
        assert!(long.starts_with("line 2: ") && long.len() < 100, "{long}");
    }

    #[test]
    fn keys_are_flags() {
        let table: toml::Table = toml::from_str(
            "path = \"a.onnx\"\nbatch_size = 8\nweight_decay = true\nset = [\"seq=4\", \"x=2\"]\nbudget = \"1GiB\"\nmax_growth = \"1.5%\"",
        )
        .unwrap();
        let model = Model::new(table).unwrap();
        assert_eq!(model.flags, ["--batch-size", "8", "--set", "seq=4", "--set", "x=2", "--weight-decay"]);
        assert_eq!(model.budget, Some(Bytes::mib(1024)));
        assert_eq!(model.max_growth, Some(Growth::Thousandths(15)));
        assert_eq!(Growth::Thousandths(15).over(Bytes(1000)), Bytes(1015));
    }
}
