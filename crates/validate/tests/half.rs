//! Half precision computes what float32 does on the same device, as near as its digits allow. Skipped where no adapter has it;
//! `cargo xtask test --only lavapipe` runs it on Mesa's.
#![cfg(feature = "wgpu")]
#![allow(clippy::unwrap_used)]

mod common;

use common::step;
use memfit_engine::frameworks::burn::{Float, Program, program};
use memfit_engine::{Framework, Model, Plan, Precision};
use memfit_graph::{Binding, infer};
use memfit_validate::backends::{Backend, computes, device};

/// By how much of its norm a gradient may differ: float16 has eleven digits, of which sums over a network lose some.
const SLACK: f64 = 0.03;

fn network(name: &str, precision: Precision) -> Program {
    let path = format!("{}/tests/data/{name}.onnx", env!("CARGO_MANIFEST_DIR"));
    let model = memfit_onnx::import_from(std::fs::File::open(path).unwrap()).unwrap();
    let model = Model::new(model.graph, name, "onnx", model.operators);
    let plan = Plan { framework: Framework::Burn, optimizer: "sgd".into(), precision, ..Plan::default() };
    let graph = model.recomposed(&plan);
    let inferred = infer(graph, &Binding { batch: Some(2), ..Binding::default() }).unwrap();
    let mut program = program(graph, &inferred, &plan).unwrap();
    common::keep_everything(&mut program);
    program
}

fn norm<'a>(elements: impl IntoIterator<Item = &'a f32>) -> f64 {
    elements.into_iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt()
}

#[test]
fn losses_and_gradients_in_half_precision_are_near_those_in_full() {
    if computes(Backend::Wgpu, Float::F16).is_err() || device(Backend::Wgpu) == "no device" {
        println!("skipped: no adapter with float16");
        return;
    }
    let mut wrong = Vec::new();
    for name in ["convolutions", "masked_attention"] {
        let (loss, full) = step(Backend::Wgpu, &network(name, Precision::Fp32)).unwrap();
        // Some gradients are zero but for rounding, so that a thousandth of all is let be.
        let least = 1e-3 * norm(full.values().flatten());
        for precision in [Precision::Fp16, Precision::MixedFp16] {
            let (half_loss, half) = step(Backend::Wgpu, &network(name, precision)).unwrap();
            if (half_loss - loss).abs() > SLACK * loss.abs() {
                wrong.push(format!("{name} {precision:?}: loss {half_loss}, expected {loss}"));
            }
            assert_eq!(full.len(), half.len());
            for (parameter, full) in &full {
                let differences: Vec<f32> = full.iter().zip(&half[parameter]).map(|(a, b)| a - b).collect();
                let (off, size) = (norm(&differences), norm(full));
                if off.is_nan() || off > SLACK * size + least {
                    wrong.push(format!("{name} {precision:?}: {parameter} is off by {off:e} of {size:e}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
