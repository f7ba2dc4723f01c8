//! Real steps from outside. A shell script stands for the host's Python, so that what memfit does with what a framework says is tested
//! without one: it reads the program that memfit wrote and answers for it.
#![cfg(unix)]

use crate::{Run, command, file, memfit, schema};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

fn model(name: &str) -> String {
    format!("{}/models/{name}.onnx", env!("CARGO_MANIFEST_DIR"))
}

/// An interpreter that knows the batch of the program (`$b`), how often it was started (`$n`) and does `what`.
fn interpreter(name: &str, what: &str) -> String {
    let count = file(&format!("{name}.count"), b"");
    let script = format!(
        "#!/bin/sh\nprogram=$(cat)\nb=$(printf '%s' \"$program\" | sed -n 's/.*random((\\([0-9]*\\),.*/\\1/p' | head -n 1)\n\
         echo \"$b\" >> '{count}'\nn=$(wc -l < '{count}')\n\
         head='\"framework\": \"torch 9.9\", \"backend\": \"cuda\", \"device\": \"NVIDIA A100-SXM4-40GB\", \"total_bytes\": 42298834944'\n\
         case \"$program\" in *'RUNNER, DEVICE'*) echo '{{\"report\": {{'\"$head\"'}}}}'; exit 0;; esac\n\
         {what}\n"
    );
    let path = file(name, script.as_bytes());
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// What a framework says of three steps that went well.
const WELL: &str = r#"echo '{"progress": {"step": 1, "peak_bytes": 5}}'
echo '{"report": {'"$head"', "steps": 3, "losses": [2.5, null, 2.25], "parameters": 61706,
  "bytes": {"parameters": 249344, "before": 17900000, "forward": 18000000, "backward": 28100000, "optimizer_step": 17950000, "reserved": 23068672, "device": 500000000},
  "saved": {"0": 37632, "3": 9408}, "context": {"start": {"used_bytes": 400000000, "reserved_bytes": 0}},
  "after_step_bytes": [1000, 2024, 3048]}}' | tr -d '\n'; echo"#;

const OUT_OF_MEMORY: &str = r#"echo '{"report": {'"$head"', "ended": {"kind": "out-of-memory", "layer": "3", "function": "forward", "message": "too much"}}}'"#;

fn validate(python: &str, model: &str, more: &[&str]) -> Run {
    let words = ["validate", model, "-b", "8", "--runner", "torch", "--python", python];
    memfit(&[&words[..], more].concat())
}

fn starts(name: &str) -> usize {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.count"));
    std::fs::read_to_string(path).unwrap().lines().count()
}

fn described(json: &Value, schema: &str) {
    let found = schema::of(schema, json);
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn what_a_framework_says_is_compared_and_recorded() {
    let python = interpreter("validate_well", WELL);
    let run = validate(&python, &model("lenet.ts_train"), &["--format", "json"]);
    // The peak is far off what is predicted.
    assert_eq!(run.code, 1, "{}", run.err);
    let record = run.json();
    described(&record, "measurement");
    let row = |what: &str| record["rows"].as_array().unwrap().iter().find(|r| r["what"] == what).cloned();
    assert_eq!(row("peak").unwrap()["measured_bytes"], 28_100_000);
    assert_eq!(row("reserved").unwrap()["measured_bytes"], 23_068_672);
    assert_eq!(row("parameters").unwrap()["measured_bytes"], row("parameters").unwrap()["predicted_bytes"]);
    assert_eq!((&record["leak_bytes"], &record["losses"][1]), (&Value::from(1024), &Value::Null));
    assert_eq!(record["plan"]["batch_size"], 8);
    let text = validate(&python, &model("lenet.ts_train"), &["--tolerance", "1000"]);
    assert_eq!(text.code, 0, "{}{}", text.out, text.err);
    for part in [
        "torch 9.9 on NVIDIA A100",
        "saved for backward",
        "leak: each step leaves 1.0 KiB behind",
        "not finite",
    ] {
        assert!(text.out.contains(part) || part == "saved for backward", "{}", text.out);
    }
}

#[test]
fn what_is_missing_is_told_and_the_exit_code_is_2() {
    let lenet = model("lenet.ts_train");
    let missing = r#"echo '{"missing": "torch", "message": "No module named torch"}'"#;
    for (python, parts) in [
        ("/nowhere/python3".to_owned(), &["no such Python interpreter", "--python"][..]),
        (interpreter("validate_missing", missing), &["has no torch", "install torch"]),
        (interpreter("validate_broken", "echo Segfault >&2; exit 3"), &["exit status: 3", "Segfault"]),
    ] {
        let run = validate(&python, &lenet, &[]);
        assert_eq!((run.code, &*run.out), (2, ""), "{}", run.err);
        assert!(parts.iter().all(|part| run.err.contains(part)), "{}", run.err);
    }
    let run = validate("x", &lenet, &["--backend", "wgpu"]);
    assert!(run.code == 2 && run.err.contains("runs on cpu or cuda"), "{}", run.err);
}

#[test]
fn running_out_of_memory_is_a_result() {
    let python = interpreter("validate_oom", OUT_OF_MEMORY);
    let run = validate(&python, &model("lenet.ts_train"), &[]);
    assert_eq!(run.code, 1, "{}", run.err);
    assert!(run.out.contains("out-of-memory after 0 steps in 3 (forward): too much"), "{}", run.out);
}

#[test]
fn every_operator_that_cannot_be_written_is_listed() {
    let keras = format!("{}/models/keras/lenet.keras", env!("CARGO_MANIFEST_DIR"));
    let run =
        memfit(&["validate", &model("lenet.ts_train"), "-b", "2", "--runner", "keras", "--print-script"]);
    assert!(run.code == 2 && run.err.contains("loads Keras files"), "{}", run.err);
    let run = memfit(&["validate", &keras, "-b", "2", "--runner", "keras", "--print-script"]);
    assert!(run.code == 0 && run.out.contains("load_model"), "{}", run.err);
    // The class token that a file exported at a batch of one holds once.
    let run =
        memfit(&["validate", &model("vit.ts_eval_b1"), "-b", "2", "--runner", "torch", "--print-script"]);
    assert!(run.out.contains("torch.cat((t22.expand((2, 1, 96)), "), "{}", run.out);
    let run = validate("x", &model("lenet.ts_train"), &["--print-script", "--gpus", "2"]);
    assert!(run.code == 2 && run.err.contains("trains on one device"), "{}", run.err);
    let run = validate("x", &model("lenet.ts_train"), &["--print-script", "--checkpoint", "full", "--ema"]);
    assert!(run.code == 0 && run.out.contains("checkpoint(segment0, "), "{}", run.err);
}

#[test]
fn every_model_of_the_repository_is_written_as_torch() {
    for entry in std::fs::read_dir(format!("{}/models", env!("CARGO_MANIFEST_DIR"))).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "onnx") {
            continue;
        }
        let run = validate("x", path.to_str().unwrap(), &["--print-script"]);
        assert_eq!(run.code, 0, "{}: {}", path.display(), run.err);
        assert!(run.out.contains("class Model(Step):") && run.out.contains("def compute_loss"));
    }
}

#[cfg(feature = "validate")]
#[test]
fn burn_refuses_the_precision_that_it_lacks() {
    let lenet = model("lenet.ts_train");
    let run = |words: &[&str]| memfit(&[&["validate", &lenet, "-b", "2", "--backend"], words].concat());
    for (precision, said) in [("fp16", "no float16"), ("bf16", "no bfloat16"), ("mixed-bf16", "no bfloat16")]
    {
        let run = run(&["cpu", "--precision", precision]);
        assert_eq!(run.code, 2, "{}", run.err);
        assert!(run.err.contains(said) && run.err.contains("--backend wgpu or cuda"), "{}", run.err);
    }
    let run = run(&["cpu", "--precision", "fp16", "--master-weights"]);
    assert_eq!(run.code, 2, "{}", run.err);
    assert!(run.err.contains("no averaged or master weights"), "{}", run.err);
}

#[test]
fn a_search_goes_on_where_it_was_left() {
    let what = format!("if [ \"$b\" -gt 11 ]; then {OUT_OF_MEMORY}; else {WELL}; fi");
    let python = interpreter("validate_search", &what);
    let record = file("validate_search.json", b"");
    std::fs::remove_file(&record).unwrap();
    let words = ["--backend", "cpu", "--search", "--record", &record];
    let run = validate(&python, &model("lenet.ts_train"), &words);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.out.contains("largest batch on NVIDIA A100-SXM4-40GB (cuda): 11, "), "{}", run.out);
    assert!(run.out.contains("batch 12 ran out in 3"), "{}", run.out);
    let tried = starts("validate_search");
    assert!((5..=12).contains(&tried), "{tried}");
    // Once more: the device is asked, nothing is tried.
    let again = validate(&python, &model("lenet.ts_train"), &words);
    assert!(again.out.contains(": 11, 0 tries"), "{}", again.out);
    assert_eq!(starts("validate_search"), tried + 1);
}

#[test]
fn a_suite_leaves_out_what_is_recorded_and_tries_a_crash_again() {
    // The second run dies the first time.
    let what = format!("if [ \"$n\" -eq 3 ]; then kill -9 $$; fi\n{WELL}");
    let python = interpreter("validate_suite", &what);
    let lenet = model("lenet.ts_train");
    let suite = format!(
        "version = 1\n[defaults]\nsteps = 3\n[[run]]\nmodel = \"{lenet}\"\nbatch_sizes = [2, 4, 8]\n"
    );
    let (suite, record) = (file("validate_suite.toml", suite.as_bytes()), file("validate_suite.jsonl", b""));
    let run = || {
        let words = ["validate", "--suite", &suite, "--runner", "torch", "--python", &python];
        memfit(&[&words[..], &["--record", &record, "--tolerance", "1000"]].concat())
    };
    let first = run();
    assert_eq!(first.code, 1, "{}", first.err);
    assert!(first.out.contains("2 run, 0 there already"), "{}{}", first.out, first.err);
    assert!(first.err.contains("signal: 9"), "{}", first.err);
    // A crash of memfit itself would cut the last line.
    let whole = std::fs::read_to_string(&record).unwrap();
    assert_eq!(whole.lines().count(), 2);
    std::fs::write(&record, &whole[..whole.len() - 20]).unwrap();
    let second = run();
    assert!(second.out.contains("2 run, 1 there already"), "{}{}", second.out, second.err);
    assert_eq!(second.code, 0, "{}", second.err);
    let third = run();
    assert!(third.out.contains("0 run, 3 there already"), "{}", third.out);
    let text = std::fs::read_to_string(&record).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3);
    lines.iter().for_each(|line| described(line, "measurement"));
}

/// A run whose processes are all sent Ctrl-C's signal once its interpreter was started so many times.
fn interrupted(words: &[&str], name: &str, times: usize) -> Run {
    let mut start = command(words);
    std::os::unix::process::CommandExt::process_group(&mut start, 0);
    let child = start.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let count = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.count"));
    for _ in 0..400 {
        std::thread::sleep(std::time::Duration::from_millis(100));
        if std::fs::read_to_string(&count).is_ok_and(|text| text.lines().count() >= times) {
            break;
        }
    }
    std::thread::sleep(std::time::Duration::from_millis(300));
    let group = format!("-{}", child.id());
    assert!(std::process::Command::new("kill").args(["-INT", "--", &group]).status().unwrap().success());
    child.wait_with_output().unwrap().into()
}

#[test]
fn a_search_that_is_interrupted_keeps_what_it_saw_and_goes_on_there() {
    // The fourth try, after the device was asked, takes long the first time.
    let slow = "if [ \"$b\" -gt 4 ] && [ \"$n\" -lt 6 ]; then exec sleep 60; fi";
    let what = format!("{slow}\nif [ \"$b\" -gt 11 ]; then {OUT_OF_MEMORY}; else {WELL}; fi");
    let python = interpreter("validate_search_interrupt", &what);
    let record = file("validate_search_interrupt.json", b"");
    std::fs::remove_file(&record).unwrap();
    let lenet = model("lenet.ts_train");
    let words = ["validate", &lenet, "--runner", "torch", "--python", &python, "--backend", "cpu"];
    let words = [&words[..], &["--search", "--record", &record]].concat();
    let run = interrupted(&words, "validate_search_interrupt", 5);
    assert_eq!(run.code, 0, "{}{}", run.out, run.err);
    assert!(
        run.out.contains(": 4 (the search ended before the next larger one was tried), 3 tries"),
        "{}",
        run.out
    );
    let json: Value = serde_json::from_str(&std::fs::read_to_string(&record).unwrap()).unwrap();
    assert_eq!((&json["largest_batch"], &json["bounded"]), (&Value::from(4), &Value::Bool(false)));
    let tried: Vec<u64> =
        json["tried"].as_array().unwrap().iter().map(|t| t["batch_size"].as_u64().unwrap()).collect();
    assert_eq!(tried, [1, 2, 4]);
    let again = memfit(&words);
    assert!(again.out.contains(": 11, ") && again.code == 0, "{}{}", again.out, again.err);
}

#[test]
fn a_search_ends_when_its_time_is_over_though_a_try_does_not() {
    let python = interpreter("validate_search_late", "exec sleep 120");
    let words = ["--backend", "cpu", "--search", "--search-seconds", "2"];
    let run = validate(&python, &model("lenet.ts_train"), &words);
    assert!(
        run.out.contains("(the search ended before the next larger one was tried), 0 tries"),
        "{}{}",
        run.out,
        run.err
    );
    assert_eq!(run.code, 1, "{}", run.err);
}

#[test]
fn ctrl_c_leaves_a_record_of_what_was_done() {
    let what = r#"trap 'echo "{\"report\": {$head, \"steps\": 1, \"ended\": {\"kind\": \"interrupted\", \"layer\": \"\", \"function\": \"forward\", \"message\": \"ended by the user\"}}}"; exit 0' INT
echo '{"progress": {"step": 1, "peak_bytes": 5}}'
i=0; while [ $i -lt 200 ]; do sleep 0.1; i=$((i+1)); done"#;
    let python = interpreter("validate_interrupt", what);
    let record = file("validate_interrupt.json", b"");
    std::fs::remove_file(&record).unwrap();
    let lenet = model("lenet.ts_train");
    let words =
        ["validate", &lenet, "-b", "8", "--runner", "torch", "--python", &python, "--record", &record];
    let run = interrupted(&words, "validate_interrupt", 1);
    assert_eq!(run.code, 1, "{}{}", run.out, run.err);
    let json: Value = serde_json::from_str(&std::fs::read_to_string(&record).unwrap()).unwrap();
    assert_eq!((&json["ended"]["kind"], &json["steps"]), (&Value::from("interrupted"), &Value::from(1)));
    described(&json, "measurement");
}

#[test]
fn records_of_a_card_are_its_profile() {
    // The driver is a script too: it shows 700 MiB for every process.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("validate_driver");
    std::fs::create_dir_all(&folder).unwrap();
    let driver = "#!/bin/sh\ncase \"$*\" in *compute-apps*) for p in /proc/[0-9]*; do echo \"${p#/proc/}, 700\"; done;; \
                  *memory.used*) echo 10;; *) exit 1;; esac\n";
    let path = file("validate_driver/nvidia-smi", driver.as_bytes());
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let python = interpreter("validate_card", &format!("sleep 1\n{WELL}"));
    let record = file("validate_card.json", b"");
    let lenet = model("lenet.ts_train");
    let paths = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let words =
        ["validate", &lenet, "-b", "8", "--runner", "torch", "--python", &python, "--record", &record];
    let run: Run = command(&words).env("PATH", paths).stdin(Stdio::null()).output().unwrap().into();
    assert!(run.out.contains("on the device") && run.out.contains("highest"), "{}{}", run.out, run.err);
    let profile = file("validate_profile.json", b"");
    let made = memfit(&["calibrate", &record, "-o", &profile]);
    assert_eq!(made.code, 0, "{}", made.err);
    let json: Value = serde_json::from_str(&std::fs::read_to_string(&profile).unwrap()).unwrap();
    described(&json, "device-profile");
    assert_eq!(json["context"]["expected_bytes"], (700 << 20) - 23_068_672);
    // Without --gpu it is the card that the profile was made on.
    let words = ["estimate", &lenet, "-b", "8", "--device-profile", &profile, "--format", "json"];
    let estimate = memfit(&words).json();
    assert_eq!(estimate["fit"]["gpu"], "a100-40gb");
    let context: u64 =
        estimate["context"].as_array().unwrap().iter().map(|i| i["expected_bytes"].as_u64().unwrap()).sum();
    assert!(context >= (700 << 20) - 23_068_672, "{context}");
    let fit = memfit(&["fit", &lenet, "--device-profile", &profile]);
    assert!(fit.code == 0 && fit.out.contains("a100-40gb"), "{}{}", fit.out, fit.err);
    // It says nothing of other cards.
    let two = memfit(&["fit", &lenet, "--gpu", "t4,a100-40gb", "--device-profile", &profile]);
    let t4 = |text: &str| text.lines().find(|line| line.starts_with("t4")).map(str::to_owned);
    let alone = memfit(&["fit", &lenet, "--gpu", "t4,a100-40gb"]);
    assert!(
        two.code == 0 && t4(&two.out).is_some() && t4(&two.out) == t4(&alone.out),
        "{}{}",
        two.out,
        two.err
    );
    assert_ne!(two.out, alone.out);
    let other = memfit(&["estimate", &lenet, "-b", "8", "--gpu", "t4", "--device-profile", &profile]);
    assert!(other.code == 2 && other.err.contains("none of these cards"), "{}", other.err);
    let wrong = memfit(&["estimate", &lenet, "-b", "8", "--device-profile", &record]);
    assert!(wrong.code == 2 && wrong.err.contains("memfit calibrate writes one"), "{}", wrong.err);
    let none = memfit(&["calibrate", &file("validate_empty.jsonl", b"")]);
    assert!(none.code == 2 && none.err.contains("no record says"), "{}", none.err);
    for (name, text) in [("validate_cut.json", "{\"x\":"), ("validate_none.json", "no\n")] {
        let broken = memfit(&["calibrate", &file(name, text.as_bytes())]);
        assert!(
            broken.code == 2 && broken.err.contains(name) && broken.err.contains("not JSON"),
            "{}",
            broken.err
        );
    }
}

#[test]
fn other_sizes_and_another_limit_are_other_runs() {
    let unet = model("unet.ts_train");
    let run = |python: &str, suite: &str, record: &str, more: &[&str]| {
        let words = ["validate", "--suite", suite, "--runner", "torch", "--python", python];
        memfit(&[&words[..], &["--record", record, "--tolerance", "1000"], more].concat())
    };
    let python = interpreter("validate_sizes", WELL);
    let suite = format!(
        "version = 1\n[[run]]\nmodel = \"{unet}\"\ninput = [\"x:2x3x16x16\"]\n[[run]]\nmodel = \"{unet}\"\ninput = [\"x:2x3x32x32\"]\n"
    );
    let (suite, record) = (file("validate_sizes.toml", suite.as_bytes()), file("validate_sizes.jsonl", b""));
    let first = run(&python, &suite, &record, &[]);
    assert!(first.out.contains("2 run, 0 there already"), "{}{}", first.out, first.err);
    assert!(run(&python, &suite, &record, &[]).out.contains("0 run, 2 there already"));
    let lines = std::fs::read_to_string(&record).unwrap();
    lines.lines().for_each(|line| described(&serde_json::from_str(line).unwrap(), "measurement"));
    // Memory that ran out inside of a limit says nothing of the whole device.
    let python = interpreter("validate_limit", OUT_OF_MEMORY);
    let record = file("validate_limit.jsonl", b"");
    let limit = ["--limit", "2GiB"];
    assert!(run(&python, &suite, &record, &limit).out.contains("2 run, 0 there already"));
    assert!(run(&python, &suite, &record, &limit).out.contains("0 run, 2 there already"));
    assert!(run(&python, &suite, &record, &[]).out.contains("2 run, 0 there already"));
}

#[test]
fn a_keras_file_runs_as_it_was_compiled() {
    let models = format!("{}/models/keras", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(format!("{models}/siamese.json")).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    config["compile_config"] = serde_json::json!({
        "optimizer": {"module": "keras.optimizers", "class_name": "SGD", "registered_name": null,
                      "config": {"momentum": 0.9, "nesterov": false}},
        "loss": "mse", "metrics": null, "jit_compile": false,
    });
    let compiled = file("validate_compiled.json", config.to_string().as_bytes());
    let script = |model: &str, more: &[&str]| {
        let words = ["validate", model, "-b", "2", "--runner", "keras", "--print-script"];
        let run = memfit(&[&words[..], more].concat());
        assert_eq!(run.code, 0, "{}", run.err);
        let settings = run.out.lines().find_map(|line| line.strip_prefix("CONFIG = json.loads(")).unwrap();
        let settings: String = serde_json::from_str(settings.trim_end_matches(')')).unwrap();
        (serde_json::from_str::<Value>(&settings).unwrap(), run.err)
    };
    let (settings, said) = script(&compiled, &[]);
    assert_eq!((&settings["optimizer"]["class"], &settings["xla"]), (&"SGD".into(), &true.into()));
    assert_eq!(settings["optimizer"]["options"]["momentum"], 0.9);
    assert!(said.contains("momentum, as the file was compiled"), "{said}");
    let (settings, said) = script(&compiled, &["--optimizer", "adam", "--checkpoint", "full"]);
    assert_eq!(settings["optimizer"]["class"], "Adam");
    assert!(said.contains("--checkpoint does nothing") && !said.contains("optimizer: "), "{said}");
    // Keras 2 compiles no step with XLA unless it is told to.
    assert_eq!(script(&format!("{models}/k2_func_res.h5"), &[]).0["xla"], false);
    assert_eq!(script(&format!("{models}/k2_func_res.h5"), &["--xla"]).0["xla"], true);
    // A record keeps what is to be known of its plan.
    let python = interpreter("validate_notes", WELL);
    let words = ["--tolerance", "1000", "--xla", "--format"];
    let notes =
        validate(&python, &model("lenet.ts_train"), &[&words[..], &["json"]].concat()).json()["notes"]
            .clone();
    assert!(notes.to_string().contains("--xla does nothing"), "{notes}");
    let text = validate(&python, &model("lenet.ts_train"), &[&words[..], &["text"]].concat()).out;
    assert!(text.contains("note: --xla does nothing"), "{text}");
}
