//! Form controls with their labels.

use wasm_bindgen::JsCast;
use web_sys::{HtmlInputElement, HtmlSelectElement};
use yew::prelude::*;

/// What stands in an input.
pub(crate) fn value(event: &Event) -> String {
    let target = event.target();
    let input = target.as_ref().and_then(|t| t.dyn_ref::<HtmlInputElement>()).map(HtmlInputElement::value);
    let select =
        || target.as_ref().and_then(|t| t.dyn_ref::<HtmlSelectElement>()).map(HtmlSelectElement::value);
    input.or_else(select).unwrap_or_default()
}

#[derive(Properties, PartialEq)]
pub(crate) struct SelectProps {
    pub(crate) id: AttrValue,
    pub(crate) label: AttrValue,
    pub(crate) value: AttrValue,
    /// Words and what they are called.
    pub(crate) options: Vec<(AttrValue, AttrValue)>,
    pub(crate) on_change: Callback<String>,
    #[prop_or_default]
    pub(crate) note: AttrValue,
}

/// One of several.
#[component]
pub(crate) fn Select(props: &SelectProps) -> Html {
    let change = props.on_change.reform(|event: Event| value(&event));
    html! {
        <div class="field">
            <label for={&props.id}>{&props.label}</label>
            <select id={&props.id} onchange={change}>
                { for props.options.iter().map(|(word, name)| html! {
                    <option value={word} selected={*word == props.value}>{name}</option>
                }) }
            </select>
            if !props.note.is_empty() { <p class="note">{&props.note}</p> }
        </div>
    }
}

#[derive(Properties, PartialEq)]
pub(crate) struct TextProps {
    pub(crate) id: AttrValue,
    pub(crate) label: AttrValue,
    pub(crate) value: AttrValue,
    #[prop_or_default]
    pub(crate) placeholder: AttrValue,
    /// `numeric` for numbers.
    #[prop_or_default]
    pub(crate) mode: AttrValue,
    #[prop_or_default]
    pub(crate) note: AttrValue,
    /// Why the value is not taken.
    #[prop_or_default]
    pub(crate) error: AttrValue,
    #[prop_or_default]
    pub(crate) list: Option<AttrValue>,
    pub(crate) on_change: Callback<String>,
}

/// A line of text.
#[component]
pub(crate) fn Text(props: &TextProps) -> Html {
    // What is being typed stays, whatever answers come meanwhile.
    let draft = use_state(|| None::<String>);
    let typing = {
        let draft = draft.clone();
        Callback::from(move |event: InputEvent| draft.set(Some(value(&event))))
    };
    let change = {
        let (draft, on_change) = (draft.clone(), props.on_change.clone());
        Callback::from(move |event: Event| {
            draft.set(None);
            on_change.emit(value(&event));
        })
    };
    let shown = draft.as_ref().map_or_else(|| props.value.clone(), |draft| draft.clone().into());
    let described = (!props.error.is_empty()).then(|| format!("{}-error", props.id));
    html! {
        <div class="field">
            <label for={&props.id}>{&props.label}</label>
            <input id={&props.id} type="text" value={shown} placeholder={&props.placeholder} list={props.list.clone()}
                inputmode={(!props.mode.is_empty()).then(|| props.mode.clone())} autocomplete="off" spellcheck="false"
                aria-invalid={(!props.error.is_empty()).then_some("true")} aria-describedby={described.clone()} oninput={typing} onchange={change} />
            if let Some(id) = described { <p class="error" id={id}>{&props.error}</p> }
            if !props.note.is_empty() { <p class="note">{&props.note}</p> }
        </div>
    }
}

#[derive(Properties, PartialEq)]
pub(crate) struct CheckProps {
    pub(crate) id: AttrValue,
    pub(crate) label: AttrValue,
    pub(crate) checked: bool,
    pub(crate) on_change: Callback<bool>,
}

/// Yes or no.
#[component]
pub(crate) fn Check(props: &CheckProps) -> Html {
    let change = props.on_change.reform(|event: Event| {
        event.target().and_then(|t| t.dyn_into::<HtmlInputElement>().ok()).is_some_and(|i| i.checked())
    });
    html! {
        <div class="check">
            <input id={&props.id} type="checkbox" checked={props.checked} onchange={change} />
            <label for={&props.id}>{&props.label}</label>
        </div>
    }
}

/// A table of words as options.
pub(crate) fn options(words: &[(&'static str, &'static str)]) -> Vec<(AttrValue, AttrValue)> {
    words.iter().map(|(word, name)| ((*word).into(), (*name).into())).collect()
}
