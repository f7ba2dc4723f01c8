//! A Keras file as it is: loaded, compiled and trained by Keras itself.

use super::{Settings, common, quoted};
use memfit_engine::allocators::AllocatorSettings;
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
    let mut problems = refused(plan, settings);
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
            problems.push(Problem::new("--optimizer", format!("{other} is not in keras.optimizers")));
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
    let loss = match setting.loss {
        Loss::CrossEntropy => json!({"class": "SparseCategoricalCrossentropy", "options": logits}),
        Loss::Bce => json!({"class": "BinaryCrossentropy", "options": logits}),
        Loss::Mse => json!({"class": "MeanSquaredError", "options": {}}),
        // Of the output alone.
        Loss::Auto | Loss::None => json!(null),
    };
    let mut config = common(plan, settings);
    let limit = settings.limit.into_iter().chain(plan.allocator.memory_limit.map(|bytes| bytes.0)).min();
    config["limit_bytes"] = limit.into();
    config["file"] = path.display().to_string().into();
    config["optimizer"] = json!({"class": class, "options": with_rest(options, plan)});
    config["loss"] = loss;
    config["xla"] = plan.xla.into();
    config["run_eagerly"] = plan.eager.into();
    config["loss_scale"] = plan.loss_scale.into();
    config["grappler"] = plan.grappler.into();
    config["inputs"] = inputs.into();
    config["target"] = target;
    config["growth"] = plan.allocator.memory_growth.into();
    Ok(HARNESS.replace(MARK, &format!("CONFIG = json.loads({})\n", quoted(&config.to_string()))))
}

/// What every optimizer of Keras takes, beside what makes it this one.
fn with_rest(mut options: serde_json::Value, plan: &Plan) -> serde_json::Value {
    if plan.weight_decay {
        options["weight_decay"] = 0.01.into();
    }
    if plan.clip_norm {
        options["global_clipnorm"] = 1.0.into();
    }
    if plan.ema {
        options["use_ema"] = true.into();
    }
    if plan.accumulate > 1 {
        options["gradient_accumulation_steps"] = plan.accumulate.into();
    }
    options
}

/// What of a plan is not written as a program. Every part of it is named, so that one that comes new is decided on here.
fn refused(plan: &Plan, settings: Settings) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut refuse = |wrong: bool, place: &str, message: &str| {
        if wrong {
            problems.push(Problem::new(place, message));
        }
    };
    let Plan {
        precision,
        freeze,
        parallel,
        allocator,
        // These are written.
        framework: _,
        mode: _,
        optimizer: _,
        weight_decay: _,
        clip_norm: _,
        accumulate: _,
        loss: _,
        ema: _,
        xla: _,
        eager: _,
        grappler: _,
        loss_scale: _,
        // These do nothing in Keras' own step, which the plan's warnings say.
        optimizer_impl: _,
        checkpoint: _,
        keep_gradients: _,
        master_weights: _,
        cudnn_benchmark: _,
        channels_last: _,
        autocast_backward: _,
        composed_attention: _,
        assume_batchnorm: _,
        assume_dropout: _,
        tied_embeddings: _,
        // These follow from where the step runs.
        compute_capability: _,
        amd: _,
        as_fake_tensors: _,
    } = plan;
    let AllocatorSettings { pytorch: _, cuda_malloc_async, memory_growth, memory_fraction, memory_limit } =
        allocator;
    let halves = matches!(precision, Precision::Fp16 | Precision::Bf16);
    refuse(halves, "--precision", "Keras is run with its own dtypes or a mixed policy");
    refuse(parallel.is_some(), "--gpus", "the written program trains on one device");
    refuse(
        !freeze.is_empty(),
        "--freeze",
        "the file is trained as it is: set trainable = False on its layers and save it",
    );
    let instead = "the written program sets no such fraction: --memory-limit is the same in bytes";
    refuse(memory_fraction.is_some(), "--memory-fraction", instead);
    let own = "the written program reads what TensorFlow's own allocator counts";
    refuse(*cuda_malloc_async, "--cuda-malloc-async", own);
    let limit = settings.limit.or(memory_limit.map(|bytes| bytes.0));
    // tensorflow/python/eager/context.py, 2.21: "Cannot set memory growth on device when virtual devices configured".
    let either = "TensorFlow does not grow inside of a limit: leave out this, or --limit and --memory-limit";
    refuse(*memory_growth && limit.is_some(), "--memory-growth", either);
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::python::keys;
    use memfit_engine::Model;
    use memfit_engine::parallel::{Parallel, Sharding};
    use memfit_graph::{Attributes, Binding, Bytes, Graph, Role, Shape, Type};

    const SETTINGS: Settings = Settings { steps: 2, device: None, limit: None };

    fn written(plan: &Plan, settings: Settings) -> Result<serde_json::Value, Vec<Problem>> {
        let mut g = Graph::default();
        let float = |shape: &[u64]| Type::tensor(DType::Float32, Shape::from(shape));
        let x = g.add_tensor("x", float(&[2, 8]), Role::Input);
        g.inputs = vec![x];
        let w = g.add_tensor("dense.kernel", float(&[8, 4]), Role::Initializer);
        let y = g.push("MatMul", Attributes::default(), &[x, w], "y").unwrap();
        g.outputs = vec![y];
        let model = Model::new(g, "m", "keras", 1);
        let setting = model.setting(&Binding::default(), plan)?;
        let program = script(Path::new("m.keras"), &setting, plan, settings)?;
        let line = program.lines().find_map(|line| line.strip_prefix("CONFIG = json.loads(")).unwrap();
        let text: String = serde_json::from_str(line.strip_suffix(')').unwrap()).unwrap();
        Ok(serde_json::from_str(&text).unwrap())
    }

    fn plan() -> Plan {
        Plan { framework: memfit_engine::Framework::Tensorflow, ..Plan::default() }
    }

    #[test]
    fn every_setting_is_read_and_every_one_read_is_there() {
        assert_eq!(keys::given(&written(&plan(), SETTINGS).unwrap()), keys::read(HARNESS));
    }

    #[test]
    fn the_plan_is_what_keras_is_told() {
        let usual = written(&plan(), SETTINGS).unwrap();
        assert_eq!(usual["optimizer"]["options"], json!({}));
        assert_eq!((&usual["run_eagerly"], &usual["loss_scale"]), (&false.into(), &true.into()));
        let mut other = plan();
        (other.clip_norm, other.ema, other.accumulate, other.weight_decay) = (true, true, 4, true);
        (other.eager, other.loss_scale, other.loss) = (true, false, Loss::None);
        other.allocator.memory_limit = Some(Bytes::mib(4096));
        let limit = Some(Bytes::mib(2048).0);
        let found = written(&other, Settings { limit, ..SETTINGS }).unwrap();
        let options = json!({"global_clipnorm": 1.0, "use_ema": true, "gradient_accumulation_steps": 4, "weight_decay": 0.01});
        assert_eq!(found["optimizer"]["options"], options);
        assert_eq!((&found["run_eagerly"], &found["loss_scale"]), (&true.into(), &false.into()));
        assert_eq!((&found["loss"], &found["limit_bytes"]), (&json!(null), &json!(limit)));
        assert_eq!(written(&other, SETTINGS).unwrap()["limit_bytes"], Bytes::mib(4096).0);
    }

    #[test]
    fn what_is_not_written_is_refused() {
        let mut other = Plan { freeze: vec!["dense*".into()], precision: Precision::Fp16, ..plan() };
        other.parallel = Some(Parallel::data(2, Sharding::Ddp));
        (other.allocator.memory_fraction, other.allocator.cuda_malloc_async) = (Some(500), true);
        (other.allocator.memory_growth, other.allocator.memory_limit) = (true, Some(Bytes::mib(4096)));
        let refused: Vec<String> =
            written(&other, SETTINGS).unwrap_err().into_iter().map(|p| p.place).collect();
        let flags = [
            "--precision",
            "--gpus",
            "--freeze",
            "--memory-fraction",
            "--cuda-malloc-async",
            "--memory-growth",
        ];
        assert_eq!(refused, flags);
    }
}
