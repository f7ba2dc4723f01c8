//! A record as text: measured beside predicted, then the layers that differ most and how it ended.

use crate::measurement::error_percent;
use crate::record::{Layer, Record};
use memfit_graph::Bytes;
use std::fmt::Write;

/// How many layers are shown.
const LAYERS: usize = 5;

/// Writes it.
pub fn text(record: &Record) -> String {
    let r = record;
    let mut out = format!("{} steps of {} on {} ({})\n\n", r.steps, r.framework, r.device, r.backend);
    if !r.rows.is_empty() {
        let _ = writeln!(out, "{:<32} {:>12} {:>12} {:>9}", "", "measured", "predicted", "error");
    }
    for row in &r.rows {
        line(&mut out, &words(&row.what), row.measured_bytes, row.predicted_bytes);
        if let (Some(inside), Some(low), Some(high)) = (row.is_inside(), row.low_bytes, row.high_bytes) {
            let where_ = if inside { "inside" } else { "outside" };
            let _ = writeln!(out, "{:<32} {where_} of {} to {}", "", Bytes(low), Bytes(high));
        }
    }
    let worst = worst(&r.layers);
    if !worst.is_empty() {
        let what = if r.layers_are == "saved" {
            "layers whose saved bytes differ most"
        } else {
            "layers that differ most"
        };
        let _ = writeln!(out, "\n{what}");
        for layer in worst {
            line(&mut out, &layer.name, layer.measured_bytes, layer.predicted_bytes);
        }
    }
    if !r.driver_view.is_empty() {
        let _ = writeln!(out, "\n{:<32} {:>12} {:>12}", "what the driver showed", "device", "reserved");
        for seen in &r.driver_view {
            let reserved = seen.reserved_bytes.map_or_else(String::new, |b| Bytes(b).to_string());
            let device = Bytes(seen.device_bytes).to_string();
            let _ = writeln!(out, "{:<32} {device:>12} {reserved:>12}", seen.moment);
        }
    }
    if let Some(leak) = r.leak_bytes {
        let _ = writeln!(out, "\nleak: each step leaves {} behind", Bytes(leak));
    }
    if r.losses.iter().any(Option::is_none) {
        let _ = writeln!(out, "\na loss is not finite: weights and inputs are random");
    }
    if let Some(e) = &r.ended {
        let _ = write!(out, "\n{} after {} steps", e.kind, r.steps);
        if !e.layer.is_empty() {
            let _ = write!(out, " in {} ({})", e.layer, e.function);
        }
        let _ = writeln!(out, ": {}", e.message);
    }
    for note in &r.notes {
        let _ = writeln!(out, "\nnote: {note}");
    }
    out
}

/// A row's name as people read it.
fn words(what: &str) -> String {
    match what {
        "before" => "before the step".into(),
        "saved" => "saved for backward".into(),
        "optimizer" => "optimizer state".into(),
        "device" => "on the device".into(),
        other => other.replace('_', " "),
    }
}

fn line(out: &mut String, name: &str, measured: u64, predicted: u64) {
    let (measured, predicted) = (Bytes(measured), Bytes(predicted));
    let error = error_percent(measured, predicted).map_or(String::new(), |e| format!("{e:+.1} %"));
    let (measured, predicted) = (measured.to_string(), predicted.to_string());
    let text = format!("{name:<32} {measured:>12} {predicted:>12} {error:>9}");
    let _ = writeln!(out, "{}", text.trim_end());
}

/// Layers whose error is largest in bytes.
fn worst(layers: &[Layer]) -> Vec<&Layer> {
    let off = |layer: &Layer| layer.measured_bytes.abs_diff(layer.predicted_bytes);
    let mut rows: Vec<&Layer> = layers.iter().filter(|layer| off(layer) > 0).collect();
    rows.sort_by_key(|layer| std::cmp::Reverse(off(layer)));
    rows.truncate(LAYERS);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Ended, Row};

    #[test]
    fn a_record_reads_as_a_table() {
        let record = Record {
            framework: "torch 2".into(),
            device: "a card".into(),
            backend: "cuda".into(),
            steps: 2,
            rows: vec![
                Row::new("before", Bytes(1 << 20), Bytes(1 << 20)),
                Row {
                    low_bytes: Some(0),
                    high_bytes: Some(1),
                    ..Row::new("device", Bytes(1 << 30), Bytes(1 << 29))
                },
            ],
            leak_bytes: Some(512),
            ended: Some(Ended { kind: "out-of-memory".into(), layer: "head".into(), ..Ended::default() }),
            ..Record::default()
        };
        let expected = "2 steps of torch 2 on a card (cuda)\n\n                                     measured    predicted     error\n\
before the step                       1.0 MiB      1.0 MiB    +0.0 %\n\
on the device                        1.00 GiB    512.0 MiB   -50.0 %\n                                 outside of 0 B to 1 B\n\nleak: each step leaves 512 B behind\n\nout-of-memory after 2 steps in head (): \n";
        assert_eq!(text(&record), expected);
    }
}
