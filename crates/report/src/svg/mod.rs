//! Pictures as SVG text: the parts of the peak, the step over time, a card of both, a badge.
//!
//! Colours are those of Okabe and Ito, which colour-blind people tell apart, with light and dark backgrounds by the reader's own
//! preference. A picture carries its numbers as text too, for those who cannot see it.

mod badge;
mod card;
mod step;

pub use badge::{badge, endpoint};
pub use card::card;
pub use step::step;

use crate::words;
use memfit_engine::Breakdown;
use memfit_graph::Bytes;

/// The colour of each part, in the order of [`words::parts`].
pub(crate) const COLOURS: [&str; 11] = [
    "#0072b2", "#56b4e9", "#009e73", "#cc79a7", "#d55e00", "#e69f00", "#999999", "#f0e442", "#b8a24a",
    "#7f7f7f", "#4d4d4d",
];

/// The style that every picture has: text and background by the reader's preference.
pub(crate) const STYLE: &str = ":root{color-scheme:light dark}text{font-family:system-ui,sans-serif;fill:#1b1b1b}.soft{fill:#5f5f5f}.back{fill:#fff;stroke:#d0d0d0}\
.line{stroke:#8a8a8a}@media(prefers-color-scheme:dark){text{fill:#eee}.soft{fill:#aaa}.back{fill:#16181c;stroke:#3a3d44}.line{stroke:#777}}";

/// `part` of `whole` on `length` steps.
pub(crate) fn scale(part: u64, whole: u64, length: u64) -> u64 {
    u64::try_from(u128::from(part) * u128::from(length) / u128::from(whole.max(1))).unwrap_or(length)
}

/// What markup would read is taken literally.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// A stacked bar at `(x, y)`, `width` wide for `whole` bytes.
pub(crate) fn bar(
    out: &mut String,
    b: &Breakdown,
    whole: Bytes,
    (x, y): (u64, u64),
    (width, height): (u64, u64),
) {
    use std::fmt::Write;
    let mut sum = 0;
    for ((name, bytes), colour) in words::parts(b).into_iter().zip(COLOURS) {
        let (from, to) = (scale(sum, whole.0, width * 10), scale(sum + bytes.0, whole.0, width * 10));
        sum += bytes.0;
        if to > from {
            let _ = write!(
                out,
                "<rect x=\"{}.{}\" y=\"{y}\" width=\"{}.{}\" height=\"{height}\" fill=\"{colour}\"><title>{name}: {bytes}</title></rect>",
                x + from / 10,
                from % 10,
                (to - from) / 10,
                (to - from) % 10
            );
        }
    }
}
