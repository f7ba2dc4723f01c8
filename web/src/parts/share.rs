//! Taking the result along: a link, the same question for the command line, files.

use crate::page::browser;
use crate::protocol::Format;
use crate::state::{Source, State};
use yew::prelude::*;

#[derive(Properties, PartialEq)]
pub(crate) struct Props {
    pub(crate) state: State,
    pub(crate) file: AttrValue,
    pub(crate) pinned: bool,
    pub(crate) on_pin: Callback<bool>,
    pub(crate) on_export: Callback<Format>,
}

#[component]
pub(crate) fn Share(props: &Props) -> Html {
    let copied = use_state(|| "");
    let copy = |what: &'static str, text: String| {
        let copied = copied.clone();
        Callback::from(move |_: MouseEvent| {
            browser::copy(&text);
            copied.set(what);
        })
    };
    let base = browser::address();
    let base = base.split('#').next().unwrap_or_default();
    let link = format!("{base}#{}", props.state.link());
    let command = props.state.command(&props.file);
    let pin = props.on_pin.reform(|_: MouseEvent| true);
    let export = |format: Format| props.on_export.reform(move |_: MouseEvent| format);
    html! {
        <section class="card share" aria-labelledby="share-title">
            <h2 id="share-title">{"Keep and share"}</h2>
            <div class="actions">
                <button type="button" onclick={copy("The link", link)}>{"Copy link"}</button>
                <button type="button" onclick={pin}>{if props.pinned { "Keep this for comparison instead" } else { "Keep for comparison" }}</button>
                { for Format::ALL.iter().map(|f| html! { <button type="button" onclick={export(*f)}>{f.name()}</button> }) }
            </div>
            <p class="note" role="status">{if copied.is_empty() { String::new() } else { format!("{} is on the clipboard.", *copied) }}</p>
            if matches!(props.state.source, Source::Own(_)) {
                <p class="note">{"The link holds the plan and the file's name. The file stays on this machine: whoever opens the link is asked for it."}</p>
            }
            <p class="note">{"The same on the command line:"}</p>
            <div class="command"><code>{&command}</code><button type="button" onclick={copy("The command", command.clone())}>{"Copy"}</button></div>
        </section>
    }
}
