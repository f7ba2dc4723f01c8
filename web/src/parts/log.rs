//! A log of a run that died, pasted in and explained.

use wasm_bindgen::JsCast;
use web_sys::HtmlTextAreaElement;
use yew::prelude::*;

#[derive(Properties, PartialEq)]
pub(crate) struct Props {
    /// What was said of the last log.
    pub(crate) explained: Option<String>,
    pub(crate) on_log: Callback<String>,
}

#[component]
pub(crate) fn Log(props: &Props) -> Html {
    let area = use_node_ref();
    let explain = {
        let (area, on_log) = (area.clone(), props.on_log.clone());
        Callback::from(move |_: MouseEvent| {
            if let Some(area) = area.get().and_then(|n| n.dyn_into::<HtmlTextAreaElement>().ok()) {
                on_log.emit(area.value());
            }
        })
    };
    html! {
        <section class="card log" aria-labelledby="log-title">
            <details>
                <summary id="log-title">{"A run has died? Paste its log"}</summary>
                <label for="log">{"The log, or the part of it around the error"}</label>
                <textarea id="log" ref={area} rows="8" spellcheck="false"
                    placeholder="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of …" />
                <div class="actions"><button type="button" onclick={explain}>{"Explain"}</button></div>
                if let Some(said) = &props.explained {
                    <pre role="status" tabindex="0" aria-label="Explanation">{said}</pre>
                }
            </details>
        </section>
    }
}
