//! One step over time: what is held after each event, by category, with the peak and whatever moment is pointed at.

use crate::categories::{NAMES, PHASES, class, size};
use crate::draw::axis;
use crate::draw::timeline::{Columns, STACK, alive, areas, columns, phase};
use crate::protocol::{Details, Step};
use std::rc::Rc;
use wasm_bindgen::JsCast;
use web_sys::Element;
use yew::prelude::*;

const HEIGHT: f64 = 260.0;
const LEFT: f64 = 64.0;
const TOP: f64 = 22.0;
const BOTTOM: f64 = 8.0;

#[derive(Properties, PartialEq)]
pub(crate) struct Props {
    pub(crate) details: Rc<Details>,
    pub(crate) width: u32,
}

#[component]
pub(crate) fn Timeline(props: &Props) -> Html {
    let width = f64::from(props.width);
    let inner = (width - LEFT).max(100.0);
    let drawn = use_memo((props.details.clone(), props.width), |(details, _)| {
        let columns = columns(&details.step, (inner / 1.5) as usize);
        let most = columns.columns.get(columns.peak).map_or(1, |c| c.total().max(1));
        let areas = areas(&columns.columns, inner, HEIGHT - TOP - BOTTOM, most);
        (columns, areas, most)
    });
    let (columns, areas, most) = &*drawn;
    let pointed = use_state(|| None::<usize>);
    // A new estimate has other columns.
    let at = pointed.filter(|at| *at < columns.columns.len()).unwrap_or(columns.peak);
    let step = &props.details.step;
    let each = inner / columns.columns.len().max(1) as f64;
    let x = |column: usize| LEFT + (column as f64 + 0.5) * each;
    let y = |bytes: u64| HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * bytes as f64 / *most as f64;
    let point = {
        let (pointed, count) = (pointed.clone(), columns.columns.len());
        Callback::from(move |event: PointerEvent| {
            let target = event.current_target().and_then(|t| t.dyn_into::<Element>().ok());
            let Some(rect) = target.map(|t| t.get_bounding_client_rect()) else { return };
            let scaled = (f64::from(event.client_x()) - rect.left()) / rect.width().max(1.0) * width;
            let column = ((scaled - LEFT) / each).floor();
            pointed.set((column >= 0.0 && (column as usize) < count).then_some(column as usize));
        })
    };
    let leave = {
        let pointed = pointed.clone();
        Callback::from(move |_: PointerEvent| pointed.set(None))
    };
    let keys = {
        let (pointed, last, peak) = (pointed.clone(), columns.columns.len().saturating_sub(1), columns.peak);
        Callback::from(move |event: KeyboardEvent| {
            let to = match event.key().as_str() {
                "ArrowRight" | "ArrowUp" => (at + 1).min(last),
                "ArrowLeft" | "ArrowDown" => at.saturating_sub(1),
                "PageUp" => (at + 20).min(last),
                "PageDown" => at.saturating_sub(20),
                "Home" => 0,
                "End" => last,
                "p" => peak,
                _ => return,
            };
            event.prevent_default();
            pointed.set(Some(to));
        })
    };
    let here = columns.columns.get(at).copied().unwrap_or_default();
    let said =
        format!("{} after event {} in {}", size(here.total()), here.event, PHASES[phase(step, here.event)]);
    html! {
        <>
            <svg class="chart" viewBox={format!("0 0 {width} {HEIGHT}")} role="slider" tabindex="0"
                aria-label="Moment of the step" aria-valuemin="0" aria-valuemax={columns.columns.len().saturating_sub(1).to_string()}
                aria-valuenow={at.to_string()} aria-valuetext={said}
                onpointermove={point} onpointerleave={leave} onkeydown={keys}>
                { phases(step, columns, &x, each) }
                <g class="grid">
                    { for axis::sizes(*most).into_iter().map(|bytes| html! {
                        <>
                            <line x1={LEFT.to_string()} x2={width.to_string()} y1={y(bytes).to_string()} y2={y(bytes).to_string()} />
                            <text x={(LEFT - 6.0).to_string()} y={(y(bytes) + 4.0).to_string()} text-anchor="end">{short_size(bytes)}</text>
                        </>
                    }) }
                </g>
                <g transform={format!("translate({LEFT} {TOP})")}>
                    { for areas.iter().map(|(category, path)| html! { <path d={path.clone()} class={class(*category)} /> }) }
                </g>
                <line class="peak" x1={x(columns.peak).to_string()} x2={x(columns.peak).to_string()} y1={TOP.to_string()} y2={(HEIGHT - BOTTOM).to_string()} />
                <line class="cursor" x1={x(at).to_string()} x2={x(at).to_string()} y1={TOP.to_string()} y2={(HEIGHT - BOTTOM).to_string()} />
            </svg>
            { legend(columns) }
            <Moment details={props.details.clone()} event={here.event} total={here.total()} peak={at == columns.peak} />
        </>
    }
}

/// The phases as bands behind the curve, with their names where there is room.
fn phases(step: &Step, columns: &Columns, x: &impl Fn(usize) -> f64, each: f64) -> Html {
    let first = |phase: usize| {
        let event = step.phases.get(phase).map_or(usize::MAX, |e| *e as usize);
        columns.columns.partition_point(|c| c.event < event)
    };
    let bands = (1..4).map(|i| {
        let (from, to) = (first(i), if i == 3 { columns.columns.len() } else { first(i + 1) });
        if to <= from {
            return html! {};
        }
        let (left, wide) = (x(from) - each / 2.0, (to - from) as f64 * each);
        let name = PHASES[i];
        html! {
            <>
                <rect class={if i % 2 == 0 { "band even" } else { "band" }} x={left.to_string()} y="0" width={wide.to_string()} height={HEIGHT.to_string()} />
                if wide > name.len() as f64 * 7.5 {
                    <text class="phase" x={(left + 6.0).to_string()} y="15">{name}</text>
                }
            </>
        }
    });
    html! { <g aria-hidden="true">{ for bands }</g> }
}

fn legend(columns: &Columns) -> Html {
    let shown = STACK.iter().filter(|i| columns.columns.iter().any(|c| c.parts[**i] > 0));
    html! {
        <ul class="legend" aria-label="Colours">
            { for shown.map(|i| html! {
                <li><svg class="swatch" viewBox="0 0 10 10" aria-hidden="true"><rect width="10" height="10" class={class(*i)} /></svg>{NAMES[*i]}</li>
            }) }
        </ul>
    }
}

/// `2 GiB` for a round size.
pub(crate) fn short_size(bytes: u64) -> String {
    size(bytes).replace(".00 ", " ").replace(".0 ", " ")
}

#[derive(Properties, PartialEq)]
struct MomentProps {
    details: Rc<Details>,
    event: usize,
    total: u64,
    peak: bool,
}

/// What is alive at a moment.
#[component]
fn Moment(props: &MomentProps) -> Html {
    let step = &props.details.step;
    let layer = step.event_layer.get(props.event).and_then(|l| step.layers.get(*l as usize));
    let phase = PHASES[phase(step, props.event)];
    let alive =
        use_memo((props.details.clone(), props.event), |(details, event)| alive(&details.step, *event, 6));
    let name = |index: &[u32], names: &[String], i: usize| {
        index.get(i).and_then(|l| names.get(*l as usize)).cloned().unwrap_or_default()
    };
    html! {
        <div class="moment">
            <p><strong>{size(props.total)}</strong>{if props.peak { " at the peak" } else { "" }}{format!(", {phase}")}
                if let Some(layer) = layer.filter(|l| !l.is_empty()) { {", "}<code>{layer}</code> }</p>
            <table>
                <caption class="unseen">{"The largest tensors alive at this moment"}</caption>
                <thead><tr><th scope="col">{"Largest tensors alive"}</th><th scope="col">{"Layer"}</th><th scope="col" class="number">{"Size"}</th></tr></thead>
                <tbody>
                    { for alive.iter().map(|(bytes, i)| {
                        let category = usize::from(step.category.get(*i).copied().unwrap_or_default());
                        html! {
                            <tr>
                                <td><svg class="swatch" viewBox="0 0 10 10" role="img" aria-label={NAMES[category]}><rect width="10" height="10" class={class(category)} /></svg>
                                    <code>{name(&step.label, &step.labels, *i)}</code></td>
                                <td><code>{name(&step.layer, &step.layers, *i)}</code></td>
                                <td class="number">{size(*bytes)}</td>
                            </tr>
                        }
                    }) }
                </tbody>
            </table>
        </div>
    }
}
