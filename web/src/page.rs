//! The page: what it knows, what may happen to it, and what is asked of the worker then.

mod answered;
mod asking;
pub(crate) mod browser;
mod machine;
mod reading;
pub(crate) mod recent;
mod view;

use crate::client::Client;
use crate::parts::matrix::Rows;
use crate::parts::told::Told;
use crate::protocol::{Advice, Answer, Ask, Details, Facts, Format, Head, Problem, Sizes};
use crate::state::{Source, State, split};
use browser::Timer;
use recent::Recent;
use serde_json::{Map, Value};
use std::rc::Rc;
use wasm_bindgen::JsValue;
use yew::prelude::*;

/// A change of the state.
pub(crate) type Edit = Rc<dyn Fn(&mut State)>;

/// The page's properties.
#[derive(Properties, PartialEq)]
pub(crate) struct Props {
    /// This module, for the worker.
    pub(crate) module: JsValue,
}

/// What may happen.
pub(crate) enum Msg {
    /// A file was dropped or chosen.
    File(web_sys::File),
    /// An example was chosen.
    Example(String),
    /// Its bytes have come, or those of a model that a link or the browser's storage has.
    Fetched(String, Result<JsValue, String>),
    /// A model that was kept is wanted.
    Recent(String),
    /// The models that were kept are to be forgotten.
    Forgotten,
    /// The structure of the open model, as text.
    Packed(String, Option<String>),
    Answered(Box<Answer>, JsValue),
    Edited(Edit),
    /// Advice is wanted.
    Advise,
    /// What a Keras file does not say: its input's shape, and its custom layers.
    Told(Told),
    /// A change is made: what it is called, and what differs in the plan.
    Applied(String, Map<String, Value>),
    /// The change is taken back.
    Undone,
    /// Nothing has changed for a while.
    Quiet,
    /// The URL was changed by hand or by going back.
    Linked,
    /// A layer was pointed at, by its path; empty for none.
    Selected(String),
    Pinned(bool),
    /// A log was pasted.
    Log(String),
    /// The matrix is wanted.
    Matrix,
    /// The plan that was kept is wanted back.
    Restored,
    /// This machine's card was found.
    Machine(Option<String>),
    /// The window has another width.
    Resized,
    Export(Format),
    Theme,
    /// Another model is wanted.
    Closed,
}

/// An estimate kept for comparison.
#[derive(Clone, PartialEq)]
pub(crate) struct Pinned {
    pub(crate) model: String,
    pub(crate) summary: String,
    pub(crate) state: State,
    pub(crate) head: Rc<Head>,
}

/// A change that was made, and what was before it.
#[derive(Clone, PartialEq)]
pub(crate) struct Applied {
    pub(crate) title: String,
    pub(crate) before: State,
    pub(crate) head: Rc<Head>,
}

/// The page.
pub(crate) struct Page {
    client: Client,
    state: State,
    generation: u64,
    /// The generation of what is shown.
    shown: u64,
    /// The generation of the details that are shown.
    detailed: u64,
    took: f64,
    /// This machine's card.
    machine: Option<String>,
    opening: Option<String>,
    /// The file that was opened last.
    file: JsValue,
    /// How much of it has been read, in per cent.
    read: u8,
    facts: Option<Rc<Facts>>,
    head: Option<Rc<Head>>,
    details: Option<Rc<Details>>,
    curve: Rc<Vec<(u64, u64)>>,
    /// The largest batch, with the plan that it is for, and the question that was asked for it.
    largest: Option<(String, Option<Sizes>)>,
    largest_asked: (u64, String),
    /// Whether the matrix is wanted, and its rows with the plan that they are for.
    matrix_wanted: bool,
    matrix: (String, Rc<Rows>),
    /// Whether advice is wanted, and the advice with the plan that it is for.
    advice_wanted: bool,
    advice: Option<(String, Rc<Advice>)>,
    applied: Option<Applied>,
    recent: Rc<Vec<Recent>>,
    /// The structure of the open model as text; none where it is not known or cannot be had.
    packed: Option<Rc<str>>,
    /// Whether the model came with a link, which then keeps it.
    linked: bool,
    /// The URL's fragment as it was written or read last.
    fragment: String,
    problems: Rc<Vec<Problem>>,
    selected: AttrValue,
    pinned: Option<Pinned>,
    /// What was said of the last log.
    explained: Option<String>,
    width: u32,
    quiet: Option<Timer>,
    _listeners: browser::Listeners,
}

impl Component for Page {
    type Message = Msg;
    type Properties = Props;

    fn create(ctx: &Context<Self>) -> Page {
        let link = ctx.link().clone();
        let client = Client::new(ctx.props().module.clone(), move |answer, bytes| {
            link.send_message(Msg::Answered(Box::new(answer), bytes));
        });
        let link = ctx.link().clone();
        let listeners = browser::listen(
            link.callback(Msg::File),
            link.callback(|()| Msg::Linked),
            link.callback(|()| Msg::Resized),
        );
        let mut page = Page {
            client,
            state: State::from_link(&browser::fragment()),
            generation: 0,
            shown: 0,
            detailed: 0,
            took: 0.0,
            machine: None,
            opening: None,
            file: JsValue::UNDEFINED,
            read: 0,
            facts: None,
            head: None,
            details: None,
            curve: Rc::default(),
            largest: None,
            largest_asked: (0, String::new()),
            matrix_wanted: false,
            matrix: (String::new(), Rc::default()),
            advice_wanted: false,
            advice: None,
            applied: None,
            recent: Rc::new(recent::list()),
            packed: None,
            linked: false,
            fragment: browser::fragment(),
            problems: Rc::default(),
            selected: AttrValue::default(),
            pinned: None,
            explained: None,
            width: browser::picture_width(),
            quiet: None,
            _listeners: listeners,
        };
        if let Some(gpu) = browser::kept("gpu").filter(|_| !browser::fragment().contains("gpu=")) {
            page.state.gpu = gpu;
        }
        ctx.link().send_future(async { Msg::Machine(machine::card().await) });
        page.open_source(ctx, true);
        page
    }

    fn update(&mut self, ctx: &Context<Self>, msg: Msg) -> bool {
        match msg {
            Msg::File(file) => {
                self.state.source = Source::Own(file.name());
                self.forget_sizes();
                (self.packed, self.linked) = (None, false);
                self.open(file.name(), file.into());
            }
            Msg::Example(name) => {
                self.state.source = Source::Example(name.clone());
                self.forget_sizes();
                self.fetch(ctx, name);
            }
            Msg::Fetched(name, Ok(bytes)) => self.open(name, bytes),
            Msg::Fetched(name, Err(message)) => {
                self.opening = None;
                self.problems =
                    Rc::new(vec![Problem { place: name, op: String::new(), message, hint: None }]);
            }
            Msg::Recent(name) => {
                self.state.source = Source::Own(name);
                self.forget_sizes();
                self.open_source(ctx, false);
            }
            Msg::Forgotten => {
                recent::clear();
                self.recent = Rc::default();
            }
            Msg::Packed(name, packed) => {
                if self.state.source != Source::Own(name) {
                    return false;
                }
                self.packed = packed.map(Rc::from);
                self.remember();
            }
            Msg::Answered(answer, bytes) => return self.answered(ctx, *answer, bytes),
            Msg::Edited(edit) => {
                edit(&mut self.state);
                self.applied = None;
                self.changed(ctx);
            }
            Msg::Told((input, layers)) => {
                if let (Source::Own(name), true) = (self.state.source.clone(), !self.file.is_undefined()) {
                    self.state.input.extend(input.map(|dims| (UNBUILT.to_owned(), dims)));
                    self.state.layers = layers;
                    self.open(name, self.file.clone());
                }
            }
            Msg::Advise => {
                self.advice_wanted = true;
                self.ask_advice();
            }
            Msg::Applied(title, change) => {
                let Some(head) = self.head.clone() else { return false };
                self.applied = Some(Applied { title, before: self.state.clone(), head });
                self.state.apply(&change);
                self.changed(ctx);
            }
            Msg::Undone => {
                if let Some(applied) = self.applied.take() {
                    self.state = applied.before;
                    self.changed(ctx);
                }
            }
            Msg::Quiet => {
                self.write_link();
                if self.state.gpu != State::default().gpu || browser::kept("gpu").is_some() {
                    browser::keep("gpu", &self.state.gpu);
                }
                self.ask_long_parts();
                return false;
            }
            Msg::Linked => return self.linked(ctx),
            Msg::Selected(path) => {
                let path = AttrValue::from(path);
                let changed = path != self.selected;
                self.selected = path;
                return changed;
            }
            Msg::Pinned(on) => {
                self.pinned = self.head.clone().filter(|_| on).map(|head| Pinned {
                    model: self.facts.as_ref().map(|f| f.name.clone()).unwrap_or_default(),
                    summary: self.state.summary(),
                    state: self.state.clone(),
                    head,
                });
            }
            Msg::Log(log) => {
                self.ask(Ask::Explain { log, plan: self.state.plan() });
                return false;
            }
            Msg::Matrix => {
                self.matrix_wanted = true;
                self.ask_row();
            }
            Msg::Restored => {
                if let Some(pinned) = &self.pinned {
                    // The model on the page stays; its sizes are its own.
                    let (source, set, input) =
                        (self.state.source.clone(), self.state.set.clone(), self.state.input.clone());
                    let same = pinned.state.source == source;
                    self.state = pinned.state.clone();
                    if !same {
                        (self.state.source, self.state.set, self.state.input) = (source, set, input);
                    }
                    self.changed(ctx);
                }
            }
            Msg::Machine(card) => {
                // What a link says or was chosen before is kept.
                if let Some(card) = &card
                    && browser::kept("gpu").is_none()
                    && !browser::fragment().contains("gpu=")
                {
                    self.state.gpu.clone_from(card);
                    self.changed(ctx);
                }
                self.machine = card;
            }
            Msg::Resized => {
                let width = browser::picture_width();
                let changed = width != self.width;
                self.width = width;
                return changed;
            }
            Msg::Export(format) => {
                self.ask(Ask::Export { plan: self.state.plan(), format });
                return false;
            }
            Msg::Theme => browser::toggle_theme(),
            Msg::Closed => {
                self.client.close();
                self.state.source = Source::None;
                (self.facts, self.head, self.details, self.largest) = (None, None, None, None);
                (self.applied, self.packed, self.linked) = (None, None, false);
                (self.opening, self.read, self.file) = (None, 0, JsValue::UNDEFINED);
                self.problems = Rc::default();
                self.write_link();
            }
        }
        true
    }

    fn view(&self, ctx: &Context<Self>) -> Html {
        view::page(self, ctx)
    }
}

/// What the input of a Keras model is called that was saved before it was built.
const UNBUILT: &str = "input_layer";

impl Page {
    /// Keeps the open model among the recent ones.
    fn remember(&mut self) {
        let (Source::Own(name), Some(facts), Some(packed)) = (&self.state.source, &self.facts, &self.packed)
        else {
            return;
        };
        recent::put(Recent { name: name.clone(), what: facts.what() }, packed);
        self.recent = Rc::new(recent::list());
    }

    fn linked(&mut self, ctx: &Context<Self>) -> bool {
        let fragment = browser::fragment();
        let state = State::from_link(&fragment);
        self.fragment.clone_from(&fragment);
        let brings = split(&fragment).1.filter(|p| self.packed.as_deref() != Some(p));
        let other_model = state.source != self.state.source || brings.is_some();
        if state == self.state && !other_model {
            return false;
        }
        let told = state.layers != self.state.layers;
        self.state = state;
        match self.state.source.clone() {
            _ if other_model => self.open_source(ctx, true),
            Source::Own(name) if told && !self.file.is_undefined() => self.open(name, self.file.clone()),
            _ => {
                self.fill_sizes();
                self.changed(ctx);
            }
        }
        true
    }
}
