//! The answer: does it fit, how much it needs, and why. The batch and the card are chosen here.

use super::bar::Bar;
use super::batch::Batch;
use super::gpu::Gpu;
use crate::categories::{NAMES, PHASES, percent, size};
use crate::page::Edit;
use crate::protocol::{Head, Sizes, Verdict};
use crate::state::State;
use memfit_engine::devices::{Card, Device};
use memfit_engine::scenario::{INFERENCE, TRAINING};
use memfit_report::amounts::grouped;
use std::rc::Rc;
use yew::prelude::*;

#[derive(Properties, PartialEq)]
pub(crate) struct Props {
    pub(crate) state: State,
    /// None where the plan cannot be run as it is.
    pub(crate) head: Option<Rc<Head>>,
    /// The largest batch that fits: not known yet, no batch at all, or two numbers.
    pub(crate) largest: Option<Option<Sizes>>,
    pub(crate) edit: Callback<Edit>,
    pub(crate) took: f64,
    /// This machine's card.
    pub(crate) machine: Option<String>,
}

/// A card by what a user wrote.
pub(crate) fn device(gpu: &str) -> Option<Device> {
    Card::find(gpu).ok().map(|card| card.device)
}

#[component]
pub(crate) fn Answer(props: &Props) -> Html {
    let state = &props.state;
    html! {
        <section class="card answer" aria-label="Answer">
            <div class="choice">
                <Gpu gpu={state.gpu.clone()} own={props.machine.as_ref() == Some(&state.gpu)} edit={&props.edit} />
                <Batch batch={state.batch} edit={&props.edit} />
            </div>
            if let Some(head) = &props.head { { said(props, head) } }
        </section>
    }
}

fn said(props: &Props, head: &Head) -> Html {
    let state = &props.state;
    let device = device(&state.gpu);
    let visible = device.as_ref().map_or(0, |d| d.usable().0);
    let name = device.as_ref().map_or_else(|| "the card".to_owned(), short);
    html! {
        <>
            <div aria-live="polite">
                { largest(props, &name) }
                { verdict(head, state, &name) }
                <p class="why">{why(head)}</p>
            </div>
            <Bar parts={head.parts.clone()} others={head.fit.as_ref().map_or(0, |f| f.others)} capacity={visible} card={name} />
            <p class="note">{range(head)}{format!(" Estimated in {:.0} ms.", props.took)}</p>
        </>
    }
}

/// The largest batch, how much of it is safe, and a button that takes that.
fn largest(props: &Props, name: &str) -> Html {
    let summary = html! { <span class="plan">{props.state.summary()}</span> };
    let title = |text: String| html! { <h2 id="answer-title">{text}{" "}{summary.clone()}</h2> };
    match props.largest {
        None => title(format!("Largest batch on {name}: …")),
        Some(None) => title(format!("On {name}")),
        Some(Some(Sizes { largest: 0, .. })) => title(format!("Not even one sample fits on {name}")),
        Some(Some(sizes @ Sizes { largest, safe })) => {
            let n = sizes.advised();
            let told = match safe {
                0 => "none is safe".to_owned(),
                _ => format!("{} is safe", grouped(safe)),
            };
            let take = props.edit.reform(move |_: MouseEvent| -> Edit { Rc::new(move |s| s.batch = n) });
            html! {
                <div class="largest">
                    { title(format!("Largest batch on {name}: {}", grouped(largest))) }
                    if safe < largest { <span class="note">{told}</span> }
                    if n != props.state.batch { <button type="button" onclick={take}>{format!("Use {}", grouped(n))}</button> }
                </div>
            }
        }
    }
}

/// Whether the chosen batch fits.
fn verdict(head: &Head, state: &State, name: &str) -> Html {
    let batch = head.batch.map_or_else(|| "It".to_owned(), |n| format!("Batch {}", grouped(n)));
    let Some(fit) = &head.fit else {
        return html! { <p id="verdict" class="verdict">{format!("{batch} on {name}")}</p> };
    };
    let room = size(fit.headroom.unsigned_abs());
    let (class, sign, said) = match fit.verdict {
        Verdict::Fits => ("verdict fits", "✓", format!("{batch} fits on {name}, with {room} to spare.")),
        Verdict::Tight => (
            "verdict tight",
            "≈",
            format!("{batch} is tight on {name}: it fits if all goes as expected, with {room} to spare."),
        ),
        Verdict::DoesNotFit if fit.headroom < 0 => {
            ("verdict fails", "✕", format!("{batch} does not fit on {name}: {room} are missing."))
        }
        Verdict::DoesNotFit => ("verdict fails", "✕", format!("{batch} does not fit on {name}.")),
    };
    let retries = fit.verdict != Verdict::DoesNotFit && fit.retries > 0;
    html! {
        <>
            <p id="verdict" {class}><span aria-hidden="true">{sign}{" "}</span>{said}</p>
            if let Some(shortage) = &fit.shortage { <p class="why">{"It ends where "}{shortage}{"."}</p> }
            if retries { <p class="why">{"The allocator has to give cached memory back on the way, which costs time."}</p> }
            if let Some(taken) = fit.preallocated { <p class="why">{format!("The framework takes {} at its start, whatever it needs.", size(taken))}</p> }
            { beside(head) }
            if state.mode == "infer" { <p class="why">{"Inference alone: no gradients and no optimizer."}</p> }
        </>
    }
}

/// What the process holds around the step, where it is told what that does.
fn beside(head: &Head) -> Html {
    let Some((_, step)) = head.stretches.iter().find(|(name, _)| [TRAINING, INFERENCE].contains(&&**name))
    else {
        return html! {};
    };
    let alone: u64 = head.parts.iter().take(9).sum();
    let ahead = (*step > alone).then(|| {
        format!("With what else the process holds on the card, the step has {} in tensors.", size(*step))
    });
    let validation = head.stretches.iter().find(|(name, _)| name.starts_with("validation"));
    let forward = validation.map(|(name, held)| {
        let name = name.replace("validation, ", "Validation with ");
        let than = if held > step { "more than the step" } else { "less than the step" };
        format!("{name} holds {} in tensors, {than} ({}).", size(*held), size(*step))
    });
    let most = head.stretches.iter().max_by_key(|(_, held)| *held).filter(|(_, held)| held > step);
    let most = most.filter(|most| Some(*most) != validation);
    let most = most.map(|(name, held)| {
        format!("The most is held in another part, “{name}”: {} in tensors.", size(*held))
    });
    let told = ahead.into_iter().chain(forward).chain(most);
    told.map(|sentence| html! { <p class="why">{sentence}</p> }).collect()
}

/// How sure it is.
fn range(head: &Head) -> String {
    if head.device_low == head.device_high {
        return String::new();
    }
    format!("What the driver shows is between {} and {}.", size(head.device_low), size(head.device_high))
}

/// Why it is so much: when, where and what.
fn why(head: &Head) -> String {
    // What the allocator and the driver hold beyond tensors is no reason for the peak.
    let tensors = head.parts.get(..9).unwrap_or_default();
    let (total, all): (u64, u64) = (tensors.iter().sum(), head.parts.iter().sum());
    let largest = tensors.iter().enumerate().max_by_key(|(_, bytes)| **bytes);
    let (part, bytes) = largest.map_or(("", 0), |(i, bytes)| (NAMES[i], *bytes));
    let phase = PHASES.get(usize::from(head.phase)).copied().unwrap_or_default();
    let layer = if head.layer.is_empty() { String::new() } else { format!(" at {}", head.layer) };
    let share = percent(bytes, total);
    let rest = if all > total {
        format!(" With the allocator and the driver it is {}.", size(all))
    } else {
        String::new()
    };
    format!("The peak is in {phase}{layer}: tensors hold {}, {share} of it {part}.{rest}", size(total))
}

/// A card's name without its maker's.
pub(crate) fn short(device: &Device) -> String {
    let words = ["NVIDIA", "GeForce", "AMD", "Radeon", "Apple", "Instinct"];
    let kept: Vec<&str> = device.name.split(' ').filter(|w| !words.contains(w)).collect();
    if kept.is_empty() { device.name.clone() } else { kept.join(" ") }
}
