//! What the comparisons of Keras models share: a config becomes a model, and that a peak.

use anyhow::{Result, anyhow};
use memfit_engine::devices::{Card, Device};
use memfit_engine::{Model, Plan, Precision};
use memfit_graph::{Binding, Problem};
use serde_json::Value;

/// The model of a config.
///
/// # Errors
/// A config that cannot be read.
pub(super) fn model(name: &str, config: &[u8]) -> Result<Model> {
    let imported = memfit_keras::import(config, &memfit_keras::Options::default());
    Ok(Model::new(imported.map_err(failed(name))?.graph, name, "keras", 0))
}

/// The precision that a policy of Keras asks for.
pub(super) fn precision(policy: &str) -> Precision {
    match policy {
        "mixed_float16" => Precision::MixedFp16,
        "mixed_bfloat16" => Precision::MixedBf16,
        _ => Precision::Fp32,
    }
}

/// Whether measured bytes lie in the range that an estimate under the plan's framework has.
pub(super) fn inside(estimated: i128, measured: i128, plan: &Plan) -> bool {
    let slack = Card::alone(Device::unknown()).slack(plan);
    let [less, more] = [slack.less, slack.more].map(i128::from);
    (estimated * (1000 - less)..=estimated * (1000 + more)).contains(&(measured * 1000))
}

/// The most bytes of a step.
///
/// # Errors
/// A config that cannot be read or run.
pub(super) fn peak(name: &str, config: &Value, batch: u64, plan: &Plan) -> Result<i128> {
    let binding = Binding { batch: Some(batch), ..Binding::default() };
    let estimate = model(name, config.to_string().as_bytes())?.estimate(&binding, plan);
    Ok(estimate.map_err(failed(name))?.peak.allocated.0.into())
}

fn failed(name: &str) -> impl Fn(Vec<Problem>) -> anyhow::Error + use<'_> {
    move |problems| anyhow!("{name}: {}", problems.first().map_or_else(String::new, ToString::to_string))
}
