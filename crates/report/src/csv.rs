//! An estimate's layers as comma-separated values, one row a layer, bytes as integers.

use memfit_engine::Estimate;
use memfit_graph::Dims;

const COLUMNS: [&str; 11] = [
    "name",
    "op",
    "output_shapes",
    "parameters",
    "parameter_bytes",
    "gradient_bytes",
    "optimizer_bytes",
    "saved_bytes",
    "workspace_bytes",
    "peak_bytes",
    "peak_activations_bytes",
];

/// A header and one record a layer (RFC 4180, lines end in a line feed).
pub fn estimate(e: &Estimate) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let mut record = |fields: &[String]| {
        // A vector takes whatever is written to it.
        let _ = writer.write_record(fields);
    };
    record(&COLUMNS.map(str::to_owned));
    for row in &e.layers {
        let shape = |dims: &Dims| dims.iter().map(u64::to_string).collect::<Vec<_>>().join("x");
        let shapes: Vec<String> = row.output_shapes.iter().map(shape).collect();
        record(&[
            cell(&row.name),
            cell(&row.op),
            shapes.join(" "),
            row.parameters.to_string(),
            row.parameter_bytes.0.to_string(),
            row.gradient_bytes.0.to_string(),
            row.optimizer_bytes.0.to_string(),
            row.saved_bytes.0.to_string(),
            row.workspace_bytes.0.to_string(),
            row.at_peak.allocated().0.to_string(),
            row.at_peak.activations.0.to_string(),
        ]);
    }
    String::from_utf8(writer.into_inner().unwrap_or_default()).unwrap_or_default()
}

/// A name as a cell: no control characters, and an apostrophe before what a spreadsheet would take for a formula (OWASP, CSV Injection).
/// Names come from files.
fn cell(name: &str) -> String {
    let formula = name.starts_with(['=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠']);
    let mark = if formula { "'" } else { "" };
    mark.chars().chain(name.chars().map(crate::markdown::printed)).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_name_is_no_formula_and_has_no_commands() {
        let mut e = crate::sample::estimate();
        e.layers[0].name = "=cmd|' /C calc'!A0".into();
        e.layers[0].op = "a\u{1b}[31m\nb".into();
        let text = super::estimate(&e);
        assert!(text.lines().nth(1).unwrap().starts_with("'=cmd|' /C calc'!A0,a [31m b,"), "{text}");
    }

    #[test]
    fn rows_re_add_to_the_peak() {
        let e = crate::sample::estimate();
        let text = super::estimate(&e);
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let total: u64 = reader.records().map(|r| r.unwrap()[9].parse::<u64>().unwrap()).sum();
        assert_eq!(total, e.peak.allocated.0);
    }
}
