//! `memfit calibrate`: a host's records as a device profile.

use crate::args::CalibrateArgs;
use crate::failure::Failure;
use crate::output;
use memfit_validate::calibrate::calibrate as profile;
use memfit_validate::record;

/// Reads the records and writes what they have in common.
pub(crate) fn calibrate(args: &CalibrateArgs) -> Result<(), Failure> {
    let mut records = Vec::new();
    for path in &args.records {
        let about = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|e| Failure::new(&about, format!("cannot be read: {e}")))?;
        let read = record::read(&text).map_err(|message| {
            Failure::new(&about, message).hint("memfit validate --record FILE writes records")
        })?;
        records.extend(read);
    }
    let profile = profile(&records).map_err(|message| Failure::new("calibrate", message))?;
    let text = serde_json::to_string_pretty(&profile).unwrap_or_default() + "\n";
    match &args.output {
        Some(path) => std::fs::write(path, text)
            .map_err(|e| Failure::new(path.display().to_string(), format!("cannot be written: {e}"))),
        None => output::print(&text),
    }
}
