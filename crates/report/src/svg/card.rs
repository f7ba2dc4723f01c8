//! A card: the answer, the parts of the peak as a bar, the step over time.

use super::{COLOURS, STYLE, bar, escape, scale, step};
use crate::{Provenance, words};
use memfit_engine::Estimate;
use memfit_graph::Bytes;
use std::fmt::Write;

const WIDTH: u64 = 720;
const MARGIN: u64 = 24;

/// The card as a whole SVG document.
pub fn card(e: &Estimate, from: &Provenance) -> String {
    let inner = WIDTH - 2 * MARGIN;
    let shown: Vec<_> = words::parts(&e.breakdown)
        .into_iter()
        .zip(COLOURS)
        .filter(|((_, bytes), _)| *bytes > Bytes::ZERO)
        .collect();
    let legend_rows = shown.len().div_ceil(3) as u64;
    let step_top = 138 + legend_rows * 20;
    let height = step_top + 170;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-labelledby=\"t d\"><style>{STYLE}</style>"
    );
    let name = escape(&e.model.name);
    let _ = write!(out, "<title id=\"t\">Memory of one training step of {name}</title><desc id=\"d\">");
    for ((part, bytes), _) in &shown {
        let _ = write!(out, "{part} {bytes}; ");
    }
    let _ = write!(
        out,
        "</desc><rect class=\"back\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"8\"/>",
        WIDTH - 1,
        height - 1
    );
    let _ = write!(out, "<text x=\"{MARGIN}\" y=\"36\" font-size=\"18\" font-weight=\"600\">{name}</text>");
    let _ = write!(
        out,
        "<text class=\"soft\" x=\"{MARGIN}\" y=\"56\" font-size=\"12\">{}</text>",
        escape(&words::plan(e).join(" · "))
    );
    let _ = write!(
        out,
        "<text x=\"{}\" y=\"36\" font-size=\"20\" font-weight=\"700\" text-anchor=\"end\">{}</text>",
        WIDTH - MARGIN,
        e.peak.device
    );
    let note = match &e.fit {
        Some(fit) => {
            format!("{} on {}", words::verdict_in_words(fit.verdict), fit.gpu)
        }
        None => format!("{} to {}", e.peak.device_low, e.peak.device_high),
    };
    let _ = write!(
        out,
        "<text class=\"soft\" x=\"{}\" y=\"56\" font-size=\"12\" text-anchor=\"end\">{}</text>",
        WIDTH - MARGIN,
        escape(&note)
    );
    let whole = e.fit.as_ref().map_or(e.peak.device, |fit| fit.capacity.max(e.peak.device));
    bar(&mut out, &e.breakdown, whole, (MARGIN, 76), (inner, 28));
    let _ = write!(
        out,
        "<rect class=\"line\" x=\"{MARGIN}\" y=\"76\" width=\"{inner}\" height=\"28\" fill=\"none\"/>"
    );
    if let Some(fit) = &e.fit {
        let at = MARGIN + scale(fit.capacity.0, whole.0, inner);
        let _ = write!(
            out,
            "<path class=\"line\" d=\"M{at} 70V110\" stroke-width=\"2\"/><title>{} has {}</title>",
            escape(&fit.gpu),
            fit.capacity
        );
    }
    for (i, ((part, bytes), colour)) in shown.iter().enumerate() {
        let (column, row) = (i as u64 % 3, i as u64 / 3);
        let (x, y) = (MARGIN + column * (inner / 3), 128 + row * 20);
        let _ = write!(
            out,
            "<rect x=\"{x}\" y=\"{}\" width=\"11\" height=\"11\" fill=\"{colour}\"/><text x=\"{}\" y=\"{y}\" font-size=\"12\">{part} {bytes}</text>",
            y - 10,
            x + 17
        );
    }
    step::drawing(&mut out, e, (MARGIN, step_top), (inner, 120));
    let _ = writeln!(
        out,
        "<text class=\"soft\" x=\"{MARGIN}\" y=\"{}\" font-size=\"11\">{}</text></svg>",
        height - 16,
        escape(&from.line())
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_card_says_what_the_estimate_does() {
        let mut e = crate::sample::estimate();
        e.model.name = "a<b>&".into();
        let from = Provenance { file: "x.onnx".into(), structure: "0".repeat(64) };
        let svg = card(&e, &from);
        assert!(svg.contains(&e.peak.device.to_string()) && svg.contains("a&lt;b&gt;&amp;"));
        assert_eq!(svg, card(&e, &from));
    }
}
