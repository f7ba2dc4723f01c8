//! `memfit inspect`.

use crate::models::Builder;
use crate::{command, file, memfit, memfit_with_input};
use serde_json::json;
use std::process::Stdio;

#[test]
fn tensors_have_shapes_and_dtypes_and_open_dims_are_null() {
    let model = file("inspect_conv.onnx", &Builder::conv().bytes());
    let open = memfit(&["inspect", &model, "--format", "json"]).json();
    assert_eq!(open["tensors"]["x"], json!({"dtype": "float32", "shape": [null, 3, 8, 8]}));
    let bound = memfit(&["inspect", &model, "-b", "2", "--format", "json"]).json();
    assert_eq!(bound["tensors"]["y"], json!({"dtype": "float32", "shape": [2, 4, 8, 8]}));
    assert_eq!(bound["inputs"], json!(["x"]));
    assert_eq!(bound["outputs"], json!(["y"]));
    assert_eq!(bound["operators"], json!({"Conv": 1, "Relu": 1}));
    assert_eq!((&bound["unknown"], &bound["warnings"]), (&json!([]), &json!([])));
}

#[test]
fn every_way_of_giving_a_batch_gives_the_same() {
    let model = file("inspect_ways.onnx", &Builder::conv().bytes());
    let ways: [&[&str]; 4] =
        [&["-b", "3"], &["--set", "batch=3"], &["--input", "x:3x3x8x8"], &["--input", "3,3,8,8"]];
    for way in ways {
        let run = memfit(&[&["inspect", &model, "--format", "json"], way].concat());
        assert_eq!(run.json()["tensors"]["y"]["shape"], json!([3, 4, 8, 8]), "{way:?}");
    }
}

#[test]
fn values_make_data_dependent_shapes_exact() {
    let model = file("inspect_reshape.onnx", &Builder::reshape().bytes());
    let sizes = ["inspect", &model, "-b", "2", "--set", "seq=6", "--format", "json"];
    assert_eq!(memfit(&sizes).json()["tensors"]["y"]["shape"], json!([null, null]));
    let run = memfit(&[&sizes[..], &["--value", "target=3,-1"]].concat());
    assert_eq!(run.json()["tensors"]["y"]["shape"], json!([3, 16]));
}

#[test]
fn text_shows_names_of_open_dims_and_what_is_unknown() {
    let mut builder = Builder::conv();
    builder.node("Mystery", "/Mystery", &["y"], "z").domain = "com.example".into();
    let run = memfit_with_input(&["inspect", "-"], &builder.bytes());
    assert_eq!((run.code, &*run.err), (0, ""));
    assert!(run.out.contains("batchx3x8x8"), "{}", run.out);
    assert!(
        run.out.lines().any(|l| l.starts_with("com.example.Mystery") && l.contains("no rule")),
        "{}",
        run.out
    );
    assert!(!run.out.contains('\u{1b}'), "no colour where there is no terminal");
}

#[test]
fn colour_is_written_only_where_it_is_wanted() {
    let model = file("inspect_colour.onnx", &Builder::conv().bytes());
    let colours = |args: &[&str], variable: Option<(&str, &str)>| {
        let mut command = command(&[&["inspect", &model], args].concat());
        command.envs(variable);
        String::from_utf8(command.stdin(Stdio::null()).output().unwrap().stdout).unwrap().contains('\u{1b}')
    };
    assert!(!colours(&[], None));
    assert!(colours(&["--color", "always"], None));
    assert!(colours(&[], Some(("CLICOLOR_FORCE", "1"))));
    assert!(!colours(&[], Some(("NO_COLOR", "1"))));
    assert!(!colours(&["--color", "never"], Some(("CLICOLOR_FORCE", "1"))));
}
