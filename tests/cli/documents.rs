//! `memfit report`, `memfit diff` and `memfit check`.

use crate::models::Builder;
use crate::{file, memfit};
use serde_json::json;
use std::fs;
use std::path::Path;

fn model(name: &str) -> String {
    file(name, &Builder::conv().bytes())
}

#[test]
fn a_document_is_chosen_by_its_name_and_says_what_the_json_does() {
    let model = model("report_conv.onnx");
    let numbers = memfit(&["estimate", &model, "-b", "4", "--format", "json"]).json();
    let device = numbers["peak"]["device_bytes"].as_u64().unwrap().to_string();
    let page = model.replace(".onnx", ".html");
    for _ in 0..2 {
        let run = memfit(&["report", &model, "-b", "4", "-o", &page]);
        assert_eq!((run.code, &*run.err), (0, ""));
    }
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.starts_with("<!DOCTYPE html>") && html.contains(&device));
    let json = memfit(&["report", &model, "-b", "4", "--as", "json"]);
    assert_eq!(json.json(), numbers);
    let csv = memfit(&["report", &model, "-b", "4", "--as", "csv"]).out;
    let column: u64 =
        csv.lines().skip(1).map(|l| l.rsplit(',').nth(1).unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!(Some(column), numbers["peak"]["allocated_bytes"].as_u64());
    assert_eq!(memfit(&["report", &model, "-b", "4", "-o", "x.pdf"]).code, 2);
    let shields = memfit(&["report", &model, "-b", "4", "--as", "shields"]).json();
    assert_eq!(shields["schemaVersion"], json!(1));
}

#[test]
fn one_bad_file_of_a_folder_does_not_stop_the_rest() {
    let good = model("report_folder/good.onnx");
    let folder = Path::new(&good).parent().unwrap().to_str().unwrap().to_owned();
    fs::write(format!("{folder}/bad.onnx"), b"not a model").unwrap();
    let run = memfit(&["report", &folder, "-b", "2", "--as", "jsonl"]);
    let lines: Vec<serde_json::Value> = run.out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!((run.code, lines.len()), (1, 2));
    assert!(lines[0]["error"].is_string() && lines[1]["peak"]["device_bytes"].is_u64());
    let out = format!("{folder}-reports");
    assert_eq!(memfit(&["report", &folder, "-b", "2", "-o", &out]).code, 1);
    let index = fs::read_to_string(format!("{out}/index.html")).unwrap();
    assert!(index.contains("good.onnx.html") && index.contains("bad.onnx"));
}

#[test]
fn a_model_differs_from_itself_in_nothing() {
    let model = model("diff_same.onnx");
    let same = memfit(&["diff", &model, &model, "-b", "4", "--format", "json"]);
    let found = same.json();
    assert_eq!((same.code, &found["same"], &found["layers"]), (0, &json!(true), &json!([])));
}

#[test]
fn budgets_and_growth_are_gates() {
    let model = model("check_conv.onnx");
    let folder = Path::new(&model).parent().unwrap().join("check");
    fs::create_dir_all(&folder).unwrap();
    let config = folder.join("memfit.toml");
    let write = |more: &str| {
        let text = format!(
            "version = 1\nbaseline = \"base.json\"\n[[model]]\npath = {model:?}\nname = \"conv\"\nbatch_size = 4\n{more}\n"
        );
        fs::write(&config, text).unwrap();
    };
    let check = |more: &[&str]| memfit(&[&["check", config.to_str().unwrap()], more].concat());
    let _ = fs::remove_file(folder.join("base.json"));
    write("budget = \"100GiB\"\nmax_growth = \"0.0%\"");
    let first = check(&["--format", "json"]).json();
    assert_eq!(first["models"][0]["findings"][0]["rule"], json!("no-baseline"));
    assert_eq!(check(&["--update"]).code, 0);
    assert_eq!(check(&[]).code, 0);
    write("budget = \"1MiB\"\nmax_growth = \"0.0%\"\nprecision = \"fp32\"\noptimizer = \"sgd\"");
    assert_eq!(check(&[]).code, 1);
    let sarif = check(&["--format", "sarif"]).json();
    assert_eq!(sarif["runs"][0]["results"][0]["ruleId"], json!("over-budget"));
    assert!(check(&["--format", "github"]).out.starts_with("::error file="));
    write("no_such_flag = 1");
    let bad = check(&[]);
    assert!(bad.code == 2 && bad.err.contains("--no-such-flag"), "{}", bad.err);
}
