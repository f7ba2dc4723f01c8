//! The pictures and tables below the answer.

use crate::page::Page;
use crate::parts::bar;
use crate::protocol::Head;
use std::rc::Rc;
use yew::prelude::*;

pub(crate) fn all(_page: &Page, _ctx: &Context<Page>, head: &Rc<Head>) -> Html {
    html! {
        <section class="card" aria-labelledby="parts-title">
            <h2 id="parts-title">{"Where the memory goes"}</h2>
            <bar::Parts parts={head.parts.clone()} />
        </section>
    }
}
