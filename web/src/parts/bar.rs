//! The peak as one bar against what the card has, and the table that says the same in numbers.

use crate::categories::{MEANINGS, NAMES, class, percent, size};
use memfit_graph::order::by_key;
use yew::prelude::*;

/// Width of the bar in its own units.
const WIDTH: f64 = 1000.0;

#[derive(Properties, PartialEq)]
pub(crate) struct Props {
    pub(crate) parts: Vec<u64>,
    /// What other processes hold.
    pub(crate) others: u64,
    /// What the card lets a process have.
    pub(crate) capacity: u64,
    pub(crate) card: AttrValue,
}

#[component]
pub(crate) fn Bar(props: &Props) -> Html {
    let total: u64 = props.parts.iter().sum();
    let scale = WIDTH / (total + props.others).max(props.capacity).max(1) as f64;
    let mut at = props.others as f64 * scale;
    let others = format!("{at:.2}");
    let pieces = props.parts.iter().enumerate().filter(|(_, bytes)| **bytes > 0).map(|(i, bytes)| {
        let width = *bytes as f64 * scale;
        let x = at;
        at += width;
        html! {
            <rect x={format!("{x:.2}")} y="0" width={format!("{width:.2}")} height="40" class={class(i)}>
                <title>{format!("{}: {}", NAMES.get(i).unwrap_or(&""), size(*bytes))}</title>
            </rect>
        }
    });
    let pieces: Vec<Html> = pieces.collect();
    let line = props.capacity as f64 * scale;
    let label = format!("{} of {} that {} gives to a process", size(total), size(props.capacity), props.card);
    html! {
        <figure class="bar">
            <svg viewBox="0 0 1000 40" preserveAspectRatio="none" role="img" aria-label={label}>
                <rect x="0" y="0" width={format!("{:.2}", line.min(WIDTH))} height="40" class="free" />
                if props.others > 0 {
                    <rect x="0" y="0" width={others} height="40" class="others"><title>{format!("other processes: {}", size(props.others))}</title></rect>
                }
                { pieces }
                <line x1={format!("{line:.2}")} x2={format!("{line:.2}")} y1="0" y2="40" class="limit" />
            </svg>
            <figcaption>
                <span>{size(total)}{" at the peak"}
                    if props.others > 0 { {format!(", {} held by others", size(props.others))} }
                </span>
                <span>{size(props.capacity)}{" seen by a process on "}{&props.card}</span>
            </figcaption>
        </figure>
    }
}

#[derive(Properties, PartialEq)]
pub(crate) struct TableProps {
    pub(crate) parts: Vec<u64>,
}

/// The parts, largest first.
#[component]
pub(crate) fn Parts(props: &TableProps) -> Html {
    let total: u64 = props.parts.iter().sum();
    let order = by_key(props.parts.iter().map(|part| !part)).into_iter().filter(|i| props.parts[*i] > 0);
    html! {
        <table class="parts">
            <caption class="unseen">{"What the memory is at the peak"}</caption>
            <thead><tr><th scope="col">{"At the peak"}</th><th scope="col" class="number">{"Size"}</th><th scope="col" class="number">{"Share"}</th></tr></thead>
            <tbody>
                { for order.into_iter().map(|i| html! {
                    <tr>
                        <th scope="row"><svg class="swatch" viewBox="0 0 10 10" aria-hidden="true"><rect width="10" height="10" class={class(i)} /></svg>
                            {NAMES[i]}<span class="meaning">{MEANINGS[i]}</span></th>
                        <td class="number">{size(props.parts[i])}</td>
                        <td class="number">{percent(props.parts[i], total)}</td>
                    </tr>
                }) }
            </tbody>
            <tfoot><tr><th scope="row">{"in all"}</th><td class="number">{size(total)}</td><td></td></tr></tfoot>
        </table>
    }
}
