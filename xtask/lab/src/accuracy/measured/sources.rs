//! Where the measurements come from, and how each source trained.

use super::{Measurement, Value};
use anyhow::{Context, Result};
use memfit_engine::allocators::{Allocator, PytorchAllocator, PytorchAllocatorConfig};
use memfit_engine::{Loss, Plan, Precision};
use memfit_graph::Bytes;
use std::collections::BTreeMap;
use std::path::Path;

/// GPUMemNet (itu-rad): nvidia-smi once a second over timm's training script.
pub(super) const GPUMEMNET: &str = "GPUMemNet";
/// timm's own benchmark tables.
pub(super) const TIMM: &str = "timm";
/// milabench (mila-iqia).
pub(super) const MILABENCH: &str = "milabench";

/// Rows from this on were cut off by the card (40,536 MiB).
const CUT_OFF: u64 = 39_000;

/// A table with a head.
pub(super) fn table(path: &Path) -> Result<Vec<BTreeMap<String, String>>> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let mut lines = text.lines();
    let head: Vec<&str> = lines.next().unwrap_or_default().split('\t').collect();
    Ok(lines
        .map(|line| head.iter().map(|h| (*h).to_owned()).zip(line.split('\t').map(str::to_owned)).collect())
        .collect())
}

/// Every measurement of a model whose file is there.
pub(super) fn all(shared: &Path) -> Result<Vec<Measurement>> {
    let folder = shared.join("truth/measured");
    let mut all = gpumemnet(shared, &folder)?;
    all.extend(brackets(shared, &folder)?);
    all.extend(milabench(shared, &folder)?);
    all.retain(|m| m.file.exists());
    Ok(all)
}

/// timm's training script: SGD with Nesterov momentum and weight decay, float32 with TF32 convolutions, the cuDNN search on,
/// `zero_grad` after the step; the loader has the next batch on the card. Optimizer and search are inferred (the table does
/// not state them): the residual is flat in the number of parameters.
fn gpumemnet(shared: &Path, folder: &Path) -> Result<Vec<Measurement>> {
    let plan = Plan {
        optimizer: "nesterov".into(),
        weight_decay: true,
        cudnn_benchmark: true,
        loss: Loss::CrossEntropy,
        ..Plan::default()
    };
    let mut all = Vec::new();
    // The table does not say how many; timm's own of the same years does.
    let stated = parameters(folder)?;
    for row in table(&folder.join("gpumemnet_timm_slopes.tsv"))? {
        let name = row.get("model").map_or("", |m| m.trim_start_matches("timm:")).to_owned();
        let mut before = 0;
        for batch in [8, 16, 32, 64, 128] {
            let Some(mib) = row.get(&format!("mib_b{batch}")).and_then(|v| v.parse::<u64>().ok()) else {
                continue;
            };
            // A run that was aborted shows less than one of a smaller batch.
            if mib >= CUT_OFF || mib < before {
                continue;
            }
            before = mib;
            all.push(Measurement {
                source: GPUMEMNET,
                file: shared.join(format!("corpus/timm/{name}.onnx")),
                model: name.clone(),
                setting: "A100 40 GB, fp32",
                card: "a100-40gb",
                batch,
                plan: plan.clone(),
                value: Value::Device(Bytes::mib(mib)),
                prefetches: true,
                parameters: stated.get(&name).copied(),
            });
        }
    }
    Ok(all)
}

/// By model, the parameters that timm's own tables state, in hundredths of a million.
fn parameters(folder: &Path) -> Result<BTreeMap<String, u64>> {
    let rows = table(&folder.join("timm_train_consensus.tsv"))?;
    let stated = |row: &BTreeMap<String, String>| {
        let name = row.get("model")?.trim_start_matches("timm:").to_owned();
        Some((name, millions(row)?))
    };
    Ok(rows.iter().filter_map(stated).collect())
}

fn millions(row: &BTreeMap<String, String>) -> Option<u64> {
    let millions: f64 = row.get("params_M")?.parse().ok()?;
    Some((millions * 100.0).round() as u64)
}

/// timm's `benchmark.py`: backward inside of the autocast region, gradients kept, no weight decay, one batch used again and
/// again. Six tables (three releases of PyTorch, two layouts); the bracket is what all agree on, or what they span.
fn brackets(shared: &Path, folder: &Path) -> Result<Vec<Measurement>> {
    let sizes = std::fs::read_to_string(shared.join("corpus/timm/index.json"))?;
    let sizes: Vec<serde_json::Value> = serde_json::from_str(&sizes)?;
    let size_of = |name: &str| sizes.iter().find(|s| s["name"] == name).and_then(|s| s["size"].as_u64());
    let plan = Plan {
        precision: Precision::MixedFp16,
        optimizer: "nesterov".into(),
        keep_gradients: true,
        cudnn_benchmark: true,
        autocast_backward: true,
        // PyTorch 1.10 to 1.12.
        composed_attention: true,
        loss: Loss::CrossEntropy,
        ..Plan::default()
    };
    let mut all = Vec::new();
    for row in table(&folder.join("timm_train_consensus.tsv"))? {
        let cell = |name: &str| row.get(name).map_or("", String::as_str);
        let name = cell("model").trim_start_matches("timm:").to_owned();
        let (Ok(ran), Ok(failed)) = (cell("fit_min").parse(), cell("oom_above_fit_max").parse()) else {
            continue;
        };
        let side = cell("input_shape").rsplit('x').next().and_then(|s| s.parse().ok());
        if side != size_of(&name) {
            continue;
        }
        let setting = if cell("agree") == "all" {
            "RTX 3090, fp16 autocast, all tables agree"
        } else {
            "RTX 3090, fp16 autocast, tables differ"
        };
        all.push(Measurement {
            source: TIMM,
            file: shared.join(format!("corpus/timm/{name}.onnx")),
            model: name,
            setting,
            card: "rtx-3090",
            batch: ran,
            plan: plan.clone(),
            value: Value::Bracket { ran, failed },
            prefetches: false,
            parameters: millions(&row),
        });
    }
    Ok(all)
}

/// torchvision's ConvNeXt-Large under milabench: SGD without momentum, backward inside of the autocast region. The file
/// is timm's, which keeps the same tensors.
fn milabench(shared: &Path, folder: &Path) -> Result<Vec<Measurement>> {
    let mut all = Vec::new();
    for row in table(&folder.join("core.tsv"))? {
        let cell = |name: &str| row.get(name).map_or("", String::as_str);
        if cell("source") != "milabench" || cell("model") != "torchvision:convnext_large" {
            continue;
        }
        let half = cell("precision").starts_with("amp-fp16");
        let (card, setting) = match (cell("gpu"), half) {
            ("H100", false) => ("h100-80gb", "H100, fp32"),
            ("H100", true) => ("h100-80gb", "H100, fp16 autocast"),
            ("L40S", false) => ("l40s", "L40S, fp32"),
            ("L40S", true) => ("l40s", "L40S, fp16 autocast"),
            _ => continue,
        };
        let (Ok(batch), Ok(mib)) = (cell("batch").parse(), cell("value").parse::<f64>()) else { continue };
        all.push(Measurement {
            source: MILABENCH,
            model: format!("convnext_large {}", cell("precision")),
            file: shared.join("corpus/timm/convnext_large.onnx"),
            setting,
            card,
            batch,
            plan: Plan {
                precision: if half { Precision::MixedFp16 } else { Precision::Fp32 },
                optimizer: "sgd".into(),
                autocast_backward: half,
                loss: Loss::CrossEntropy,
                ..Plan::default()
            },
            value: Value::Device(Bytes::mib(mib as u64)),
            prefetches: false,
            parameters: None,
        });
    }
    Ok(all)
}

/// What timm's loader holds beside the batch that is trained on: on a stream of its own, so in segments of its own, the
/// batches before and after it as floats, and two as bytes (timm/data/loader.py, `PrefetchLoader`).
pub(super) fn loader(batch: Bytes) -> Bytes {
    let mut own = PytorchAllocator::new(PytorchAllocatorConfig::default());
    let bytes = Bytes(batch.0 / 4);
    for request in [batch, bytes, batch, bytes, batch] {
        let _ = own.allocate(request);
    }
    own.usage().reserved.saturating_sub(batch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loader_has_two_more_batches_ready() {
        // 128 images of 224 x 224: 74 MiB as floats (73.5), 20 as bytes (18.4, two in one segment of 74 do not fit).
        let batch = Bytes(128 * 3 * 224 * 224 * 4);
        let more = loader(batch);
        assert!(more > batch * 2 && more < batch * 3, "{more}");
    }
}
