//! Preprocessing that turns tokens into indices or encodings. Keras 2 and 3.
//!
//! keras/src/layers/preprocessing/category_encoding.py, discretization.py, hashing.py, hashed_crossing.py, integer_lookup.py, string_lookup.py,
//! text_vectorization.py: the shapes that each `output_mode` gives. Their tables are no variables of the model.

use super::LayerSpec;
use crate::layer::{Call, Keras, Layer};
use crate::policy;
use crate::reader::{Source, boxed};
use crate::run::Run;
use crate::spec::{self, Spec};
use memfit_graph::{DType, Dim, OpError};
use serde_json::Value;

/// What is made of each element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// An index.
    Index,
    /// A vector for each element.
    OneHot,
    /// A vector for each sample: which occur, how often, how rare they are.
    Sample,
}

/// An encoding of tokens, numbers or texts.
#[derive(Clone, Debug)]
pub struct Encoding {
    /// The class.
    pub class: String,
    /// What is made of each element.
    pub mode: Mode,
    /// The length of a vector.
    pub depth: Option<u64>,
    /// The length of a text in tokens (TextVectorization).
    pub length: Option<u64>,
    /// The dtype that the config asks for.
    pub dtype: Option<DType>,
}

fn read(source: &Source<'_>) -> Result<Encoding, String> {
    let config = source.object.config;
    let number = |key: &str| config.get(key).and_then(Value::as_u64);
    let default = if source.class() == "CategoryEncoding" { "multi_hot" } else { "int" };
    let mode = match config.get("output_mode").and_then(Value::as_str).unwrap_or(default) {
        "int" => Mode::Index,
        "one_hot" => Mode::OneHot,
        "multi_hot" | "count" | "tf_idf" | "tf-idf" | "binary" => Mode::Sample,
        other => {
            return Err(format!(
                "output_mode: expected int, one_hot, multi_hot, count or tf_idf, found `{other}`"
            ));
        }
    };
    let padded = config.get("pad_to_max_tokens").and_then(Value::as_bool) == Some(true);
    let vocabulary = || match config.get("vocabulary") {
        Some(Value::Array(list)) => Some(list.len() as u64),
        _ => None,
    };
    let bins = || config.get("bin_boundaries").and_then(Value::as_array).map(|b| b.len() as u64 + 1);
    let depth = match source.class() {
        "Discretization" => bins().or_else(|| number("num_bins")),
        "CategoryEncoding" => number("num_tokens").or_else(|| number("max_tokens")),
        "HashedCrossing" | "Hashing" => number("num_bins"),
        _ if padded => number("max_tokens"),
        _ => number("vocabulary_size").or_else(vocabulary),
    };
    let dtype = config.get("dtype").and_then(Value::as_str).and_then(policy::dtype);
    let length = number("output_sequence_length");
    Ok(Encoding { class: source.class().to_owned(), mode, depth, length, dtype })
}

/// How they are found.
pub const SPECS: &[LayerSpec] = &[LayerSpec {
    classes: &[
        "CategoryEncoding",
        "Discretization",
        "HashedCrossing",
        "Hashing",
        "IntegerLookup",
        "StringLookup",
        "TextVectorization",
    ],
    keras: &[2, 3],
    build: |s| boxed(read(s)?),
}];

impl Layer for Encoding {
    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        let x = spec::input(inputs, 0)?;
        let index = match self.class.as_str() {
            // discretization.py, `output_dtype`, whatever the config says
            "Discretization" if call.facts.keras == Keras::V3 => DType::Int32,
            _ => self.dtype.filter(|d| d.is_integer()).unwrap_or(DType::Int64),
        };
        if self.mode == Mode::Index {
            let dims: Vec<Dim> = match self.class.as_str() {
                "TextVectorization" => {
                    let length = self.length.map(Dim::Known);
                    let length = length.unwrap_or_else(|| Dim::symbol(&format!("{}_d1", call.facts.name)));
                    vec![x.dims().first().cloned().unwrap_or(Dim::Known(1)), length]
                }
                _ => x.dims().to_vec(),
            };
            return Ok(vec![Spec::new(dims.into_iter().collect(), index)]);
        }
        let depth = self.depth.map(Dim::Known);
        let depth = depth.unwrap_or_else(|| Dim::symbol(&format!("{}_depth", call.facts.name)));
        let (last, rest) = x.dims().split_last().map_or((None, &[][..]), |(last, rest)| (Some(last), rest));
        let single = last.is_some_and(|d| d.known() == Some(1));
        let kept = match (&self.mode, self.class.as_str()) {
            (_, "TextVectorization") => x.dims().get(..1).unwrap_or(&[]).to_vec(),
            (Mode::OneHot, _) if !single || x.rank() == 1 => x.dims().to_vec(),
            (Mode::Sample, "Discretization") if x.rank() >= 2 => [&x.dims()[..1], &x.dims()[2..]].concat(),
            _ => rest.to_vec(),
        };
        let dtype = self.dtype.filter(|d| self.class != "TextVectorization" && *d != DType::String);
        let dtype = dtype.unwrap_or(call.compute());
        Ok(vec![Spec::new(kept.into_iter().chain([depth]).collect(), dtype)])
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        run.allocate("Lookup");
    }
}
