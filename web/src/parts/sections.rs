//! The pictures and tables below the answer.

use super::{advice, bar, compare, curve, layers, matrix, share, timeline, treemap};
use crate::draw::tree;
use crate::page::{Msg, Page};
use crate::protocol::{Details, Head};
use std::rc::Rc;
use yew::prelude::*;

pub(crate) fn all(page: &Page, ctx: &Context<Page>, head: &Rc<Head>) -> Html {
    let link = ctx.link();
    let width = page.width();
    let device = super::answer::device(&page.state().gpu);
    let name = page.facts().map(|f| f.name.clone()).unwrap_or_default();
    html! {
        <>
            if head.fit.is_some() {
                <advice::AdviceCard advice={page.advice().cloned()} wanted={page.advice_wanted()} head={head.clone()} settled={page.settled()}
                    applied={page.applied().cloned()} on_want={link.callback(|()| Msg::Advise)}
                    on_apply={link.callback(|(title, change)| Msg::Applied(title, change))} on_undo={link.callback(|()| Msg::Undone)} />
            }
            if let Some(pinned) = page.pinned() {
                <compare::Compare pinned={pinned.clone()} model={name.clone()} summary={page.state().summary()} head={head.clone()}
                    on_close={link.callback(|()| Msg::Pinned(false))} on_restore={link.callback(|()| Msg::Restored)} />
            }
            <section class="card" aria-labelledby="parts-title">
                <h2 id="parts-title">{"Where the memory goes"}</h2>
                <bar::Parts parts={head.parts.clone()} />
            </section>
            if let Some(details) = page.details() {
                <section class="card" aria-labelledby="step-title">
                    <h2 id="step-title">{"One step over time"}</h2>
                    <p class="note">{"Memory after each allocation and release. Point at a moment, or move with the arrow keys."}</p>
                    <timeline::Timeline details={details.clone()} {width} />
                </section>
            }
            if page.curve().len() > 1 {
                <section class="card" aria-labelledby="curve-title">
                    <h2 id="curve-title">{"Peak against batch size"}</h2>
                    <curve::Curve points={page.curve().clone()} batch={head.batch.unwrap_or(page.state().batch)}
                        capacity={device.as_ref().map_or(0, |d| d.usable().0)}
                        card={device.as_ref().map_or_else(|| "the card".to_owned(), super::answer::short)} largest={page.largest().flatten().map(|sizes| sizes.largest)} {width} />
                </section>
            }
            if page.largest().flatten().is_some() {
                <matrix::Matrix cards={matrix::cards(&page.state().gpu)} rows={page.rows()} wanted={page.matrix_wanted()}
                    gpu={page.state().gpu.clone()} precision={page.state().precision.clone()}
                    on_want={link.callback(|()| Msg::Matrix)} edit={link.callback(Msg::Edited)} />
            }
            if let Some(details) = page.details() {
                <Modules details={details.clone()} selected={page.selected()} on_select={link.callback(Msg::Selected)} {width} />
            }
            <share::Share state={page.state().clone()} file={page.file_name()} pinned={page.pinned().is_some()} packed={page.packed().cloned()}
                on_pin={link.callback(Msg::Pinned)} on_export={link.callback(Msg::Export)} />
        </>
    }
}

#[derive(Properties, PartialEq)]
struct ModulesProps {
    details: Rc<Details>,
    selected: AttrValue,
    on_select: Callback<String>,
    width: u32,
}

/// Treemap and table, which highlight each other.
#[component]
fn Modules(props: &ModulesProps) -> Html {
    let revealed = use_state(|| (0, AttrValue::default()));
    let reveal = {
        let revealed = revealed.clone();
        Callback::from(move |path: String| revealed.set((revealed.0 + 1, path.into())))
    };
    let trees = use_memo(props.details.clone(), |details| Rc::new(tree::trees(&details.layers)));
    html! {
        <section class="card" aria-labelledby="layers-title">
            <h2 id="layers-title">{"Layers"}</h2>
            <treemap::Treemap trees={(*trees).clone()} selected={&props.selected} on_select={&props.on_select} on_reveal={reveal} width={props.width} />
            <layers::Layers trees={(*trees).clone()} selected={&props.selected} on_select={&props.on_select} revealed={(*revealed).clone()} />
        </section>
    }
}
