//! A model that was opened once and is asked many times.

#[cfg(not(feature = "keras"))]
use crate::request::Options;
use crate::request::{self, Asked};
use memfit_engine::{Estimate, Framework, Model, fit};
use memfit_graph::{Problem, infer};
#[cfg(feature = "keras")]
use memfit_keras::Options;
use memfit_report::{Inspection, inspect, json};
use std::io::{Read, Seek};
use std::path::Path;

/// A model whose structure has been read; the file is not needed any more.
pub struct Opened {
    /// The file's name without its extension, else the graph's.
    pub name: String,
    /// `onnx` or `keras`.
    pub format: &'static str,
    /// What wrote the file, as the file says it.
    pub producer: String,
    /// The opset of the default domain, where the format has one.
    pub opset: Option<i64>,
    /// Nodes in the file, bodies included; layer calls of a Keras model.
    pub operators: u64,
    /// What is odd about the file.
    pub warnings: Vec<String>,
    /// The model itself.
    pub model: Model,
}

impl Opened {
    /// Reads a file's structure; `file` is what the file is called.
    ///
    /// # Errors
    /// All problems of the file.
    pub fn read(reader: impl Read + Seek, file: Option<&str>) -> Result<Opened, Vec<Problem>> {
        Opened::read_with(reader, file, &Options::default())
    }

    /// The same with what the file itself does not say of a Keras model.
    ///
    /// # Errors
    /// All problems of the file.
    pub fn read_with(
        #[cfg_attr(not(feature = "keras"), allow(unused_mut))] mut reader: impl Read + Seek,
        file: Option<&str>,
        options: &Options,
    ) -> Result<Opened, Vec<Problem>> {
        let stem = file.and_then(|f| Path::new(f).file_stem()).map(|s| s.to_string_lossy().into_owned());
        #[cfg(feature = "keras")]
        if is_keras(&mut reader)? {
            let imported = memfit_keras::import_from(reader, options)?;
            let name = stem.unwrap_or_else(|| imported.graph.name.clone());
            let operators = imported.graph.nodes.len() as u64;
            return Ok(Opened {
                format: "keras",
                producer: imported.producer,
                opset: None,
                operators,
                warnings: imported.warnings.iter().map(ToString::to_string).collect(),
                model: Model::new(imported.graph, &name, "keras", operators),
                name,
            });
        }
        #[cfg(not(feature = "keras"))]
        let _ = options;
        let imported = memfit_onnx::import_from(reader)?;
        let name = stem.unwrap_or_else(|| imported.graph.name.clone());
        Ok(Opened {
            format: "onnx",
            producer: imported.producer,
            opset: Some(imported.opset),
            operators: imported.operators,
            warnings: imported.warnings.iter().map(ToString::to_string).collect(),
            model: Model::new(imported.graph, &name, "onnx", imported.operators),
            name,
        })
    }

    /// Whose rules apply where nobody says it.
    pub fn framework(&self) -> Framework {
        if self.format == "keras" { Framework::Tensorflow } else { Framework::Pytorch }
    }

    /// What one training step holds.
    ///
    /// # Errors
    /// All problems found.
    pub fn estimate(&self, asked: &Asked) -> Result<Estimate, Vec<Problem>> {
        let mut estimate = self.model.estimate_on(&asked.binding, &asked.plan, asked.card.as_ref())?;
        estimate.warnings.extend(self.warnings.iter().cloned());
        estimate.warnings.extend(asked.warnings.iter().cloned());
        Ok(estimate)
    }

    /// What one training step holds, as `memfit estimate --format json` writes it.
    ///
    /// # Errors
    /// All problems found.
    pub fn estimate_json(&self, plan: &str) -> Result<String, Vec<Problem>> {
        Ok(json::estimate(&self.estimate(&request::read_for(plan, self.framework())?)?))
    }

    /// The largest batch, image or sequence on each card, as `memfit fit --format json` writes it. `search` names the cards
    /// (`gpus`), and what else is varied (`precisions`, `optimizers`, `max`).
    ///
    /// # Errors
    /// All problems found.
    pub fn fit_json(&self, plan: &str, search: &str) -> Result<String, Vec<Problem>> {
        let asked = request::read_for(plan, self.framework())?;
        let search = request::read_search(search, &asked)?;
        let (model, binding) = (&self.model, &asked.binding);
        let cells = fit::matrix(model, binding, &search.plans, &search.cards, &search.axis, &mut |_, _| {})?;
        let mut warnings = search.warnings;
        warnings.extend(self.model.report().findings.iter().map(|f| f.message.clone()));
        Ok(memfit_report::fit::json(&memfit_report::fit::Matrix {
            model: &self.name,
            axis: search.axis.name(),
            batch: binding.batch,
            cells: &cells,
            warnings: &warnings,
        }))
    }

    /// Every tensor with its dtype and shape, as `memfit inspect --format json` writes it. Of the plan only sizes are read.
    ///
    /// # Errors
    /// All problems found.
    pub fn inspect_json(&self, plan: &str) -> Result<String, Vec<Problem>> {
        let graph = self.model.graph();
        let inferred = infer(graph, &request::read(plan)?.binding)?;
        Ok(inspect::json::inspection(&Inspection {
            name: &self.name,
            format: self.format,
            producer: &self.producer,
            opset: self.opset,
            operators: self.operators,
            graph,
            inferred: &inferred,
            warnings: &self.warnings,
        }))
    }
}

#[cfg(feature = "keras")]
fn is_keras(reader: &mut (impl Read + Seek)) -> Result<bool, Vec<Problem>> {
    let mut head = Vec::new();
    let read = reader.by_ref().take(1024).read_to_end(&mut head).and_then(|_| reader.rewind());
    read.map_err(|error| vec![Problem::new("file", format!("cannot be read: {error}"))])?;
    Ok(memfit_keras::is_keras(&head))
}
