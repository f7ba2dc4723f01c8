//! The largest sizes that fit, as a matrix and as JSON.

use crate::json::to_text;
use crate::text::style::{GOOD, HEAD, NOTE, WARN};
use crate::text::table::{Column, Table, printable};
use crate::text::wrapped;
use crate::{amounts, words};
use anstyle::Style;
use memfit_engine::Word;
use memfit_engine::fit::{Cell, smallest};
use memfit_graph::Bytes;
use serde::Serialize;
use unicode_width::UnicodeWidthStr;

/// A matrix with what was searched.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    /// The model's name.
    pub model: &'a str,
    /// What was made larger: `batch`, `image`, `seq`.
    pub axis: &'a str,
    /// The batch size that was given: which card takes it is told, or it stood still.
    pub batch: Option<u64>,
    /// By card, then by plan.
    pub cells: &'a [Cell],
    /// What the user should know.
    pub warnings: &'a [String],
}

impl Matrix<'_> {
    /// Whether anything fits.
    pub fn any(&self) -> bool {
        self.cells.iter().any(|cell| cell.takes)
    }
}

#[derive(Serialize)]
struct Document<'a> {
    model: &'a str,
    axis: &'a str,
    batch_size: Option<u64>,
    results: Vec<Entry<'a>>,
    smallest: Vec<Smallest<'a>>,
    warnings: &'a [String],
}

#[derive(Serialize)]
struct Entry<'a> {
    gpu: &'a str,
    precision: &'static str,
    optimizer: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_batch_size: Option<u64>,
    max_size: u64,
    safe_size: u64,
    device_bytes: u64,
    usable_bytes: u64,
    capacity_bytes: u64,
    monotone: bool,
    model_ends: bool,
    search_ends: bool,
    is_partial: bool,
}

#[derive(Serialize)]
struct Smallest<'a> {
    precision: &'static str,
    optimizer: &'a str,
    gpu: &'a str,
    safe: bool,
}

/// The matrix as JSON.
pub fn json(m: &Matrix<'_>) -> String {
    let results = m.cells.iter().map(|cell| Entry {
        gpu: &cell.gpu,
        precision: cell.precision.name(),
        optimizer: &cell.optimizer,
        max_batch_size: (m.axis == "batch").then_some(cell.largest),
        max_size: cell.largest,
        safe_size: cell.safe,
        device_bytes: cell.device.0,
        usable_bytes: cell.usable.0,
        capacity_bytes: cell.capacity.0,
        monotone: cell.monotone,
        model_ends: cell.ends,
        search_ends: cell.open,
        is_partial: cell.is_partial,
    });
    let smallest = smallest(m.cells).into_iter().map(|cell| Smallest {
        precision: cell.precision.name(),
        optimizer: &cell.optimizer,
        gpu: &cell.gpu,
        safe: cell.takes_safely,
    });
    to_text(&Document {
        model: m.model,
        axis: m.axis,
        batch_size: m.batch,
        results: results.collect(),
        smallest: smallest.collect(),
        warnings: m.warnings,
    })
}

/// The matrix as a table, and what there is to say about it.
pub fn text(m: &Matrix<'_>, width: usize) -> String {
    let width = width.max(60);
    let differ = |of: fn(&Cell) -> String| m.cells.windows(2).any(|pair| of(&pair[0]) != of(&pair[1]));
    let precisions = differ(|cell| cell.precision.name().into());
    let optimizers = differ(|cell| cell.optimizer.clone());
    let mut out = format!("{HEAD}{}{HEAD:#}", printable(m.model));
    let what = match (m.axis, m.batch) {
        ("batch", _) => "largest batch".to_owned(),
        ("image", Some(batch)) => format!("largest side of an image at batch {batch}"),
        ("image", None) => "largest side of an image".into(),
        (axis, Some(batch)) => format!("largest {axis} at batch {batch}"),
        (axis, None) => format!("largest {axis}"),
    };
    out.push_str(&format!(" · {}", printable(&what)));
    if let (Some(cell), false) = (m.cells.first(), precisions) {
        out.push_str(&format!(" · {}", cell.precision.name()));
    }
    if let (Some(cell), false) = (m.cells.first(), optimizers) {
        out.push_str(&format!(" · {}", cell.optimizer));
    }
    out.push_str("\n\n");
    let mut columns = vec![Column::text("GPU", 10), Column::number("memory")];
    if precisions {
        columns.push(Column::text("precision", 5));
    }
    if optimizers {
        columns.push(Column::text("optimizer", 5));
    }
    columns.extend([
        Column::number("largest"),
        Column::number("safe"),
        Column::number("GiB there").rank(1),
        Column::number("GiB usable").rank(2),
    ]);
    let mut table = Table::new(&columns);
    for cell in m.cells {
        let mut row = vec![cell.gpu.clone(), cell.capacity.to_string()];
        if precisions {
            row.push(cell.precision.name().into());
        }
        if optimizers {
            row.push(cell.optimizer.clone());
        }
        let mark = if cell.ends {
            "*"
        } else if cell.open {
            "+"
        } else if cell.monotone {
            ""
        } else {
            "~"
        };
        row.push(format!("{}{mark}", amounts::grouped(cell.largest)));
        row.push(amounts::grouped(cell.safe));
        row.push(if cell.largest > 0 { gib(cell.device) } else { "-".into() });
        row.push(gib(cell.usable));
        table.row(row);
    }
    table.write(&mut out, width, HEAD);
    notes(&mut out, m, width);
    out
}

fn notes(out: &mut String, m: &Matrix<'_>, width: usize) {
    out.push('\n');
    let mut note =
        |style: Style, text: &str| out.push_str(&format!("{style}{}{style:#}\n", wrapped(text, width)));
    note(NOTE, "largest: fits if all goes as expected; safe: at the high end of the range too");
    if m.cells.iter().any(|cell| cell.is_partial) {
        note(WARN, words::PARTIAL);
    }
    if m.cells.iter().any(|cell| cell.ends) {
        note(NOTE, "* the model itself takes no more");
    }
    if m.cells.iter().any(|cell| cell.open) {
        note(NOTE, "+ no larger size was tried: more fits");
    }
    if m.cells.iter().any(|cell| !cell.monotone && !cell.ends && !cell.open) {
        note(
            NOTE,
            "~ not a sharp border: some below it fail, since blocks fit into each other by chance, or too many lie above it to try them all",
        );
    }
    let best = smallest(m.cells);
    let cards: std::collections::BTreeSet<&str> = m.cells.iter().map(|cell| &*cell.gpu).collect();
    let size = if m.axis == "batch" {
        format!("batch {}", amounts::grouped(m.batch.unwrap_or(1)))
    } else {
        "any size".into()
    };
    if best.is_empty() {
        out.push_str(&format!("{WARN}nothing fits{WARN:#}: no card takes {size}\n"));
    } else if cards.len() > 1 && (m.batch.is_some() || m.axis != "batch") {
        for cell in best {
            let plan = format!("{}, {}", cell.precision.name(), cell.optimizer);
            let (what, gpu) = (format!("smallest card for {size} ({plan}):"), printable(&cell.gpu));
            let sure = if cell.takes_safely { "" } else { ", if all goes as expected" };
            let rest = format!(", {}{sure}", cell.capacity);
            let gap = if format!("{what} {gpu}{rest}").width() <= width { " " } else { "\n  " };
            out.push_str(&format!("{what}{gap}{GOOD}{gpu}{GOOD:#}{rest}\n"));
        }
    }
    for warning in m.warnings {
        let text = wrapped(&format!("warning: {}", printable(warning)), width);
        out.push_str(&format!("{WARN}warning{WARN:#}{}\n", text.strip_prefix("warning").unwrap_or(&text)));
    }
}

/// In GiB with two digits behind the point.
fn gib(bytes: Bytes) -> String {
    let hundredths = (u128::from(bytes.0) * 100 + (1 << 29)) >> 30;
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::plain;
    use memfit_engine::Precision;

    fn cell(gpu: &str, gib: u64, precision: Precision, largest: u64) -> Cell {
        Cell {
            gpu: gpu.into(),
            precision,
            optimizer: "adam".into(),
            largest,
            safe: largest * 9 / 10,
            takes: largest >= 50,
            takes_safely: largest >= 60,
            device: Bytes(gib << 30).saturating_sub(Bytes::mib(300)),
            usable: Bytes(gib << 30).saturating_sub(Bytes::mib(2_000)),
            capacity: Bytes(gib << 30),
            monotone: largest != 1_204,
            ends: false,
            open: false,
            is_partial: false,
        }
    }

    #[test]
    fn a_matrix_names_the_smallest_card() {
        let cells = [
            cell("rtx-3060", 12, Precision::Fp32, 37),
            cell("rtx-3060", 12, Precision::MixedFp16, 64),
            cell("a100-80gb", 80, Precision::Fp32, 640),
            cell("a100-80gb", 80, Precision::MixedFp16, 1_204),
        ];
        let warnings = ["--ema does nothing".to_owned()];
        let m =
            Matrix { model: "resnet50", axis: "batch", batch: Some(50), cells: &cells, warnings: &warnings };
        expect_test::expect![[r#"
            resnet50 · largest batch · adam

            GPU           memory  precision   largest   safe  GiB there  GiB usable
            rtx-3060   12.00 GiB  fp32             37     33      11.71       10.05
            rtx-3060   12.00 GiB  mixed-fp16       64     57      11.71       10.05
            a100-80gb  80.00 GiB  fp32            640    576      79.71       78.05
            a100-80gb  80.00 GiB  mixed-fp16   1,204~  1,083      79.71       78.05

            largest: fits if all goes as expected; safe: at the high end of the range too
            ~ not a sharp border: some below it fail, since blocks fit into each other by chance, or too many
              lie above it to try them all
            smallest card for batch 50 (fp32, adam): a100-80gb, 80.00 GiB
            smallest card for batch 50 (mixed-fp16, adam): rtx-3060, 12.00 GiB
            warning: --ema does nothing
        "#]]
        .assert_eq(&plain(&text(&m, 100)));
        let json: serde_json::Value = serde_json::from_str(&json(&m)).unwrap();
        assert_eq!(json["results"][3]["max_batch_size"], 1_204);
        assert_eq!(json["smallest"][0]["gpu"], "a100-80gb");
        assert!(plain(&text(&m, 60)).lines().all(|line| line.width() <= 60), "{}", text(&m, 60));
        assert!(m.any() && !Matrix { cells: &cells[..1], ..m }.any());
    }

    #[test]
    fn the_smallest_card_is_one_that_takes_the_batch_safely_where_one_does() {
        let cells = [
            cell("rtx-3060", 12, Precision::Fp32, 55),
            cell("rtx-3070", 8, Precision::Fp32, 30),
            cell("a100-80gb", 80, Precision::Fp32, 640),
        ];
        let m = Matrix { model: "resnet50", axis: "batch", batch: Some(50), cells: &cells, warnings: &[] };
        assert!(plain(&text(&m, 100)).contains(": a100-80gb, 80.00 GiB\n"));
        let m = Matrix { cells: &cells[..2], ..m };
        let tight = plain(&text(&m, 100));
        assert!(tight.contains(": rtx-3060, 12.00 GiB, if all goes as expected\n"), "{tight}");
        assert!(json(&m).contains("\"safe\": false"));
    }

    #[test]
    fn where_the_search_ends_is_not_called_the_largest() {
        let cells = [Cell { open: true, ..cell("h200", 141, Precision::Fp32, 1 << 24) }];
        let m = Matrix { model: "small", axis: "seq", batch: Some(1), cells: &cells, warnings: &[] };
        let text = plain(&text(&m, 100));
        assert!(text.contains("16,777,216+ ") && text.contains("\n+ no larger size was tried"), "{text}");
        assert!(json(&m).contains("\"search_ends\": true"));
    }

    #[test]
    fn nothing_that_fits_is_said() {
        let cells = [cell("rtx-3060", 12, Precision::Fp32, 0)];
        let m = Matrix { model: "llm", axis: "seq", batch: Some(1), cells: &cells, warnings: &[] };
        expect_test::expect![[r#"
            llm · largest seq at batch 1 · fp32 · adam

            GPU          memory  largest  safe  GiB there  GiB usable
            rtx-3060  12.00 GiB        0     0          -       10.05

            largest: fits if all goes as expected; safe: at the high end of the range too
            nothing fits: no card takes any size
        "#]]
        .assert_eq(&plain(&text(&m, 100)));
    }
}
