//! The largest safe batch on common cards under each precision.

use super::answer::{device, short};
use crate::page::Edit;
use crate::protocol::Sizes;
use crate::state::PRECISIONS;
use memfit_report::amounts::grouped;
use std::collections::BTreeMap;
use std::rc::Rc;
use yew::prelude::*;

/// Cards that people rent or have, smallest first.
const CARDS: [&str; 12] = [
    "rtx-3060",
    "t4",
    "v100-16gb",
    "l4",
    "rtx-3090",
    "rtx-4090",
    "rtx-5090",
    "a100-40gb",
    "l40s",
    "a100-80gb",
    "h100-80gb",
    "h200",
];

/// The cards of the matrix, the chosen one among them.
pub(crate) fn cards(chosen: &str) -> Vec<String> {
    let mut cards: Vec<String> =
        CARDS.iter().filter(|id| device(id).is_some()).map(|id| (*id).into()).collect();
    if !cards.iter().any(|id| id == chosen) && device(chosen).is_some() {
        cards.insert(0, chosen.into());
    }
    cards
}

/// Rows by precision: the largest batches in the order of the cards.
pub(crate) type Rows = BTreeMap<String, Vec<Sizes>>;

#[derive(Properties, PartialEq)]
pub(crate) struct Props {
    pub(crate) cards: Vec<String>,
    pub(crate) rows: Rc<Rows>,
    /// Whether it was asked for.
    pub(crate) wanted: bool,
    pub(crate) gpu: String,
    pub(crate) precision: String,
    pub(crate) on_want: Callback<()>,
    pub(crate) edit: Callback<Edit>,
}

#[component]
pub(crate) fn Matrix(props: &Props) -> Html {
    let most = props.rows.values().flatten().map(|sizes| sizes.advised()).max().unwrap_or_default();
    html! {
        <section class="card" aria-labelledby="matrix-title">
            <h2 id="matrix-title">{"Largest safe batch by card and precision"}</h2>
            if props.wanted {
                <div class="scroll" tabindex="0" role="region" aria-label="Matrix">
                    <table class="matrix">
                        <caption class="unseen">{"The largest safe batch on each card under each precision; a cell chooses both"}</caption>
                        <thead><tr>
                            <th scope="col">{"Card"}</th>
                            { for PRECISIONS.iter().map(|(word, _)| html! { <th scope="col" class="number">{word}</th> }) }
                        </tr></thead>
                        <tbody>
                            { for props.cards.iter().enumerate().map(|(i, id)| html! {
                                <tr>
                                    <th scope="row">{device(id).map_or_else(|| id.clone(), |d| short(&d))}</th>
                                    { for PRECISIONS.iter().map(|(word, _)| cell(props, id, word, i, most)) }
                                </tr>
                            }) }
                        </tbody>
                    </table>
                </div>
                <p class="note">{"With everything else as chosen. A cell takes its card, precision and batch. ≈: fits only if all goes as expected; 0: not even one sample fits."}</p>
            } else {
                <p>{"The same plan on other cards, in each precision."}</p>
                <div class="actions"><button type="button" onclick={props.on_want.reform(|_| ())}>{"Fill the matrix"}</button></div>
            }
        </section>
    }
}

fn cell(props: &Props, id: &str, precision: &'static str, i: usize, most: u64) -> Html {
    let Some(sizes) = props.rows.get(precision).and_then(|row| row.get(i)).copied() else {
        return html! { <td class="number">{"…"}</td> };
    };
    let size = sizes.advised();
    let mark = if sizes.safe < size { "≈ " } else { "" };
    let chosen = props.gpu == id && props.precision == precision;
    // Five shades: the batch beside the largest of the matrix, on a scale of doublings.
    let shade = match most.checked_div(size.max(1)) {
        _ if size == 0 => "s0",
        Some(0..2) => "s5",
        Some(2..4) => "s4",
        Some(4..8) => "s3",
        Some(8..16) => "s2",
        _ => "s1",
    };
    let id = id.to_owned();
    let take = props.edit.reform(move |_: MouseEvent| -> Edit {
        let id = id.clone();
        Rc::new(move |s| {
            s.gpu.clone_from(&id);
            s.precision = precision.into();
            s.batch = size.max(1);
        })
    });
    html! {
        <td class={classes!("number", shade)}>
            <button type="button" class="cell" onclick={take} aria-pressed={chosen.then_some("true")}>{mark}{grouped(size)}</button>
        </td>
    }
}
