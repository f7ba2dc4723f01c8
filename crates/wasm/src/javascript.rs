//! What JavaScript calls: `open` a file, then ask the model that comes back.
//!
//! Answers are the command line's JSON, as text (`estimateJson`) or parsed (`estimate`). A failure is an `Error` whose message
//! lists all problems, with the problems one by one in its property `problems`.

mod types;

use crate::{Opened, Slices, lines};
use js_sys::{Array, Error, JSON, Object, Reflect};
use memfit_graph::Problem;
use wasm_bindgen::prelude::*;

/// Reads the structure of a model file, never its weights.
///
/// `source` is a `Uint8Array`, an object with `size` and `read(offset, length)`, or, inside of a worker, a `File` or `Blob`.
/// `name` is what the file is called. `told` is what a Keras file does not say: the `input` of a model that was saved before it was
/// built, and what custom layers are (`layer`), as in a plan.
///
/// # Errors
/// All problems of the file.
#[wasm_bindgen]
pub fn open(
    #[wasm_bindgen(unchecked_param_type = "Uint8Array | Blob | Source")] source: JsValue,
    name: Option<String>,
    #[wasm_bindgen(unchecked_param_type = "Told | string | undefined")] told: JsValue,
) -> Result<Model, JsValue> {
    let slices = Slices::new(source)?;
    let asked = crate::read_request(&text(&told)?).map_err(|p| thrown(&p))?;
    Opened::read_with(slices, name.as_deref(), &asked.options).map(Model).map_err(|p| thrown(&p))
}

/// The version of memfit that this is.
#[wasm_bindgen]
pub fn version() -> String {
    env!("CARGO_PKG_VERSION").into()
}

/// All cards, as `memfit gpus --format json` writes them.
#[wasm_bindgen(js_name = gpusJson)]
pub fn gpus_json() -> String {
    memfit_report::gpus::json(&memfit_engine::devices::catalogue().iter().collect::<Vec<_>>())
}

/// The same, parsed.
///
/// # Errors
/// None in practice.
#[wasm_bindgen(unchecked_return_type = "Gpus")]
pub fn gpus() -> Result<JsValue, JsValue> {
    JSON::parse(&gpus_json())
}

/// Why the run of a log ran out of memory, as `memfit explain --format json` writes it.
#[cfg(feature = "explain")]
#[wasm_bindgen(js_name = explainJson)]
pub fn explain_json(log: &str) -> String {
    crate::explain_json(log)
}

/// A model whose structure has been read.
#[wasm_bindgen]
pub struct Model(Opened);

#[wasm_bindgen]
impl Model {
    /// The file's name without its extension, else the graph's.
    #[wasm_bindgen(getter)]
    pub fn name(&self) -> String {
        self.0.name.clone()
    }

    /// What one training step holds, as `memfit estimate --format json` writes it.
    ///
    /// # Errors
    /// All problems found.
    #[wasm_bindgen(js_name = estimateJson)]
    pub fn estimate_json(
        &self,
        #[wasm_bindgen(unchecked_param_type = "Plan | string | undefined")] plan: JsValue,
    ) -> Result<String, JsValue> {
        self.0.estimate_json(&text(&plan)?).map_err(|p| thrown(&p))
    }

    /// The same, parsed.
    ///
    /// # Errors
    /// All problems found.
    #[wasm_bindgen(unchecked_return_type = "Estimate")]
    pub fn estimate(
        &self,
        #[wasm_bindgen(unchecked_param_type = "Plan | string | undefined")] plan: JsValue,
    ) -> Result<JsValue, JsValue> {
        JSON::parse(&self.estimate_json(plan)?)
    }

    /// The largest batch, image or sequence on each card, as `memfit fit --format json` writes it.
    ///
    /// # Errors
    /// All problems found.
    #[wasm_bindgen(js_name = fitJson)]
    pub fn fit_json(
        &self,
        #[wasm_bindgen(unchecked_param_type = "Plan | string | undefined")] plan: JsValue,
        #[wasm_bindgen(unchecked_param_type = "Search | string")] search: JsValue,
    ) -> Result<String, JsValue> {
        self.0.fit_json(&text(&plan)?, &text(&search)?).map_err(|p| thrown(&p))
    }

    /// The same, parsed.
    ///
    /// # Errors
    /// All problems found.
    #[wasm_bindgen(unchecked_return_type = "Fits")]
    pub fn fit(
        &self,
        #[wasm_bindgen(unchecked_param_type = "Plan | string | undefined")] plan: JsValue,
        #[wasm_bindgen(unchecked_param_type = "Search | string")] search: JsValue,
    ) -> Result<JsValue, JsValue> {
        JSON::parse(&self.fit_json(plan, search)?)
    }

    /// What to change so that the step fits on the plan's card, as `memfit advise --format json` writes it.
    ///
    /// # Errors
    /// All problems found.
    #[wasm_bindgen(js_name = adviseJson)]
    pub fn advise_json(
        &self,
        #[wasm_bindgen(unchecked_param_type = "Plan | string")] plan: JsValue,
    ) -> Result<String, JsValue> {
        self.0.advise_json(&text(&plan)?).map_err(|p| thrown(&p))
    }

    /// The same, parsed. A plan with a change's `plan` spread over it is the plan after the change.
    ///
    /// # Errors
    /// All problems found.
    #[wasm_bindgen(unchecked_return_type = "Advice")]
    pub fn advise(
        &self,
        #[wasm_bindgen(unchecked_param_type = "Plan | string")] plan: JsValue,
    ) -> Result<JsValue, JsValue> {
        JSON::parse(&self.advise_json(plan)?)
    }

    /// Every tensor with its dtype and shape, as `memfit inspect --format json` writes it.
    ///
    /// # Errors
    /// All problems found.
    #[wasm_bindgen(js_name = inspectJson)]
    pub fn inspect_json(
        &self,
        #[wasm_bindgen(unchecked_param_type = "Plan | string | undefined")] plan: JsValue,
    ) -> Result<String, JsValue> {
        self.0.inspect_json(&text(&plan)?).map_err(|p| thrown(&p))
    }

    /// The same, parsed.
    ///
    /// # Errors
    /// All problems found.
    #[wasm_bindgen(unchecked_return_type = "Inspection")]
    pub fn inspect(
        &self,
        #[wasm_bindgen(unchecked_param_type = "Plan | string | undefined")] plan: JsValue,
    ) -> Result<JsValue, JsValue> {
        JSON::parse(&self.inspect_json(plan)?)
    }
}

/// A plan as text: it may be given as an object, as JSON, or not at all.
fn text(plan: &JsValue) -> Result<String, JsValue> {
    if plan.is_undefined() || plan.is_null() {
        return Ok("{}".into());
    }
    match plan.as_string() {
        Some(text) => Ok(text),
        None => JSON::stringify(plan).map(String::from),
    }
}

/// The error that is thrown for problems.
fn thrown(problems: &[Problem]) -> JsValue {
    let error = Error::new(&lines(problems));
    error.set_name("MemfitError");
    let list = Array::new();
    for problem in problems {
        let entry = Object::new();
        let set = |key: &str, value: &str| {
            // Setting a key of a new plain object does not fail.
            let _ = Reflect::set(&entry, &key.into(), &value.into());
        };
        set("place", &problem.place);
        set("op", &problem.op);
        set("message", &problem.message);
        set("hint", problem.hint.as_deref().unwrap_or_default());
        list.push(&entry);
    }
    let _ = Reflect::set(&error, &"problems".into(), &list);
    error.into()
}
