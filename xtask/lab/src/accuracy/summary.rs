//! The distribution of errors, and tables of it.

use super::compare::{Compared, Pair, Row};
use std::collections::BTreeMap;

/// Errors of one kind, as absolute shares.
#[derive(Default)]
pub(super) struct Errors {
    sorted: Vec<f64>,
    exact: usize,
}

impl Errors {
    pub(super) fn of(pairs: impl IntoIterator<Item = Pair>) -> Errors {
        let pairs: Vec<Pair> = pairs.into_iter().collect();
        let exact = pairs.iter().filter(|p| p.reference == p.estimate).count();
        let mut sorted: Vec<f64> = pairs.iter().map(|p| p.error().abs()).collect();
        sorted.sort_by(f64::total_cmp);
        Errors { sorted, exact }
    }

    /// The error that `percent` of all do not exceed (nearest rank).
    fn at(&self, percent: usize) -> f64 {
        let rank = (self.sorted.len() * percent).div_ceil(100).max(1);
        self.sorted.get(rank - 1).copied().unwrap_or(0.0)
    }

    /// Median, 95th percentile, largest, and how many are exact.
    fn cells(&self) -> [String; 4] {
        if self.sorted.is_empty() {
            return ["-"; 4].map(str::to_owned);
        }
        let exact = format!("{}/{}", self.exact, self.sorted.len());
        [share(self.at(50)), share(self.at(95)), share(self.at(100)), exact]
    }
}

/// `0.12 %`; what is not nothing does not look like it.
pub(super) fn share(value: f64) -> String {
    match value * 100.0 {
        0.0 => "0".to_owned(),
        small if small.abs() < 0.005 => "<0.01 %".to_owned(),
        percent => format!("{percent:.2} %"),
    }
}

/// A table's head; what stands in the cells of [`line()`].
const HEAD: [&str; 10] =
    ["", "steps", "peak median", "p95", "max", "exact", "saved median", "p95", "max", "exact"];

/// One line of a table: the errors of peaks over all steps, of saved bytes over all passes.
fn line(label: &str, rows: &[&Row]) -> Vec<String> {
    // Runs that differ by optimizer alone share a pass.
    let passes: BTreeMap<_, Pair> =
        rows.iter().map(|r| ((&r.model, &r.export, r.batch, &r.precision), r.saved)).collect();
    let mut cells = vec![label.to_owned(), rows.len().to_string()];
    cells.extend(Errors::of(rows.iter().map(|r| r.peak)).cells());
    cells.extend(Errors::of(passes.into_values()).cells());
    cells
}

/// By precision and in all.
pub(super) fn totals(rows: &[&Row]) -> Vec<Vec<String>> {
    let mut lines = vec![HEAD.map(str::to_owned).to_vec()];
    let mut by: BTreeMap<(u8, String), Vec<&Row>> = BTreeMap::new();
    for row in rows {
        by.entry((1, row.precision.clone())).or_default().push(row);
        by.entry((2, format!("peak in {}", row.phase.0.replace('_', " ")))).or_default().push(row);
    }
    lines.extend(by.iter().map(|((_, label), rows)| line(label, rows)));
    lines.push(line("all", rows));
    lines
}

/// By model.
pub(super) fn models(all: &[Compared]) -> Vec<Vec<String>> {
    let mut head = HEAD.map(str::to_owned).to_vec();
    head.push("parameters".to_owned());
    let mut lines = vec![head];
    for compared in all.iter().filter(|c| !c.rows.is_empty()) {
        let label = match &*compared.export {
            "" => compared.model.clone(),
            export => format!("{} ({export})", compared.model),
        };
        let rows: Vec<&Row> = compared.rows.iter().collect();
        let mut cells = line(&label, &rows);
        let parameters = rows[0].parameters;
        cells.push(match parameters.reference == parameters.estimate {
            true => "exact".to_owned(),
            false => format!("{} for {}", parameters.estimate, parameters.reference),
        });
        lines.push(cells);
    }
    lines
}

/// By export.
pub(super) fn exports(all: &[Compared]) -> Vec<Vec<String>> {
    let mut by: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    for compared in all {
        by.entry(&compared.export).or_default().extend(&compared.rows);
    }
    let head = HEAD.map(str::to_owned).to_vec();
    std::iter::once(head).chain(by.iter().map(|(export, rows)| line(export, rows))).collect()
}

/// Columns in line for a terminal: the first to the left, the others to the right.
pub(super) fn aligned(lines: &[Vec<String>]) -> String {
    let width = |i: usize| lines.iter().filter_map(|l| l.get(i)).map(|c| c.len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..lines.first().map_or(0, Vec::len)).map(width).collect();
    let mut text = String::new();
    for cells in lines {
        for (i, (cell, width)) in cells.iter().zip(&widths).enumerate() {
            text += &if i == 0 { format!("{cell:<width$}") } else { format!("  {cell:>width$}") };
        }
        text = text.trim_end().to_owned() + "\n";
    }
    text
}

/// The same as a Markdown table.
pub(super) fn markdown(lines: &[Vec<String>]) -> String {
    let mut text = String::new();
    for (i, cells) in lines.iter().enumerate() {
        text += &format!("| {} |\n", cells.join(" | "));
        if i == 0 {
            text += &format!("| --- |{}\n", " ---: |".repeat(cells.len().saturating_sub(1)));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_absolute_errors() {
        let pair = |estimate| Pair { reference: 1000, estimate };
        let errors = Errors::of([pair(1000), pair(900), pair(1020), pair(1000), pair(1010)]);
        assert_eq!(errors.cells(), ["1.00 %", "10.00 %", "10.00 %", "2/5"]);
    }

    #[test]
    fn a_table_is_in_line_and_in_markdown() {
        let lines = vec![vec!["".to_owned(), "n".to_owned()], vec!["all".to_owned(), "12".to_owned()]];
        assert_eq!(aligned(&lines), "      n\nall  12\n");
        assert_eq!(markdown(&lines), "|  | n |\n| --- | ---: |\n| all | 12 |\n");
    }
}
