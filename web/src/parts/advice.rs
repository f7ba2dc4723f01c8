//! What to change: the smallest set that fits, then each change alone, each made with one click and taken back with another.

use super::compare::difference;
use crate::categories::size;
use crate::page::Applied;
use crate::protocol::{Advice, Change, Head, Outcome, Set, Verdict};
use serde_json::{Map, Value};
use std::rc::Rc;
use yew::prelude::*;

#[derive(Properties, PartialEq)]
pub(crate) struct Props {
    /// For the plan as it is now; none while it is looked for.
    pub(crate) advice: Option<Rc<Advice>>,
    pub(crate) wanted: bool,
    pub(crate) head: Rc<Head>,
    /// Whether the head is about the plan as it is now.
    pub(crate) settled: bool,
    pub(crate) applied: Option<Applied>,
    pub(crate) on_want: Callback<()>,
    pub(crate) on_apply: Callback<(String, Map<String, Value>)>,
    pub(crate) on_undo: Callback<()>,
}

#[component]
pub(crate) fn AdviceCard(props: &Props) -> Html {
    let fits = props.head.fits();
    let title = if fits { "What would save memory" } else { "What to change so that it fits" };
    html! {
        <section class="card advice" aria-labelledby="advice-title">
            <h2 id="advice-title" tabindex="-1">{title}</h2>
            { applied(props) }
            if let Some(advice) = &props.advice {
                { found(advice, fits, props) }
            } else if props.wanted || !fits {
                <p class="note" role="status">{"Each change is run and replayed…"}</p>
            } else {
                <p>{"It fits. Changes that make it smaller are found by running the changed step, not by rules of thumb."}</p>
                <div class="actions"><button type="button" onclick={props.on_want.reform(|_| ())}>{"Look for savings"}</button></div>
            }
        </section>
    }
}

/// What the last change did.
fn applied(props: &Props) -> Html {
    let Some(applied) = &props.applied else { return html! {} };
    let (before, after) = (applied.head.device, props.head.device);
    let effect = if props.settled {
        format!(
            "{} → {}, {}: {}",
            size(before),
            size(after),
            difference(before, after),
            verdict_of(&props.head)
        )
    } else {
        "…".to_owned()
    };
    html! {
        <p class="applied" role="status">
            <span><strong>{"Applied: "}{&applied.title}{". "}</strong>{effect}</span>
            <button type="button" onclick={props.on_undo.reform(|_| ())}>{"Undo"}</button>
        </p>
    }
}

fn found(advice: &Advice, fits: bool, props: &Props) -> Html {
    if advice.changes.is_empty() {
        return html! { <p>{"No change that is known here makes it smaller."}</p> };
    }
    html! {
        <>
            if let Some(set) = &advice.combination {
                { combination(set, props) }
            } else if !fits {
                <p class="verdict fails"><span aria-hidden="true">{"✕ "}</span>{"No set of these changes makes it fit: take a smaller model or a larger card."}</p>
            }
            <h3>{"Each change alone"}</h3>
            <ul class="changes">
                { for advice.changes.iter().map(|change| one(change, props)) }
            </ul>
        </>
    }
}

fn combination(set: &Set, props: &Props) -> Html {
    let titles: Vec<&str> = set.changes.iter().map(|part| &*part.title).collect();
    let title = titles.join(" + ");
    let apply = apply(&title, &set.plan, props);
    let code: Vec<&str> = set.changes.iter().map(|part| part.snippet.trim_end()).collect();
    html! {
        <div class="change best">
            <div>
                <p><strong>{if set.changes.len() == 1 { "One change is enough: " } else { "These together: " }}{&title}</strong></p>
                <p class="note">{"then "}{outcome(&set.result)}</p>
                { snippet(&code.join("\n\n")) }
            </div>
            <button type="button" class="primary" onclick={apply} aria-label={format!("Apply {title}")}>{"Apply"}</button>
        </div>
    }
}

fn one(change: &Change, props: &Props) -> Html {
    let effort = match change.effort {
        1 => "a setting",
        2 => "a change of the training loop",
        _ => "touches what is learnt",
    };
    let saved = size(change.saving_bytes.unsigned_abs());
    let saves = match change.saving_bytes {
        n if n > 0 && change.for_others => html! { <>{"leaves "}<strong>{saved}</strong>{" to others"}</> },
        n if n > 0 => html! { <>{"saves "}<strong>{saved}</strong>{", then "}{outcome(&change.result)}</> },
        _ => html! { <>{"saves nothing of the peak, then "}{outcome(&change.result)}</> },
    };
    html! {
        <li class="change">
            <div>
                <p><strong>{&change.title}</strong><span class="effort">{effort}</span></p>
                <p>{saves}</p>
                <p class="note">{"costs: "}{&change.cost}</p>
                { snippet(&change.snippet) }
            </div>
            if crate::state::can_apply(&change.plan) {
                <button type="button" onclick={apply(&change.title, &change.plan, props)} aria-label={format!("Apply {}", change.title)}>{"Apply"}</button>
            }
        </li>
    }
}

fn apply(title: &str, plan: &Map<String, Value>, props: &Props) -> Callback<MouseEvent> {
    let change = (title.to_owned(), plan.clone());
    props.on_apply.reform(move |_: MouseEvent| change.clone())
}

fn snippet(code: &str) -> Html {
    html! {
        <details class="code"><summary>{"Code"}</summary><pre tabindex="0">{code}</pre></details>
    }
}

fn outcome(outcome: &Outcome) -> Html {
    let class = match outcome.verdict {
        Verdict::Fits => "good",
        Verdict::Tight => "near",
        Verdict::DoesNotFit => "bad",
    };
    html! { <span {class}>{in_words(outcome.verdict)}{format!(" with {}", size(outcome.device_bytes))}</span> }
}

fn verdict_of(head: &Head) -> &'static str {
    head.fit.as_ref().map_or("", |fit| in_words(fit.verdict))
}

fn in_words(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Fits => "fits",
        Verdict::Tight => "is tight",
        Verdict::DoesNotFit => "does not fit",
    }
}
