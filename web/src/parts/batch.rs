//! The batch: a slider, and a number beside it.

use super::fields::value;
use crate::page::Edit;
use crate::state::State;
use std::rc::Rc;
use yew::prelude::*;

#[derive(Properties, PartialEq)]
pub(crate) struct Props {
    pub(crate) batch: u64,
    pub(crate) edit: Callback<Edit>,
}

/// The slider's places: each size up to 32, then ever larger steps.
fn places() -> Vec<u64> {
    let steps =
        [(1, 32, 1), (36, 64, 4), (72, 256, 8), (288, 1024, 32), (1152, 4096, 128), (4608, 16384, 512)];
    steps.iter().flat_map(|(from, to, by)| (*from..=*to).step_by(*by)).collect()
}

#[component]
pub(crate) fn Batch(props: &Props) -> Html {
    let places = use_memo((), |()| places());
    let at = places.partition_point(|n| *n < props.batch).min(places.len().saturating_sub(1));
    let set = |n: u64| -> Edit { Rc::new(move |s: &mut State| s.batch = n.max(1)) };
    let slide = {
        let places = places.clone();
        props.edit.reform(move |event: InputEvent| {
            let at: usize = value(&event).parse().unwrap_or_default();
            set(places.get(at).copied().unwrap_or(1))
        })
    };
    let batch = props.batch;
    // As with text: what is being typed stays.
    let draft = use_state(|| None::<String>);
    let typing = {
        let draft = draft.clone();
        Callback::from(move |event: InputEvent| draft.set(Some(value(&event))))
    };
    let typed = {
        let (draft, edit) = (draft.clone(), props.edit.clone());
        Callback::from(move |event: Event| {
            draft.set(None);
            edit.emit(set(value(&event).trim().parse().unwrap_or(batch)));
        })
    };
    let shown = draft.as_ref().cloned().unwrap_or_else(|| batch.to_string());
    html! {
        <div class="field batch">
            <label for="batch">{"Batch size"}</label>
            <div class="slide">
                <input id="slider" type="range" min="0" max={(places.len() - 1).to_string()} value={at.to_string()} oninput={slide}
                    aria-label="Batch size" aria-valuetext={props.batch.to_string()} />
                <input id="batch" type="number" min="1" step="1" value={shown} oninput={typing} onchange={typed} />
            </div>
        </div>
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_rise_and_every_small_batch_has_one() {
        let places = places();
        assert!(places.windows(2).all(|w| w[0] < w[1]) && places[..32] == (1..=32).collect::<Vec<u64>>());
    }
}
