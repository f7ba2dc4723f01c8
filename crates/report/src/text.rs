//! An estimate as text for a terminal: the peak, what it consists of, the layers, the largest tensors, and what was assumed.
//!
//! Every table re-adds to its total as shown. Text carries ANSI styles; a host strips them where they are not wanted.

mod fit;
mod layers;
mod peak;
pub(crate) mod style;
pub(crate) mod table;

use crate::{Depth, amounts, words};
use memfit_engine::Estimate;
use style::{HEAD, WARN};
use table::printable;

/// How much is shown, and how wide.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Columns of the terminal.
    pub width: usize,
    /// How far module paths are folded.
    pub depth: Depth,
    /// At most this many layers or groups of them.
    pub top: usize,
    /// At most this many of the largest tensors.
    pub tensors: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { width: 100, depth: Depth::Auto, top: 30, tensors: 8 }
    }
}

/// The whole report.
pub fn estimate(e: &Estimate, options: &Options) -> String {
    // Tables narrower than this cannot show their numbers.
    let options = Options { width: options.width.max(60), ..*options };
    let mut out = header(e, options.width);
    out.push('\n');
    peak::write(&mut out, e, options.width);
    fit::write(&mut out, e, options.width);
    scenario(&mut out, e);
    layers::write(&mut out, e, &options);
    layers::write_tensors(&mut out, e, &options);
    unknown(&mut out, e, options.width);
    list(&mut out, "Warnings", WARN, &e.warnings, options.width);
    list(&mut out, "Assumptions", HEAD, &e.assumptions, options.width);
    out
}

/// The parts of the process around the step.
fn scenario(out: &mut String, e: &Estimate) {
    let Some(scenario) = &e.scenario else { return };
    out.push_str(&format!("\n{HEAD}The whole process{HEAD:#}\n"));
    let width = scenario.stretches.iter().map(|s| s.name.len()).max().unwrap_or(0);
    let unit = amounts::Unit::of(scenario.largest().map_or_else(Default::default, |s| s.allocated));
    for (i, stretch) in scenario.stretches.iter().enumerate() {
        let size = format!("{} {}", unit.text(unit.round(stretch.allocated)), unit.name());
        let name = printable(&stretch.name);
        let mark = if i == scenario.worst { "  largest" } else { "" };
        out.push_str(&format!("  {name:<width$}  {size:>12}{mark}\n"));
    }
}

fn header(e: &Estimate, width: usize) -> String {
    let m = &e.model;
    let mut facts = vec![m.format.clone(), amounts::counted(m.parameters_trainable, "parameter")];
    if m.parameters_frozen > 0 {
        facts.push(format!("{} frozen", amounts::grouped(m.parameters_frozen)));
    }
    if m.buffers > 0 {
        facts.push(amounts::counted(m.buffers, "buffer value"));
    }
    facts.push(amounts::counted(m.operators, "operator"));
    let mut out = format!("{HEAD}{}{HEAD:#}\n", printable(&e.model.name));
    flow(&mut out, &facts, width);
    flow(&mut out, &words::plan(e), width);
    out
}

/// Facts in a row with dots between them, on as many lines as they need.
pub(crate) fn flow(out: &mut String, facts: &[String], width: usize) {
    use unicode_width::UnicodeWidthStr;
    let mut used = 0;
    for fact in facts {
        let fact = printable(fact);
        let needed = fact.width();
        if used > 0 && used + 3 + needed <= width {
            out.push_str(" · ");
            used += 3;
        } else if used > 0 {
            out.push('\n');
            used = 0;
        }
        out.push_str(&fact);
        used += needed;
    }
    out.push('\n');
}

fn unknown(out: &mut String, e: &Estimate, width: usize) {
    if e.unknown.is_empty() {
        return;
    }
    out.push_str(&format!("\n{WARN}{}{WARN:#}\n", words::NOT_EXACT));
    bullet(out, words::NOT_KNOWN, width);
    for name in &e.unknown {
        bullet(out, &format!("  {}", printable(name)), width);
    }
}

/// A headed list, wrapped to the width.
pub(crate) fn list(out: &mut String, title: &str, style: anstyle::Style, items: &[String], width: usize) {
    if items.is_empty() {
        return;
    }
    out.push_str(&format!("\n{style}{title}{style:#}\n"));
    for item in items {
        bullet(out, &format!("- {}", printable(item)), width);
    }
}

/// Text with its further lines indented below its first.
pub(crate) fn wrapped(text: &str, width: usize) -> String {
    let mut out = String::new();
    bullet(&mut out, text, width);
    out.truncate(out.trim_end().len());
    out
}

/// One item, its further lines indented below its first.
fn bullet(out: &mut String, text: &str, width: usize) {
    use unicode_width::UnicodeWidthStr;
    let mut used = 0;
    let indent = text.len() - text.trim_start().len();
    out.push_str(&" ".repeat(indent));
    for word in text.split_whitespace() {
        let needed = word.width() + usize::from(used > 0);
        if used > 0 && indent + used + needed > width {
            out.push_str(&format!("\n{}", " ".repeat(indent + 2)));
            used = 2;
        } else if used > 0 {
            out.push(' ');
        }
        out.push_str(word);
        used += needed;
    }
    out.push('\n');
}

#[cfg(test)]
mod tests;
