//! What can be chosen. Sizes that the file leaves open come first, since nothing can be said without them.

use super::fields::{Check, Select, Text, options};
use crate::page::Edit;
use crate::protocol::Facts;
use crate::state::{self, State, read_shape, shape};
use std::rc::Rc;
use yew::prelude::*;

#[derive(Properties, PartialEq)]
pub(crate) struct Props {
    pub(crate) state: State,
    pub(crate) facts: Rc<Facts>,
    pub(crate) edit: Callback<Edit>,
    /// The optimizer's implementation that is really used.
    pub(crate) used: Option<String>,
}

/// A callback that puts a value into the state.
fn put<T: Clone + 'static>(edit: &Callback<Edit>, set: fn(&mut State, T)) -> Callback<T> {
    edit.reform(move |value: T| -> Edit { Rc::new(move |state: &mut State| set(state, value.clone())) })
}

#[component]
pub(crate) fn Controls(props: &Props) -> Html {
    let (state, edit) = (&props.state, &props.edit);
    let train = state.mode == "train";
    let optimizers: Vec<(AttrValue, AttrValue)> =
        memfit_engine::optimizers::names().map(|name| (name.into(), name.into())).collect();
    let accumulate = edit.reform(|text: String| -> Edit {
        let n = text.trim().parse().unwrap_or(1).max(1);
        Rc::new(move |s| s.accumulate = n)
    });
    let others = edit.reform(|text: String| -> Edit {
        let n = text.trim().parse().unwrap_or_default();
        Rc::new(move |s| s.others = n)
    });
    let freeze = edit.reform(|text: String| -> Edit {
        let globs: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        Rc::new(move |s| s.freeze.clone_from(&globs))
    });
    html! {
        <form class="card controls" aria-label="Training plan" onsubmit={Callback::from(|e: SubmitEvent| e.prevent_default())}>
            <h2>{"Training plan"}</h2>
            { sizes(props) }
            <Select id="framework" label="Framework" value={state.framework.clone()} options={options(&state::FRAMEWORKS)}
                on_change={put(edit, |s, v| s.framework = v)} />
            <Select id="precision" label="Precision" value={state.precision.clone()} options={options(&state::PRECISIONS)}
                on_change={put(edit, |s, v| s.precision = v)} />
            <Select id="mode" label="What is run" value={state.mode.clone()} options={options(&state::MODES)}
                on_change={put(edit, |s, v| s.mode = v)} />
            if train {
                <Select id="optimizer" label="Optimizer" value={state.optimizer.clone()} options={optimizers}
                    on_change={put(edit, |s, v| s.optimizer = v)} />
                <Select id="checkpoint" label="Activation checkpointing" value={state.checkpoint.clone()}
                    options={options(&state::CHECKPOINTS)} on_change={put(edit, |s, v| s.checkpoint = v)} />
                <Text id="accumulate" label="Micro-batches a step" value={state.accumulate.to_string()} mode="numeric"
                    note="gradient accumulation, each of the batch size above" on_change={accumulate} />
                <Text id="freeze" label="Frozen parameters" value={state.freeze.join(" ")} placeholder="encoder.* embed.*"
                    note="by name, several with a space between" on_change={freeze} />
                { more(props) }
            }
            <details open={state.others > 0 || state.display}>
                <summary>{"What else is on the card"}</summary>
                <Text id="others" label="Other processes, MiB" value={state.others.to_string()} mode="numeric" on_change={others} />
                <Check id="display" label="It drives a display" checked={state.display} on_change={put(edit, |s, v| s.display = v)} />
            </details>
        </form>
    }
}

fn more(props: &Props) -> Html {
    let (state, edit) = (&props.state, &props.edit);
    let tensorflow =
        state.framework == "tensorflow" || state.framework.is_empty() && props.facts.format == "keras";
    let used = props.used.as_deref().map(|used| format!("{used} is used")).unwrap_or_default();
    html! {
        <details>
            <summary>{"More"}</summary>
            <Select id="loss" label="Loss" value={state.loss.clone()} options={options(&state::LOSSES)}
                on_change={put(edit, |s, v| s.loss = v)} />
            <Select id="impl" label="Optimizer's implementation" value={state.optimizer_impl.clone()} note={used}
                options={options(&state::IMPLEMENTATIONS)} on_change={put(edit, |s, v| s.optimizer_impl = v)} />
            if tensorflow {
                <Check id="growth" label="Memory growth" checked={state.growth} on_change={put(edit, |s, v| s.growth = v)} />
            } else {
                <Check id="expandable" label="Allocator with expandable segments" checked={state.expandable}
                    on_change={put(edit, |s, v| s.expandable = v)} />
            }
            <Check id="decay" label="Weight decay" checked={state.weight_decay}
                on_change={put(edit, |s, v| s.weight_decay = v)} />
            <Check id="keep" label="Gradients stay between steps" checked={state.keep_gradients}
                on_change={put(edit, |s, v| s.keep_gradients = v)} />
            <Check id="ema" label="Averaged weights (EMA)" checked={state.ema} on_change={put(edit, |s, v| s.ema = v)} />
            <Check id="master" label="Float32 master weights" checked={state.master_weights}
                on_change={put(edit, |s, v| s.master_weights = v)} />
            if props.facts.eval {
                <Check id="bn" label="Put folded batch norms back" checked={state.assume_batchnorm}
                    on_change={put(edit, |s, v| s.assume_batchnorm = v)} />
            }
        </details>
    }
}

/// Named sizes, and whole shapes where the file fixes them.
fn sizes(props: &Props) -> Html {
    let (state, facts) = (&props.state, &props.facts);
    let named = facts.symbols.iter().map(|name| {
        let key = name.clone();
        let change = props.edit.reform(move |text: String| -> Edit {
            let (key, n) = (key.clone(), text.trim().parse::<u64>().ok().filter(|n| *n > 0));
            Rc::new(move |s| {
                if let Some(n) = n {
                    s.set.insert(key.clone(), n);
                }
            })
        });
        let value = state.set.get(name).map(ToString::to_string).unwrap_or_default();
        html! {
            <Text id={format!("set-{name}")} label={format!("Size “{name}”")} value={value} mode="numeric" on_change={change} />
        }
    });
    let fixed = facts.inputs.iter().filter(|i| i.dims.as_ref().is_some_and(|d| d.len() > 1));
    let shapes = fixed.map(|input| {
        let key = input.name.clone();
        let change = props.edit.reform(move |text: String| -> Edit {
            let (key, dims) = (key.clone(), read_shape(&text));
            Rc::new(move |s| {
                match &dims {
                    Some(dims) => s.input.insert(key.clone(), dims.clone()),
                    None => s.input.remove(&key),
                };
            })
        });
        let value = state.input.get(&input.name).map(|d| shape(d)).unwrap_or_default();
        let declared = input.dims.as_ref().map(|d| d.join("x")).unwrap_or_default();
        html! {
            <Text id={format!("input-{}", input.name)} label={format!("Shape of “{}”", input.name)} value={value}
                placeholder={declared} on_change={change} />
        }
    });
    html! {
        <>
            { for named }
            <details>
                <summary>{"Input shapes"}</summary>
                { for shapes }
                <p class="note">{"A shape given here replaces the file's, batch included."}</p>
            </details>
        </>
    }
}
