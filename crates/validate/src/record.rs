//! What one run left behind: the model, the plan, the host, everything measured and what was predicted for it then.
//!
//! A record is one JSON document; a suite writes one a line. The schema is `docs/measurement.schema.json`.

use crate::key::{Given, Key};
use crate::measurement::error_percent;
use memfit_graph::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The version of the schema.
pub const SCHEMA_VERSION: u32 = 1;

/// One run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Who wrote it: `memfit 0.1.0`.
    pub tool: String,
    /// Who ran the steps: `burn`, `torch`, `keras`.
    pub runner: String,
    /// The framework and its version.
    pub framework: String,
    /// `cpu`, `wgpu`, `cuda`.
    pub backend: String,
    /// The device as its driver calls it.
    pub device: String,
    /// The driver, where one says its version.
    pub driver: Option<String>,
    /// The device's memory, where it is known.
    pub device_total_bytes: Option<u64>,
    /// The model.
    pub model: ModelId,
    /// The plan, as an estimate's JSON has it.
    pub plan: Value,
    /// What was given of what the model leaves open.
    #[serde(flatten)]
    pub given: Given,
    /// The most that the device was to have: `--limit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
    /// Steps that were completed.
    pub steps: u32,
    /// Bytes of phases and categories.
    pub rows: Vec<Row>,
    /// By layer; the record says in `layers_are` what of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<Layer>,
    /// `highest` while it runs, or `saved` by it for backward.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub layers_are: String,
    /// Bytes of tensors after each step.
    pub after_step_bytes: Vec<u64>,
    /// What each of the last steps left behind, where they did.
    pub leak_bytes: Option<u64>,
    /// The losses; none where one is not finite.
    pub losses: Vec<Option<f64>>,
    /// What cubecl's pools follow from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pools: Option<Pools>,
    /// What the driver showed at certain moments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub driver_view: Vec<Seen>,
    /// Why there are not more steps.
    pub ended: Option<Ended>,
    /// What the reader has to know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Which model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelId {
    /// The file's name without folders.
    pub file: String,
    /// SHA-256 of its structure, as reports state it; weights are not in it.
    pub structure: String,
}

/// A figure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Of what: `peak`, `forward`, `parameters`, `reserved`, `device`, …
    pub what: String,
    /// What the device or the framework said.
    pub measured_bytes: u64,
    /// What was predicted then.
    pub predicted_bytes: u64,
    /// Where a range was predicted, its ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low_bytes: Option<u64>,
    /// The same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high_bytes: Option<u64>,
}

impl Row {
    /// A figure without a range.
    pub fn new(what: &str, measured: Bytes, predicted: Bytes) -> Row {
        Row {
            what: what.into(),
            measured_bytes: measured.0,
            predicted_bytes: predicted.0,
            low_bytes: None,
            high_bytes: None,
        }
    }

    /// Predicted less measured, in per cent of the measured; none where nothing was measured.
    pub fn error_percent(&self) -> Option<f64> {
        error_percent(Bytes(self.measured_bytes), Bytes(self.predicted_bytes))
    }

    /// Whether the measured lies in the predicted range, where there is one.
    pub fn is_inside(&self) -> Option<bool> {
        let (low, high) = self.low_bytes.zip(self.high_bytes)?;
        Some((low..=high).contains(&self.measured_bytes))
    }
}

/// A layer's figure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Layer {
    pub name: String,
    pub measured_bytes: u64,
    pub predicted_bytes: u64,
}

/// cubecl's configuration on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pools {
    /// The largest page.
    pub max_page_bytes: u64,
    /// What slices are multiples of.
    pub alignment_bytes: u64,
}

/// What the driver showed for the process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// `start`, `first kernel`, `model`, `first step`, `highest`.
    pub moment: String,
    /// On the device.
    pub device_bytes: u64,
    /// Of which the framework's allocator held so much.
    pub reserved_bytes: Option<u64>,
}

/// Why steps ended early.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// `out-of-memory`, `failed`, `interrupted` or `crashed`.
    pub kind: String,
    /// The layer, where it was in one.
    pub layer: String,
    /// The function or phase.
    pub function: String,
    /// What was said.
    pub message: String,
}

impl Ended {
    /// Outside of any layer.
    pub fn new(kind: &str, message: impl Into<String>) -> Ended {
        Ended { kind: kind.into(), message: message.into(), ..Ended::default() }
    }

    /// Whether the run would end in the same way again: it is a result.
    pub fn is_final(&self) -> bool {
        self.kind == "out-of-memory"
    }
}

impl Record {
    /// The row of this name.
    pub fn row(&self, what: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.what == what)
    }

    /// What decides how it went.
    pub fn key(&self) -> Key<'_> {
        Key {
            tool: &self.tool,
            runner: &self.runner,
            framework: &self.framework,
            backend: &self.backend,
            device: &self.device,
            structure: &self.model.structure,
            plan: &self.plan,
            given: &self.given,
            limit_bytes: self.limit_bytes,
        }
    }

    /// Whether it says what so many steps of another run would: it is of the same, and it came to an end. The first step is not like
    /// those after it, so fewer steps say less.
    pub fn answers(&self, other: &Record, steps: u32) -> bool {
        let ended = self.ended.as_ref().map_or(self.steps >= steps, Ended::is_final);
        ended && self.key() == other.key()
    }

    /// As one line of JSON.
    pub fn line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }
}

/// Records of a file: one document, or one a line. A last line that is cut short, as a crash leaves it, is left out.
///
/// # Errors
/// Which line is no record, and why.
pub fn read(text: &str) -> Result<Vec<Record>, String> {
    if let Ok(one) = serde_json::from_str(text) {
        return Ok(vec![one]);
    }
    let lines: Vec<(usize, &str)> =
        text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).collect();
    let mut records = Vec::new();
    for (k, (i, line)) in lines.iter().enumerate() {
        match serde_json::from_str(line) {
            Ok(record) => records.push(record),
            Err(error) if error.is_eof() && k + 1 == lines.len() => {}
            Err(error) if error.is_data() => return Err(format!("line {} is no record: {error}", i + 1)),
            Err(error) => return Err(format!("line {} is not JSON: {error}", i + 1)),
        }
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_graph::{Binding, DType, Num, Type};

    fn record() -> Record {
        Record { schema_version: SCHEMA_VERSION, runner: "burn".into(), steps: 3, ..Record::default() }
    }

    #[test]
    fn what_was_written_is_read_back() {
        let two = record().line() + &record().line();
        assert_eq!(read(&two).unwrap(), [record(), record()]);
        assert_eq!(read(&serde_json::to_string_pretty(&record()).unwrap()).unwrap(), [record()]);
    }

    #[test]
    fn a_line_that_a_crash_cut_is_left_out_and_another_is_told() {
        let line = record().line();
        let cut = format!("{line}{}", &line[..line.len() / 2]);
        assert_eq!(read(&cut).unwrap().len(), 1);
        assert!(read(&format!("{{\"x\": 1}}\n{line}")).unwrap_err().starts_with("line 1 is no record"));
        assert!(read(&format!("{line}no\n{line}")).unwrap_err().starts_with("line 2 is not JSON"));
    }

    #[test]
    fn a_crash_is_tried_again_and_a_lack_of_memory_is_not() {
        let ended =
            |kind: &str| Record { ended: Some(Ended { kind: kind.into(), ..Ended::default() }), ..record() };
        let answers = |one: &Record| one.answers(&record(), 3);
        assert!(answers(&record()) && answers(&ended("out-of-memory")));
        assert!(!answers(&ended("crashed")) && !answers(&ended("interrupted")));
        assert!(!record().answers(&record(), 4) && ended("out-of-memory").answers(&record(), 4));
    }

    #[test]
    fn all_that_decides_how_a_run_goes_tells_records_apart() {
        let given = |binding: Binding| Record { given: Given::of(&binding), ..record() };
        let value = |n| memfit_graph::Value { dtype: DType::Int64, shape: vec![1], data: vec![Num::Int(n)] };
        let one = |n| given(Binding { values: [("x".to_owned(), value(n))].into(), ..Binding::default() });
        let others = [
            Record { tool: "memfit 9".into(), ..record() },
            Record { runner: "torch".into(), ..record() },
            Record { framework: "burn 1".into(), ..record() },
            Record { backend: "cuda".into(), ..record() },
            Record { device: "a card".into(), ..record() },
            Record { model: ModelId { structure: "1".into(), ..ModelId::default() }, ..record() },
            Record { plan: serde_json::json!({"batch_size": 1}), ..record() },
            Record { limit_bytes: Some(2 << 30), ..record() },
            given(Binding { symbols: [("seq".to_owned(), 128)].into(), ..Binding::default() }),
            given(Binding { shapes: [("x".to_owned(), vec![8, 3])].into(), ..Binding::default() }),
            given(Binding {
                types: [("x".to_owned(), Type::sequence(Vec::new()))].into(),
                ..Binding::default()
            }),
            one(1),
            one(2),
        ];
        for (i, other) in others.iter().enumerate() {
            assert!(!other.answers(&record(), 1) && other.answers(other, 1), "{other:?}");
            let alike = others.iter().filter(|more| more.answers(other, 1)).count();
            assert_eq!(alike, 1, "{i}: {other:?}");
        }
        let named = Record { model: ModelId { file: "copy.onnx".into(), ..ModelId::default() }, ..record() };
        assert!(named.answers(&record(), 3));
    }
}
