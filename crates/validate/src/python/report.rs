//! What a harness prints: progress, what is missing, and at the end all that it measured.

use crate::record::Ended;
use memfit_graph::Bytes;
use serde::Deserialize;
use std::collections::BTreeMap;

/// All that a framework says of its steps.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Report {
    /// Its name and version.
    pub framework: String,
    /// `cpu` or `cuda`.
    pub backend: String,
    /// What the device is called.
    pub device: String,
    /// What stands between framework and device.
    pub driver: Option<String>,
    /// The device's memory.
    pub total_bytes: Option<u64>,
    /// Whether tensors were counted at the dispatcher, for want of a device that keeps count.
    pub counted: bool,
    /// Steps that were completed.
    pub steps: u32,
    /// The losses.
    pub losses: Vec<Option<f64>>,
    /// Elements of all parameters.
    pub parameters: u64,
    /// By what they are of: categories, phases, `reserved`, `device`.
    pub bytes: BTreeMap<String, u64>,
    /// Bytes kept for backward, by the layer that is the first to keep them.
    pub saved: BTreeMap<String, u64>,
    /// What the driver showed of the whole card at certain moments.
    pub context: BTreeMap<String, Option<Moment>>,
    /// Bytes of tensors after each step.
    pub after_step_bytes: Vec<u64>,
    /// Why there are not more steps.
    pub ended: Option<Ended>,
}

/// The card at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Moment {
    /// What all processes hold.
    pub used_bytes: u64,
    /// What the framework's allocator holds.
    pub reserved_bytes: u64,
}

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    /// So many steps are done; the highest so far.
    Progress(u32, Bytes),
    /// A package or a device that is not there, and what was said of it.
    Missing(String, String),
    /// The end.
    Report(Box<Report>),
    /// Something else, which frameworks print too.
    Other,
}

#[derive(Deserialize)]
struct Line {
    progress: Option<Progress>,
    missing: Option<String>,
    message: Option<String>,
    report: Option<Report>,
}

#[derive(Deserialize)]
struct Progress {
    step: u32,
    peak_bytes: u64,
}

/// Reads one line of what a harness prints.
pub fn read(line: &str) -> Said {
    match serde_json::from_str(line) {
        Ok(Line { report: Some(report), .. }) => Said::Report(Box::new(report)),
        Ok(Line { missing: Some(what), message, .. }) => Said::Missing(what, message.unwrap_or_default()),
        Ok(Line { progress: Some(p), .. }) => Said::Progress(p.step, Bytes(p.peak_bytes)),
        _ => Said::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_told_apart() {
        assert_eq!(read(r#"{"progress": {"step": 2, "peak_bytes": 7}}"#), Said::Progress(2, Bytes(7)));
        let missing = read(r#"{"missing": "torch", "message": "No module named 'torch'"}"#);
        assert_eq!(missing, Said::Missing("torch".into(), "No module named 'torch'".into()));
        assert_eq!(read("2026-01-01 I tensorflow/core"), Said::Other);
        let text = r#"{"report": {"framework": "torch 2", "backend": "cpu", "device": "x", "driver": null, "total_bytes": null,
            "counted": true, "steps": 1, "losses": [null, 1.5], "parameters": 3, "bytes": {"before": 5}, "saved": {},
            "context": {"model": null}, "after_step_bytes": [5], "ended": null}}"#;
        let Said::Report(report) = read(text) else { panic!("no report") };
        assert_eq!((report.losses[0], report.losses[1], report.bytes["before"]), (None, Some(1.5), 5));
    }
}
