//! What can be chosen. Sizes that the file leaves open come first, since nothing can be said without them.

use super::fields::{Check, Select, Text, options};
use crate::page::Edit;
use crate::protocol::Facts;
use crate::state::{self, AMOUNTS, FLAGS, State, Where, read_shape, shape};
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
                { amounts(props, |means| means == Where::Training) }
            }
            { more(props) }
            { several(props) }
            { process(props) }
            <details open={state.others > 0 || state.has("display")}>
                <summary>{"What else is on the card"}</summary>
                <Text id="others" label="Other processes, MiB" value={state.others.to_string()} mode="numeric" on_change={others} />
                { flags(props, |means| means == Where::Card) }
            </details>
        </form>
    }
}

/// Several GPUs, and how they share the work.
fn several(props: &Props) -> Html {
    let state = &props.state;
    html! {
        <details open={state.amount("gpus").is_some()}>
            <summary>{"Several GPUs"}</summary>
            { amounts(props, |means| means == Where::Parallel) }
            <Select id="parallel" label="How they share the work" value={state.sharing.clone()} options={options(&state::SHARINGS)}
                on_change={put(&props.edit, |s, v| s.sharing = v)} />
        </details>
    }
}

/// What the process does beside the step.
fn process(props: &Props) -> Html {
    let steps = is_tensorflow(props) && props.state.mode == "train";
    let here = |means| means == Where::Process || means == Where::TensorflowTraining && steps;
    html! {
        <details open={["prefetch", "predict", "stale", "steps"].iter().any(|word| props.state.amount(word).is_some())}>
            <summary>{"Around the step"}</summary>
            { amounts(props, here) }
        </details>
    }
}

fn is_tensorflow(props: &Props) -> bool {
    let named = &props.state.framework;
    named == "tensorflow" || named.is_empty() && props.facts.format == "keras"
}

fn more(props: &Props) -> Html {
    let (state, edit) = (&props.state, &props.edit);
    let train = state.mode == "train";
    let tensorflow = is_tensorflow(props);
    let used = props.used.as_deref().map(|used| format!("{used} is used")).unwrap_or_default();
    html! {
        <details>
            <summary>{"More"}</summary>
            if train {
                <Select id="loss" label="Loss" value={state.loss.clone()} options={options(&state::LOSSES)}
                    on_change={put(edit, |s, v| s.loss = v)} />
                if !tensorflow {
                    <Select id="impl" label="Optimizer's implementation" value={state.optimizer_impl.clone()} note={used}
                        options={options(&state::IMPLEMENTATIONS)} on_change={put(edit, |s, v| s.optimizer_impl = v)} />
                }
            }
            { flags(props, |means| match means {
                Where::Card | Where::Process | Where::Parallel => false,
                Where::TensorflowTraining => train && tensorflow,
                Where::Any => true,
                Where::Training => train,
                Where::Pytorch => !tensorflow,
                Where::PytorchTraining => train && !tensorflow,
                Where::Tensorflow => tensorflow,
                Where::Folded => props.facts.eval,
            }) }
            { amounts(props, |means| means == Where::Tensorflow && tensorflow) }
        </details>
    }
}

/// The numbers that mean something here.
fn amounts(props: &Props, here: impl Fn(Where) -> bool) -> Html {
    let shown = AMOUNTS.iter().filter(|amount| here(amount.means));
    shown
        .map(|amount| {
            let word = amount.word;
            let count = props.edit.reform(move |text: String| -> Edit {
                let n = text.trim().parse().unwrap_or_default();
                Rc::new(move |s| s.count(word, n))
            });
            let value = props.state.amount(word).map(|n| n.to_string()).unwrap_or_default();
            html! {
                <Text id={word} label={amount.label} {value} mode="numeric" placeholder="none" note={amount.note} on_change={count} />
            }
        })
        .collect()
}

/// The flags that mean something here.
fn flags(props: &Props, here: impl Fn(Where) -> bool) -> Html {
    let shown = FLAGS.iter().filter(|flag| here(flag.means));
    shown
        .map(|flag| {
            let word = flag.word;
            let turn = props.edit.reform(move |on: bool| -> Edit { Rc::new(move |s| s.turn(word, on)) });
            html! { <Check id={word} label={flag.label} checked={props.state.has(word)} on_change={turn} /> }
        })
        .collect()
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
