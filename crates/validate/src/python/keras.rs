//! A Keras file as it is: loaded, compiled and trained by Keras itself.

use super::{Settings, configuration, quoted};
use memfit_engine::{Loss, Plan, Precision, Setting, Target};
use memfit_graph::{DType, Problem, Value};
use serde_json::json;
use std::path::Path;

const HARNESS: &str = include_str!("keras_step.py");
const MARK: &str = "# --- the settings ---\n";

/// Writes the whole program. `setting` says what is fed and what the outputs are compared with.
///
/// # Errors
/// What of the plan is not written.
pub fn script(
    path: &Path,
    setting: &Setting<'_>,
    plan: &Plan,
    settings: Settings,
) -> Result<String, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut refuse = |place: &str, message: String| problems.push(Problem::new(place, message));
    if matches!(plan.precision, Precision::Fp16 | Precision::Bf16) {
        refuse("--precision", "Keras is run with its own dtypes or a mixed policy".into());
    }
    if plan.accumulate > 1 {
        refuse("--accumulate", "the written program makes one update a batch".into());
    }
    if plan.parallel.is_some() {
        refuse("--gpus", "the written program trains on one device".into());
    }
    let (class, options) = match &*plan.optimizer {
        "sgd" => ("SGD", json!({})),
        "momentum" => ("SGD", json!({"momentum": 0.9})),
        "nesterov" => ("SGD", json!({"momentum": 0.9, "nesterov": true})),
        "adam" => ("Adam", json!({})),
        "adamw" => ("AdamW", json!({})),
        "amsgrad" => ("Adam", json!({"amsgrad": true})),
        "rmsprop" => ("RMSprop", json!({})),
        "rmsprop-centered" => ("RMSprop", json!({"centered": true})),
        "rmsprop-momentum" => ("RMSprop", json!({"momentum": 0.9})),
        "adagrad" => ("Adagrad", json!({})),
        "adadelta" => ("Adadelta", json!({})),
        "adamax" => ("Adamax", json!({})),
        "ftrl" => ("Ftrl", json!({})),
        "nadam" => ("Nadam", json!({})),
        "lion" => ("Lion", json!({})),
        "lamb" => ("Lamb", json!({})),
        "adafactor" => ("Adafactor", json!({})),
        "muon" => ("Muon", json!({})),
        "schedule-free-adamw" => ("ScheduleFreeAdamW", json!({})),
        other => {
            refuse("--optimizer", format!("{other} is not in keras.optimizers"));
            ("", json!({}))
        }
    };
    if !problems.is_empty() {
        return Err(problems);
    }
    let inputs: Vec<_> = setting
        .graph
        .inputs
        .iter()
        .map(|id| {
            let shape = setting.inferred.shape(*id).and_then(|s| s.known());
            let value = setting.inferred.value(*id).filter(|v| v.is_known()).and_then(Value::floats);
            json!({"name": &*setting.graph.tensor(*id).name, "shape": shape,
                   "dtype": setting.inferred.dtype(*id).name(), "elements": value})
        })
        .collect();
    let output = setting.compared.first().and_then(|id| setting.inferred.shape(*id)?.known());
    let target = match &setting.target {
        Target::Input(id) => json!({"input": setting.graph.inputs.iter().position(|input| input == id)}),
        Target::New(shape, dtype) => json!({"shape": shape, "dtype": dtype.name(),
            "below": output.as_ref().and_then(|s| s.last().copied()).unwrap_or(1)}),
        Target::None => json!({"shape": output, "dtype": DType::Float32.name()}),
    };
    let logits = json!({"from_logits": true});
    let (loss, loss_options) = match setting.loss {
        Loss::CrossEntropy => ("SparseCategoricalCrossentropy", logits),
        Loss::Bce => ("BinaryCrossentropy", logits),
        Loss::Mse | Loss::Auto | Loss::None => ("MeanSquaredError", json!({})),
    };
    let mut config = configuration(plan, settings);
    config["file"] = path.display().to_string().into();
    config["optimizer"] = json!({"class": class, "options": options});
    config["loss"] = json!({"class": loss, "options": loss_options});
    config["xla"] = plan.xla.into();
    config["inputs"] = inputs.into();
    config["target"] = target;
    config["growth"] = plan.allocator.memory_growth.into();
    config["weight_decay"] = plan.weight_decay.into();
    Ok(HARNESS.replace(MARK, &format!("CONFIG = json.loads({})\n", quoted(&config.to_string()))))
}
