//! Every optimizer's state and step beside what PyTorch does on fake CUDA tensors.
#![allow(clippy::unwrap_used, reason = "a failed unwrap in a test is a failed test")]

use memfit_engine::OptimizerImpl;
use memfit_engine::optimizers::{Optimizer, Parameter, StepConfig, StepEvent, find, names};
use memfit_graph::{Bytes, DType};
use serde_json::Value;
use std::collections::BTreeSet;

const REFERENCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/reference/optimizers.json");
const TRUTH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/truth/pytorch");
const BLOCK: u64 = 512;

fn read(path: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn numbers(value: &Value) -> Vec<u64> {
    value.as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect()
}

/// The events as signed bytes, and the highest sum of live blocks.
fn replay(events: &[StepEvent]) -> (Vec<i64>, u64) {
    let mut sizes = Vec::new();
    let mut signed = Vec::new();
    let (mut live, mut peak) = (0, 0);
    for event in events {
        match *event {
            StepEvent::Allocate { id, bytes, .. } => {
                assert_eq!(id as usize, sizes.len());
                sizes.push(bytes);
                live += bytes.round_up(BLOCK).0;
                signed.push(bytes.0 as i64);
            }
            StepEvent::Free { id } => {
                live -= sizes[id as usize].round_up(BLOCK).0;
                signed.push(-(sizes[id as usize].0 as i64));
            }
        }
        peak = peak.max(live);
    }
    assert_eq!(live, 0, "something is never freed");
    (signed, peak)
}

/// The variables of a returning function go in no order that matters: each run of frees is sorted.
fn sort_runs_of_frees(mut events: Vec<i64>) -> Vec<i64> {
    for run in events.chunk_by_mut(|a, b| *a < 0 && *b < 0) {
        run.sort();
    }
    events
}

/// Bytes of the state on the device, sorted.
fn state(optimizer: &dyn Optimizer, params: &[Parameter], how: &StepConfig) -> Vec<u64> {
    let own = params.iter().flat_map(|p| optimizer.state(p, how));
    let bytes = own.chain(optimizer.shared_state(params, how)).map(|s| s.device_bytes().0);
    let mut bytes: Vec<u64> = bytes.filter(|bytes| *bytes > 0).collect();
    bytes.sort();
    bytes
}

#[test]
fn state_and_steps_equal_pytorchs_event_by_event() {
    let reference = read(REFERENCE);
    let shapes: Vec<Vec<u64>> = serde_json::from_value(reference["shapes"].clone()).unwrap();
    let mut seen = BTreeSet::new();
    for case in reference["cases"].as_array().unwrap() {
        let text = |key: &str| case[key].as_str().unwrap();
        let dtypes: &[DType] = match text("dtypes") {
            "fp32" => &[DType::Float32],
            "bf16" => &[DType::Bfloat16],
            _ => &[DType::Float32, DType::Bfloat16],
        };
        let params: Vec<Parameter> = (shapes.iter().cloned())
            .zip(dtypes.iter().cycle())
            .map(|(shape, dtype)| Parameter { shape: shape.into(), dtype: *dtype, is_table: false })
            .collect();
        let implementation = match text("implementation") {
            "foreach" => OptimizerImpl::Foreach,
            "fused" => OptimizerImpl::Fused,
            _ => OptimizerImpl::Loop,
        };
        let weight_decay = case["weight_decay"].as_bool().unwrap();
        let how = StepConfig { implementation, weight_decay, master_weights: false };
        let optimizer = find(text("optimizer")).unwrap();
        seen.insert(optimizer.name());
        assert!(optimizer.implementations().contains(&implementation));

        let label = format!(
            "{} {} decay {weight_decay} {}",
            text("optimizer"),
            text("implementation"),
            text("dtypes")
        );
        let mut expected = numbers(&case["state"]);
        expected.sort();
        assert_eq!(state(optimizer, &params, &how), expected, "state of {label}");
        let (events, peak) = replay(&optimizer.step(&params, &how));
        let expected: Vec<i64> = serde_json::from_value(case["events"].clone()).unwrap();
        assert_eq!(sort_runs_of_frees(events), sort_runs_of_frees(expected), "events of {label}");
        assert_eq!(Some(peak), case["peak_bytes"].as_u64(), "peak of {label}");
    }
    assert_eq!(seen, names().collect::<BTreeSet<_>>(), "every optimizer has a reference");
}

/// The optimizers of the reference lab's whole models.
fn lab(name: &str) -> Option<(&'static str, OptimizerImpl)> {
    Some(match name {
        "sgd" => ("sgd", OptimizerImpl::Foreach),
        "sgd_momentum" => ("momentum", OptimizerImpl::Foreach),
        "sgd_momentum_forloop" => ("momentum", OptimizerImpl::Loop),
        "sgd_momentum_fused" => ("momentum", OptimizerImpl::Fused),
        "adam" => ("adam", OptimizerImpl::Foreach),
        "adam_forloop" => ("adam", OptimizerImpl::Loop),
        "adam_fused" => ("adam", OptimizerImpl::Fused),
        "adamw_foreach" => ("adamw", OptimizerImpl::Foreach),
        "adamw_fused" => ("adamw", OptimizerImpl::Fused),
        "adagrad" => ("adagrad", OptimizerImpl::Foreach),
        "rmsprop" => ("rmsprop", OptimizerImpl::Foreach),
        _ => return None,
    })
}

#[test]
fn state_and_step_peaks_of_whole_models_are_the_labs() {
    let Ok(files) = std::fs::read_dir(TRUTH) else {
        println!("skipped: {TRUTH} is absent");
        return;
    };
    let mut compared = 0;
    for file in files {
        let path = file.unwrap().path().to_string_lossy().into_owned();
        let model = read(&path);
        let mut shapes: Vec<Vec<u64>> = Vec::new();
        for layer in model["layers"].as_array().unwrap() {
            // A parsed object is in alphabetical order; layers register weights before biases.
            let (biases, weights): (Vec<_>, Vec<_>) =
                layer["params"].as_object().unwrap().iter().partition(|(name, _)| name.contains("bias"));
            let both = weights.into_iter().chain(biases);
            shapes.extend(
                both.map(|(_, shape)| serde_json::from_value(shape.clone()).unwrap()).collect::<Vec<_>>(),
            );
        }
        let elements: u64 = shapes.iter().map(|s| s.iter().product::<u64>()).sum();
        if Some(elements) != model["params"]["numel"].as_u64() || path.contains(".cpu.") {
            continue; // tied parameters are listed with each of their layers
        }
        for case in model["cases"].as_array().unwrap() {
            let precision = case["precision"].as_str().unwrap();
            let dtype = if precision == "bf16" { DType::Bfloat16 } else { DType::Float32 };
            let params: Vec<Parameter> =
                shapes.iter().map(|s| Parameter { shape: s[..].into(), dtype, is_table: false }).collect();
            for run in case["runs"].as_array().unwrap() {
                let Some((name, implementation)) = lab(run["optimizer"].as_str().unwrap()) else { continue };
                let label = format!("{path} batch {} {precision} {}", case["batch"], run["optimizer"]);
                let how = StepConfig { implementation, ..StepConfig::default() };
                let optimizer = find(name).unwrap();
                let state: u64 =
                    state(optimizer, &params, &how).iter().map(|bytes| Bytes(*bytes).round_up(BLOCK).0).sum();
                assert_eq!(Some(state), run["optimizer_state_bytes"].as_u64(), "state of {label}");
                let (_, temporaries) = replay(&optimizer.step(&params, &how));
                let before = case["forward_backward"]["live_after_backward"]["total"].as_u64().unwrap();
                let peak = run["optimizer_step_peak_bytes"].as_u64();
                assert_eq!(Some(before + state + temporaries), peak, "step of {label}");
                compared += 1;
            }
        }
    }
    println!("{compared} runs compared");
    assert!(compared > 0);
}
