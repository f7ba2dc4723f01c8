//! A badge, and the document from which shields.io draws the same (its endpoint schema, version 1).

use super::escape;
use memfit_engine::{Estimate, Verdict};

/// Words and colour: green where it fits, amber where it is tight, red where it does not, blue without a card.
fn message(e: &Estimate) -> (String, &'static str, &'static str) {
    let device = e.peak.device;
    match &e.fit {
        None => (device.to_string(), "#0072b2", "blue"),
        Some(fit) => match fit.verdict {
            Verdict::Fits => (format!("{device} · fits {}", fit.gpu), "#00795c", "brightgreen"),
            Verdict::Tight => (format!("{device} · tight on {}", fit.gpu), "#9a6700", "yellow"),
            Verdict::DoesNotFit => (format!("{device} · over {}", fit.gpu), "#b3261e", "red"),
        },
    }
}

/// Text as wide as most fonts draw it at 11 pixels.
fn width(text: &str) -> u64 {
    text.chars().map(|c| if "il.,:'|· ".contains(c) { 4 } else { 7 }).sum::<u64>() + 12
}

/// A flat badge as SVG.
pub fn badge(e: &Estimate) -> String {
    let (text, colour, _) = message(e);
    let label = "GPU memory";
    let (left, right) = (width(label), width(&text));
    let (text, whole) = (escape(&text), left + right);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{whole}\" height=\"20\" role=\"img\" aria-label=\"{label}: {text}\"><title>{label}: {text}</title>\
<rect width=\"{left}\" height=\"20\" fill=\"#444\"/><rect x=\"{left}\" width=\"{right}\" height=\"20\" fill=\"{colour}\"/>\
<g fill=\"#fff\" font-family=\"Verdana,DejaVu Sans,sans-serif\" font-size=\"11\" text-anchor=\"middle\">\
<text x=\"{}\" y=\"14\">{label}</text><text x=\"{}\" y=\"14\">{text}</text></g></svg>\n",
        left / 2,
        left + right / 2
    )
}

/// The same as JSON for a Shields endpoint.
pub fn endpoint(e: &Estimate) -> String {
    let (text, _, colour) = message(e);
    crate::json::to_text(
        &serde_json::json!({"schemaVersion": 1, "label": "GPU memory", "message": text, "color": colour}),
    )
}
