//! Taking the result along: a link, the same question for the command line, files.

use crate::page::browser;
use crate::protocol::Format;
use crate::state::{MOST_STRUCTURE, Source, State, with_structure};
use std::rc::Rc;
use yew::prelude::*;

#[derive(Properties, PartialEq)]
pub(crate) struct Props {
    pub(crate) state: State,
    pub(crate) file: AttrValue,
    pub(crate) pinned: bool,
    /// The structure of a model of one's own, as text.
    pub(crate) packed: Option<Rc<str>>,
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
                <button type="button" onclick={copy("The link", link.clone())}>{"Copy link"}</button>
                if let Some(packed) = props.packed.as_ref().filter(|p| p.len() <= MOST_STRUCTURE) {
                    <button type="button" onclick={copy("The link with the model in it", with_structure(&link, packed))}>{"Copy link with the model"}</button>
                }
                <button type="button" onclick={pin}>{if props.pinned { "Keep this for comparison instead" } else { "Keep for comparison" }}</button>
                { for Format::ALL.iter().map(|f| html! { <button type="button" onclick={export(*f)}>{f.name()}</button> }) }
            </div>
            <p class="note" role="status">{if copied.is_empty() { String::new() } else { format!("{} is on the clipboard.", *copied) }}</p>
            if matches!(props.state.source, Source::Own(_)) { <p class="note">{of_own_file(props.packed.as_deref())}</p> }
            <p class="note">{"The same on the command line:"}</p>
            <div class="command"><code>{&command}</code><button type="button" onclick={copy("The command", command.clone())}>{"Copy"}</button></div>
        </section>
    }
}

/// What a link to a file of one's own can bring.
fn of_own_file(packed: Option<&str>) -> String {
    let alone = "A link holds the plan and the file's name; the file stays on this machine, and whoever opens the link is asked for it.";
    let kib = |n: usize| n.div_ceil(1 << 10);
    match packed {
        Some(packed) if packed.len() <= MOST_STRUCTURE => format!(
            "{alone} On request it also holds the model's structure (layers, names and shapes, {} KiB), never its weights.",
            kib(packed.len())
        ),
        Some(packed) => format!(
            "{alone} The model's structure takes {} KiB, which is too large for a link ({} KiB at most): send the file, or export HTML.",
            kib(packed.len()),
            kib(MOST_STRUCTURE)
        ),
        None => alone.to_owned(),
    }
}
