//! `memfit.toml` and the baseline beside it.

use crate::args::{self, EstimateArgs};
use crate::failure::Failure;
use crate::table::flag;
use memfit_graph::Bytes;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// The version of the file that is understood.
const VERSION: u32 = 1;

/// The whole file.
pub(super) struct Config {
    /// The folder it stands in; paths are relative to it.
    pub(super) folder: PathBuf,
    pub(super) models: Vec<Model>,
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
        let file: File = toml::from_str(&super::read(path)?).map_err(|error| {
            Failure::new(&about, error.to_string()).hint("version = 1, then [[model]] with path = \"…\"")
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
        let models =
            file.model.into_iter().map(|table| Model::new(table, &about)).collect::<Result<Vec<_>, _>>()?;
        Ok(Config { baseline: file.baseline.map(|b| folder.join(b)), folder, models })
    }

    /// Device bytes by model; empty where there is no file yet.
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
        serde_json::from_str(&super::read(path)?).map_err(|error| {
            Failure::new(path.display().to_string(), format!("is no baseline: {error}"))
                .hint("memfit check --update writes it anew")
        })
    }

    pub(super) fn write_baseline(&self, device: &BTreeMap<String, u64>) -> Result<(), Failure> {
        let Some(path) = &self.baseline else { return Ok(()) };
        let text = format!("{}\n", serde_json::to_string_pretty(device).unwrap_or_default());
        fs::write(path, text).map_err(|error| Failure::unwritten(path, &error))
    }
}

impl Model {
    fn new(mut table: toml::Table, about: &str) -> Result<Model, Failure> {
        let failure = |message: String| Failure::new(about, message);
        let Some(toml::Value::String(path)) = table.remove("path") else {
            return Err(failure("every [[model]] needs a path = \"…\"".into()));
        };
        let text = |value: toml::Value, key: &str| match value {
            toml::Value::String(text) => Ok(text),
            other => Err(failure(format!("{path}: {key} should be text, found {other:?}"))),
        };
        let name = table.remove("name").map_or_else(|| Ok(path.clone()), |value| text(value, "name"))?;
        let size = |given: &str| args::memory(given).map_err(|error| failure(format!("{path}: {error}")));
        let budget = table.remove("budget").map(|v| size(&text(v, "budget")?)).transpose()?;
        let max_growth = table
            .remove("max_growth")
            .map(|v| {
                let given = text(v, "max_growth")?;
                match given.trim().strip_suffix('%') {
                    Some(percent) => thousandths(percent.trim()).map(Growth::Thousandths).ok_or_else(|| {
                        failure(format!("{path}: max_growth is like \"1.5%\" or \"100MiB\", found {given}"))
                    }),
                    None => size(&given).map(Growth::Size),
                }
            })
            .transpose()?;
        let mut flags = Vec::new();
        for (key, value) in table {
            flag(&mut flags, &key, &value).map_err(|message| failure(format!("{path}: {message}")))?;
        }
        Ok(Model { name, path, budget, max_growth, flags })
    }

    /// What `memfit estimate` would be called with.
    pub(super) fn arguments(&self, folder: &Path) -> Result<EstimateArgs, Failure> {
        let file = folder.join(&self.path).display().to_string();
        let line = ["estimate".to_owned(), file].into_iter().chain(self.flags.iter().cloned());
        args::estimate(line).map_err(|error| {
            let message = error.to_string();
            let first = message.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
            Failure::new(&self.name, first).hint("keys are the flags of memfit estimate, with _ for -")
        })
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
    fn keys_are_flags() {
        let table: toml::Table = toml::from_str(
            "path = \"a.onnx\"\nbatch_size = 8\nweight_decay = true\nset = [\"seq=4\", \"x=2\"]\nbudget = \"1GiB\"\nmax_growth = \"1.5%\"",
        )
        .unwrap();
        let model = Model::new(table, "memfit.toml").unwrap();
        assert_eq!(model.flags, ["--batch-size", "8", "--set", "seq=4", "--set", "x=2", "--weight-decay"]);
        assert_eq!(model.budget, Some(Bytes::mib(1024)));
        assert_eq!(model.max_growth, Some(Growth::Thousandths(15)));
        assert_eq!(Growth::Thousandths(15).over(Bytes(1000)), Bytes(1015));
    }
}
