//! The answer: does it fit, how much it needs, and why. The batch and the card are chosen here.

use super::bar::Bar;
use super::fields::{Text, value};
use crate::categories::{NAMES, PHASES, percent, size};
use crate::page::Edit;
use crate::protocol::Head;
use crate::state::State;
use memfit_engine::devices::{self, Device};
use std::rc::Rc;
use yew::prelude::*;

#[derive(Properties, PartialEq)]
pub(crate) struct Props {
    pub(crate) state: State,
    pub(crate) head: Rc<Head>,
    pub(crate) edit: Callback<Edit>,
    pub(crate) took: f64,
}

#[component]
pub(crate) fn Answer(props: &Props) -> Html {
    let (state, head) = (&props.state, &props.head);
    let device = devices::resolve(&state.gpu);
    let usable = device.as_ref().map_or(0, |d| d.usable().0);
    let name = device.as_ref().map_or_else(|_| "the card".to_owned(), short);
    let fits = head.device <= usable;
    html! {
        <section class="card answer" aria-labelledby="answer-title">
            <div class="choice">
                <Gpu state={state.clone()} edit={&props.edit} />
                <Batch batch={state.batch} edit={&props.edit} />
            </div>
            <div aria-live="polite">
                <h2 id="answer-title" class={if fits { "verdict fits" } else { "verdict fails" }}>
                    <span aria-hidden="true">{if fits { "✓ " } else { "✕ " }}</span>
                    {format!("Batch {} {} {name}", head.batch.unwrap_or(state.batch), if fits { "fits on" } else { "does not fit on" })}
                </h2>
                <p class="why">{why(head)}</p>
            </div>
            <Bar parts={head.parts.clone()} capacity={usable} card={name} />
            <p class="note">{format!("{} · estimated in {:.0} ms", state.summary(), props.took)}</p>
        </section>
    }
}

/// Why it is so much: when, where and what.
fn why(head: &Head) -> String {
    let total: u64 = head.parts.iter().sum();
    let largest = head.parts.iter().enumerate().max_by_key(|(_, bytes)| **bytes);
    let (part, bytes) =
        largest.map_or(("", 0), |(i, bytes)| (NAMES.get(i).copied().unwrap_or_default(), *bytes));
    let phase = PHASES.get(usize::from(head.phase)).copied().unwrap_or_default();
    let layer = if head.layer.is_empty() { String::new() } else { format!(" at {}", head.layer) };
    format!("The peak of {} is in {phase}{layer}; {} of it is {part}.", size(total), percent(bytes, total))
}

/// A card's name without its maker's.
pub(crate) fn short(device: &Device) -> String {
    let words = ["NVIDIA", "GeForce", "AMD", "Radeon", "Apple", "Instinct"];
    let kept: Vec<&str> = device.name.split(' ').filter(|w| !words.contains(w)).collect();
    if kept.is_empty() { device.name.clone() } else { kept.join(" ") }
}

#[derive(Properties, PartialEq)]
struct GpuProps {
    state: State,
    edit: Callback<Edit>,
}

/// A card by name, or a size.
#[component]
fn Gpu(props: &GpuProps) -> Html {
    let typed = use_state(|| None::<String>);
    let error = typed.as_ref().and_then(|text| devices::resolve(text).err()).map(|e| e.to_string());
    let change = {
        let (typed, edit) = (typed.clone(), props.edit.clone());
        Callback::from(move |text: String| {
            if let Ok(device) = devices::resolve(&text) {
                let id = device.id;
                edit.emit(Rc::new(move |s| s.gpu.clone_from(&id)));
                typed.set(None);
            } else {
                typed.set(Some(text));
            }
        })
    };
    let shown = typed.as_ref().cloned().unwrap_or_else(|| {
        devices::find(&props.state.gpu).map_or_else(|_| props.state.gpu.clone(), |d| d.name.clone())
    });
    html! {
        <>
            <Text id="gpu" label="GPU" value={shown} list="gpus" error={error.unwrap_or_default()} on_change={change}
                note="a name, or a size such as 24GiB" />
            <datalist id="gpus">
                { for devices::catalogue().iter().map(|d| html! {
                    <option value={d.name.clone()}>{size(d.total().0)}</option>
                }) }
            </datalist>
        </>
    }
}

#[derive(Properties, PartialEq)]
struct BatchProps {
    batch: u64,
    edit: Callback<Edit>,
}

/// The slider's places: each size up to 32, then ever larger steps.
fn places() -> Vec<u64> {
    let steps =
        [(1, 32, 1), (36, 64, 4), (72, 256, 8), (288, 1024, 32), (1152, 4096, 128), (4608, 16384, 512)];
    steps.iter().flat_map(|(from, to, by)| (*from..=*to).step_by(*by)).collect()
}

#[component]
fn Batch(props: &BatchProps) -> Html {
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
    let typed = props.edit.reform(move |event: Event| set(value(&event).trim().parse().unwrap_or(batch)));
    html! {
        <div class="field batch">
            <label for="batch">{"Batch size"}</label>
            <div class="slide">
                <input id="slider" type="range" min="0" max={(places.len() - 1).to_string()} value={at.to_string()} oninput={slide}
                    aria-label="Batch size" aria-valuetext={props.batch.to_string()} />
                <input id="batch" type="number" min="1" step="1" value={props.batch.to_string()} onchange={typed} />
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
