//! Which card this machine has, as far as the browser tells: WebGPU's adapter, else the name that WebGL gives.
//!
//! Browsers blur these names. One that is in the catalogue preselects the card; anything else is left alone.

use js_sys::{Function, Promise, Reflect};
use memfit_engine::devices;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use web_sys::HtmlCanvasElement;

/// `UNMASKED_RENDERER_WEBGL` of the extension `WEBGL_debug_renderer_info`.
const RENDERER: u32 = 0x9246;

/// The id of this machine's card.
pub(crate) async fn card() -> Option<String> {
    let adapter = adapter().await.unwrap_or_default();
    known(&adapter).or_else(|| known(&renderer().unwrap_or_default()))
}

/// What WebGPU says of its adapter.
async fn adapter() -> Option<String> {
    let gpu = get(&web_sys::window()?.navigator(), "gpu")?;
    let promise = call(&gpu, "requestAdapter", &[])?.dyn_into::<Promise>().ok()?;
    let info = get(&JsFuture::from(promise).await.ok()?, "info")?;
    let text = |key| get(&info, key).and_then(|v| v.as_string()).unwrap_or_default();
    Some(format!("{} {}", text("device"), text("description")))
}

/// What WebGL says of its renderer.
fn renderer() -> Option<String> {
    let canvas = web_sys::window()?.document()?.create_element("canvas").ok()?;
    let context = canvas.unchecked_into::<HtmlCanvasElement>().get_context("webgl").ok()??;
    call(&context, "getExtension", &["WEBGL_debug_renderer_info".into()])?;
    call(&context, "getParameter", &[RENDERER.into()])?.as_string()
}

fn get(object: &JsValue, key: &str) -> Option<JsValue> {
    Reflect::get(object, &key.into()).ok().filter(|v| !v.is_undefined() && !v.is_null())
}

fn call(object: &JsValue, name: &str, arguments: &[JsValue]) -> Option<JsValue> {
    let function: Function = get(object, name)?.dyn_into().ok()?;
    function.apply(object, &arguments.iter().collect()).ok().filter(|v| !v.is_undefined() && !v.is_null())
}

/// The card of the catalogue whose name is the longest in a text.
fn known(text: &str) -> Option<String> {
    let plain = |text: &str| -> String {
        text.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
    };
    let text = plain(text);
    let cards = devices::catalogue().iter().map(|card| (plain(&card.name), card));
    let found = cards.filter(|(name, _)| text.contains(name.as_str())).max_by_key(|(name, _)| name.len());
    found.map(|(_, card)| card.id.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_name_in_what_a_browser_says_is_the_card() {
        let say = |name: &str| {
            format!("ANGLE (NVIDIA, NVIDIA GeForce {name} (0x00002684) Direct3D11 vs_5_0 ps_5_0, D3D11)")
        };
        assert_eq!(known(&say("RTX 3070 Ti")).as_deref(), Some("rtx-3070-ti"));
        assert_eq!(known(&say("RTX 4090")).as_deref(), Some("rtx-4090"));
        assert_eq!(
            known(
                "ANGLE (Google, Vulkan 1.3.0 (SwiftShader Device (Subzero) (0x0000C0DE)), SwiftShader driver)"
            ),
            None
        );
        assert_eq!(known(""), None);
    }
}
