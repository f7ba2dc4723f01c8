//! The page from top to bottom: the model, the answer, the controls, the pictures.

use super::{Msg, Page};
use crate::parts::{answer, controls, drop, log, notes, sections, told};
use crate::protocol::Problem;
use crate::state::Source;
use yew::prelude::*;

pub(super) fn page(page: &Page, ctx: &Context<Page>) -> Html {
    let link = ctx.link();
    html! {
        <>
            <a class="skip" href="#main" onclick={skip()}>{"Skip to the answer"}</a>
            <header class="top">
                <div class="brand">
                    <svg viewBox="0 0 64 64" width="28" height="28" aria-hidden="true">
                        <rect width="64" height="64" rx="14" class="brand-box" />
                        <path d="M10 50V34l8-6 8 8 8-20 8 6 6 14 6-2v16z" class="brand-hill" />
                        <path d="M8 14h48" class="brand-line" />
                    </svg>
                    <h1>{"memfit"}</h1>
                    <p>{"Will this model train on that GPU?"}</p>
                </div>
                <button class="quiet" type="button" onclick={link.callback(|_| Msg::Theme)}
                    aria-label="Switch between light and dark">{"◐"}</button>
            </header>
            <main id="main" tabindex="-1">
                { model(page, ctx) }
                { problems(&page.problems) }
                if page.may_be_told() {
                    <told::Tell layers={page.state.layers.clone()} on_told={link.callback(Msg::Told)} />
                }
                { result(page, ctx) }
                <log::Log explained={page.explained.clone()} on_log={link.callback(Msg::Log)} />
            </main>
            <footer>
                <p>{"Everything is computed in this browser. No file is uploaded and nothing is sent anywhere: the page has no server."}</p>
                <p>{format!("memfit {} · sizes are 1024-based", env!("CARGO_PKG_VERSION"))}</p>
            </footer>
        </>
    }
}

/// The fragment of the URL is the state, so the link moves the focus instead of the URL.
fn skip() -> Callback<MouseEvent> {
    Callback::from(|event: MouseEvent| {
        event.prevent_default();
        super::browser::focus("main");
    })
}

fn model(page: &Page, ctx: &Context<Page>) -> Html {
    let link = ctx.link();
    html! {
        <drop::Drop
            facts={page.facts.clone()}
            opening={page.opening.clone()}
            read={page.read}
            wanted={page.wanted()}
            on_file={link.callback(Msg::File)}
            on_example={link.callback(Msg::Example)}
            recent={page.recent.clone()}
            on_recent={link.callback(Msg::Recent)}
            on_forget={link.callback(|()| Msg::Forgotten)}
            on_close={link.callback(|()| Msg::Closed)}
        />
    }
}

fn problems(problems: &[Problem]) -> Html {
    if problems.is_empty() {
        return html! {};
    }
    html! {
        <section class="card problems" role="alert" aria-label="Problems">
            <h2>{if problems.len() == 1 { "A problem".to_owned() } else { format!("{} problems", problems.len()) }}</h2>
            <ul>
                { for problems.iter().map(|p| html! {
                    <li>
                        <strong>{&p.place}</strong>
                        if !p.op.is_empty() { {format!(" ({})", p.op)} }
                        {": "}{&p.message}
                        if let Some(hint) = &p.hint { <span class="hint">{"Hint: "}{hint}</span> }
                    </li>
                }) }
            </ul>
        </section>
    }
}

fn result(page: &Page, ctx: &Context<Page>) -> Html {
    let Some(facts) = &page.facts else { return html! {} };
    let edit = ctx.link().callback(Msg::Edited);
    html! {
        <div class="columns" data-settled={page.settled().to_string()}>
            <answer::Answer state={page.state.clone()} head={page.head.clone()} largest={page.largest()} edit={edit.clone()} took={page.took}
                machine={page.machine.clone()} />
            <controls::Controls state={page.state.clone()} facts={facts.clone()} edit={edit}
                used={page.head.as_ref().map(|h| h.optimizer_impl.clone())} on_told={ctx.link().callback(Msg::Told)} />
            <div class="results">
                if let Some(head) = &page.head {
                    { sections::all(page, ctx, head) }
                    <notes::Notes head={head.clone()} />
                }
            </div>
        </div>
    }
}

impl Page {
    /// Whether the file could not be opened and is a Keras file, which can be told what it does not say.
    fn may_be_told(&self) -> bool {
        let own =
            matches!(&self.state.source, Source::Own(name) if !name.to_ascii_lowercase().ends_with(".onnx"));
        own && self.facts.is_none() && !self.problems.is_empty() && !self.file.is_undefined()
    }

    /// The file that a link speaks of and that only its owner can give.
    fn wanted(&self) -> Option<String> {
        match &self.state.source {
            Source::Own(name) if self.facts.is_none() && self.file.is_undefined() => Some(name.clone()),
            _ => None,
        }
    }
}
