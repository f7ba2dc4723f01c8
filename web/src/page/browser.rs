//! What the page needs of the browser: the URL, files that are dropped, downloads, the theme, a timer.

use crate::protocol::Format;
use js_sys::{Array, Uint8Array};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use web_sys::{
    Blob, BlobPropertyBag, DragEvent, Event, File, FileList, HtmlAnchorElement, HtmlElement, Response,
    ScrollIntoViewOptions, ScrollLogicalPosition, Storage, Url, Window,
};
use yew::Callback;

fn window() -> Option<Window> {
    web_sys::window()
}

/// The URL's fragment.
pub(crate) fn fragment() -> String {
    window().and_then(|w| w.location().hash().ok()).unwrap_or_default()
}

/// The whole URL.
pub(crate) fn address() -> String {
    window().and_then(|w| w.location().href().ok()).unwrap_or_default()
}

/// Replaces the URL's fragment, without an entry in the history for each step of a slider.
pub(crate) fn set_fragment(fragment: &str) {
    if let Some(history) = window().and_then(|w| w.history().ok()) {
        let _ = history.replace_state_with_url(&JsValue::NULL, "", Some(&format!("#{fragment}")));
    }
}

/// How wide a picture among the results can be, in pixels.
pub(crate) fn picture_width() -> u32 {
    let root = window().and_then(|w| w.document()).and_then(|d| d.document_element());
    let page = root.map_or(1024, |r| r.client_width()).clamp(0, 1248);
    // The style sheet's margins, and beside the results the controls where there is room for them.
    let taken = if page >= 960 { 32 + 304 + 16 + 42 } else { 50 };
    u32::try_from(page - taken).unwrap_or_default().max(260)
}

/// Local storage, where it is allowed.
fn storage() -> Option<Storage> {
    window().and_then(|w| w.local_storage().ok().flatten())
}

/// What was kept under a name.
pub(crate) fn kept(name: &str) -> Option<String> {
    storage()?.get_item(&format!("memfit.{name}")).ok().flatten()
}

/// Keeps a text under a name; whether there was room for it.
pub(crate) fn keep(name: &str, text: &str) -> bool {
    storage().is_some_and(|s| s.set_item(&format!("memfit.{name}"), text).is_ok())
}

/// Forgets what was kept under a name.
pub(crate) fn forget(name: &str) {
    if let Some(storage) = storage() {
        let _ = storage.remove_item(&format!("memfit.{name}"));
    }
}

#[wasm_bindgen(raw_module = "./pack.js")]
extern "C" {
    /// Bytes as text for links and storage.
    #[wasm_bindgen(catch)]
    async fn pack(bytes: &JsValue) -> Result<JsValue, JsValue>;
    /// The bytes of such a text.
    #[wasm_bindgen(catch)]
    async fn unpack(text: &str) -> Result<JsValue, JsValue>;
}

#[wasm_bindgen(raw_module = "./png.js")]
extern "C" {
    /// A picture as a blob.
    #[wasm_bindgen(catch)]
    async fn png(svg: &str) -> Result<JsValue, JsValue>;
}

/// A structure as text for links and storage; none where this browser cannot.
pub(crate) async fn packed(bytes: JsValue) -> Option<String> {
    pack(&bytes).await.ok()?.as_string()
}

/// A structure that came as text.
pub(crate) async fn unpacked(text: &str) -> Result<JsValue, String> {
    unpack(text)
        .await
        .map_err(|_| "the model in this link or in this browser's storage is damaged".to_owned())
}

/// Switches between light and dark, beginning with the other than what is shown.
pub(crate) fn toggle_theme() {
    let Some(window) = window() else { return };
    let Some(root) = window.document().and_then(|d| d.document_element()) else { return };
    let system_is_dark =
        || window.match_media("(prefers-color-scheme: dark)").ok().flatten().is_some_and(|m| m.matches());
    let dark = root.get_attribute("data-theme").map_or_else(system_is_dark, |t| t == "dark");
    let theme = if dark { "light" } else { "dark" };
    let _ = root.set_attribute("data-theme", theme);
    keep("theme", theme);
}

/// An example's bytes.
pub(crate) async fn example(name: &str) -> Result<JsValue, String> {
    if !crate::parts::drop::examples().any(|(file, _)| file == name) {
        return Err("there is no example of this name".into());
    }
    let failed = |_| "it could not be loaded; it needs the network the first time".to_owned();
    let window = window().ok_or("no window")?;
    let response =
        JsFuture::from(window.fetch_with_str(&format!("examples/{name}"))).await.map_err(failed)?;
    let response: Response = response.unchecked_into();
    if !response.ok() {
        return Err(format!("it could not be loaded: {}", response.status()));
    }
    let buffer = JsFuture::from(response.array_buffer().map_err(failed)?).await.map_err(failed)?;
    Ok(Uint8Array::new(&buffer).into())
}

/// Hands a document to the user as a file.
pub(crate) async fn download(name: String, format: Format, text: String) {
    let (ending, kind) = format.file();
    let content = match format {
        Format::Png => png(&text).await,
        _ => Ok(JsValue::from_str(&text)),
    };
    if let Ok(content) = content {
        save(&format!("{name}.memfit.{ending}"), kind, &content);
    }
}

/// Hands anything to the user as a file.
pub(crate) fn save(name: &str, kind: &str, content: &JsValue) {
    let options = BlobPropertyBag::new();
    options.set_type(kind);
    let Ok(blob) = Blob::new_with_str_sequence_and_options(&Array::of1(content), &options) else { return };
    let Ok(url) = Url::create_object_url_with_blob(&blob) else { return };
    if let Some(document) = window().and_then(|w| w.document())
        && let Ok(anchor) = document.create_element("a")
    {
        let anchor: HtmlAnchorElement = anchor.unchecked_into();
        anchor.set_href(&url);
        anchor.set_download(name);
        anchor.click();
    }
    let _ = Url::revoke_object_url(&url);
}

/// Puts a text on the clipboard.
pub(crate) fn copy(text: &str) {
    if let Some(window) = window() {
        let _ = window.navigator().clipboard().write_text(text);
    }
}

/// Brings the element with this id into view, with as little movement as that takes.
pub(crate) fn show(id: &str) {
    let Some(element) = window().and_then(|w| w.document()).and_then(|d| d.get_element_by_id(id)) else {
        return;
    };
    let options = ScrollIntoViewOptions::new();
    options.set_block(ScrollLogicalPosition::Nearest);
    element.scroll_into_view_with_scroll_into_view_options(&options);
}

/// Goes to the element with this id.
pub(crate) fn focus(id: &str) {
    let element = window().and_then(|w| w.document()).and_then(|d| d.get_element_by_id(id));
    if let Some(element) = element.and_then(|e| e.dyn_into::<HtmlElement>().ok()) {
        let _ = element.focus();
    }
}

/// The model among files that were dropped or chosen together. Files with its weights lie beside some models; they are not
/// needed.
pub(crate) fn model_of(files: &FileList) -> Option<File> {
    let all = || (0..files.length()).filter_map(|i| files.get(i));
    let is_model = |file: &File| {
        let name = file.name().to_ascii_lowercase();
        MODELS.iter().any(|ending| name.ends_with(ending))
    };
    all().find(is_model).or_else(|| files.get(0))
}

/// The endings of models' files.
pub(crate) const MODELS: [&str; 5] = [".onnx", ".keras", ".json", ".h5", ".hdf5"];

/// Listeners that live as long as the page.
pub(crate) struct Listeners(#[allow(dead_code)] Vec<Closure<dyn Fn(Event)>>);

/// Takes files that are dropped anywhere on the page, and changes of the URL.
pub(crate) fn listen(file: Callback<File>, linked: Callback<()>, resized: Callback<()>) -> Listeners {
    let over = Closure::<dyn Fn(Event)>::new(|event: Event| event.prevent_default());
    let drop = Closure::<dyn Fn(Event)>::new(move |event: Event| {
        event.prevent_default();
        let transfer = event.dyn_ref::<DragEvent>().and_then(DragEvent::data_transfer);
        if let Some(dropped) = transfer.and_then(|t| t.files()).and_then(|files| model_of(&files)) {
            file.emit(dropped);
        }
    });
    let hash = Closure::<dyn Fn(Event)>::new(move |_| linked.emit(()));
    let resize = Closure::<dyn Fn(Event)>::new(move |_| resized.emit(()));
    if let Some(window) = window() {
        for (name, listener) in
            [("dragover", &over), ("drop", &drop), ("hashchange", &hash), ("resize", &resize)]
        {
            let _ = window.add_event_listener_with_callback(name, listener.as_ref().unchecked_ref());
        }
    }
    Listeners(vec![over, drop, hash, resize])
}

/// Something that happens after a while, unless it is dropped before.
pub(crate) struct Timer {
    id: i32,
    _then: Closure<dyn FnMut()>,
}

impl Timer {
    pub(crate) fn after(milliseconds: i32, then: impl FnOnce() + 'static) -> Timer {
        let then = Closure::once(then);
        let id = window().and_then(|w| {
            let then = then.as_ref().unchecked_ref();
            w.set_timeout_with_callback_and_timeout_and_arguments_0(then, milliseconds).ok()
        });
        Timer { id: id.unwrap_or_default(), _then: then }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some(window) = window() {
            window.clear_timeout_with_handle(self.id);
        }
    }
}
