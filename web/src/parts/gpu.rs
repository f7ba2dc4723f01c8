//! The card: a line of text that searches the catalogue, and takes a size or a slice too.
//!
//! A combobox with a list as the ARIA Authoring Practices describe it ("Combobox Pattern", list autocomplete with manual selection):
//! the arrows move in the list, `Enter` takes, `Escape` leaves everything as it was.

use super::answer::short;
use super::fields::value;
use crate::categories::size;
use crate::page::{Edit, browser};
use memfit_engine::devices::{self, Card, Device};
use std::rc::Rc;
use wasm_bindgen::JsCast;
use web_sys::HtmlInputElement;
use yew::prelude::*;

#[derive(Properties, PartialEq)]
pub(crate) struct Props {
    pub(crate) gpu: String,
    /// Whether it is this machine's.
    pub(crate) own: bool,
    pub(crate) edit: Callback<Edit>,
}

/// What is being done to the field.
#[derive(Clone, Default, PartialEq)]
struct Doing {
    /// What was typed and not taken yet.
    typed: Option<String>,
    /// Whether the list shows, and the entry that the arrows are at.
    open: bool,
    at: Option<usize>,
}

/// The cards whose names have all words of a text in them.
fn found(text: &str) -> Vec<&'static Device> {
    let words: Vec<String> = text.to_lowercase().split_whitespace().map(str::to_owned).collect();
    let has = |device: &&Device| {
        let name = format!("{} {}", device.name, device.id).to_lowercase();
        words.iter().all(|word| name.contains(word))
    };
    devices::catalogue().iter().filter(has).collect()
}

fn option_id(device: &Device) -> String {
    format!("card-{}", device.id)
}

#[component]
pub(crate) fn Gpu(props: &Props) -> Html {
    let doing = use_state(Doing::default);
    {
        // Another card may have been chosen elsewhere.
        let doing = doing.clone();
        use_effect_with(props.gpu.clone(), move |_| doing.set(Doing::default()));
    }
    let cards = found(doing.typed.as_deref().unwrap_or_default());
    let error = doing.typed.as_ref().filter(|_| !doing.open).and_then(|text| Card::find(text).err());
    let take = {
        let (doing, edit) = (doing.clone(), props.edit.clone());
        move |text: &str| match Card::find(text) {
            Ok(card) => {
                edit.emit(Rc::new(move |s| s.gpu.clone_from(&card.device.id)));
                doing.set(Doing::default());
            }
            Err(_) => doing.set(Doing { typed: Some(text.into()), ..Doing::default() }),
        }
    };
    let input = {
        let doing = doing.clone();
        Callback::from(move |event: InputEvent| {
            doing.set(Doing { typed: Some(value(&event)), open: true, at: None });
        })
    };
    let click = {
        let doing = doing.clone();
        Callback::from(move |event: MouseEvent| {
            if let Some(input) = event.target().and_then(|t| t.dyn_into::<HtmlInputElement>().ok()) {
                input.select();
            }
            doing.set(Doing { open: true, ..(*doing).clone() });
        })
    };
    let leave = {
        let (doing, take) = (doing.clone(), take.clone());
        Callback::from(move |_: FocusEvent| match &doing.typed {
            Some(text) => take(text),
            None => doing.set(Doing::default()),
        })
    };
    let keys = {
        let (doing, take) = (doing.clone(), take.clone());
        let ids: Vec<&'static Device> = cards.clone();
        Callback::from(move |event: KeyboardEvent| {
            let (last, at) = (ids.len().saturating_sub(1), doing.at);
            let to = match event.key().as_str() {
                "ArrowDown" => {
                    Doing { open: true, at: Some(at.map_or(0, |at| (at + 1).min(last))), ..(*doing).clone() }
                }
                "ArrowUp" => Doing {
                    open: true,
                    at: Some(at.map_or(last, |at| at.saturating_sub(1))),
                    ..(*doing).clone()
                },
                "Escape" if doing.open || doing.typed.is_some() => Doing::default(),
                "Enter" => {
                    event.prevent_default();
                    match (doing.at.and_then(|at| ids.get(at)), &doing.typed) {
                        (Some(card), _) => take(&card.id),
                        (None, Some(text)) => take(text),
                        (None, None) => doing.set(Doing::default()),
                    }
                    return;
                }
                _ => return,
            };
            event.prevent_default();
            if let Some(card) = to.at.and_then(|at| ids.get(at)) {
                browser::show(&option_id(card));
            }
            doing.set(to);
        })
    };
    let shown = doing
        .typed
        .clone()
        .unwrap_or_else(|| devices::find(&props.gpu).map_or_else(|_| props.gpu.clone(), short));
    let lists = doing.open && !cards.is_empty();
    {
        // The list begins at the card that is chosen.
        let chosen = format!("card-{}", props.gpu);
        use_effect_with(lists, move |lists| {
            if *lists {
                browser::show(&chosen);
            }
        });
    }
    let active = doing.at.filter(|_| lists).and_then(|at| cards.get(at)).map(|card| option_id(card));
    let option = |(i, card): (usize, &&'static Device)| {
        let (id, take) = (card.id.clone(), take.clone());
        // The field keeps the focus.
        let down = Callback::from(|event: MouseEvent| event.prevent_default());
        let choose = Callback::from(move |_: MouseEvent| take(&id));
        let here = doing.at == Some(i);
        html! {
            <li id={option_id(card)} role="option" class={classes!(here.then_some("at"))} aria-selected={(card.id == props.gpu).to_string()}
                onmousedown={down} onclick={choose}><span>{short(card)}</span><span class="note">{size(card.total().0)}</span></li>
        }
    };
    let note = match (&error, props.own) {
        (Some(_), _) => None,
        (None, true) => Some("this machine’s card"),
        (None, false) => Some("a name, a size such as 24GiB, a slice such as a100-40gb:3g.20gb"),
    };
    html! {
        <div class="field combo">
            <label for="gpu">{"GPU"}</label>
            <input id="gpu" type="text" role="combobox" value={shown} autocomplete="off" spellcheck="false" aria-autocomplete="list"
                aria-expanded={lists.to_string()} aria-controls="cards" aria-activedescendant={active} aria-describedby="gpu-note"
                aria-invalid={error.is_some().then_some("true")} oninput={input} onclick={click} onblur={leave} onkeydown={keys} />
            <ul id="cards" role="listbox" aria-label="Cards" hidden={!lists}>
                if lists { { for cards.iter().enumerate().map(option) } }
            </ul>
            <p id="gpu-note" class={if error.is_some() { "error" } else { "note" }}>{error.map(|e| e.to_string())}{note}</p>
        </div>
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_in_any_order_find_cards() {
        let ids = |text| found(text).into_iter().map(|card| card.id.as_str()).collect::<Vec<_>>();
        assert_eq!(ids("4090 rtx").first(), Some(&"rtx-4090"));
        assert!(ids("h100").len() > 1 && ids("no such card").is_empty());
        assert_eq!(ids("").len(), devices::catalogue().len());
    }
}
