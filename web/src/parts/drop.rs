//! Which model: a file of one's own, or an example.

use crate::page::browser::{MODELS, model_of};
use crate::page::recent::Recent;
use crate::protocol::Facts;
use std::rc::Rc;
use wasm_bindgen::JsCast;
use web_sys::{File, HtmlInputElement};
use yew::prelude::*;

/// The site's own models: file and name.
pub(crate) fn examples() -> impl Iterator<Item = (&'static str, &'static str)> {
    include_str!("../../examples.txt").lines().filter_map(|line| line.split_once(' '))
}

#[derive(Properties, PartialEq)]
pub(crate) struct Props {
    pub(crate) facts: Option<Rc<Facts>>,
    /// The file that is being opened.
    pub(crate) opening: Option<String>,
    /// How much of it has been read, in per cent.
    pub(crate) read: u8,
    /// The file that a link speaks of.
    pub(crate) wanted: Option<String>,
    pub(crate) on_file: Callback<File>,
    pub(crate) on_example: Callback<String>,
    /// The models that were open before.
    pub(crate) recent: Rc<Vec<Recent>>,
    pub(crate) on_recent: Callback<String>,
    pub(crate) on_forget: Callback<()>,
    pub(crate) on_close: Callback<()>,
}

#[component]
pub(crate) fn Drop(props: &Props) -> Html {
    if let Some(name) = &props.opening {
        return html! {
            <div class="card opening">
                <p role="status"><span class="spinner" aria-hidden="true"></span>{format!("Reading {name}…")}</p>
                if props.read > 0 { <progress max="100" value={props.read.to_string()} aria-label="Read so far"></progress> }
                <button type="button" onclick={props.on_close.reform(|_| ())}>{"Stop"}</button>
            </div>
        };
    }
    if let Some(facts) = &props.facts {
        return html! { <Opened facts={facts.clone()} on_file={&props.on_file} on_close={&props.on_close} /> };
    }
    html! {
        <section class="card drop" aria-labelledby="drop-title">
            <h2 id="drop-title">{"Drop a model here"}</h2>
            if let Some(name) = &props.wanted {
                <p class="wanted">{"This link is about the file "}<strong>{name}</strong>{", which stays on its owner's machine. Choose it to see the result."}</p>
            }
            <p>{"ONNX or Keras ("}<code>{".onnx .keras .json .h5"}</code>{"), of any size: only the structure is read, never the weights, and nothing is uploaded. Files with weights beside a model are not needed."}</p>
            <Choose label="Choose a file" on_file={&props.on_file} primary={true} />
            <p class="or">{"or try an example"}</p>
            <ul class="examples">
                { for examples().map(|(file, name)| {
                    let choose = props.on_example.reform(move |_| file.to_owned());
                    html! { <li><button type="button" onclick={choose}>{name}</button></li> }
                }) }
            </ul>
            { recent(props) }
        </section>
    }
}

/// The models that were open before, and a button that forgets them.
fn recent(props: &Props) -> Html {
    if props.recent.is_empty() {
        return html! {};
    }
    html! {
        <div class="recent">
            <h3>{"Opened before"}</h3>
            <ul class="examples">
                { for props.recent.iter().map(|recent| {
                    let name = recent.name.clone();
                    let choose = props.on_recent.reform(move |_| name.clone());
                    html! { <li><button type="button" onclick={choose} title={recent.what.clone()}>{&recent.name}</button></li> }
                }) }
            </ul>
            <p class="note">{"Kept in this browser: names and structure, no weights. "}
                <button type="button" class="link" onclick={props.on_forget.reform(|_| ())}>{"Forget them"}</button></p>
        </div>
    }
}

#[derive(Properties, PartialEq)]
struct OpenedProps {
    facts: Rc<Facts>,
    on_file: Callback<File>,
    on_close: Callback<()>,
}

#[component]
fn Opened(props: &OpenedProps) -> Html {
    let facts = &props.facts;
    let inputs = facts.inputs.iter().map(|input| {
        let dims = input.dims.as_ref().map_or_else(|| "?".to_owned(), |dims| dims.join("×"));
        format!("{} {dims}", input.name)
    });
    let inputs = inputs.collect::<Vec<_>>().join(", ");
    html! {
        <section class="card model" aria-label="Model">
            <div>
                <h2>{&facts.name}</h2>
                <p>{facts.what()}
                    if !facts.producer.is_empty() { {format!(" · {}", facts.producer)} }
                    <span class="inputs">{format!("inputs: {inputs}")}</span>
                </p>
            </div>
            <div class="actions">
                <Choose label="Open another file" on_file={&props.on_file} primary={false} />
                <button type="button" onclick={props.on_close.reform(|_| ())}>{"Examples"}</button>
            </div>
        </section>
    }
}

#[derive(Properties, PartialEq)]
struct ChooseProps {
    label: AttrValue,
    on_file: Callback<File>,
    primary: bool,
}

/// A file input that looks like a button and is one for the keyboard.
#[component]
fn Choose(props: &ChooseProps) -> Html {
    let on_file = props.on_file.clone();
    let chosen = Callback::from(move |event: Event| {
        let input = event.target().and_then(|t| t.dyn_into::<HtmlInputElement>().ok());
        if let Some(file) = input.and_then(|i| i.files()).and_then(|files| model_of(&files)) {
            on_file.emit(file);
        }
    });
    html! {
        <label class={classes!("choose", props.primary.then_some("primary"))}>
            <input type="file" multiple={true} accept={format!("{},.data", MODELS.join(","))} onchange={chosen} />
            <span>{&props.label}</span>
        </label>
    }
}
