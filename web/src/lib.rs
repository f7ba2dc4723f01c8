//! The browser calculator: a page (yew) and a worker that runs the core, two entries of one module.
//!
//! ```text
//! page: state ── client: the newest question of each kind ──> worker: core ──> answers ──> page: pictures and tables
//! ```
//!
//! The page never computes an estimate and the worker never touches the page, so nothing freezes. The state is in the URL.

mod categories;
mod client;
mod draw;
mod page;
mod parts;
mod protocol;
mod state;
mod worker;

use wasm_bindgen::prelude::*;

/// Starts the page; `module` is this module, for the worker.
#[wasm_bindgen]
pub fn start_page(module: JsValue) {
    let Some(document) = web_sys::window().and_then(|w| w.document()) else { return };
    let Some(root) = document.get_element_by_id("app") else { return };
    root.set_inner_html("");
    yew::Renderer::<page::Page>::with_root_and_props(root, page::Props { module }).render();
}

/// Starts the worker.
#[wasm_bindgen]
pub fn start_worker() {
    worker::start();
}
