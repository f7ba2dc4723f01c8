//! A model that was opened once and is asked many times.

use crate::compact::{self, Sparse};
#[cfg(not(feature = "keras"))]
use crate::request::Options;
use crate::request::{self, Asked};
use memfit_engine::advise::{Around, Code, advise};
use memfit_engine::fit::{self, Subject};
use memfit_engine::{Estimate, Life, Model, Plan, Usual};
use memfit_graph::{Imported, Problem, infer};
#[cfg(feature = "keras")]
use memfit_keras::Options;
use memfit_report::{Inspection, inspect, json};
use std::io::{self, Read, Seek};
use std::ops::Range;
use std::path::Path;
use std::slice;

/// A model whose structure has been read; its file is needed again for [`Opened::compact`] alone.
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
    /// What applies where nobody says it.
    usual: Usual,
    /// The parts of the file that say all this; none of a Keras file, whose config does.
    structure: Vec<Range<u64>>,
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
        mut reader: impl Read + Seek,
        file: Option<&str>,
        options: &Options,
    ) -> Result<Opened, Vec<Problem>> {
        let start = head(&mut reader)?;
        if compact::is_compact(&start) {
            let bytes = compact::copy(&mut reader).map_err(unreadable)?;
            let mut sparse = Sparse::new(bytes).map_err(|problem| vec![problem])?;
            let start = head(&mut sparse)?;
            return Opened::import(sparse, &start, file, options);
        }
        Opened::import(reader, &start, file, options)
    }

    fn import(
        reader: impl Read + Seek,
        start: &[u8],
        file: Option<&str>,
        options: &Options,
    ) -> Result<Opened, Vec<Problem>> {
        let stem = file.and_then(|f| Path::new(f).file_stem()).map(|s| s.to_string_lossy().into_owned());
        let imported = imported(reader, start, options)?;
        let usual = Usual::of_file(&imported);
        let Imported { format, graph, producer, opset, operators, warnings, structure, .. } = imported;
        let name = stem.unwrap_or_else(|| graph.name.clone());
        Ok(Opened {
            format,
            producer,
            opset,
            operators,
            usual,
            warnings: warnings.iter().map(ToString::to_string).collect(),
            model: Model::new(graph, &name, format, operators),
            structure,
            name,
        })
    }

    /// The structure of the model by itself, without weights: opened, it gives the same model. `file` is the model's file.
    ///
    /// # Errors
    /// When the file cannot be read any more.
    pub fn compact(&self, mut file: impl Read + Seek) -> Result<Vec<u8>, Vec<Problem>> {
        let head = head(&mut file)?;
        if compact::is_compact(&head) {
            return compact::copy(&mut file).map_err(unreadable);
        }
        #[cfg(feature = "keras")]
        if memfit_keras::is_keras(&head) {
            return memfit_keras::config_of(file).map_err(|problem| vec![problem]);
        }
        compact::write(&mut file, &self.structure).map_err(unreadable)
    }

    /// What applies where nobody says it.
    pub fn usual(&self) -> Usual {
        self.usual
    }

    /// What the user should know of the file under these plans, and what is odd about it.
    fn notices(&self, plans: &[Plan]) -> Vec<String> {
        [self.model.notices(plans), self.warnings.clone()].concat()
    }

    /// What one training step holds.
    ///
    /// # Errors
    /// All problems found.
    pub fn estimate(&self, asked: &Asked) -> Result<Estimate, Vec<Problem>> {
        let mut estimate = self.model.estimate_on(&asked.binding, &asked.plan, asked.card.as_ref())?;
        estimate.assumptions.extend(asked.kept());
        estimate.warnings.extend(self.warnings.iter().cloned());
        estimate.warnings.extend(asked.warnings.iter().cloned());
        if let Some(life) = &asked.life {
            self.model.add_process(&mut estimate, &asked.binding, life, &[], asked.card.as_ref())?;
        }
        Ok(estimate)
    }

    /// What one training step holds, as `memfit estimate --format json` writes it.
    ///
    /// # Errors
    /// All problems found.
    pub fn estimate_json(&self, plan: &str) -> Result<String, Vec<Problem>> {
        Ok(json::estimate(&self.estimate(&request::read_for(plan, self.usual())?)?))
    }

    /// The largest batch, image or sequence on each card, as `memfit fit --format json` writes it. `search` names the cards
    /// (`gpus`), and what else is varied (`precisions`, `optimizers`, `max`).
    ///
    /// # Errors
    /// All problems found.
    pub fn fit_json(&self, plan: &str, search: &str) -> Result<String, Vec<Problem>> {
        let asked = request::read_for(plan, self.usual())?;
        let search = request::read_search(search, &asked)?;
        let (model, binding) = (&self.model, &asked.binding);
        let life = asked.life.as_ref().unwrap_or(&Life::ALONE);
        let subject = Subject { model, binding, axis: &search.axis, life };
        let cells = fit::matrix(subject, &search.plans, &search.cards, &mut |_, _| {})?;
        let warnings = [self.notices(&search.plans), search.warnings].concat();
        Ok(memfit_report::fit::json(&memfit_report::fit::Matrix {
            model: &self.name,
            axis: search.axis.name(),
            batch: binding.batch,
            cells: &cells,
            warnings: &warnings,
        }))
    }

    /// What to change so that the step fits on the plan's card, as `memfit advise --format json` writes it.
    ///
    /// # Errors
    /// All problems found; no card in the plan is one.
    pub fn advise_json(&self, plan: &str) -> Result<String, Vec<Problem>> {
        let asked = request::read_for(plan, self.usual())?;
        let Some(card) = &asked.card else {
            return Err(vec![Problem::new("plan", "no card is named").hint("name it in `gpu`")]);
        };
        let code = Code::default().of_file(asked.plan.framework, &self.producer);
        let around = Around { life: asked.life.unwrap_or_default(), code };
        let advice = advise(&self.model, &asked.binding, &asked.plan, card, &around)?;
        let warnings = [self.notices(slice::from_ref(&asked.plan)), asked.warnings].concat();
        Ok(memfit_report::advise::json(&self.name, &advice, &warnings))
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

/// Imports the file that begins so.
#[cfg(feature = "keras")]
fn imported(reader: impl Read + Seek, start: &[u8], options: &Options) -> Result<Imported, Vec<Problem>> {
    match memfit_keras::is_keras(start) {
        true => memfit_keras::import_from(reader, options).map(Imported::from),
        false => memfit_onnx::import_from(reader).map(Imported::from),
    }
}

/// The same where a build reads no Keras files.
#[cfg(not(feature = "keras"))]
fn imported(reader: impl Read + Seek, _: &[u8], _: &Options) -> Result<Imported, Vec<Problem>> {
    memfit_onnx::import_from(reader).map(Imported::from)
}

/// The first bytes of a file, which tell its format.
fn head(reader: &mut (impl Read + Seek)) -> Result<Vec<u8>, Vec<Problem>> {
    memfit_onnx::head(reader).map_err(unreadable)
}

fn unreadable(error: io::Error) -> Vec<Problem> {
    vec![Problem::new("file", format!("cannot be read: {error}"))]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// The structure of each file under a folder gives what the file gives, is smaller, and is its own structure.
    fn same(folder: &str, endings: &[&str]) -> usize {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../").to_owned() + folder;
        let mut files: Vec<_> =
            fs::read_dir(folder).into_iter().flatten().map(|f| f.unwrap().path()).collect();
        files.retain(|f| endings.iter().any(|e| f.extension().is_some_and(|x| x == *e)));
        files.sort();
        let mut count = 0;
        for path in files.iter().step_by(3) {
            let bytes = fs::read(path).unwrap();
            let name = path.file_name().and_then(|n| n.to_str());
            let Ok(opened) = Opened::read(io::Cursor::new(&bytes), name) else { continue };
            let compact = opened.compact(io::Cursor::new(&bytes)).unwrap();
            let again = Opened::read(io::Cursor::new(&compact), name).unwrap();
            let plan = r#"{"batch_size": 4}"#;
            assert_eq!(again.inspect_json(plan), opened.inspect_json(plan), "{}", path.display());
            assert_eq!(again.estimate_json(plan), opened.estimate_json(plan), "{}", path.display());
            assert_eq!(again.compact(io::Cursor::new(&compact)).unwrap(), compact);
            count += 1;
        }
        count
    }

    #[test]
    fn a_structure_gives_the_same_model() {
        assert!(same("models", &["onnx"]) > 5);
        if same("../shared/corpus/keras", &["keras", "h5", "json"]) == 0 {
            println!("skipped: no Keras files beside this repository");
        }
    }
}
