//! Keras' masks: which positions of a sequence count.
//!
//! keras/src/layers/layer.py (3.15), `__call__`: a mask rides on a tensor, a layer that supports masking passes it on, and one whose
//! `call` has an argument of that name (`mask`, or `query_mask` for `query`) is given it where the caller gave none. So an
//! `Embedding(mask_zero=True)` changes what an attention far behind it runs. The mask becomes a node where a layer first takes it.

use crate::arguments::{Argument, Arguments};
use crate::layer::{Call, Configured, Facts, Keras, Layer};
use crate::layers::embedding::Embedding;
use crate::operations::Operation;
use crate::run::Run;
use crate::spec::{self, Spec};
use crate::torch::Torch;
use memfit_graph::ops::Traced;
use memfit_graph::{Call as Aten, DType, Grad, OpError, OutDtype, Place, TensorId};
use std::sync::Arc;

/// A mask that rides on a tensor.
#[derive(Clone, Debug)]
pub(crate) struct Mask {
    /// What it is computed of.
    pub(crate) of: TensorId,
    pub(crate) spec: Spec,
    /// The layer that computes it.
    pub(crate) path: Arc<str>,
    /// Whether a position counts where any of its features does.
    any: bool,
}

/// Layers that pass on the mask of what they are called on (`supports_masking`, with `compute_mask` as it is or of the query).
const PASS: &[&str] = &[
    "Activation",
    "ActivityRegularization",
    "Add",
    "AdditiveAttention",
    "AlphaDropout",
    "Attention",
    "Average",
    "BatchNormalization",
    "Dense",
    "Dropout",
    "ELU",
    "GaussianDropout",
    "GaussianNoise",
    "GroupNormalization",
    "GroupQueryAttention",
    "GroupedQueryAttention",
    "Identity",
    "LayerNormalization",
    "LeakyReLU",
    "Maximum",
    "Minimum",
    "MultiHeadAttention",
    "Multiply",
    "Normalization",
    "PReLU",
    "ReLU",
    "Rescaling",
    "Softmax",
    "SpatialDropout1D",
    "Subtract",
    "TimeDistributed",
    "UnitNormalization",
];

/// Recurrences, which pass it on with every step's output.
const RECURRENT: &[&str] =
    &["Bidirectional", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D", "GRU", "LSTM", "RNN", "SimpleRNN"];

/// Attention with heads.
const HEADS: &[&str] = &["GroupQueryAttention", "GroupedQueryAttention", "MultiHeadAttention"];

/// Which argument takes which tensor's mask: the layer, the argument's name, the tensor's place and name.
const TAKE: &[(&[&str], &str, usize, &str)] = &[
    (RECURRENT, "mask", 0, "sequences"),
    (&["GlobalAveragePooling1D", "Softmax"], "mask", 0, "inputs"),
    (HEADS, "query_mask", 0, "query"),
    (HEADS, "value_mask", 1, "value"),
    (HEADS, "key_mask", 2, "key"),
];

/// The masks that a layer takes of its tensors: the argument's name, and the tensor. Keras 3 gives `mask` to a layer that is called on one
/// argument of tensors alone: not to a recurrence with states to begin with.
pub(crate) fn taken(facts: &Facts, arguments: &Arguments) -> Vec<(&'static str, usize)> {
    let class = &*facts.class;
    let all = arguments.positional.iter().chain(arguments.named.values());
    let is_alone = facts.keras != Keras::V3 || all.filter(|a| !a.tensors().is_empty()).count() < 2;
    let takes =
        TAKE.iter().filter(|(classes, name, ..)| classes.contains(&class) && (is_alone || *name != "mask"));
    let free = takes.filter(|(_, name, ..)| arguments.named.get(*name).is_none_or(Argument::is_null));
    free.filter_map(|(_, name, position, tensor)| {
        let at = arguments.get(*position, tensor)?;
        Some((*name, at.tensor().or_else(|| at.tensors().first().copied())?))
    })
    .collect()
}

/// The mask on what a layer gives, from those on what it is called on.
pub(crate) fn given(
    configured: &Configured,
    path: &str,
    tensors: &[(TensorId, Option<Spec>, Option<Mask>)],
    output: &Spec,
) -> Option<Mask> {
    let class = &*configured.facts.class;
    // An operation between layers has no part in it, be it called like one.
    if configured.layer.downcast::<Operation>().is_some() {
        return None;
    }
    let (of, spec, mask) = tensors.first()?;
    let made = |any| Some(Mask { of: *of, spec: spec.clone()?, path: path.into(), any });
    if configured.layer.downcast::<Embedding>().is_some_and(|layer| layer.mask_zero) {
        return made(false);
    }
    let passes = match class {
        "Masking" => return made(true),
        class if RECURRENT.contains(&class) => output.rank() > 2,
        class => PASS.contains(&class),
    };
    // Where tensors are merged, each has to have one.
    let merges = !class.contains("Attention") && !RECURRENT.contains(&class);
    let all =
        !merges || tensors.iter().filter(|(_, spec, _)| is_sequence(spec)).all(|(.., mask)| mask.is_some());
    mask.clone().filter(|_| passes && all)
}

fn is_sequence(spec: &Option<Spec>) -> bool {
    spec.as_ref().is_some_and(|spec| spec.dtype.is_float())
}

impl Mask {
    /// The layer that computes it, and what it gives.
    pub(crate) fn layer(&self, like: &Facts) -> (Configured, Spec) {
        let class = if self.any { "Any" } else { "NotEqual" };
        let facts = Facts { class: class.into(), name: class.to_lowercase(), ..like.clone() };
        let (mut dims, any) = (self.spec.dims().to_vec(), self.any);
        if any {
            dims.pop();
        }
        let spec = Spec::new(dims.into_iter().collect(), DType::Bool);
        (Configured { facts, layer: Arc::new(Counts { any }) }, spec)
    }
}

/// Which positions count.
#[derive(Clone, Copy, Debug)]
struct Counts {
    any: bool,
}

impl Layer for Counts {
    fn outputs(&self, _: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        let x = spec::input(inputs, 0)?;
        let rank = x.rank().saturating_sub(usize::from(self.any));
        let dims = x.dims().get(..rank).unwrap_or_default().iter().cloned();
        Ok(vec![Spec::new(dims.collect(), DType::Bool)])
    }

    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        let (x, shape) = (run.x(0), run.out_shape());
        let mut mask = run.test(&[&x], &x.shape);
        if self.any {
            let call = Aten::new("any").input(mask.operand, Grad::None);
            let call = call.output(shape, OutDtype::Is(DType::Bool), Place::New);
            mask = Traced::of(run.l, call, shape, &[]);
        }
        run.finish(&mask);
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        let x = run.raw(0);
        let differs = run.test("NotEqual", x);
        let shape = run.out_shape(0);
        let mask = if self.any { run.make("Any", &[differs], shape, DType::Bool, None) } else { differs };
        run.finish(mask);
    }
}

#[cfg(test)]
mod tests {
    use crate::{Options, import};
    use serde_json::{Value, json};

    /// Tokens, their embedding, a layer that keeps the mask or loses it, and attention to itself.
    fn nodes(between: &str, config: Value) -> Vec<(String, usize)> {
        let layer = |class: &str, config: Value, inbound: Value| {
            let mut config = config;
            config["name"] = class.to_lowercase().into();
            json!({"class_name": class, "config": config, "name": class.to_lowercase(), "inbound_nodes": inbound})
        };
        let tensor = |name: &str| {
            json!({"class_name": "__keras_tensor__",
                   "config": {"shape": [null, 16, 32], "dtype": "float32", "keras_history": [name, 0, 0]}})
        };
        let call = |args: Vec<Value>| json!([{"args": args, "kwargs": {}}]);
        let name = between.to_lowercase();
        let model = json!({"class_name": "Functional", "config": {"name": "m", "layers": [
            layer("InputLayer", json!({"batch_shape": [null, 16], "dtype": "int32"}), json!([])),
            layer("Embedding", json!({"input_dim": 100, "output_dim": 32, "mask_zero": true}), call(vec![tensor("inputlayer")])),
            layer(between, config, call(vec![tensor("embedding")])),
            layer("MultiHeadAttention", json!({"num_heads": 2, "key_dim": 16}), call(vec![tensor(&name), tensor(&name)])),
        ], "input_layers": [["inputlayer", 0, 0]], "output_layers": [["multiheadattention", 0, 0]]}});
        let imported = import(model.to_string().as_bytes(), &Options::default()).unwrap();
        imported.graph.nodes.iter().map(|n| (n.op.name().to_owned(), n.inputs.len())).collect()
    }

    #[test]
    fn a_mask_rides_to_the_attention_that_takes_it() {
        let kept = nodes("Dropout", json!({"rate": 0.1}));
        assert!(kept.iter().any(|(name, _)| name == "keras.NotEqual"), "{kept:?}");
        // Query and value, their masks, and the eight variables.
        assert_eq!(kept.last().map(|(_, inputs)| *inputs), Some(12));
        let lost = nodes("EinsumDense", json!({"equation": "abc,cd->abd", "output_shape": [null, 32]}));
        assert!(!lost.iter().any(|(name, _)| name == "keras.NotEqual"));
        assert_eq!(lost.last().map(|(_, inputs)| *inputs), Some(10));
    }
}
