//! `memfit fit`.

use crate::models::Builder;
use crate::{file, memfit};

const RESNET: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/models/resnet18.ts_train.onnx");

#[test]
fn a_matrix_has_a_cell_for_each_card_precision_and_optimizer() {
    let run = memfit(&[
        "fit",
        RESNET,
        "--gpu",
        "rtx-3060,8GiB",
        "--precision",
        "fp32,amp",
        "--optimizer",
        "sgd,adam",
        "--format",
        "json",
    ]);
    assert_eq!((run.code, &*run.err), (0, ""));
    let json = run.json();
    let results = json["results"].as_array().unwrap();
    assert_eq!(results.len(), 8);
    for result in results {
        for key in ["gpu", "precision", "optimizer", "max_batch_size", "device_bytes", "usable_bytes"] {
            assert!(!result[key].is_null(), "{key} in {result}");
        }
    }
    // The answer is that of an estimate: this batch fits, the next does not.
    let batch = results[0]["max_batch_size"].as_u64().unwrap();
    let estimate = |batch: u64| {
        memfit(&["estimate", RESNET, "-b", &batch.to_string(), "--gpu", "rtx-3060", "--optimizer", "sgd"])
            .code
    };
    assert_eq!((estimate(batch), estimate(batch + 1)), (0, 1));
}

#[test]
fn what_does_not_fit_anywhere_is_the_negative_finding() {
    let model = file("fit_conv.onnx", &Builder::conv().bytes());
    let run = memfit(&["fit", &model, "--gpu", "1GiB,2GiB", "-b", "4000000000"]);
    assert_eq!((run.code, &*run.err), (1, ""));
    assert!(run.out.contains("nothing fits"), "{}", run.out);
    let run = memfit(&["fit", &model, "--gpu", "1000MiB", "--format", "json"]);
    assert_eq!((run.code, run.json()["results"][0]["max_batch_size"].as_u64()), (1, Some(0)));
    let run = memfit(&["fit", &model, "--gpu", "all", "-b", "1000000", "--format", "json"]);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.json()["smallest"][0]["gpu"].is_string());
}

#[test]
fn the_whole_process_must_fit() {
    let largest = |more: &[&str]| {
        let run = memfit(&[&["fit", RESNET, "--gpu", "8GiB", "--format", "json"], more].concat());
        run.json()["results"][0]["max_batch_size"].as_u64().unwrap()
    };
    assert!(largest(&["--stale-models", "8"]) < largest(&[]));
    assert_eq!(largest(&["--validation-batch", "100000"]), 0);
}

#[test]
fn an_axis_that_is_not_there_is_bad_input() {
    let run = memfit(&["fit", RESNET, "--gpu", "t4", "-b", "4", "--max", "seq"]);
    assert_eq!(run.code, 2);
    assert!(run.err.contains("--max") && run.err.contains("no sequences"), "{}", run.err);
    // What is missing beside the searched size is asked for as elsewhere.
    let open = memfit(&["fit", RESNET, "--gpu", "t4", "--max", "image"]);
    assert!(open.code == 2 && open.err.contains("-b N"), "{}", open.err);
    let run = memfit(&["fit", RESNET, "--gpu", "t4", "-b", "4", "--max", "image", "--format", "json"]);
    assert_eq!((run.code, run.json()["results"][0]["max_size"].as_u64().unwrap() % 32), (0, 0));
    let several = memfit(&["estimate", RESNET, "-b", "4", "--precision", "fp32,amp"]);
    assert!(several.code == 2 && several.err.contains("memfit fit"), "{}", several.err);
}
