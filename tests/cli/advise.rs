//! `memfit advise`.

use crate::models::Builder;
use crate::{file, memfit};

const RESNET: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/models/resnet18.ts_train.onnx");

#[test]
fn advice_is_kept_when_it_is_taken() {
    let args = ["advise", RESNET, "--gpu", "3GiB", "-b", "128", "--format", "json"];
    let run = memfit(&args);
    assert_eq!((run.code, &*run.err), (1, ""));
    let json = run.json();
    assert_eq!(json["now"]["verdict"], "does-not-fit");
    let change = json["combination"]["changes"][0]["name"].as_str().unwrap();
    assert!(json["changes"].as_array().unwrap().iter().any(|c| c["name"] == change));
    let micro = |name: &str| {
        let entry = json["changes"].as_array().unwrap().iter().find(|c| c["name"] == name);
        entry.unwrap()["result"]["verdict"].as_str().unwrap().to_owned()
    };
    assert_eq!(micro("accumulate"), "fits");
    // The same step in micro-batches fits there.
    let pieces = ["2", "4", "8", "16"].iter().find(|pieces| {
        let batch = (128 / pieces.parse::<u64>().unwrap()).to_string();
        memfit(&["estimate", RESNET, "--gpu", "3GiB", "-b", &batch, "--accumulate", pieces]).code == 0
    });
    assert!(pieces.is_some());
}

#[test]
fn what_fits_needs_nothing_and_code_can_be_asked_for() {
    let fits = memfit(&["advise", RESNET, "--gpu", "a100-80gb", "-b", "8", "--code"]);
    assert_eq!(fits.code, 0, "{}", fits.err);
    for words in ["nothing needs to be changed", "expandable_segments:True", "torch.autocast"] {
        assert!(fits.out.contains(words), "no `{words}` in {}", fits.out);
    }
    let no_card = memfit(&["advise", RESNET, "-b", "8"]);
    assert!(no_card.code == 2 && no_card.err.contains("--gpu"), "{}", no_card.err);
}

#[test]
fn what_is_noticed_of_the_file_is_told_by_every_command() {
    const FOLDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/models/resnet18.dyn_eval.onnx");
    let warnings = |command: &str| {
        let step = ["-b", "8", "--gpu", "t4", "--freeze", "nowhere.*"];
        let run = memfit(&[&[command, FOLDED, "--format", "json"][..], &step].concat());
        assert_eq!(run.code, 0, "{}", run.err);
        run.json()["warnings"].clone()
    };
    let told = warnings("estimate");
    assert!(told[0].as_str().unwrap().contains("batch norm"), "{told}");
    assert!(told[1].as_str().unwrap().contains("--freeze nowhere.*"), "{told}");
    assert_eq!((&warnings("fit"), &warnings("advise")), (&told, &told));
}

#[test]
fn a_process_fits_only_with_all_that_it_holds() {
    let args = ["estimate", RESNET, "-b", "8", "--gpu", "4GiB", "--format", "json"];
    for more in
        [["--stale-models", "100"], ["--prefetch-to-device", "100000"], ["--predict-batches", "1000000"]]
    {
        for framework in ["pytorch", "tensorflow"] {
            let run = memfit(&[&args[..], &more, &["--framework", framework]].concat());
            let verdict = &run.json()["fit"]["verdict"];
            assert_eq!((run.code, verdict), (1, &"does-not-fit".into()), "{more:?} {framework}");
        }
    }
}

#[test]
fn code_keeps_the_optimizer_and_its_flags() {
    let code = |args: &[&str]| {
        let run = memfit(&[&["advise", RESNET, "--gpu", "2GiB", "-b", "128", "--code"], args].concat());
        assert!(run.code < 2, "{}", run.err);
        run.out
    };
    let keras = code(&["--framework", "tensorflow", "--optimizer", "momentum", "--global-clipnorm", "1"]);
    assert!(
        keras
            .contains("keras.optimizers.SGD(momentum=0.9, global_clipnorm=1.0, gradient_accumulation_steps=")
    );
    assert!(!keras.contains("Adam"), "{keras}");
    let torch = code(&["--optimizer", "rmsprop", "--global-clipnorm", "1"]);
    assert!(
        torch.contains("clip_grad_norm_(model.parameters(), 1.0)") && !torch.contains("Adam("),
        "{torch}"
    );
}

#[test]
fn smaller_images_keep_their_channels() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/models/keras/mixed_per_layer.keras");
    let json = memfit(&["advise", model, "--gpu", "2GiB", "-b", "64", "--format", "json"]).json();
    let changes = json["changes"].as_array().unwrap();
    let smaller = changes.iter().find(|change| change["name"] == "smaller-images").unwrap();
    let shape = smaller["plan"]["input"].as_object().unwrap().values().next().unwrap();
    assert_eq!((&shape[0], &shape[3], &shape[1]), (&64.into(), &3.into(), &shape[2]), "{shape}");
}

#[test]
fn what_is_wanted_is_what_the_card_grants() {
    let on = |gpu: &str, framework: &str| {
        let step = [RESNET, "-b", "64", "--gpu", gpu, "--framework", framework, "--format", "json"];
        let fit = memfit(&[&["estimate"], &step[..]].concat()).json()["fit"].clone();
        let now = memfit(&[&["advise"], &step[..]].concat()).json()["now"].clone();
        let keys = ["verdict", "reserved_bytes", "usable_bytes"];
        assert_eq!(keys.map(|key| &fit[key]), keys.map(|key| &now[key]), "{gpu} {framework}");
        let (wanted, usable) = (&fit["reserved_bytes"], &fit["usable_bytes"]);
        let within = wanted.as_u64() <= usable.as_u64();
        assert_eq!(within, fit["verdict"] != "does-not-fit", "{gpu} {framework}: {fit}");
        fit["verdict"].clone()
    };
    for framework in ["pytorch", "tensorflow"] {
        let verdicts: Vec<_> =
            (20..44).map(|tenths| on(&format!("{}MiB", tenths * 102), framework)).collect();
        assert!(
            verdicts.iter().any(|v| v == "tight") && verdicts.iter().any(|v| v == "fits"),
            "{verdicts:?}"
        );
    }
}

#[test]
fn code_keeps_what_was_typed_and_names_the_models_own_blocks() {
    let step = ["advise", RESNET, "--gpu", "2GiB", "-b", "128", "--code", "--format", "json"];
    let snippet = |flags: &[&str], name: &str| {
        let json = memfit(&[&step, flags].concat()).json();
        let changes = json["changes"].as_array().unwrap().clone();
        let change = changes.iter().find(|change| change["name"] == name);
        change.unwrap_or_else(|| panic!("no {name} in {json}"))["snippet"].as_str().unwrap().to_owned()
    };
    let blocks = snippet(&[], "checkpoint");
    assert!(blocks.contains("[model.layer1, model.layer2, model.layer3, model.layer4]"), "{blocks}");
    let optimizer = snippet(&["--weight-decay", "0.1"], "lighter-optimizer");
    assert!(optimizer.contains("weight_decay=0.1)"), "{optimizer}");
}

#[test]
fn operators_without_a_rule_are_the_reason_why_nothing_is_sure() {
    let mut unknown = Builder::conv();
    unknown.node("Mystery", "/mystery", &["y"], "z").domain = "acme".into();
    unknown.output("z");
    let model = file("advise_unknown.onnx", &unknown.bytes());
    let text = memfit(&["advise", &model, "-b", "2", "--gpu", "80GiB"]).out;
    assert!(
        text.contains("what some operators need is not known") && !text.contains("larger card"),
        "{text}"
    );
    let config = file(
        "advise_unknown.toml",
        format!("version = 1\n[[model]]\npath = {model:?}\nbatch_size = 2\ngpu = \"80GiB\"\n").as_bytes(),
    );
    let checked = memfit(&["check", &config]).out;
    assert!(checked.contains("what some operators need is not known"), "{checked}");
}

#[test]
fn what_runs_on_burn_is_advised_without_code() {
    let found =
        memfit(&["advise", RESNET, "--framework", "burn", "--gpu", "2GiB", "-b", "128", "--format", "json"])
            .json();
    let changes = found["combination"]["changes"].as_array().unwrap();
    assert!(!changes.is_empty() && changes.iter().all(|change| change["snippet"] == ""), "{found}");
    let names: Vec<&str> =
        found["changes"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"accumulate") && !names.contains(&"retry"), "{names:?}");
    let kept = found["combination"]["result"]["verdict"].as_str().unwrap();
    assert_eq!(kept, "fits");
}
