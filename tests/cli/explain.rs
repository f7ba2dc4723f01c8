//! `memfit explain`.

use crate::models::Builder;
use crate::{file, memfit, memfit_with_input};
use serde_json::json;

const LOG: &str = "Traceback (most recent call last):\n  File \"train.py\", line 9, in forward\nRuntimeError: CUDA out of memory. Tried to allocate 98.00 MiB (GPU 0; 10.92 GiB total capacity; 10.11 GiB already allocated; 66.44 MiB free; 10.31 GiB reserved in total by PyTorch)\n";

#[test]
fn a_dead_run_is_the_negative_finding() {
    let run = memfit(&["explain", &file("explain_dead.log", LOG.as_bytes()), "--format", "json"]);
    let found = run.json();
    assert_eq!((run.code, &found["outcome"]), (1, &json!("out-of-memory")));
    assert_eq!(found["findings"][0]["cause"], json!("step-too-big"));
    assert_eq!(found["findings"][0]["lines"], json!([3]));
    assert_eq!(found["messages"][0]["requested_bytes"], json!(98 << 20));
}

#[test]
fn a_healthy_log_is_fine() {
    let run = memfit_with_input(&["explain", "-"], b"step 1 loss 0.5\n0 OOM events\n");
    assert_eq!(run.code, 0, "{}", run.out);
    assert!(run.out.starts_with("Nothing in this log"));
}

#[test]
fn with_the_model_it_names_the_batch_that_fits() {
    let model = file("explain_conv.onnx", &Builder::conv().bytes());
    let log = file("explain_model.log", LOG.as_bytes());
    let found = memfit(&["explain", &log, &model, "-b", "4", "--format", "json"]).json();
    assert_eq!(found["model"]["batch_size"], json!(4));
    assert!(found["model"]["largest_batch_size"].as_u64().unwrap() > 4);
}

#[test]
fn a_log_that_is_not_there_is_bad_input() {
    assert_eq!(memfit(&["explain", "missing.log"]).code, 2);
}
