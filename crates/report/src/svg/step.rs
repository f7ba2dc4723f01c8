//! The step over time: memory held after each event, phases shaded, the peak marked.

use super::{STYLE, scale};
use memfit_engine::{Estimate, Event, EventKind, Phase};
use std::fmt::Write;

/// How many points the curve has at most.
const POINTS: usize = 360;

/// The curve as points of (highest bytes, phase at the end) for equal numbers of events.
fn curve(e: &Estimate) -> Vec<(u64, Phase)> {
    let events = &e.timeline.events;
    let size = |event: &Event| e.timeline.storages[event.storage.0 as usize].bytes.0;
    // What is there before the step is where the curve begins.
    let start = events.iter().position(|event| event.phase != Phase::Setup).unwrap_or(events.len());
    let mut live = events[..start].iter().fold(0u64, |live, event| live.saturating_add(size(event)));
    let events = &events[start..];
    let each = events.len().div_ceil(POINTS).max(1);
    let mut points = Vec::new();
    for chunk in events.chunks(each) {
        let mut highest = 0;
        let mut phase = Phase::Forward;
        for event in chunk {
            let bytes = size(event);
            live = match event.kind {
                EventKind::Allocate => live.saturating_add(bytes),
                EventKind::Free => live.saturating_sub(bytes),
            };
            highest = highest.max(live);
            phase = event.phase;
        }
        points.push((highest, phase));
    }
    points
}

/// The drawing alone, `width` by `height`, without the picture around it.
pub(crate) fn drawing(out: &mut String, e: &Estimate, (x, y): (u64, u64), (width, height): (u64, u64)) {
    let points = curve(e);
    let Some(highest) = points.iter().map(|p| p.0).max().filter(|h| *h > 0) else { return };
    let at = |i: usize| x + scale(i as u64, points.len() as u64, width);
    for phase in [Phase::Forward, Phase::Backward, Phase::OptimizerStep] {
        let first = points.iter().position(|p| p.1 == phase);
        let last = points.iter().rposition(|p| p.1 == phase);
        let (Some(first), Some(last)) = (first, last) else { continue };
        let (from, to) = (at(first), at(last + 1));
        let shade = if matches!(phase, Phase::Forward | Phase::OptimizerStep) { "0.06" } else { "0.14" };
        let _ = write!(
            out,
            "<rect x=\"{from}\" y=\"{y}\" width=\"{}\" height=\"{height}\" fill=\"#808080\" fill-opacity=\"{shade}\"/>",
            to - from
        );
        if to - from > 50 {
            let name = phase.name();
            let _ = write!(
                out,
                "<text class=\"soft\" x=\"{}\" y=\"{}\" font-size=\"11\">{name}</text>",
                from + 4,
                y + 13
            );
        }
    }
    let mut path = format!("M{x} {}", y + height);
    for (i, (bytes, _)) in points.iter().enumerate() {
        let top = y + height - scale(*bytes, highest, height - 18);
        let _ = write!(path, "L{} {top}L{} {top}", at(i), at(i + 1));
    }
    let _ = write!(path, "L{} {}Z", x + width, y + height);
    let _ = write!(out, "<path d=\"{path}\" fill=\"#0072b2\" fill-opacity=\"0.75\"/>");
    if let Some(peak) = points.iter().position(|p| p.0 == highest) {
        let _ = write!(
            out,
            "<circle cx=\"{}\" cy=\"{}\" r=\"4\" fill=\"#d55e00\"><title>peak: {} allocated</title></circle>",
            at(peak),
            y + 18,
            e.peak.allocated
        );
    }
}

/// A picture of the step, 720 by 220.
pub fn step(e: &Estimate) -> String {
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 720 220\" role=\"img\" aria-label=\"Memory held over one step; the peak is {} in {}\"><style>{STYLE}</style>",
        e.peak.allocated,
        e.peak.phase.name()
    );
    drawing(&mut out, e, (0, 0), (720, 220));
    out.push_str("</svg>");
    out
}
