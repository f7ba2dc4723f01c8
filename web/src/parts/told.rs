//! What a Keras file does not say: the input of a model that was saved before it was built, and custom layers.
//!
//! A model is imported anew with it. Where it cannot be opened without, this stands below its problems.

use super::fields::Text;
use crate::state::{layers, read_layers, read_shape};
use std::collections::BTreeMap;
use yew::prelude::*;

/// The input's shape, where it is given, and the layers.
pub(crate) type Told = (Option<Vec<u64>>, BTreeMap<String, String>);

#[derive(Properties, PartialEq)]
pub(crate) struct Props {
    pub(crate) layers: BTreeMap<String, String>,
    pub(crate) on_told: Callback<Told>,
}

/// Both, for a file that could not be opened.
#[component]
pub(crate) fn Tell(props: &Props) -> Html {
    let error = use_state(String::new);
    let shape = {
        let (error, on_told, layers) = (error.clone(), props.on_told.clone(), props.layers.clone());
        Callback::from(move |text: String| match read_shape(&text) {
            Some(dims) => on_told.emit((Some(dims), layers.clone())),
            None => error.set(format!("expected sizes, the batch first: 32x224x224x3, found {text}")),
        })
    };
    html! {
        <section class="card tell" aria-labelledby="tell-title">
            <h2 id="tell-title">{"What the file does not say"}</h2>
            <p>{"Told here, the file is opened again."}</p>
            <div class="fields">
                <Text id="tell-input" label="Shape of the input, batch first" value="" placeholder="32x224x224x3" error={(*error).clone()} on_change={shape} />
                <CustomLayers layers={props.layers.clone()} on_told={&props.on_told} />
            </div>
        </section>
    }
}

/// Custom layers alone.
#[component]
pub(crate) fn CustomLayers(props: &Props) -> Html {
    let wrong = use_state(|| None::<(String, String)>);
    let change = {
        let (wrong, on_told) = (wrong.clone(), props.on_told.clone());
        Callback::from(move |text: String| match read_layers(&text) {
            Ok(layers) => {
                wrong.set(None);
                on_told.emit((None, layers));
            }
            Err(error) => wrong.set(Some((text, error))),
        })
    };
    let (value, error) = (*wrong).clone().unwrap_or_else(|| (layers(&props.layers), String::new()));
    html! {
        <Text id="layers-told" label="Custom layers" {value} {error} placeholder="scale:shape=7x7x64,params=1000"
            note="the output without its batch, trained elements, other state" on_change={change} />
    }
}
