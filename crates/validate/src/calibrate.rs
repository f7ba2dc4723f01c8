//! A host's records as a device profile: what the context took there, what libraries held beyond the rules, and how far segments lay from
//! a replay's. The schema is `docs/device-profile.schema.json`.

use crate::record::Record;
use memfit_engine::devices::{Profile, Slack};
use memfit_engine::{Framework, Word};
use memfit_graph::Bytes;
use serde::{Deserialize, Serialize};

/// The version of the schema.
pub const SCHEMA_VERSION: u32 = 1;

/// What `--device-profile` reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceProfile {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The card as its driver calls it.
    pub device: String,
    /// Its memory as the framework sees it.
    pub device_total_bytes: Option<u64>,
    /// `pytorch`, `tensorflow` or `burn`.
    pub framework: String,
    /// Name and version of what ran.
    pub framework_version: String,
    /// The driver, where a record names it.
    pub driver: Option<String>,
    /// How many records it stands on: of few an estimate takes what is expected, and its usual range around that
    /// ([`memfit_engine::devices::ENOUGH`]).
    pub records: u64,
    /// What the driver showed beyond the allocator's segments.
    pub context: Span,
    /// What the allocator held at the peak beyond what is predicted, whatever the model.
    pub workspace: Span,
    /// In thousandths, how far segments lay below and above a replay's.
    pub slack: Thousandths,
}

/// The least, the median and the most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Span {
    pub low_bytes: u64,
    pub expected_bytes: u64,
    pub high_bytes: u64,
}

/// See [`Slack`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Thousandths {
    pub less_thousandths: u64,
    pub more_thousandths: u64,
}

impl Span {
    fn of(mut all: Vec<u64>) -> Option<Span> {
        all.sort_unstable();
        let (low, high) = (*all.first()?, *all.last()?);
        Some(Span { low_bytes: low, expected_bytes: all[all.len() / 2], high_bytes: high })
    }

    fn bytes(self) -> [Bytes; 3] {
        [self.low_bytes, self.expected_bytes, self.high_bytes].map(Bytes)
    }
}

/// Makes a profile of the records of one card under one framework.
///
/// # Errors
/// Where there are none that say what the driver showed, or they are of several cards, frameworks or versions.
pub fn calibrate(records: &[Record]) -> Result<DeviceProfile, String> {
    let useful: Vec<&Record> = records
        .iter()
        .filter(|r| r.ended.is_none() && r.row("device").is_some() && r.row("reserved").is_some())
        .collect();
    let Some(first) = useful.first() else {
        return Err("no record says what the driver showed: run memfit validate --runner torch or --backend cuda on a host \
                    with a card"
            .into());
    };
    let of = |r: &Record| (r.device.clone(), r.framework.clone(), framework(r).to_owned());
    if let Some(other) = useful.iter().find(|r| of(r) != of(first)) {
        return Err(format!(
            "expected records of one card and one framework, found {} on {} beside {} on {}",
            other.framework, other.device, first.framework, first.device
        ));
    }
    let figure =
        |r: &Record, what: &str| r.row(what).map_or((0, 0), |row| (row.measured_bytes, row.predicted_bytes));
    let all = |f: &dyn Fn(&Record) -> u64| useful.iter().map(|r| f(r)).collect::<Vec<u64>>();
    let context = Span::of(all(&|r| figure(r, "device").0.saturating_sub(figure(r, "reserved").0)));
    // What every run holds is no matter of a model.
    let beyond = all(&|r| {
        let (measured, predicted) = figure(r, "peak");
        measured.saturating_sub(predicted)
    });
    let least = beyond.iter().min().copied().unwrap_or(0);
    let workspace = Span { low_bytes: least, expected_bytes: least, high_bytes: least };
    let mut slack = Thousandths::default();
    for record in &useful {
        let (measured, predicted) = figure(record, "reserved");
        let measured = measured.saturating_sub(least);
        if predicted > 0 {
            let off = measured.abs_diff(predicted).saturating_mul(1000).div_ceil(predicted);
            let side =
                if measured < predicted { &mut slack.less_thousandths } else { &mut slack.more_thousandths };
            *side = (*side).max(off);
        }
    }
    Ok(DeviceProfile {
        schema_version: SCHEMA_VERSION,
        device: first.device.clone(),
        device_total_bytes: first.device_total_bytes,
        framework: framework(first).into(),
        framework_version: first.framework.clone(),
        driver: first.driver.clone(),
        records: useful.len() as u64,
        context: context.unwrap_or_default(),
        workspace,
        slack,
    })
}

fn framework(record: &Record) -> &'static str {
    match &*record.runner {
        "torch" => "pytorch",
        "keras" => "tensorflow",
        _ => "burn",
    }
}

impl DeviceProfile {
    /// Reads one.
    ///
    /// # Errors
    /// Where the text is no such profile.
    pub fn read(text: &str) -> Result<DeviceProfile, String> {
        let profile: DeviceProfile = serde_json::from_str(text).map_err(|e| e.to_string())?;
        if profile.schema_version != SCHEMA_VERSION {
            return Err(format!(
                "expected schema_version {SCHEMA_VERSION}, found {}",
                profile.schema_version
            ));
        }
        let ordered = |s: Span| s.low_bytes <= s.expected_bytes && s.expected_bytes <= s.high_bytes;
        if !ordered(profile.context) || !ordered(profile.workspace) {
            return Err("expected low_bytes, expected_bytes and high_bytes in ascending order".into());
        }
        profile.engine().map(|_| profile)
    }

    /// As the engine takes it.
    ///
    /// # Errors
    /// Where the framework is not known.
    pub fn engine(&self) -> Result<Profile, String> {
        let framework = Framework::named(&self.framework)
            .ok_or_else(|| format!("expected pytorch, tensorflow or burn, found `{}`", self.framework))?;
        let slack = Slack { less: self.slack.less_thousandths.min(1000), more: self.slack.more_thousandths };
        let (context, workspace) = (self.context.bytes(), self.workspace.bytes());
        Ok(Profile { framework, context, workspace, slack, records: self.records })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Row;

    fn record(device: u64, reserved: [u64; 2], peak: [u64; 2]) -> Record {
        let row = |what: &str, [measured, predicted]: [u64; 2]| {
            Row::new(what, Bytes::mib(measured), Bytes::mib(predicted))
        };
        Record {
            runner: "torch".into(),
            framework: "torch 2".into(),
            device: "a card".into(),
            rows: vec![row("peak", peak), row("reserved", reserved), row("device", [device, 0])],
            ..Record::default()
        }
    }

    #[test]
    fn a_profile_is_what_records_have_in_common() {
        let records = [
            record(1500, [1010, 1000], [908, 900]),
            record(2510, [2020, 2000], [1820, 1800]),
            record(930, [440, 480], [410, 400]),
        ];
        let p = calibrate(&records).unwrap();
        assert_eq!(
            p.context,
            Span { low_bytes: 490 << 20, expected_bytes: 490 << 20, high_bytes: 490 << 20 }
        );
        assert_eq!(p.workspace.expected_bytes, 8 << 20);
        assert_eq!((p.slack.less_thousandths, p.slack.more_thousandths), (100, 6));
        assert_eq!((p.records, &*p.framework), (3, "pytorch"));
        let text = serde_json::to_string(&p).unwrap();
        assert_eq!(DeviceProfile::read(&text).unwrap(), p);
    }

    /// One record that was predicted well says nothing of how far the next may lie.
    #[test]
    fn a_single_record_leaves_the_usual_range() {
        use memfit_engine::Plan;
        use memfit_engine::devices::Card;
        let profile = |n: usize| calibrate(&vec![record(1490, [1000, 1000], [900, 900]); n]).unwrap();
        assert_eq!(profile(1).slack, Thousandths::default());
        let mut card = Card::find("a100-40gb").unwrap();
        let usual = card.slack(&Plan::default());
        assert!(usual.more > 0);
        card.profile = Some(profile(1).engine().unwrap());
        assert_eq!(card.slack(&Plan::default()), usual);
        assert!(
            card.context(&Plan::default())
                .iter()
                .all(|item| item.low < item.expected && item.expected < item.high)
        );
        card.profile = Some(profile(50).engine().unwrap());
        assert_eq!(card.slack(&Plan::default()), Slack { less: 0, more: 0 });
    }

    #[test]
    fn what_does_not_go_together_is_told() {
        assert!(calibrate(&[Record::default()]).unwrap_err().contains("no record says"));
        let other = Record { device: "another".into(), ..record(2, [1, 1], [1, 1]) };
        let error = calibrate(&[record(2, [1, 1], [1, 1]), other]).unwrap_err();
        assert!(error.contains("another") && error.contains("a card"), "{error}");
        let wrong = r#"{"schema_version": 1, "device": "", "device_total_bytes": null, "framework": "jax", "framework_version": "",
            "driver": null, "records": 1, "context": {"low_bytes": 1, "expected_bytes": 2, "high_bytes": 3},
            "workspace": {"low_bytes": 0, "expected_bytes": 0, "high_bytes": 0},
            "slack": {"less_thousandths": 0, "more_thousandths": 0}}"#;
        assert!(DeviceProfile::read(wrong).unwrap_err().contains("jax"));
        let upside_down = wrong.replace("jax", "pytorch").replace("\"high_bytes\": 3", "\"high_bytes\": 0");
        assert!(DeviceProfile::read(&upside_down).unwrap_err().contains("ascending"));
    }
}
