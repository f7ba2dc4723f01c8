//! The TypeScript types of plans and answers, as the JSON Schema of an estimate has them.

use wasm_bindgen::prelude::*;

#[wasm_bindgen(typescript_custom_section)]
const TYPES: &str = include_str!("types.d.ts");
