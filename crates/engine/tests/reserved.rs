//! What PyTorch's allocator is said to reserve, beside an independent simulation of whole models.
#![allow(clippy::unwrap_used, reason = "a failed unwrap in a test is a failed test")]

use memfit_engine::allocators::{PytorchAllocator, PytorchAllocatorConfig, replay};
use memfit_engine::{Model, Plan};
use memfit_graph::{Binding, Bytes};

const SHARED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared");

/// Names in the table and in the corpus: the networks whose code is the same in both of the libraries they come from.
const MODELS: [(&str, &str); 3] = [
    ("mobilenetv2_100", "mobilenet_v2"),
    ("efficientnet_b0", "efficientnet_b0"),
    ("convnext_tiny", "convnext_tiny"),
];

#[test]
fn reserved_bytes_are_those_of_an_independent_simulation() {
    let Ok(table) = std::fs::read_to_string(format!("{SHARED}/truth/measured/workspace_residuals.tsv"))
    else {
        println!("skipped: no {SHARED}/truth");
        return;
    };
    let plan =
        Plan { optimizer: "momentum".into(), weight_decay: true, cudnn_benchmark: true, ..Plan::default() };
    let mut compared = 0;
    for (name, file) in MODELS {
        let bytes = std::fs::read(format!("{SHARED}/corpus/onnx/{file}.ts_train.onnx")).unwrap();
        let imported = memfit_onnx::import(&bytes).unwrap();
        let model = Model::new(imported.graph, name, "onnx", imported.operators);
        for row in table.lines().map(|line| line.split('\t').collect::<Vec<_>>()).filter(|row| row[0] == name)
        {
            let [batch, simulated, workspace] = [1, 5, 9].map(|i| row[i].parse::<i64>().unwrap());
            let (batch, simulated) = (batch.unsigned_abs(), (simulated + workspace).unsigned_abs());
            // Small steps are a few segments, which one tensor more or less decides; and they have little to give back.
            if batch < 32 {
                continue;
            }
            let estimate =
                model.estimate(&Binding { batch: Some(batch), ..Binding::default() }, &plan).unwrap();
            let mut allocator = PytorchAllocator::new(PytorchAllocatorConfig::default());
            let found = replay(&estimate.timeline, &mut allocator);
            let reserved = found.peak_reserved.usage.reserved.0 / Bytes::MIB;
            assert!(
                reserved.abs_diff(simulated) * 25 <= simulated,
                "{name} {batch}: {reserved} for {simulated}"
            );
            compared += 1;
            // The step fits into less than it would reserve: segments are given back when there are no more.
            let limit = Bytes((estimate.peak.allocated.0 + found.peak_reserved.usage.reserved.0) / 2);
            let config = PytorchAllocatorConfig::within(limit);
            let inside = replay(&estimate.timeline, &mut PytorchAllocator::new(config));
            assert!(inside.fits() && inside.retries > 0, "{name} {batch}: {:?}", inside.failure);
        }
    }
    assert_eq!(compared, MODELS.len() * 3);
}
