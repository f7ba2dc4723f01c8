//! Embedding and ReversibleEmbedding. Keras 2 and 3; the second Keras 3.
//!
//! keras/src/layers/core/embedding.py, reversible_embedding.py: a table with a row for each token. Called with `reverse=True` the second
//! multiplies with the table (tied) or with one of its own.

use super::LayerSpec;
use crate::layer::{Call, Layer, Weight};
use crate::policy::Quantization;
use crate::reader::{Source, boxed};
use crate::run::Run;
use crate::spec::{self, Spec};
use crate::torch::Torch;
use memfit_graph::{DType, Dim, OpError, Variable};
use serde::Deserialize;

/// A table of rows.
#[derive(Clone, Debug, Deserialize)]
pub struct Embedding {
    /// Rows.
    #[serde(deserialize_with = "crate::config::positive")]
    pub input_dim: u64,
    /// Elements of a row.
    #[serde(deserialize_with = "crate::config::positive")]
    pub output_dim: u64,
    /// Whether token zero masks its position.
    #[serde(default)]
    pub mask_zero: bool,
    /// The rank of the trained correction, where there is one.
    #[serde(default, deserialize_with = "crate::config::rank")]
    pub lora_rank: Option<u64>,
    /// Whether the reverse has a table of its own.
    #[serde(skip)]
    pub untied: bool,
}

fn reversible(source: &Source<'_>) -> Result<Embedding, String> {
    let tied = source.object.config.get("tie_weights").and_then(serde_json::Value::as_bool).unwrap_or(true);
    Ok(Embedding { untied: !tied, ..source.read()? })
}

/// How they are found.
pub const SPECS: &[LayerSpec] = &[
    LayerSpec { classes: &["Embedding"], keras: &[2, 3], build: |s| boxed(s.read::<Embedding>()?) },
    LayerSpec { classes: &["ReversibleEmbedding"], keras: &[3], build: |s| boxed(reversible(s)?) },
];

impl Embedding {
    fn table(&self, call: &Call<'_>, name: &str, [rows, columns]: [u64; 2], by_row: bool) -> Vec<Weight> {
        let of = |name: String, shape: Vec<u64>, dtype| Weight { dtype, ..call.state(&name, shape) };
        let scaled = if by_row { rows } else { columns };
        match &call.facts.policy.quantization {
            Some(Quantization::Int8) => vec![
                of(name.into(), vec![rows, columns], DType::Int8),
                call.state(&format!("{name}_scale"), [scaled]),
            ],
            Some(Quantization::Int4 { block }) => {
                let packed =
                    if by_row { vec![rows, columns.div_ceil(2)] } else { vec![rows.div_ceil(2), columns] };
                let mut made = vec![of(name.into(), packed, DType::Int8)];
                match block {
                    None => made.push(call.state(&format!("{name}_scale"), [scaled])),
                    Some(block) => {
                        let scale = match by_row {
                            true => vec![rows, columns.div_ceil(*block)],
                            false => vec![rows.div_ceil(*block), columns],
                        };
                        made.push(call.state(&format!("{name}_scale"), scale.clone()));
                        made.push(of(format!("{name}_zero"), scale, DType::Int8));
                        // The reverse has the same columns, so it has no groups of its own.
                        if by_row {
                            made.push(of("g_idx".into(), vec![columns], DType::Float32));
                        }
                    }
                }
                made
            }
            _ => vec![call.weight(name, [rows, columns])],
        }
    }
}

impl Layer for Embedding {
    fn weights(&self, call: &Call<'_>, _: &[Spec]) -> Result<Vec<Weight>, OpError> {
        let mut weights = self.table(call, "embeddings", [self.input_dim, self.output_dim], true);
        if self.untied {
            weights.extend(self.table(call, "reverse_embeddings", [self.output_dim, self.input_dim], false));
        }
        if let Some(rank) = self.lora_rank {
            for table in
                weights.iter_mut().filter(|w| w.name == "embeddings" && w.variable == Variable::Trainable)
            {
                table.variable = Variable::Frozen;
            }
            let narrow = |name, shape: [u64; 2]| Weight { dtype: DType::Float32, ..call.weight(name, shape) };
            weights.push(narrow("lora_embeddings_a", [self.input_dim, rank]));
            weights.push(narrow("lora_embeddings_b", [rank, self.output_dim]));
        }
        Ok(weights)
    }

    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        let x = spec::input(inputs, 0)?;
        if call.arguments.flag("reverse") == Some(true) {
            let dims = x.dims().get(..x.rank().saturating_sub(1)).unwrap_or(&[]);
            return Ok(vec![call.output(dims.iter().cloned().chain([Dim::Known(self.input_dim)]))]);
        }
        Ok(vec![call.output(x.dims().iter().cloned().chain([Dim::Known(self.output_dim)]))])
    }

    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        let is_reverse = run.call.arguments.flag("reverse") == Some(true);
        if run.call.facts.policy.quantization.is_some() || self.lora_rank.is_some() {
            return run.not_modelled();
        }
        if is_reverse {
            let x = run.x(0);
            let kernel = run.weight(usize::from(self.untied));
            let kernel = if self.untied { kernel } else { kernel.transpose_last(run.l) };
            let y = run.matmul(&x, &kernel);
            return run.finish(&y);
        }
        let (table, tokens, shape) = (run.own_weight(0), run.x(0), run.out_shape());
        let y = run.lookup(&table, &tokens, shape);
        let y = run.narrowed(&y);
        run.finish(&y);
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        if run.call.facts.policy.quantization.is_some() {
            return run.not_modelled();
        }
        let shape = run.out_shape(0);
        if run.call.arguments.flag("reverse") == Some(true) {
            let x = run.x(0);
            let table = run.weight(usize::from(self.untied));
            let lora_rank = self.lora_rank.filter(|_| !self.untied);
            let table = super::quantized::corrected(run, table, lora_rank);
            let rows = run.made(x).elements().checked_div(self.output_dim).unwrap_or(0);
            let flat = run.view("Reshape", x, &[rows, self.output_dim]);
            let product = run.matmul("MatMul", flat, table, &[rows, self.input_dim]);
            let y = run.view("Reshape", product, shape);
            return run.finish(y);
        }
        // The table is read as it is kept, and what is taken from it is cast.
        let (table, tokens) = (run.raw_weight(0), run.raw(0));
        let rows = match self.lora_rank {
            // The corrected table is a tensor, whose gradient is a whole one.
            Some(_) => {
                let table = super::quantized::corrected(run, table, self.lora_rank);
                run.moved("GatherV2", table, shape)
            }
            None => run.lookup(table, tokens, shape),
        };
        let y = run.to_compute(rows);
        run.finish(y);
    }
}
