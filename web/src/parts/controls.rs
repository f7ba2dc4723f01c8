//! What can be chosen. Sizes that the file leaves open come first, since nothing can be said without them.

use super::fields::{Check, Select, Text, options};
use super::told::{CustomLayers, Told};
use crate::page::Edit;
use crate::protocol::Facts;
use crate::state::{self, AMOUNTS, FLAGS, Place, State, read_shape, shape};
use std::rc::Rc;
use yew::prelude::*;

#[derive(Properties, PartialEq)]
pub(crate) struct Props {
    pub(crate) state: State,
    pub(crate) facts: Rc<Facts>,
    pub(crate) edit: Callback<Edit>,
    /// The optimizer's implementation that is really used.
    pub(crate) used: Option<String>,
    pub(crate) on_told: Callback<Told>,
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
    // The usual one is not written into links.
    let usual = state::usual_framework(&props.facts.format);
    // Burn's profile runs what its importer reads, which is ONNX.
    let onnx = props.facts.format == "onnx";
    let frameworks = state::FRAMEWORKS.iter().filter(|(word, _)| onnx || *word != "burn");
    let frameworks = frameworks.map(|(word, name)| (if *word == usual { "" } else { *word }, *name));
    let frameworks: Vec<_> = frameworks.collect();
    let checkpoints = state::CHECKPOINTS.into_iter().filter(|(word, _)| state.recomputes(word));
    let checkpoints: Vec<_> = checkpoints.collect();
    let framework = Some(&state.framework).filter(|word| *word != usual).cloned().unwrap_or_default();
    html! {
        <form class="card controls" aria-label="Training plan" onsubmit={Callback::from(|e: SubmitEvent| e.prevent_default())}>
            <h2>{"Training plan"}</h2>
            { sizes(props) }
            <Select id="framework" label="Framework" value={framework} options={options(&frameworks)}
                on_change={put(edit, |s, v| {
                    s.framework = v;
                    if !s.recomputes(&s.checkpoint) {
                        s.checkpoint = "none".into();
                    }
                })} />
            <Select id="precision" label="Precision" value={state.precision.clone()} options={options(&state::PRECISIONS)}
                on_change={put(edit, |s, v| s.precision = v)} />
            <Select id="mode" label="What is run" value={state.mode.clone()} options={options(&state::MODES)}
                on_change={put(edit, |s, v| s.mode = v)} />
            if train {
                <Select id="optimizer" label="Optimizer" value={state.optimizer.clone()} options={optimizers}
                    on_change={put(edit, |s, v| s.optimizer = v)} />
                <Select id="checkpoint" label="Activation checkpointing" value={state.checkpoint.clone()}
                    options={options(&checkpoints)} on_change={put(edit, |s, v| s.checkpoint = v)} />
                <Text id="accumulate" label="Micro-batches a step" value={state.accumulate.to_string()} mode="numeric"
                    note="gradient accumulation, each of the batch size above" on_change={accumulate} />
                <Text id="freeze" label="Frozen parameters" value={state.freeze.join(" ")} placeholder="encoder.* embed.*"
                    note="by name, several with a space between" on_change={freeze} />
                { amounts(props, Place::Plan) }
            }
            { step(props) }
            { allocator(props) }
            <Group title="Several GPUs" says={state.says(Place::Parallel)}>
                { amounts(props, Place::Parallel) }
                <Select id="parallel" label="How replicas share" value={state.sharing.clone()} options={options(&state::SHARINGS)}
                    on_change={put(edit, |s, v| s.sharing = v)} />
            </Group>
            <Group title="Around the step" says={state.says(Place::Process)}>{ amounts(props, Place::Process) }</Group>
            <Group title="What else is on the card" says={state.says(Place::Card)}>
                <Text id="others" label="Other processes, MiB" value={state.others.to_string()} mode="numeric" on_change={others} />
                { flags(props, Place::Card) }
            </Group>
        </form>
    }
}

/// How the step is run, beyond what everybody asks.
fn step(props: &Props) -> Html {
    let (state, edit, facts) = (&props.state, &props.edit, &props.facts);
    let (train, torch) = (state.mode == "train", state.framework_of(&facts.format) == "pytorch");
    let used = props.used.as_deref().map(|used| format!("{used} is used")).unwrap_or_default();
    html! {
        <Group title="Loss, kernels and more" says={state.says(Place::Step)}>
            if train {
                <Select id="loss" label="Loss" value={state.loss.clone()} options={options(&state::LOSSES)}
                    on_change={put(edit, |s, v| s.loss = v)} />
                if torch {
                    <Select id="impl" label="Optimizer's implementation" value={state.optimizer_impl.clone()} note={used}
                        options={options(&state::IMPLEMENTATIONS)} on_change={put(edit, |s, v| s.optimizer_impl = v)} />
                }
            }
            if facts.untied {
                <Select id="tied" label="Output layer and embedding" value={state.tied.clone()} options={options(&state::TIED)}
                    on_change={put(edit, |s, v| s.tied = v)} />
            }
            if facts.folded { { flags(props, Place::Export) } }
            { flags(props, Place::Step) }
        </Group>
    }
}

/// How the framework's allocator is set up.
fn allocator(props: &Props) -> Html {
    let state = &props.state;
    let torch = state.framework_of(&props.facts.format) == "pytorch";
    html! {
        <Group title="Allocator" says={state.says(Place::Allocator)}>
            { flags(props, Place::Allocator) }
            if torch {
                <Text id="alloc" label="PYTORCH_ALLOC_CONF" value={state.conf.clone()} placeholder="max_split_size_mb:128"
                    on_change={put(&props.edit, |s, v: String| v.trim().clone_into(&mut s.conf))} />
            }
            { amounts(props, Place::Allocator) }
        </Group>
    }
}

#[derive(Properties, PartialEq)]
struct GroupProps {
    title: AttrValue,
    /// Whether something in it is not at its default.
    says: bool,
    children: Html,
}

/// A part that is folded until something in it is not at its default, and is then left as it is.
#[component]
fn Group(props: &GroupProps) -> Html {
    let open = use_mut_ref(|| false);
    *open.borrow_mut() |= props.says;
    let open = *open.borrow();
    html! { <details {open}><summary>{&props.title}</summary>{props.children.clone()}</details> }
}

/// The numbers that mean something here.
fn amounts(props: &Props, place: Place) -> Html {
    let here = |when| props.state.means(when, &props.facts.format);
    let shown = AMOUNTS.iter().filter(|amount| amount.place == place && here(amount.when));
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
fn flags(props: &Props, place: Place) -> Html {
    let here = |when| props.state.means(when, &props.facts.format);
    let shown = FLAGS.iter().filter(|flag| flag.place == place && here(flag.when));
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
        let (key, axis) = (input.name.clone(), input.batch);
        let change = props.edit.reform(move |text: String| -> Edit {
            let (key, dims) = (key.clone(), read_shape(&text));
            Rc::new(move |s| {
                match &dims {
                    Some(dims) => {
                        s.batch = axis.and_then(|axis| dims.get(axis).copied()).unwrap_or(s.batch);
                        s.input.insert(key.clone(), dims.clone())
                    }
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
            <Group title="Input shapes" says={!state.input.is_empty() || !state.layers.is_empty()}>
                { for shapes }
                <p class="note">{"A shape given here takes the place of the file's; its batch is the slider's."}</p>
                if facts.format == "keras" { <CustomLayers layers={state.layers.clone()} on_told={&props.on_told} /> }
            </Group>
        </>
    }
}
