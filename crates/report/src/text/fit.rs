//! Whether the step fits into the card that was named: the verdict, what is left or missing, and what failed.

use super::style::{self, HEAD};
use super::table::printable;
use super::wrapped;
use crate::words;
use memfit_engine::{Estimate, Fit, Phase, Verdict};
use memfit_graph::Bytes;
use unicode_width::UnicodeWidthStr;

/// Writes `Fit …`, where there is a card.
pub(super) fn write(out: &mut String, e: &Estimate, width: usize) {
    let Some(fit) = &e.fit else { return };
    let size = Bytes(fit.headroom().unsigned_abs());
    let (usable, reserved) = (fit.usable, fit.reserved);
    let room = match fit.verdict {
        Verdict::DoesNotFit => format!("{reserved} wanted, {usable} usable of {}", fit.capacity),
        _ => format!("{reserved} of {usable} usable, {size} left"),
    };
    let gpu = printable(&fit.gpu);
    let line = format!("{} on {gpu}: {room}", words::verdict_in_words(fit.verdict));
    // The numbers go to a line of their own where the terminal is too narrow.
    let gap = if "Fit   ".len() + line.width() <= width { " " } else { "\n      " };
    out.push_str(&format!("\n{HEAD}Fit{HEAD:#}   {} on {gpu}:{gap}{room}\n", style::verdict(fit.verdict)));
    for line in notes(fit, e.timeline.is_partial) {
        let lines = wrapped(&printable(&line), width.saturating_sub(6)).replace('\n', "\n      ");
        out.push_str(&format!("      {lines}\n"));
    }
}

fn notes(fit: &Fit, is_partial: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if fit.verdict == Verdict::Tight {
        let safer = if is_partial { "" } else { ": a smaller batch is safer" };
        notes.push(format!("{}{safer}", words::tight(is_partial)));
    }
    if let Some(s) = &fit.shortage {
        let phase = match s.phase {
            Phase::Setup => "before the step",
            Phase::Forward => "in forward",
            Phase::Backward => "in backward",
            Phase::OptimizerStep => "in the optimizer step",
        };
        let layer = if s.layer.is_empty() { String::new() } else { format!(", at {}", s.layer) };
        notes.push(format!("fails {phase}{layer}: {} asked for {}", s.tensor, s.request));
        let pieces = match s.unusable {
            Bytes::ZERO => String::new(),
            unusable => format!(", {unusable} of it in pieces of at most {}", s.largest_free),
        };
        notes.push(format!("{} was free{pieces}", s.free));
    }
    if fit.retries > 0 && fit.verdict != Verdict::DoesNotFit {
        let times = if fit.retries == 1 { "once".to_owned() } else { format!("{} times", fit.retries) };
        notes.push(format!("the allocator gives cached segments back {times} on the way, which takes time"));
    }
    if let Some(bytes) = fit.preallocated {
        notes.push(format!("TensorFlow takes {bytes} at its start, whatever it needs"));
    }
    notes.extend(fit.others.iter().map(|item| format!("{}: {}", item.name, item.expected)));
    notes
}
