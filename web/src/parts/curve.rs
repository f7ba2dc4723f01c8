//! The peak against the batch size, with what the card has and where the two meet.

use super::timeline::short_size;
use crate::categories::size;
use crate::draw::axis;
use memfit_report::amounts::grouped;
use std::rc::Rc;
use yew::prelude::*;

const HEIGHT: f64 = 240.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 30.0;

#[derive(Properties, PartialEq)]
pub(crate) struct Props {
    /// Batch sizes and peaks.
    pub(crate) points: Rc<Vec<(u64, u64)>>,
    pub(crate) batch: u64,
    pub(crate) capacity: u64,
    pub(crate) card: AttrValue,
    /// The largest batch that fits, where it is known.
    pub(crate) largest: Option<u64>,
    pub(crate) width: u32,
}

#[component]
pub(crate) fn Curve(props: &Props) -> Html {
    let (Some(last), Some(first)) = (props.points.last(), props.points.first()) else { return html! {} };
    let width = f64::from(props.width);
    let most = props.points.iter().map(|p| p.1).max().unwrap_or_default();
    // The card's line is drawn where it says something; far above, a note does.
    let shows_limit = props.capacity <= most.saturating_mul(3);
    let top = (if shows_limit { most.max(props.capacity) } else { most }) as f64 * 1.06;
    let x = |batch: u64| LEFT + (width - LEFT - RIGHT) * batch as f64 / last.0.max(1) as f64;
    let y = |bytes: u64| HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * bytes as f64 / top.max(1.0);
    let line: Vec<String> = props.points.iter().map(|(b, p)| format!("{:.1},{:.1}", x(*b), y(*p))).collect();
    let over = props.largest.is_some_and(|n| props.points.iter().any(|p| p.0 == n && p.1 > props.capacity));
    let here = props.points.iter().find(|p| p.0 == props.batch);
    let label = format!(
        "The peak rises from {} at batch {} to {} at batch {}; {} has {}",
        size(first.1),
        first.0,
        size(last.1),
        last.0,
        props.card,
        size(props.capacity)
    );
    html! {
        <figure>
            <svg class="chart" viewBox={format!("0 0 {width} {HEIGHT}")} role="img" aria-label={label}>
                <g class="grid">
                    { for axis::sizes(top as u64).into_iter().map(|bytes| html! {
                        <>
                            <line x1={LEFT.to_string()} x2={(width - RIGHT).to_string()} y1={y(bytes).to_string()} y2={y(bytes).to_string()} />
                            <text x={(LEFT - 6.0).to_string()} y={(y(bytes) + 4.0).to_string()} text-anchor="end">{short_size(bytes)}</text>
                        </>
                    }) }
                    { for axis::counts(last.0).into_iter().map(|n| html! {
                        <text x={x(n).to_string()} y={(HEIGHT - BOTTOM + 18.0).to_string()} text-anchor="middle">{grouped(n)}</text>
                    }) }
                </g>
                if shows_limit {
                    <line class="capacity" x1={LEFT.to_string()} x2={(width - RIGHT).to_string()} y1={y(props.capacity).to_string()} y2={y(props.capacity).to_string()} />
                    <text class="capacity-name" x={(LEFT + 8.0).to_string()} y={(y(props.capacity) - 6.0).to_string()}>{format!("{}: {}", props.card, size(props.capacity))}</text>
                }
                <polyline class="line" points={line.join(" ")} />
                if let Some(largest) = props.largest.filter(|n| *n <= last.0 && shows_limit) {
                    <line class="crossing" x1={x(largest).to_string()} x2={x(largest).to_string()} y1={y(props.capacity).to_string()} y2={(HEIGHT - BOTTOM).to_string()} />
                    <text class="capacity-name" x={(x(largest) - 5.0).to_string()} y={(HEIGHT - BOTTOM - 8.0).to_string()} text-anchor="end">{format!("{} fits", grouped(largest))}</text>
                }
                if let Some((batch, peak)) = here {
                    <circle class="here" cx={x(*batch).to_string()} cy={y(*peak).to_string()} r="6" />
                }
            </svg>
            <figcaption class="note">{"batch size →"}
                if over && shows_limit { {" · Near the card's line more fits than the curve says: the allocator gives back what it holds without need."} }
                {if shows_limit { String::new() } else { format!(" · {} has {}, far above this", props.card, size(props.capacity)) }}</figcaption>
        </figure>
    }
}
