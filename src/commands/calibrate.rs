//! `memfit calibrate`: a host's records as a device profile.

use crate::args::{CalibrateArgs, file};
use crate::failure::Failure;
use crate::{output, text};
use memfit_validate::calibrate::calibrate as profile;
use memfit_validate::record;
use serde::de::IgnoredAny;

/// Reads the records and writes what they have in common.
pub(crate) fn calibrate(args: &CalibrateArgs) -> Result<(), Failure> {
    let mut records = Vec::new();
    for path in &args.records {
        let about = path.display().to_string();
        let text = text::of(path)?;
        let wrong = |message: String| {
            Failure::new(&about, message).hint("memfit validate --record FILE writes records")
        };
        let read = record::read(&text).map_err(wrong)?;
        if let (true, Err(error)) = (read.is_empty(), serde_json::from_str::<IgnoredAny>(&text)) {
            // All there is was cut short, unless there is nothing.
            if !text.trim().is_empty() {
                return Err(wrong(format!("is not JSON: {error}")));
            }
        }
        records.extend(read);
    }
    let profile = profile(&records).map_err(|message| Failure::new("calibrate", message))?;
    let text = serde_json::to_string_pretty(&profile).unwrap_or_default() + "\n";
    match file(args.output.as_ref()) {
        Some(path) => output::save(path, &text),
        None => output::print(&text),
    }
}
