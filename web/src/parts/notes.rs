//! What else is said: what is not known, warnings, assumptions.

use crate::protocol::Head;
use memfit_report::{NOT_EXACT, NOT_KNOWN};
use std::rc::Rc;
use yew::prelude::*;

#[derive(Properties, PartialEq)]
pub(crate) struct Props {
    pub(crate) head: Rc<Head>,
}

#[component]
pub(crate) fn Notes(props: &Props) -> Html {
    let head = &props.head;
    if head.assumptions.is_empty() && head.warnings.is_empty() && head.unknown.is_empty() {
        return html! {};
    }
    html! {
        <section class="card" aria-labelledby="notes-title">
            <h2 id="notes-title">{"What this rests on"}</h2>
            if !head.unknown.is_empty() {
                <h3>{NOT_EXACT}</h3>
                <p>{head.unknown.join(", ")}{": "}{NOT_KNOWN}</p>
            }
            { list("Warnings", &head.warnings) }
            { list("Assumptions", &head.assumptions) }
        </section>
    }
}

fn list(title: &str, entries: &[String]) -> Html {
    if entries.is_empty() {
        return html! {};
    }
    html! {
        <>
            <h3>{title}</h3>
            <ul>{ for entries.iter().map(|e| html! { <li>{e}</li> }) }</ul>
        </>
    }
}
