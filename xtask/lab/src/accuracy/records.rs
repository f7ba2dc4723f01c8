//! What `memfit validate` recorded of real steps (`models/measurements/*.jsonl`), beside what is predicted for the same steps now.

use super::compare::{caught, load};
use super::summary::{markdown, share};
use anyhow::{Context, Result, anyhow};
use memfit_engine::allocators::CubeclConfig;
use memfit_engine::frameworks::burn::{self, Backend};
use memfit_engine::{Framework, Model, Plan};
use memfit_graph::{Binding, Bytes, Problem};
use memfit_validate::framework::figures;
use memfit_validate::key::Given;
use memfit_validate::measurement::error_percent;
use memfit_validate::record::{self, Pools, Record};
use memfit_wasm::{Asked, read_request};
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
    let Asked { plan, binding, .. } = read_request(&record.plan.to_string()).map_err(problem)?;
    let Given { sizes, shapes, inputs, values } = record.given.clone();
    anyhow::ensure!(inputs.is_empty() && values.is_empty(), "elements and types of inputs are not read back");
    let binding = Binding { symbols: sizes, shapes, ..binding };
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
    let batch = binding.batch.map_or_else(String::new, |b| b.to_string());
    Ok([&[name, batch, words][..], &pair("peak"), &pair("reserved")].concat())
}

fn problem(problems: Vec<Problem>) -> anyhow::Error {
    anyhow!("{}", problems.first().map(ToString::to_string).unwrap_or_default())
}

/// As [`figures`], for the backend's own sizes of elements and pools.
fn on_burn(
    model: &Model,
    binding: &Binding,
    plan: &Plan,
    record: &Record,
) -> Result<BTreeMap<&'static str, u64>> {
    let mut backend = match &*record.backend {
        "wgpu" => Backend::WGPU,
        "cuda" => Backend::CUDA,
        _ => Backend::PROCESSOR,
    };
    if let Some(pools) = &record.pools {
        backend.alignment = pools.alignment_bytes;
    }
    let setting = model.setting(binding, plan).map_err(problem)?;
    let program = burn::program(&setting.graph, &setting.inferred, plan).map_err(problem)?;
    let p = burn::predict(&program, backend);
    let mut found = BTreeMap::from([("before", p.steady.0), ("peak", p.between.0)]);
    if let Some(Pools { max_page_bytes, alignment_bytes }) = record.pools {
        let config =
            CubeclConfig { max_page: Bytes(max_page_bytes), alignment: alignment_bytes, limit: None };
        found.extend(p.reserved(config).map(|bytes| ("reserved", bytes.0)));
    }
    Ok(found)
}
