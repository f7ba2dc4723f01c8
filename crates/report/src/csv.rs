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
            row.name.to_string(),
            row.op.to_string(),
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

#[cfg(test)]
mod tests {
    #[test]
    fn rows_re_add_to_the_peak() {
        let e = crate::sample::estimate();
        let text = super::estimate(&e);
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let total: u64 = reader.records().map(|r| r.unwrap()[9].parse::<u64>().unwrap()).sum();
        assert_eq!(total, e.peak.allocated.0);
    }
}
