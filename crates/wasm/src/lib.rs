//! memfit for a browser: bytes of a file and a plan in JSON go in, JSON comes out.
//!
//! There is no logic here. The same functions answer natively, which is how a check proves that both give the same bytes.

mod request;

use memfit_engine::Model;
use memfit_graph::{Problem, infer};
use memfit_report::{Inspection, inspect, json};

/// What one training step of an ONNX model holds, as JSON.
///
/// `plan` is the object that an estimate shows under `plan`, all of it optional, with `set` for symbols
/// (`{"seq": 512}`) and `input` for whole shapes (`{"x": [8, 3, 224, 224]}`).
///
/// # Errors
/// All problems found, one a line.
pub fn estimate_json(model: &[u8], plan: &str) -> Result<String, String> {
    let (plan, binding) = request::read(plan)?;
    let imported = memfit_onnx::import(model).map_err(|p| lines(&p))?;
    let name = imported.graph.name.clone();
    let model = Model::new(imported.graph, &name, "onnx", imported.operators);
    Ok(json::estimate(&model.estimate(&binding, &plan).map_err(|p| lines(&p))?))
}

/// Every tensor of an ONNX model with its dtype and shape, as JSON. Of `plan` only the sizes are read.
///
/// # Errors
/// All problems found, one a line.
pub fn inspect_json(model: &[u8], plan: &str) -> Result<String, String> {
    let (_, binding) = request::read(plan)?;
    let imported = memfit_onnx::import(model).map_err(|p| lines(&p))?;
    let inferred = infer(&imported.graph, &binding).map_err(|p| lines(&p))?;
    let warnings: Vec<String> = imported.warnings.iter().map(ToString::to_string).collect();
    Ok(inspect::json::inspection(&Inspection {
        name: &imported.graph.name,
        format: "onnx",
        producer: &imported.producer,
        opset: Some(imported.opset),
        operators: imported.operators,
        graph: &imported.graph,
        inferred: &inferred,
        warnings: &warnings,
    }))
}

fn lines(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
