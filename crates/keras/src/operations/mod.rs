//! Operations between layers: nodes of `keras.ops` (Keras 3) and of TensorFlow functions (Keras 2), which stand in a functional model
//! where its author wrote `x + y` or `ops.reshape(x, …)`.
//!
//! keras/src/ops/*.py, `compute_output_spec`; tf_keras/src/layers/core/tf_op_layer.py (`TFOpLambda`, `SlicingOpLambda`,
//! `TensorFlowOpLayer`). An operation has no variables. Those whose shapes have a rule are in tables below, by the class that Keras 3
//! gives them; of all others, what the file recorded where they are read is taken.

pub(crate) mod angles;
mod attributes;
mod composed;
pub(crate) mod contraction;
mod diagonal;
mod elementwise;
mod images;
mod indexing;
mod joining;
mod kernels;
mod linear;
mod losses;
mod names;
mod placing;
mod product;
mod reduction;
mod reshaping;
mod signal;
pub(crate) mod sorting;
mod torch;
mod windows;

use crate::arguments::Argument;
use crate::config::truth;
use crate::layer::{Call, Layer};
use crate::policy;
use crate::reader::Source;
use crate::run::Run;
use crate::spatial::DataFormat;
use crate::spec::{self, Spec};
use crate::torch::Torch;
use memfit_graph::kernels::OF_MODEL;
use memfit_graph::{DType, OpError};
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;

/// Gives the outputs; none where it cannot tell.
type Rule = fn(&Operation, &Call<'_>, &[Spec]) -> Result<Vec<Spec>, OpError>;

/// An operation by Keras 3's class name.
#[derive(Clone, Debug)]
pub struct Operation {
    /// The class: `Matmul`, or a TensorFlow function that has none.
    pub class: String,
    /// What was given when the operation was made rather than when it was called.
    pub config: Value,
    rule: Option<Rule>,
}

const TABLES: &[&[(&[&str], Rule)]] = &[
    diagonal::RULES,
    elementwise::RULES,
    images::RULES,
    indexing::RULES,
    joining::RULES,
    linear::RULES,
    losses::RULES,
    placing::RULES,
    product::RULES,
    reduction::RULES,
    reshaping::RULES,
    signal::RULES,
    windows::RULES,
];

/// Every operation that has a rule.
pub fn known() -> impl Iterator<Item = &'static str> {
    TABLES.iter().copied().flatten().flat_map(|(names, _)| names.iter().copied())
}

/// The operation that the source describes, if it is one.
pub(crate) fn build(source: &Source<'_>) -> Option<Arc<dyn Layer>> {
    let object = &source.object;
    let class = match object.class_name {
        class if object.is_operation() => class.to_owned(),
        "TFOpLambda" | "SlicingOpLambda" => names::of_function(object.config.get("function")?.as_str()?),
        "TensorFlowOpLayer" => names::of_kernel(object.config.get("node_def")?),
        _ => return None,
    };
    let rules = TABLES.iter().copied().flatten();
    let rule = rules.into_iter().find(|(names, _)| names.contains(&class.as_str())).map(|(_, rule)| *rule);
    Some(Arc::new(Operation { class, config: object.config.clone(), rule }))
}

impl Layer for Operation {
    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        attributes::check(self, call)?;
        match self.rule {
            Some(rule) => rule(self, call, inputs),
            None => Ok(Vec::new()),
        }
    }

    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        self.aten(run);
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        run.scope = OF_MODEL;
        self.kernels(run);
    }
}

impl Operation {
    /// A parameter: given when the operation was made, by name in the call, or at `position` in it.
    fn parameter(&self, call: &Call<'_>, position: usize, names: &[&str]) -> Option<Argument> {
        let made = names.iter().find_map(|name| self.config.get(*name)).filter(|v| !v.is_null());
        let named = || names.iter().find_map(|name| call.arguments.named.get(*name));
        let given = || named().or_else(|| call.arguments.positional.get(position)).filter(|a| !a.is_null());
        made.map(|v| Argument::Json(v.clone())).or_else(|| given().cloned())
    }

    /// What it is called on, by position or name: tensors of the call, and numbers and arrays that the file holds. The numbers take
    /// the dtype of the tensors. None where one of them is neither.
    fn operands(&self, call: &Call<'_>, inputs: &[Spec], names: &[&str]) -> Option<Vec<Spec>> {
        let weak = inputs.iter().map(|s| s.dtype).reduce(DType::promote).unwrap_or(call.compute());
        let at = |(i, name): (usize, &&str)| call.arguments.get(i, name)?.spec(inputs, weak);
        names.iter().enumerate().map(at).collect()
    }

    /// The dtype that the config names.
    fn dtype(&self) -> Option<DType> {
        policy::dtype(self.config.get("dtype")?.as_str()?)
    }

    /// A whole number.
    fn integer(&self, call: &Call<'_>, position: usize, names: &[&str]) -> Option<i64> {
        self.parameter(call, position, names)?.as_i64()
    }

    /// A list of whole numbers; one stands for a list of one.
    fn integers(&self, call: &Call<'_>, position: usize, names: &[&str]) -> Option<Vec<i64>> {
        self.parameter(call, position, names)?.ints()
    }

    /// Where the channels stand, as far as the config tells.
    fn data_format(&self) -> DataFormat {
        self.config.get("data_format").and_then(|f| DataFormat::deserialize(f).ok()).unwrap_or_default()
    }

    /// A truth value.
    fn flag(&self, call: &Call<'_>, position: usize, names: &[&str]) -> bool {
        let given = self.parameter(call, position, names);
        given.is_some_and(|given| matches!(given, Argument::Json(value) if truth(&value)))
    }
}

/// What the operation is called on: the first tensor.
fn operand<'a>(call: &Call<'_>, inputs: &'a [Spec]) -> Result<&'a Spec, OpError> {
    spec::input(inputs, call.arguments.first().first().copied().unwrap_or(0))
}

/// The axes of a tensor from the front.
fn axes_of(x: &Spec, axes: &[i64]) -> Result<Vec<usize>, OpError> {
    axes.iter().map(|a| x.axis(*a)).collect()
}
