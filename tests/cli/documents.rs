//! `memfit report`, `memfit diff` and `memfit check`.

use crate::models::Builder;
use crate::{file, memfit};
use serde_json::json;
use std::fs;
use std::path::Path;

fn model(name: &str) -> String {
    file(name, &Builder::conv().bytes())
}

/// Every integer of a JSON value, and of what a layer holds at the peak the sum too.
fn integers(value: &serde_json::Value, into: &mut Vec<u64>) {
    match value {
        serde_json::Value::Number(n) => into.extend(n.as_u64()),
        serde_json::Value::Array(items) => items.iter().for_each(|item| integers(item, into)),
        serde_json::Value::Object(map) => {
            map.values().for_each(|item| integers(item, into));
            if let Some(state) = map.get("at_peak").and_then(|s| s.as_object()) {
                into.push(state.values().filter_map(serde_json::Value::as_u64).sum());
            }
        }
        _ => {}
    }
}

fn digits(text: &str) -> u64 {
    text[..text.find('"').unwrap()].parse().unwrap()
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
    let mut known = Vec::new();
    integers(&numbers, &mut known);
    let shown: Vec<u64> = html.split("data-n=\"").skip(1).map(digits).collect();
    assert!(shown.len() > 20 && shown.iter().all(|n| known.contains(n)), "{shown:?}");
    let json = memfit(&["report", &model, "-b", "4", "--as", "json"]);
    assert_eq!(json.json(), numbers);
    let csv = memfit(&["report", &model, "-b", "4", "--as", "csv"]).out;
    let column: u64 =
        csv.lines().skip(1).map(|l| l.rsplit(',').nth(1).unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!(Some(column), numbers["peak"]["allocated_bytes"].as_u64());
    assert_eq!(memfit(&["report", &model, "-b", "4", "-o", "x.pdf"]).code, 2);
    // A dash is standard output, of which no name says a kind.
    let at = Path::new(&model).parent().unwrap();
    let dash = |more: &[&str]| -> crate::Run {
        let words = [&["report", &*model, "-b", "4", "-o", "-"], more].concat();
        crate::command(&words).current_dir(at).output().unwrap().into()
    };
    assert_eq!(dash(&[]).out, memfit(&["report", &model, "-b", "4"]).out);
    assert!(dash(&["--as", "html"]).out.starts_with("<!DOCTYPE html>") && !at.join("-").exists());
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
    assert_eq!((run.code, lines.len()), (2, 2));
    assert!(run.err.ends_with("1 of 2 models could not be estimated\n"), "{}", run.err);
    assert!(lines[0]["error"].is_string() && lines[1]["peak"]["device_bytes"].is_u64());
    let out = format!("{folder}-reports");
    assert_eq!(memfit(&["report", &folder, "-b", "2", "-o", &out]).code, 2);
    let index = fs::read_to_string(format!("{out}/index.html")).unwrap();
    assert!(index.contains("good.onnx.html") && index.contains("bad.onnx"));
}

#[test]
fn models_of_a_folder_do_not_share_a_document() {
    let flat = model("report_names/a__b.onnx");
    model("report_names/a/b.onnx");
    let folder = Path::new(&flat).parent().unwrap().to_str().unwrap().to_owned();
    let out = format!("{folder}-reports");
    let run = memfit(&["report", &folder, "-b", "2", "-o", &out]);
    assert_eq!((run.code, &*run.err), (0, ""));
    let index = fs::read_to_string(format!("{out}/index.html")).unwrap();
    for document in ["a/b.onnx.html", "a__b.onnx.html"] {
        assert!(index.contains(&format!("\"./{document}\"")), "{index}");
        assert!(Path::new(&format!("{out}/{document}")).is_file());
    }
}

#[test]
fn a_folder_is_read_again_where_the_card_changed() {
    let model = model("report_profile/conv.onnx");
    let folder = Path::new(&model).parent().unwrap();
    let (profile, out) = (folder.join("card.json"), folder.with_extension("jsonl"));
    let device = |bytes: u64| {
        let span = |n: u64| json!({"low_bytes": n, "expected_bytes": n, "high_bytes": n});
        let said = json!({
            "schema_version": 1, "device": "rtx-3060", "framework": "pytorch", "framework_version": "2.15.0",
            "records": 1, "context": span(bytes), "workspace": span(0),
            "slack": {"less_thousandths": 0, "more_thousandths": 0},
        });
        fs::write(&profile, said.to_string()).unwrap();
        let flags = ["-b", "2", "--device-profile", profile.to_str().unwrap(), "-o", out.to_str().unwrap()];
        let run = memfit(&[&["report", folder.to_str().unwrap()], &flags[..]].concat());
        assert_eq!((run.code, &*run.err), (0, ""));
        let line: serde_json::Value = serde_json::from_str(&fs::read_to_string(&out).unwrap()).unwrap();
        line["peak"]["device_bytes"].as_u64().unwrap()
    };
    assert_eq!(device(300 << 20) + (100 << 20), device(400 << 20));
}

#[test]
fn a_model_differs_from_itself_in_nothing() {
    let model = model("diff_same.onnx");
    let same = memfit(&["diff", &model, &model, "-b", "4", "--format", "json"]);
    let found = same.json();
    assert_eq!((same.code, &found["same"], &found["layers"]), (0, &json!(true), &json!([])));
}

#[test]
fn a_check_is_of_the_whole_process() {
    let model = model("check_process.onnx");
    let folder = Path::new(&model).parent().unwrap().join("check_process");
    fs::create_dir_all(&folder).unwrap();
    let config = folder.join("memfit.toml");
    let check = |keys: &str| {
        let of_all = "version = 1\n[[model]]\nbatch_size = 4\ngpu = \"4GiB\"\n";
        fs::write(&config, format!("{of_all}path = {model:?}\n{keys}\n")).unwrap();
        memfit(&["check", config.to_str().unwrap(), "--format", "json"])
    };
    let rules = |keys: &str| check(keys).json()["models"][0]["findings"].to_string();
    assert_eq!(rules(""), "[]");
    for keys in ["validation_batch = 2000000", "prefetch_to_device = 2000000", "stack = \"others 3.9GiB\""] {
        assert!(rules(keys).contains("does-not-fit"), "{keys}: {}", rules(keys));
    }
    // A budget is one of all that is alive.
    let budget = |process: &str| {
        let step = check("").json()["models"][0]["device_bytes"].as_u64().unwrap();
        rules(&format!("budget = \"{}MiB\"\n{process}", (step >> 20) + 1))
    };
    assert_eq!(budget(""), "[]");
    assert!(budget("prefetch_to_device = 10000").contains("over-budget"));
    assert!(budget(&format!("with = [{model:?}]\npredict_batches = 1000000")).contains("over-budget"));
}

#[test]
fn every_path_of_a_configuration_is_beside_it() {
    let conv = fs::read(model("beside_conv.onnx")).unwrap();
    file("beside/models/a.onnx", &conv);
    file("beside/models/b.onnx", &conv);
    let profile = r#"{"schema_version": 1, "device": "NVIDIA A100-SXM4-40GB", "device_total_bytes": 42298834944, "framework": "pytorch",
        "framework_version": "torch 2", "driver": null, "records": 1,
        "context": {"low_bytes": 1, "expected_bytes": 2, "high_bytes": 3}, "workspace": {"low_bytes": 0, "expected_bytes": 0, "high_bytes": 0},
        "slack": {"less_thousandths": 0, "more_thousandths": 0}}"#;
    file("beside/profile.json", profile.as_bytes());
    let text = "version = 1\n[[model]]\npath = \"models/a.onnx\"\nbatch_size = 4\nwith = [\"models/b.onnx\"]\n\
                with_frozen = [\"models/b.onnx\"]\ndevice_profile = \"profile.json\"\n";
    // The working folder is another.
    let run = memfit(&["check", &file("beside/memfit.toml", text.as_bytes())]);
    assert_eq!(run.code, 0, "{}{}", run.out, run.err);
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
    assert_eq!(crate::schema::against(include_str!("sarif/schema.json"), &sarif), [""; 0]);
    assert_eq!(sarif["runs"][0]["results"][0]["ruleId"], json!("over-budget"));
    assert!(check(&["--format", "github"]).out.starts_with("::error file="));
    // A model that is missing does not hide the others, and is no finding about them.
    write("budget = \"1MiB\"\n[[model]]\npath = \"gone.onnx\"");
    let json = check(&["--format", "json"]);
    let said: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    let rule = |model: usize| said["models"][model]["findings"][0]["rule"].as_str();
    assert_eq!((json.code, rule(0), rule(1)), (2, Some("over-budget"), Some("not-estimated")));
    let text = check(&["--update"]);
    assert!(text.out.contains("error: ") && text.out.contains("gone.onnx: no such file"), "{}", text.out);
    assert!(
        text.err.contains("1 of 2 models could not be estimated; the baseline was not written"),
        "{}",
        text.err
    );
    // A baseline that is damaged is told, and written anew where that is asked for.
    write("budget = \"100GiB\"");
    fs::write(folder.join("base.json"), "{\"conv\": ").unwrap();
    let damaged = check(&[]);
    assert!(damaged.code == 2 && damaged.err.contains("--update writes it anew"), "{}", damaged.err);
    assert_eq!((check(&["--update"]).code, check(&[]).code), (0, 0));
    assert!(fs::read_to_string(folder.join("base.json")).unwrap().contains("\"conv\": "));
    write("no_such_flag = 1");
    let bad = check(&[]);
    assert!(bad.code == 2 && bad.err.contains("--no-such-flag"), "{}", bad.err);
    // All that is wrong is told at once, and two models are not kept under one name.
    write(
        "budget = 5\nmax_growth = \"much\"\n[[model]]\npath = \"a.onnx\"\n[[model]]\npath = \"a.onnx\"\n[[model]]",
    );
    let bad = check(&[]);
    for said in [
        "budget should be text in quotes, found integer",
        "much",
        "a.onnx: is listed twice",
        "name = \"…\"",
        "a path = ",
    ] {
        assert!(bad.code == 2 && bad.err.contains(said), "{said}: {}", bad.err);
    }
}

/// More than a thousand models: bad ones among them, stopped in the middle, gone on with, the same to the byte as without a stop.
#[cfg(unix)]
#[test]
fn a_large_folder_is_gone_on_with_after_a_stop() {
    let bytes = Builder::conv().bytes();
    let folder = file("many/first.onnx", &bytes);
    let folder = Path::new(&folder).parent().unwrap();
    for i in 0..1_200 {
        let text = if i % 100 == 7 { b"no model".to_vec() } else { bytes.clone() };
        fs::write(folder.join(format!("m{i}.onnx")), text).unwrap();
    }
    let models = folder.to_str().unwrap();
    let (whole, stopped) = (format!("{models}-whole"), format!("{models}-stopped"));
    for out in [&whole, &stopped] {
        let _ = fs::remove_dir_all(out);
    }
    assert_eq!(memfit(&["report", models, "-b", "2", "-o", &whole]).code, 2);
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_memfit"))
        .args(["report", models, "-b", "2", "-o", &stopped])
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let notes = format!("{stopped}/.memfit-done.jsonl");
    let count = || fs::read_to_string(&notes).map_or(0, |text| text.lines().count());
    while count() < 50 && child.try_wait().unwrap().is_none() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // What was done is not done again: a document that was changed since is left alone, because its model was not.
    let kept = fs::read_to_string(&notes).unwrap();
    let kept = kept.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let kept = kept.into_iter().find(|note| note["error"].is_null()).unwrap();
    let kept = format!("{stopped}/{}", kept["document"].as_str().unwrap());
    let text = fs::read(&kept).unwrap();
    fs::write(&kept, "mine").unwrap();
    let again = memfit(&["report", models, "-b", "2", "-o", &stopped]);
    assert_eq!((again.code, again.err.matches("warning:").count()), (2, 12));
    assert_eq!(fs::read_to_string(&kept).unwrap(), "mine");
    fs::write(&kept, text).unwrap();
    let documents = |out: &str| {
        let entries = fs::read_dir(out).unwrap().map(|entry| entry.unwrap().path());
        let read =
            |path: std::path::PathBuf| (path.file_name().unwrap().to_owned(), fs::read(&path).unwrap());
        let mut all: Vec<_> = entries.map(read).filter(|(name, _)| name != ".memfit-done.jsonl").collect();
        all.retain(|(name, _)| !name.to_string_lossy().ends_with(".part"));
        all.sort();
        all
    };
    assert!(documents(&whole) == documents(&stopped) && documents(&whole).len() == 1_190);
    // Other flags are another question.
    memfit(&["report", models, "-b", "3", "-o", &stopped]);
    assert!(fs::read_to_string(&kept).unwrap().contains("batch 3"));
}

/// A file of lines whose run was stopped is gone on with: what is there is kept, and the end is the same as without a stop.
#[test]
fn lines_are_gone_on_with_after_a_stop() {
    let bytes = Builder::conv().bytes();
    let folder = file("lines/a.onnx", &bytes);
    let folder = Path::new(&folder).parent().unwrap();
    fs::write(folder.join("b.onnx"), b"no model").unwrap();
    for name in ["c.onnx", "d.onnx"] {
        fs::write(folder.join(name), &bytes).unwrap();
    }
    let _ = fs::remove_file(folder.join(".out.jsonl.memfit-done.jsonl"));
    let _ = fs::remove_file(folder.join("e.onnx"));
    let out = folder.join("out.jsonl");
    let _ = fs::remove_file(&out);
    let report = |batch: &str| {
        let (models, out) = (folder.join("*.onnx"), out.to_str().unwrap());
        memfit(&["report", models.to_str().unwrap(), "-b", batch, "--as", "jsonl", "-o", out]).code
    };
    let read = || fs::read_to_string(&out).unwrap();
    assert_eq!(report("2"), 2);
    let whole = read();
    assert_eq!(whole.lines().count(), 4);
    // Two lines and a half were written, and the first of them is told from one that is written again.
    let cut = whole.lines().take(2).map(str::len).sum::<usize>() + 2 + 10;
    let marked = whole.replacen("schema_version", "SCHEMA_version", 1);
    fs::write(&out, &marked[..cut]).unwrap();
    assert_eq!(report("2"), 2);
    assert_eq!(read(), marked);
    // A model that changed is read again, and those after it; so are all under other flags.
    fs::write(folder.join("b.onnx"), &bytes).unwrap();
    assert_eq!(report("2"), 0);
    assert!(read().starts_with(marked.lines().next().unwrap()) && !read().contains("\"error\""));
    assert_eq!(report("3"), 0);
    assert!(!read().contains("SCHEMA_version"));
    // Models that went or have another name take their lines with them.
    let files = || {
        let text = read();
        let files =
            text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["file"].clone());
        files.map(|file| file.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    fs::remove_file(folder.join("a.onnx")).unwrap();
    assert_eq!((report("3"), files()), (0, ["b.onnx", "c.onnx", "d.onnx"].map(String::from).to_vec()));
    fs::rename(folder.join("b.onnx"), folder.join("e.onnx")).unwrap();
    assert_eq!((report("3"), files()), (0, ["c.onnx", "d.onnx", "e.onnx"].map(String::from).to_vec()));
}

#[test]
fn a_glob_names_models() {
    for name in ["globbed/a1.onnx", "globbed/a2.onnx", "globbed/b1.onnx"] {
        model(name);
    }
    let folder = Path::new(&file("globbed/a1.onnx", &Builder::conv().bytes())).parent().unwrap().to_owned();
    let run = memfit(&["report", &format!("{}/a*.onnx", folder.display()), "-b", "2", "--as", "jsonl"]);
    assert_eq!((run.code, run.out.lines().count()), (0, 2));
    assert_eq!(memfit(&["report", &format!("{}/z*", folder.display()), "--as", "jsonl"]).code, 2);
}
