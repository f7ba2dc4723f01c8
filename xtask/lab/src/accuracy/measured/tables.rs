//! The measured part of the page.

use super::sources::{GPUMEMNET, MILABENCH, TIMM};
use super::{Judged, Measured};
use crate::accuracy::summary::{aligned, markdown, share};
use memfit_graph::Bytes;
use std::collections::BTreeMap;

const ABOUT: &str = "\
Estimates beside figures that others have published; compared where `../shared` lies beside the repository, whose README \
names every source and its settings. *Device* is what nvidia-smi showed at most: allocator, context and libraries. Errors are \
shares of what was measured. *Inside* is the share of measurements that lie in the estimate's range from low to high. No rule knows \
a model by name; the rule for convolutions' scratch memory was found on the A100 figures of 231 convolutional models, some of which are \
among these.
";

const MARGINS: &str = "\
How far what was measured lies from the estimate, in thousandths of the segments that the replay comes to. The margins of the range \
(`crates/engine/src/range.rs`) are chosen so that nine in ten steps lie inside; `cargo xtask accuracy --measured` prints this table anew.
";

const BRACKETS: &str = "\
The largest batch that ran and the next that was tried and failed. A bracket is met where the first is said to fit (tightly or not) and \
the second not to.
";

const MISSED: &str = "\
Steps that are more than a tenth off. Most are too low at one batch and not at the next: the peak of the search for a \
convolution's plan, which lasts an instant, is of a size that does not depend on the batch, and is seen only where a sample falls into it. In \
about 320 of these steps a search goes more than a tenth above what stays; it was seen in 15, of searches of 8 to 12 GiB once in \
124. So the estimate counts it in the high end alone, and no rule that leaves out chance brings more than 97 % within a tenth. It is a \
matter of cuDNN's release: asked without a card (`models/reference/cudnn_plans.py`), release 9.8 has no FFT among its plans for eleven of these layers on an A100, \
release 9.26 none for one of them, and the largest scratch memory of any of these plans is below 200 MiB where 2 to 14 GiB were seen. What was measured ran on an \
older release, of which no plans can be listed without a card.
";

/// Sorted absolute errors and signed ones.
fn line(label: String, rows: &[&Judged]) -> Vec<String> {
    let errors: Vec<f64> = rows.iter().filter_map(|r| r.device).map(|d| d.error()).collect();
    let mut sorted: Vec<f64> = errors.iter().map(|e| e.abs()).collect();
    sorted.sort_by(f64::total_cmp);
    let at = |percent: usize| {
        sorted.get((sorted.len() * percent).div_ceil(100).max(1) - 1).copied().unwrap_or(0.0)
    };
    let of = |count: usize| format!("{:.1} %", 100.0 * count as f64 / sorted.len().max(1) as f64);
    let mean = sorted.iter().sum::<f64>() / sorted.len().max(1) as f64;
    vec![
        label,
        sorted.len().to_string(),
        share(at(50)),
        share(mean),
        share(at(90)),
        of(sorted.iter().filter(|e| **e <= 0.1).count()),
        of(errors.iter().filter(|e| **e < -0.05).count()),
        of(rows.iter().filter(|r| r.is_inside()).count()),
    ]
}

const HEAD: [&str; 8] = ["", "steps", "median", "mean", "p90", "within 10 %", "low by over 5 %", "inside"];

/// Device peaks by source, setting and batch.
fn peaks(rows: &[&Judged]) -> Vec<Vec<String>> {
    let mut groups: BTreeMap<(usize, String), Vec<&Judged>> = BTreeMap::new();
    for row in rows {
        let order = if row.source == GPUMEMNET { 0 } else { 2 };
        groups.entry((order, format!("{}: {}", row.source, row.setting))).or_default().push(row);
        if row.source == GPUMEMNET {
            groups.entry((1, format!("batch {:3}", row.batch))).or_default().push(row);
        }
    }
    let milabench: Vec<&Judged> = rows.iter().copied().filter(|r| r.source == MILABENCH).collect();
    let mut lines = vec![HEAD.map(str::to_owned).to_vec()];
    lines.extend(groups.into_iter().map(|((_, label), rows)| line(label, &rows)));
    if !milabench.is_empty() {
        lines.push(line("milabench in all".into(), &milabench));
    }
    lines.push(line("all".into(), rows));
    lines
}

/// Brackets by setting.
fn brackets(rows: &[Judged]) -> Vec<Vec<String>> {
    let mut lines =
        vec![["", "brackets", "met", "too small a batch", "too large a batch"].map(str::to_owned).to_vec()];
    let mut groups: BTreeMap<&str, Vec<(bool, bool)>> = BTreeMap::new();
    for row in rows.iter().filter(|r| r.source == TIMM && !r.redefined) {
        if let Some((_, _, ran, failed)) = row.bracket {
            groups.entry(row.setting).or_default().push((ran, failed));
        }
    }
    for (setting, all) in groups {
        let count = |f: fn(&(bool, bool)) -> bool| all.iter().filter(|b| f(b)).count();
        let met = count(|b| b.0 && !b.1);
        lines.push(vec![
            setting.to_owned(),
            all.len().to_string(),
            format!("{met} ({:.1} %)", 100.0 * met as f64 / all.len() as f64),
            count(|b| !b.0).to_string(),
            count(|b| b.1).to_string(),
        ]);
    }
    lines
}

/// By how much segments differ from those of the replay, in thousandths: what the margins of `range.rs` are chosen from. Half of
/// the models stand for models that are not there.
fn margins(rows: &[&Judged]) -> Vec<Vec<String>> {
    let head = ["", "steps", "p5", "p10", "p50", "p90", "p95"];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    let mut names: Vec<&str> = rows.iter().map(|r| &*r.model).collect();
    names.sort_unstable();
    names.dedup();
    let half = |row: &Judged| names.binary_search(&&*row.model).is_ok_and(|at| at % 2 == 0);
    for (label, wanted) in [("every other model", Some(true)), ("the other half", Some(false)), ("all", None)]
    {
        let of_half = rows.iter().filter(|row| wanted.is_none_or(|wanted| half(row) == wanted));
        let mut thousandths: Vec<i64> = of_half
            .filter_map(|row| {
                let device = row.device?;
                let more = device.reference as f64 - device.estimate as f64;
                Some((1000.0 * more / (row.reserved as f64).max(1.0)).round() as i64)
            })
            .collect();
        thousandths.sort_unstable();
        let at = |percent: usize| thousandths.get(thousandths.len() * percent / 100).copied().unwrap_or(0);
        let mut line = vec![label.to_owned(), thousandths.len().to_string()];
        line.extend([5, 10, 50, 90, 95].map(|percent| format!("{:+}", at(percent))));
        lines.push(line);
    }
    lines
}

/// What is off by more than a tenth.
fn missed(rows: &[&Judged]) -> Vec<Vec<String>> {
    let mut lines =
        vec![["", "batch", "measured MiB", "estimated", "error", "inside"].map(str::to_owned).to_vec()];
    for row in rows {
        let Some(device) = row.device.filter(|d| d.error().abs() > 0.1) else { continue };
        lines.push(vec![
            row.model.clone(),
            row.batch.to_string(),
            (device.reference / Bytes::MIB).to_string(),
            (device.estimate / Bytes::MIB).to_string(),
            share(device.error()),
            if row.is_inside() { "yes".into() } else { "no".into() },
        ]);
    }
    lines
}

/// Brackets that are not met.
fn unmet(rows: &[Judged]) -> Vec<Vec<String>> {
    let mut lines = vec![["", "ran", "failed", "said"].map(str::to_owned).to_vec()];
    for row in rows.iter().filter(|r| !r.redefined) {
        let said = match row.bracket {
            Some((_, _, false, _)) => "the first does not fit",
            Some((_, _, true, true)) => "the second fits",
            _ => continue,
        };
        if let Some((ran, failed, ..)) = row.bracket {
            lines.push(vec![row.model.clone(), ran.to_string(), failed.to_string(), said.to_owned()]);
        }
    }
    lines
}

/// The peaks to be judged, and what is left out, in words.
fn judged(measured: &Measured) -> (Vec<&Judged>, String) {
    let (mut rows, mut beyond) = (Vec::new(), 0);
    let mut redefined: BTreeMap<&str, usize> = BTreeMap::new();
    for row in &measured.rows {
        match (row.redefined, row.beyond) {
            (true, _) => *redefined.entry(&row.model).or_default() += 1,
            (_, true) => beyond += 1,
            _ => rows.extend(row.device.is_some().then_some(row)),
        }
    }
    let mut out = format!("Left out: {beyond} steps that are estimated at more than the card has");
    for (model, count) in redefined {
        out.push_str(&format!(
            "; {count} of `{model}`, which had another number of parameters in the release that was measured"
        ));
    }
    (rows, out + ".")
}

/// The section of the page.
pub(in crate::accuracy) fn page(measured: &Measured) -> String {
    let (rows, left_out) = judged(measured);
    let failed = match measured.failures.len() {
        0 => String::new(),
        n => format!("\nNot estimated: {n}.\n"),
    };
    format!(
        "\n## Measured on GPUs\n\n{ABOUT}\n{}\n{left_out}\n{failed}\n{MARGINS}\n{}\n{BRACKETS}\n{}\n{}\n{MISSED}\n{}{}",
        markdown(&peaks(&rows)),
        markdown(&margins(&rows)),
        markdown(&brackets(&measured.rows)),
        markdown(&unmet(&measured.rows)),
        markdown(&missed(&rows)),
        measured.tensorflow,
    )
}

/// The same for a terminal.
pub(in crate::accuracy) fn print(measured: &Measured) {
    let (rows, left_out) = judged(measured);
    println!("Measured on GPUs\n\n{}", aligned(&peaks(&rows)));
    println!("{}", aligned(&margins(&rows)));
    println!("{}\n{}", aligned(&brackets(&measured.rows)), aligned(&unmet(&measured.rows)));
    println!("{}", aligned(&missed(&rows)));
    println!("{left_out}\n{}", measured.tensorflow);
    for (model, why) in &measured.failures {
        println!("  {model}: {why}");
    }
}
