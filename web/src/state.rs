//! Everything that a user can choose, which is what the URL keeps.

mod amounts;
mod apply;
mod flags;
mod link;
mod places;
mod told;

pub(crate) use amounts::AMOUNTS;
pub(crate) use apply::can_apply;
pub(crate) use flags::FLAGS;
pub(crate) use link::{MOST_STRUCTURE, split, with_structure};
pub(crate) use places::{Place, usual_framework};
pub(crate) use told::{layers, read_layers};

use crate::protocol::Facts;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The words of each choice, as the JSON of a plan has them, with what they are called.
pub(crate) const PRECISIONS: [(&str, &str); 5] = [
    ("fp32", "fp32"),
    ("mixed-bf16", "mixed bf16 (autocast)"),
    ("mixed-fp16", "mixed fp16 (autocast)"),
    ("bf16", "pure bf16"),
    ("fp16", "pure fp16"),
];
pub(crate) const FRAMEWORKS: [(&str, &str); 3] =
    [("pytorch", "PyTorch"), ("tensorflow", "TensorFlow, Keras"), ("burn", "Burn")];
pub(crate) const MODES: [(&str, &str); 2] = [("train", "training"), ("infer", "inference")];
pub(crate) const IMPLEMENTATIONS: [(&str, &str); 4] =
    [("", "the framework's own"), ("foreach", "foreach"), ("fused", "fused"), ("loop", "loop")];
pub(crate) const CHECKPOINTS: [(&str, &str); 4] = [
    ("none", "none"),
    ("block", "inside of repeated blocks"),
    ("full", "blocks and the rest"),
    ("balanced", "Burn's balanced"),
];
/// How GPUs that have different samples share the rest.
pub(crate) const SHARINGS: [(&str, &str); 4] = [
    ("", "each has everything (DDP)"),
    ("zero1", "optimizer split (ZeRO-1)"),
    ("zero2", "and gradients (ZeRO-2)"),
    ("zero3", "and parameters (ZeRO-3, FSDP)"),
];
/// Whether the output layer shares the embedding's matrix, where an inference export shows two.
pub(crate) const TIED: [(&str, &str); 3] = [("", "by the model"), ("yes", "shared"), ("no", "apart")];
pub(crate) const LOSSES: [(&str, &str); 5] = [
    ("auto", "by the outputs' shapes"),
    ("cross-entropy", "cross-entropy"),
    ("mse", "mean squared error"),
    ("bce", "binary cross-entropy"),
    ("none", "mean of the output"),
];

/// Where the model comes from.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Source {
    #[default]
    None,
    /// One of the site's own, by name.
    Example(String),
    /// A file of this machine, by name. A link to it cannot bring the file.
    Own(String),
}

/// The choices.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct State {
    pub(crate) source: Source,
    /// An id of the catalogue, or a size.
    pub(crate) gpu: String,
    /// What other processes hold of it, in MiB.
    pub(crate) others: u64,
    /// Empty for that of the file's format.
    pub(crate) framework: String,
    pub(crate) batch: u64,
    pub(crate) precision: String,
    pub(crate) mode: String,
    pub(crate) optimizer: String,
    /// Empty for the framework's own.
    pub(crate) optimizer_impl: String,
    pub(crate) accumulate: u32,
    pub(crate) checkpoint: String,
    pub(crate) freeze: Vec<String>,
    pub(crate) loss: String,
    /// How several GPUs share the work; empty where each has everything.
    pub(crate) sharing: String,
    /// What `PYTORCH_ALLOC_CONF` holds beside what a flag says.
    pub(crate) conf: String,
    /// Empty to decide by the model.
    pub(crate) tied: String,
    /// Numbers by their words; none is left out.
    pub(crate) amounts: BTreeMap<&'static str, u64>,
    /// The words of those that are on.
    pub(crate) flags: BTreeSet<&'static str>,
    /// Named sizes.
    pub(crate) set: BTreeMap<String, u64>,
    /// Whole input shapes; their batch axis follows the batch.
    pub(crate) input: BTreeMap<String, Vec<u64>>,
    /// What a Keras file does not say of its custom layers, each as the command line takes it.
    pub(crate) layers: BTreeMap<String, String>,
}

impl Default for State {
    fn default() -> State {
        State {
            source: Source::None,
            gpu: "rtx-4090".into(),
            others: 0,
            framework: String::new(),
            batch: 32,
            precision: "fp32".into(),
            mode: "train".into(),
            optimizer: "adam".into(),
            optimizer_impl: String::new(),
            accumulate: 1,
            checkpoint: "none".into(),
            freeze: Vec::new(),
            loss: "auto".into(),
            sharing: String::new(),
            conf: String::new(),
            tied: String::new(),
            amounts: BTreeMap::new(),
            flags: BTreeSet::new(),
            set: BTreeMap::new(),
            input: BTreeMap::new(),
            layers: BTreeMap::new(),
        }
    }
}

impl State {
    /// The plan as the JavaScript API takes it; what is at its default is left out.
    pub(crate) fn plan(&self) -> String {
        let d = State::default();
        let mut plan = Map::new();
        let mut put = |key: &str, value: Value, differs: bool| {
            if differs {
                plan.insert(key.into(), value);
            }
        };
        put("batch_size", json!(self.batch), true);
        put("gpu", json!(self.gpu), true);
        put("other_processes_bytes", json!(self.others.saturating_mul(1 << 20)), self.others > 0);
        put("framework", json!(self.framework), !self.framework.is_empty());
        put("precision", json!(self.precision), self.precision != d.precision);
        put("mode", json!(self.mode), self.mode != d.mode);
        put("optimizer", json!(self.optimizer), self.optimizer != d.optimizer);
        put("optimizer_impl", json!(self.optimizer_impl), !self.optimizer_impl.is_empty());
        put("accumulate", json!(self.accumulate), self.accumulate != d.accumulate);
        put("checkpoint", json!(self.checkpoint), self.checkpoint != d.checkpoint);
        put("freeze", json!(self.freeze), !self.freeze.is_empty());
        put("loss", json!(self.loss), self.loss != d.loss);
        put("parallel", json!(self.sharing), !self.sharing.is_empty());
        put("allocator_conf", json!(self.allocator_conf()), !self.allocator_conf().is_empty());
        put("tied_embeddings", json!(self.tied == "yes"), !self.tied.is_empty());
        for flag in self.flags().filter(|flag| !flag.key.is_empty()) {
            put(flag.key, serde_json::from_str(flag.value).unwrap_or_default(), true);
        }
        put("set", json!(self.set), !self.set.is_empty());
        put("input", json!(self.input), !self.input.is_empty());
        self.put_amounts(&mut plan);
        Value::Object(plan).to_string()
    }

    /// The same plan as flags of the command line.
    pub(crate) fn command(&self, model: &str) -> String {
        let mut words = vec!["memfit estimate".to_owned(), quoted(model), format!("-b {}", self.batch)];
        let d = State::default();
        let mut flag = |name: &str, value: &str, differs: bool| {
            if differs {
                words.push(format!("--{name} {}", quoted(value)));
            }
        };
        for (name, n) in &self.set {
            flag("set", &format!("{name}={n}"), true);
        }
        for (name, dims) in &self.input {
            flag("input", &format!("{name}:{}", shape(dims)), true);
        }
        for (name, what) in &self.layers {
            flag("layer", &format!("{name}:{what}"), true);
        }
        flag("gpu", &self.gpu, true);
        flag("other-processes", &format!("{}MiB", self.others), self.others > 0);
        flag("framework", &self.framework, !self.framework.is_empty());
        flag("precision", &self.precision, self.precision != d.precision);
        flag("mode", &self.mode, self.mode != d.mode);
        flag("optimizer", &self.optimizer, self.optimizer != d.optimizer);
        flag("optimizer-impl", &self.optimizer_impl, !self.optimizer_impl.is_empty());
        flag("accumulate", &self.accumulate.to_string(), self.accumulate != d.accumulate);
        flag("checkpoint", &self.checkpoint, self.checkpoint != d.checkpoint);
        for glob in &self.freeze {
            flag("freeze", glob, true);
        }
        flag("loss", &self.loss, self.loss != d.loss);
        flag("parallel", &self.sharing, !self.sharing.is_empty());
        flag("allocator-conf", &self.allocator_conf(), !self.allocator_conf().is_empty());
        flag("tied-embeddings", &self.tied, !self.tied.is_empty());
        for (name, value) in self.typed_amounts() {
            flag(name, &value, true);
        }
        words.extend(self.flags().map(|flag| flag.typed.to_owned()).filter(|typed| !typed.is_empty()));
        words.join(" ")
    }

    /// Whether the framework has this way of recomputing.
    pub(crate) fn recomputes(&self, how: &str) -> bool {
        how == "none" || (how == "balanced") == (self.framework == "burn")
    }

    /// What tells this plan from another at a glance: `mixed-bf16 · adam · batch 32`.
    pub(crate) fn summary(&self) -> String {
        let mut parts = vec![self.precision.clone()];
        if self.mode == "train" {
            parts.push(self.optimizer.clone());
        } else {
            parts.push("inference".into());
        }
        if self.checkpoint != "none" {
            parts.push(format!("checkpoint {}", self.checkpoint));
        }
        if !self.freeze.is_empty() {
            parts.push("partly frozen".into());
        }
        let split = |word| self.amount(word).unwrap_or(1);
        let gpus = self.amount("gpus").unwrap_or_else(|| split("tensor").saturating_mul(split("stages")));
        if gpus > 1 {
            parts.push(format!("{gpus} GPUs"));
        }
        parts.join(" · ")
    }

    /// Input shapes have the batch of the slider at their batch axis.
    pub(crate) fn rebatch(&mut self, facts: &Facts) {
        for input in &facts.inputs {
            if let (Some(dims), Some(axis)) = (self.input.get_mut(&input.name), input.batch)
                && let Some(dim) = dims.get_mut(axis)
            {
                *dim = self.batch;
            }
        }
    }
}

/// `8x3x224x224`.
pub(crate) fn shape(dims: &[u64]) -> String {
    dims.iter().map(ToString::to_string).collect::<Vec<_>>().join("x")
}

/// Reads `8x3x224x224`, also with `×` or commas.
pub(crate) fn read_shape(text: &str) -> Option<Vec<u64>> {
    text.split(['x', 'X', '×', ',']).map(|n| n.trim().parse().ok().filter(|n| *n > 0)).collect()
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_has_what_differs_from_the_defaults() {
        assert_eq!(State::default().plan(), r#"{"batch_size":32,"gpu":"rtx-4090"}"#);
        let state = State {
            precision: "mixed-bf16".into(),
            freeze: vec!["encoder.*".into()],
            set: BTreeMap::from([("seq".into(), 512)]),
            ..State::default()
        };
        assert_eq!(
            state.plan(),
            r#"{"batch_size":32,"freeze":["encoder.*"],"gpu":"rtx-4090","precision":"mixed-bf16","set":{"seq":512}}"#
        );
        assert_eq!(
            state.command("my model.onnx"),
            "memfit estimate 'my model.onnx' -b 32 --set seq=512 --gpu rtx-4090 --precision mixed-bf16 --freeze 'encoder.*'"
        );
    }

    #[test]
    fn shapes_are_read_as_people_type_them() {
        assert_eq!(read_shape("8x3×224, 224"), Some(vec![8, 3, 224, 224]));
        assert_eq!((read_shape("8x-1"), read_shape("axb"), read_shape("0")), (None, None, None));
    }
}
