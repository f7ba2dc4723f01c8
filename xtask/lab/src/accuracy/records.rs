//! What `memfit validate` recorded of real steps (`models/measurements/*.jsonl`), beside what is predicted for the same steps now.

use super::compare::{caught, load};
use super::summary::{markdown, share};
use anyhow::{Context, Result, anyhow};
use memfit_engine::allocators::CubeclConfig;
use memfit_engine::frameworks::burn::{self, Backend};
use memfit_engine::{Framework, Loss, Mode, Model, OptimizerImpl, Plan, Precision};
use memfit_graph::{Binding, Bytes, infer};
use memfit_validate::framework::figures;
use memfit_validate::measurement::error_percent;
use memfit_validate::record::{self, Pools, Record};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

const ABOUT: &str = "\
Real steps that `memfit validate --suite` ran, on the devices that stand above each table; their records lie in `models/measurements`. \
*In use* is the highest between two functions, *reserved* what the allocator's pools hold after the steps; each is what was measured, and \
how far what is predicted now is off.
";

/// The section of the page; nothing where there are no records.
pub(super) fn section() -> Result<Option<String>> {
    let folder = crate::root().join("models/measurements");
    let Ok(entries) = std::fs::read_dir(&folder) else { return Ok(None) };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "jsonl"));
    files.sort();
    let mut groups: BTreeMap<String, Vec<Record>> = BTreeMap::new();
    for path in files {
        let text = std::fs::read_to_string(&path)?;
        for record in record::read(&text).map_err(|why| anyhow!("{}: {why}", path.display()))? {
            let title = format!("{}, {} ({})", record.framework, record.device, record.backend);
            groups.entry(title).or_default().push(record);
        }
    }
    if groups.is_empty() {
        return Ok(None);
    }
    let mut text = format!("\n## Real steps\n\n{ABOUT}");
    for (title, records) in groups {
        let head = ["", "batch", "plan", "in use MiB", "error", "reserved MiB", "error"].map(str::to_owned);
        let mut lines = vec![head.to_vec()];
        for record in &records {
            lines.push(line(record).with_context(|| record.model.file.clone())?);
        }
        text += &format!("\n### {title}\n\n{}", markdown(&lines));
    }
    Ok(Some(text))
}

fn line(record: &Record) -> Result<Vec<String>> {
    let plan = plan(&record.plan)?;
    let batch = record.plan["batch_size"].as_u64();
    let binding = Binding {
        batch,
        symbols: record.sizes.iter().map(|(name, size)| (name.clone(), *size)).collect(),
        ..Binding::default()
    };
    let model =
        load(&crate::root().join("models").join(&record.model.file)).map_err(|why| anyhow!("{why}"))?;
    let predicted = match plan.framework {
        Framework::Burn => on_burn(&model, &binding, &plan, record)?,
        Framework::Pytorch | Framework::Tensorflow => {
            figures(&caught(|| model.estimate(&binding, &plan)).map_err(|why| anyhow!("{why}"))?)
        }
    };
    let pair = |what: &str| {
        let Some(row) = record.row(what) else { return [String::new(), String::new()] };
        // What the pools follow from is not in every record.
        let now = predicted.get(what).map(|now| Bytes(*now));
        let error = now.and_then(|now| error_percent(Bytes(row.measured_bytes), now));
        let mib = row.measured_bytes as f64 / Bytes::MIB as f64;
        [format!("{mib:.1}"), error.map_or_else(String::new, |e| share(e / 100.0))]
    };
    let precision = record.plan["precision"].as_str().unwrap_or_default();
    let words = format!("{precision} {}", plan.optimizer);
    let name = record.model.file.clone();
    let batch = batch.map_or_else(String::new, |b| b.to_string());
    Ok([&[name, batch, words][..], &pair("peak"), &pair("reserved")].concat())
}

/// As [`figures`], for the backend's own sizes of elements and pools.
fn on_burn(
    model: &Model,
    binding: &Binding,
    plan: &Plan,
    record: &Record,
) -> Result<BTreeMap<&'static str, u64>> {
    let problem = |problems: Vec<memfit_graph::Problem>| {
        anyhow!("{}", problems.first().map(ToString::to_string).unwrap_or_default())
    };
    let backend = match &*record.backend {
        "wgpu" => Backend::WGPU,
        "cuda" => Backend::CUDA,
        _ => Backend::PROCESSOR,
    };
    let graph = model.recomposed(plan);
    let inferred = infer(graph, binding).map_err(problem)?;
    let program = burn::program(graph, &inferred, plan).map_err(problem)?;
    let p = burn::predict(&program, backend);
    let mut found = BTreeMap::from([("before", p.steady.0), ("peak", p.between.0)]);
    if let Some(Pools { max_page_bytes, alignment_bytes }) = record.pools {
        let config =
            CubeclConfig { max_page: Bytes(max_page_bytes), alignment: alignment_bytes, limit: None };
        found.extend(p.reserved(config).map(|bytes| ("reserved", bytes.0)));
    }
    Ok(found)
}

/// What of a record's plan changes a step.
fn plan(value: &Value) -> Result<Plan> {
    let word = |key: &str| value[key].as_str().unwrap_or_default();
    let unknown = |key: &str| anyhow!("the plan's {key} is `{}`", word(key));
    let framework = match word("framework") {
        "pytorch" => Framework::Pytorch,
        "tensorflow" => Framework::Tensorflow,
        "burn" => Framework::Burn,
        _ => return Err(unknown("framework")),
    };
    let precision = match word("precision") {
        "fp32" => Precision::Fp32,
        "mixed-fp16" => Precision::MixedFp16,
        "mixed-bf16" => Precision::MixedBf16,
        "fp16" => Precision::Fp16,
        "bf16" => Precision::Bf16,
        _ => return Err(unknown("precision")),
    };
    let loss = match word("loss") {
        "cross-entropy" => Loss::CrossEntropy,
        "mse" => Loss::Mse,
        "bce" => Loss::Bce,
        "none" => Loss::None,
        _ => Loss::Auto,
    };
    let optimizer_impl = match word("optimizer_impl") {
        "fused" => OptimizerImpl::Fused,
        "loop" => OptimizerImpl::Loop,
        _ => OptimizerImpl::Foreach,
    };
    Ok(Plan {
        framework,
        precision,
        loss,
        optimizer_impl,
        mode: if word("mode") == "infer" { Mode::Infer } else { Mode::Train },
        optimizer: word("optimizer").into(),
        accumulate: value["accumulate"].as_u64().and_then(|n| u32::try_from(n).ok()).unwrap_or(1),
        weight_decay: value["weight_decay"].as_bool().unwrap_or(false),
        xla: value["xla"].as_bool().unwrap_or(false),
        ..Plan::default()
    })
}
