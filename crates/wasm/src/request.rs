//! A plan as a page sends it: the words of the JSON report, read back.

use memfit_engine::allocators::AllocatorSettings;
use memfit_engine::devices::Card;
use memfit_engine::fit::Axis;
use memfit_engine::parallel::{Shared, Sharing};
use memfit_engine::{
    Aside, Checkpoint, Framework, Life, Loss, Mode, OptimizerImpl, Plan, Precision, Said, Usual, Word,
};
use memfit_graph::{Binding, Bytes, Problem};
#[cfg(feature = "keras")]
use memfit_keras::{Custom, Options};
use memfit_report::json::{Allocator, DeepSpeed};
use serde::Deserialize;
use serde::de::{Deserializer, Error};
use std::collections::BTreeMap;

/// A choice of the engine, which itself knows nothing of JSON, by its word.
#[derive(Clone, Copy)]
struct Named<W>(W);

impl<'de, W: Word> Deserialize<'de> for Named<W> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Named<W>, D::Error> {
        let said = String::deserialize(from)?;
        W::named(&said).map(Named).ok_or_else(|| {
            let known: Vec<String> = W::ALL.iter().map(|choice| format!("`{}`", choice.name())).collect();
            D::Error::custom(format!("unknown variant `{said}`, expected one of {}", known.join(", ")))
        })
    }
}

/// What may be said; what is not said is the engine's default.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Request {
    batch_size: Option<u64>,
    set: BTreeMap<String, u64>,
    input: BTreeMap<String, Vec<u64>>,
    #[cfg_attr(not(feature = "keras"), allow(dead_code))]
    layer: BTreeMap<String, LayerRequest>,
    framework: Option<Named<Framework>>,
    precision: Option<Named<Precision>>,
    mode: Option<Named<Mode>>,
    optimizer: Option<String>,
    optimizer_impl: Option<Named<OptimizerImpl>>,
    weight_decay: Option<bool>,
    global_clipnorm: Option<bool>,
    accumulate: Option<u32>,
    checkpoint: Option<Named<Checkpoint>>,
    freeze: Option<Vec<String>>,
    keep_gradients: Option<bool>,
    loss: Option<Named<Loss>>,
    ema: Option<bool>,
    master_weights: Option<bool>,
    cudnn_benchmark: Option<bool>,
    channels_last: Option<bool>,
    autocast_backward: Option<bool>,
    xla: Option<bool>,
    run_eagerly: Option<bool>,
    loss_scale: Option<bool>,
    composed_attention: Option<bool>,
    as_fake_tensors: Option<bool>,
    assume_batchnorm: Option<bool>,
    assume_dropout: Option<bool>,
    tied_embeddings: Option<bool>,
    gpus: Option<u32>,
    parallel: Option<Named<Sharing>>,
    tensor_parallel: Option<u32>,
    pipeline_stages: Option<u32>,
    deepspeed: Option<DeepSpeed>,
    gpu: Option<String>,
    other_processes_bytes: Option<u64>,
    display: Option<bool>,
    /// As an estimate shows it.
    allocator: Option<Allocator>,
    allocator_conf: Option<String>,
    cuda_malloc_async: Option<bool>,
    memory_growth: Option<bool>,
    validation_batch: Option<u64>,
    prefetch_to_device: Option<u32>,
    predict_batches: Option<u32>,
    stale_models: Option<u32>,
    steps_per_execution: Option<u32>,
}

/// Stands where a build reads no Keras files.
#[cfg(not(feature = "keras"))]
#[derive(Clone, Debug, Default)]
pub struct Options;

#[cfg(feature = "keras")]
fn options(layers: BTreeMap<String, LayerRequest>, inputs: &BTreeMap<String, Vec<u64>>) -> Options {
    let custom = |l: LayerRequest| Custom { shape: l.shape, params: l.params, state: l.state };
    let layers = layers.into_iter().map(|(name, layer)| (name, custom(layer))).collect();
    Options { inputs: inputs.clone(), layers }
}

/// What is said of a custom layer.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(not(feature = "keras"), allow(dead_code))]
struct LayerRequest {
    shape: Option<Vec<u64>>,
    params: Option<u64>,
    state: Option<u64>,
}

/// What was asked for: a plan, the sizes that come with it, and what is odd about them.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// What was said of it.
    said: Said,
    /// What applies where nothing was.
    usual: Usual,
    /// How the model is trained.
    pub plan: Plan,
    /// The sizes that the model leaves open.
    pub binding: Binding,
    /// What a Keras file does not say.
    pub options: Options,
    /// The card that the step is judged on.
    pub card: Option<Card>,
    /// What happens in the process beside the step, where that is said.
    pub life: Option<Life>,
    /// What does nothing here.
    pub warnings: Vec<String>,
}

impl Asked {
    /// What the plan took from the file, in words.
    pub(crate) fn kept(&self) -> Vec<String> {
        self.usual.kept_to(&self.plan, self.said.open())
    }
}

/// Reads a plan and the sizes that come with it.
///
/// # Errors
/// A key or a word that is not known, by name.
pub fn read(text: &str) -> Result<Asked, Vec<Problem>> {
    read_for(text, Usual::default())
}

/// The same with what applies where nothing is said.
///
/// # Errors
/// A key or a word that is not known, by name.
pub fn read_for(text: &str, usual: Usual) -> Result<Asked, Vec<Problem>> {
    let request: Request =
        serde_json::from_str(text).map_err(|e| vec![Problem::new("plan", e.to_string())])?;
    if request.batch_size == Some(0) {
        return Err(vec![Problem::new("--batch-size", "expected a whole number from 1, found `0`")]);
    }
    let said = request.said()?;
    let (plan, warnings) = said.plan(usual)?;
    let mut card = request.gpu.map(|name| card(&name)).transpose()?;
    if let Some(card) = &mut card {
        card.other_processes = request.other_processes_bytes.map_or(card.other_processes, Bytes);
        card.display |= request.display.unwrap_or_default();
    }
    let life = Some(&said.aside.life).filter(|life| !life.is_step_alone()).cloned();
    #[cfg(feature = "keras")]
    let options = options(request.layer, &request.input);
    #[cfg(not(feature = "keras"))]
    let options = Options;
    let binding = Binding {
        symbols: request.set,
        shapes: request.input,
        batch: request.batch_size,
        ..Binding::default()
    };
    Ok(Asked { said, usual, plan, binding, options, card, life, warnings })
}

impl Request {
    /// What it says of the plan, as the engine takes it.
    fn said(&self) -> Result<Said, Vec<Problem>> {
        let mut allocator: AllocatorSettings = self.allocator.map(Into::into).unwrap_or_default();
        allocator.cuda_malloc_async |= self.cuda_malloc_async.unwrap_or_default();
        allocator.memory_growth |= self.memory_growth.unwrap_or_default();
        if let Some(text) = &self.allocator_conf {
            let applied = allocator.pytorch.apply(text);
            allocator.pytorch = applied.map_err(|e| vec![Problem::new("allocator_conf", e.to_string())])?;
        }
        let aside = Aside {
            card: self.gpu.is_some(),
            others: self.other_processes_bytes.is_some() || self.display.unwrap_or_default(),
            life: Life {
                validation_batch: self.validation_batch,
                prefetch: self.prefetch_to_device.unwrap_or_default(),
                predict_batches: self.predict_batches.unwrap_or_default(),
                stale_models: self.stale_models.unwrap_or_default(),
                steps_per_execution: self.steps_per_execution.unwrap_or_default(),
            },
        };
        Ok(Said {
            framework: named(self.framework),
            precision: named(self.precision),
            mode: named(self.mode),
            optimizer: self.optimizer.clone(),
            optimizer_impl: named(self.optimizer_impl),
            weight_decay: self.weight_decay,
            clip_norm: self.global_clipnorm,
            accumulate: self.accumulate,
            checkpoint: named(self.checkpoint),
            freeze: self.freeze.clone().unwrap_or_default(),
            keep_gradients: self.keep_gradients,
            loss: named(self.loss),
            ema: self.ema,
            master_weights: self.master_weights,
            cudnn_benchmark: self.cudnn_benchmark,
            channels_last: self.channels_last,
            autocast_backward: self.autocast_backward,
            xla: self.xla,
            run_eagerly: self.run_eagerly,
            loss_scale: self.loss_scale,
            composed_attention: self.composed_attention,
            as_fake_tensors: self.as_fake_tensors,
            assume_batchnorm: self.assume_batchnorm,
            assume_dropout: self.assume_dropout,
            tied_embeddings: self.tied_embeddings,
            shared: Shared {
                gpus: self.gpus,
                sharing: named(self.parallel),
                tensor: self.tensor_parallel,
                pipeline: self.pipeline_stages,
                deepspeed: self.deepspeed.map(Into::into),
            },
            allocator,
            aside,
        })
    }
}

fn named<W>(word: Option<Named<W>>) -> Option<W> {
    word.map(|Named(word)| word)
}

fn card(name: &str) -> Result<Card, Vec<Problem>> {
    Card::find(name).map_err(|error| vec![Problem::new(format!("gpu {name}"), error.to_string())])
}

/// What is searched for, on which cards.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    pub(crate) cards: Vec<Card>,
    pub(crate) plans: Vec<Plan>,
    pub(crate) axis: Axis,
    pub(crate) warnings: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct SearchRequest {
    gpus: Vec<String>,
    precisions: Vec<Named<Precision>>,
    optimizers: Vec<String>,
    max: Option<String>,
}

/// Reads what is searched for, beside a plan that says the rest.
pub(crate) fn read_search(text: &str, asked: &Asked) -> Result<Search, Vec<Problem>> {
    let request: SearchRequest =
        serde_json::from_str(text).map_err(|e| vec![Problem::new("search", e.to_string())])?;
    let mut cards = asked.card.iter().cloned().collect::<Vec<_>>();
    if !request.gpus.is_empty() {
        cards = request.gpus.iter().map(|name| card(name)).collect::<Result<_, _>>()?;
    }
    if cards.is_empty() {
        return Err(vec![Problem::new("search", "no card is named").hint("name some in `gpus`")]);
    }
    let precisions: Vec<Precision> = request.precisions.into_iter().map(|Named(word)| word).collect();
    let mut said = asked.said.clone();
    said.aside.card = true;
    let (plans, warnings) = said.plans(&precisions, &request.optimizers, asked.usual)?;
    let axis = request.max.as_deref().map_or(Axis::Batch, Axis::parse);
    Ok(Search { cards, plans, axis, warnings })
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_engine::Compiled;
    use memfit_engine::parallel::{Parallel, Sharding};
    use serde_json::Value;
    use std::collections::BTreeSet;

    #[test]
    fn words_are_those_of_the_report() {
        let Asked { plan, binding, .. } = read(
            r#"{"batch_size": 8, "precision": "mixed-bf16", "loss": "cross-entropy", "set": {"seq": 128}}"#,
        )
        .unwrap();
        assert_eq!((plan.precision, plan.loss), (Precision::MixedBf16, Loss::CrossEntropy));
        assert_eq!((binding.batch, binding.symbols["seq"]), (Some(8), 128));
        assert_eq!(read("{}").unwrap().plan, Plan::default());
    }

    #[test]
    fn what_no_allocator_takes_is_refused() {
        for (said, told) in [
            (r#""memory_fraction_thousandths": 0"#, "from 1 to 1000"),
            (r#""memory_fraction_thousandths": 1001"#, "from 1 to 1000"),
            (r#""max_split_size_bytes": 1048576"#, "at least 20 MiB"),
        ] {
            let problems = read(&format!(r#"{{"allocator": {{{said}}}}}"#)).unwrap_err();
            assert!(problems.iter().any(|problem| problem.message.contains(told)), "{problems:?}");
        }
    }

    /// The rules of TensorFlow go by an optimizer's own name.
    #[test]
    fn an_optimizer_may_be_written_as_people_write_it() {
        for (said, name) in [("AdamW", "adamw"), ("SGD momentum", "momentum"), ("Nesterov", "nesterov")] {
            let text = format!(r#"{{"framework": "tensorflow", "optimizer": "{said}"}}"#);
            assert_eq!(read(&text).unwrap().plan.optimizer, name);
        }
    }

    /// A report says whatever the flags can, so that its plan is the plan.
    #[test]
    fn a_plan_that_is_not_usual_is_read_back() {
        let mut plan =
            Plan { framework: Framework::Tensorflow, loss_scale: false, xla: true, ..Plan::default() };
        let conf = "expandable_segments:True,garbage_collection_threshold:0.8,roundup_power2_divisions:4";
        plan.allocator.pytorch = plan.allocator.pytorch.apply(conf).unwrap();
        plan.allocator.memory_fraction = Some(500);
        let deepspeed = Some(memfit_engine::parallel::DeepSpeed { max_live: 5, ..Default::default() });
        plan.parallel = Some(Parallel { deepspeed, ..Parallel::data(2, Sharding::Zero3) });
        let said = memfit_report::json::plan_value(&plan, Some(8));
        assert_eq!(read(&said.to_string()).unwrap().plan, plan);
    }

    #[test]
    fn several_gpus_share_as_the_plan_says() {
        let parallel = |text: &str| read(text).map(|asked| asked.plan.parallel);
        assert_eq!(parallel(r#"{"gpus": 1}"#).unwrap(), None);
        let eight = Parallel { tensor: 2, ..Parallel::data(8, Sharding::Zero3) };
        let text = r#"{"gpus": 8, "parallel": "zero3", "tensor_parallel": 2}"#;
        assert_eq!(parallel(text).unwrap(), Some(eight));
        let four = Parallel { tensor: 4, ..Parallel::data(4, Sharding::Ddp) };
        assert_eq!(parallel(r#"{"gpus": 4, "parallel": "tp"}"#).unwrap(), Some(four));
        for (wrong, place) in [
            (r#"{"gpus": 3, "tensor_parallel": 2}"#, "--gpus"),
            (r#"{"gpus": 0, "pipeline_stages": 0}"#, "--pipeline-stages"),
            (r#"{"gpus": 0}"#, "--gpus"),
            (r#"{"batch_size": 0}"#, "--batch-size"),
            (r#"{"accumulate": 0}"#, "--accumulate"),
            (r#"{"xla": true, "run_eagerly": true}"#, "--xla"),
        ] {
            assert_eq!(read(wrong).unwrap_err()[0].place, place, "{wrong}");
        }
    }

    #[test]
    fn what_does_nothing_is_told_as_the_command_line_tells_it() {
        for (text, flag) in [
            (r#"{"xla": false}"#, "--no-xla"),
            (r#"{"run_eagerly": true}"#, "--run-eagerly"),
            (r#"{"steps_per_execution": 4}"#, "--steps-per-execution"),
            (r#"{"parallel": "zero3"}"#, "--parallel"),
            (r#"{"display": true}"#, "--other-processes and --display"),
            (r#"{"allocator": {"memory_fraction_thousandths": 500}}"#, "--memory-fraction"),
        ] {
            let warnings = read(text).unwrap().warnings;
            assert!(warnings.len() == 1 && warnings[0].starts_with(flag), "{text}: {warnings:?}");
        }
        assert!(read(r#"{"display": true, "gpu": "t4"}"#).unwrap().warnings.is_empty());
    }

    /// What a plan took from a file goes with the file's own optimizer, in a search as in a plan.
    #[test]
    fn a_search_names_optimizers_as_a_plan_does() {
        let compiled = Compiled { optimizer: Some("momentum"), ema: true, ..Compiled::default() };
        let usual = Usual::of("keras", "keras 3.15.0").trained(compiled);
        let asked = read_for(r#"{"gpu": "t4"}"#, usual).unwrap();
        let search = |text: &str| read_search(text, &asked).unwrap().plans;
        let own = search(r#"{"precisions": ["fp32", "mixed-fp16"]}"#);
        assert!(own.len() == 2 && own.iter().all(|p| p.optimizer == "momentum" && p.ema));
        let named = search(r#"{"optimizers": ["AdamW", "sgd"]}"#);
        let named: Vec<(&str, bool)> = named.iter().map(|p| (&*p.optimizer, p.ema)).collect();
        assert_eq!(named, [("adamw", false), ("sgd", false)]);
    }

    /// The types name every key of a plan and of an estimate, and no other.
    #[test]
    fn the_types_are_those_of_plans_and_of_the_schema() {
        let types = include_str!("javascript/types.d.ts");
        let body = |name: &str| {
            let start = types.find(&format!("export interface {name} {{")).unwrap();
            &types[start..start + types[start..].find("\n}").unwrap()]
        };
        let keys = |text: &str, indent: &str| -> BTreeSet<String> {
            let lines = text.lines().filter_map(|line| line.strip_prefix(indent));
            let named =
                lines.filter_map(|line| line.split_once(':')).map(|(key, _)| key.trim_end_matches('?'));
            named
                .filter(|key| key.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
                .map(str::to_owned)
                .collect()
        };
        let message = read(r#"{"?": 1}"#).unwrap_err().remove(0).message;
        let asked: BTreeSet<String> = message.split('`').skip(3).step_by(2).map(str::to_owned).collect();
        assert_eq!(keys(body("Plan"), "  "), asked);

        let schema: Value = serde_json::from_str(include_str!("../../../docs/estimate.schema.json")).unwrap();
        let of = |pointer: &str| -> BTreeSet<String> {
            schema.pointer(pointer).unwrap().as_object().unwrap().keys().cloned().collect()
        };
        for (name, pointer) in [
            ("Estimate", ""),
            ("Layer", "/properties/layers/items"),
            ("State", "/properties/layers/items/properties/at_peak"),
            ("Fit", "/$defs/fit"),
            ("Item", "/$defs/item"),
        ] {
            assert_eq!(keys(body(name), "  "), of(&format!("{pointer}/properties")), "{name}");
        }
        // The keys below those that have no interface of their own.
        let within = |key: &str| {
            let start = types
                .find(&format!("\n  {key}: {{\n"))
                .unwrap_or_else(|| types.find(&format!("\n  {key}?: {{\n")).unwrap());
            keys(&types[start..start + types[start..].find("\n  }").unwrap()], "    ")
        };
        for key in ["model", "peak", "comparison"] {
            assert_eq!(within(key), of(&format!("/properties/{key}/properties")), "{key}");
        }
        assert_eq!(within("allocator"), of("/properties/plan/properties/allocator/properties"));
        assert_eq!(within("shortage"), of("/$defs/fit/properties/shortage/properties"));
        let words: BTreeSet<&str> = types
            .split("type Always")
            .nth(1)
            .unwrap()
            .split("/** Something")
            .next()
            .unwrap()
            .split('"')
            .skip(1)
            .step_by(2)
            .collect();
        let said = of("/properties/plan/properties");
        assert!(said.iter().all(|key| key == "batch_size" || words.contains(&**key)), "{said:?} {words:?}");
        assert!(words.iter().all(|key| said.contains(*key)), "{said:?} {words:?}");
    }

    #[test]
    fn a_misspelled_key_or_word_is_named() {
        let problem = |text| read(text).unwrap_err().remove(0).message;
        assert!(problem(r#"{"batchsize": 8}"#).contains("batchsize"));
        assert!(problem(r#"{"precision": "fp8"}"#).contains("fp8"));
        assert_eq!(read(r#"{"precision": "AMP"}"#).unwrap().plan.precision, Precision::MixedFp16);
    }
}
