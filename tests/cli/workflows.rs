//! The action and the workflow pair of docs/ci, without a code host: their scripts are taken out of the YAML and run as a runner does,
//! with a hostile artifact too. Skipped where bash or Node.js is absent.

use crate::{file, memfit};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};
use std::{env, fs};

/// The block of text that stands below `key` in a YAML file, without its indentation.
fn block<'a>(yaml: &'a str, key: &str) -> String {
    let mut rows = yaml.lines().skip_while(|row| row.trim() != key).skip(1).peekable();
    let indent = rows.peek().map_or(0, |row| row.len() - row.trim_start().len());
    let inside = |row: &&'a str| row.trim().is_empty() || row.len() - row.trim_start().len() >= indent;
    rows.take_while(inside).map(|row| format!("{}\n", row.get(indent..).unwrap_or_default())).collect()
}

fn runs(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        println!("skipped: no {program}");
    }
    found
}

/// The action's check of a configuration: its status, what it says, its outputs, and the text for the comment.
fn action(folder: &Path, config: &str) -> (Option<i32>, String, String, String) {
    let yaml = include_str!("../../action.yml");
    let check = &yaml[yaml.find("id: check").unwrap()..];
    let script = folder.join("check.sh");
    fs::write(&script, block(check, "run: |")).unwrap();
    let memfit = Path::new(env!("CARGO_BIN_EXE_memfit")).parent().unwrap();
    let path = format!("{}:{}", memfit.display(), env::var("PATH").unwrap());
    let output = folder.join("output");
    fs::write(&output, "").unwrap();
    let run: Output = Command::new("bash")
        .args(["--noprofile", "--norc", "-eo", "pipefail"])
        .arg(&script)
        .current_dir(folder)
        .envs([("PATH", path.as_str()), ("CONFIG", config), ("MARKDOWN", "memfit.md")])
        .envs([("GITHUB_OUTPUT", &output), ("GITHUB_STEP_SUMMARY", &folder.join("summary"))])
        .output()
        .unwrap();
    let text = |path: &Path| fs::read_to_string(path).unwrap();
    (
        run.status.code(),
        String::from_utf8(run.stdout).unwrap(),
        text(&output),
        text(&folder.join("memfit.md")),
    )
}

#[test]
fn the_action_writes_annotations_an_output_and_a_comment() {
    if !runs("bash") {
        return;
    }
    let hostile = "a|b <img src=x> @all\n::error::x.onnx";
    let first = file("action/memfit.toml", b"");
    let folder = Path::new(&first).parent().unwrap();
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/models/lenet.ts_train.onnx");
    fs::copy(model, folder.join(hostile)).unwrap();
    let config = |budget: &str| {
        let path = json!(hostile);
        format!("version = 1\n[[model]]\npath = {path}\nbatch_size = 2\nbudget = \"{budget}\"\n")
    };
    fs::write(&first, config("90GiB")).unwrap();
    let (status, said, output, text) = action(folder, "memfit.toml");
    assert_eq!((status, said.as_str(), output.as_str()), (Some(0), "", "passed=true\n"));
    assert!(text.starts_with("### GPU memory\n"));

    fs::write(&first, config("1MiB")).unwrap();
    let (status, said, output, text) = action(folder, "memfit.toml");
    assert_eq!((status, output.as_str()), (Some(1), "passed=false\n"));
    // One annotation and one row, whatever the name is.
    assert_eq!(said.lines().filter(|row| row.starts_with("::")).count(), 1, "{said}");
    let rows: Vec<&str> = text.lines().filter(|row| row.contains("onnx")).collect();
    assert!(rows.len() == 1 && rows[0].starts_with("| ❌ | a\\|b &lt;img"), "{text}");

    let (status, _, output, text) = action(folder, "absent.toml");
    assert_eq!((status, output.as_str()), (Some(2), "passed=false\n"));
    assert!(text.contains("could not run"), "{text}");
    assert_eq!(memfit(&["check", folder.join("absent.toml").to_str().unwrap()]).code, 2);
}

/// What the trusted job does with an artifact: what it asked of the code host, or why it did nothing.
fn comment(folder: &Path, comments: &Value, head: &str) -> Value {
    let harness = r#"
        const [folder, comments, head] = process.argv.slice(2);
        process.env.FOLDER = folder;
        const calls = [];
        const call = (name) => async (what) => { calls.push({ name, ...what }); };
        const issues = { updateComment: call("update"), createComment: call("create") };
        const pulls = { get: async () => ({ data: { head: { sha: "abc" } } }) };
        const github = { rest: { pulls, issues }, paginate: async () => JSON.parse(comments) };
        const context = { repo: { owner: "o", repo: "r" }, payload: { workflow_run: { head_sha: head } } };
        const script = async () => {
SCRIPT
        };
        script().then(() => console.log(JSON.stringify(calls)), (error) => console.log(JSON.stringify(error.message)));
    "#;
    let script = block(include_str!("../../docs/ci/memfit-comment.yml"), "script: |");
    let path = file("comment.cjs", harness.replace("SCRIPT", &script).as_bytes());
    let run =
        Command::new("node").arg(path).arg(folder).args([&comments.to_string(), head]).output().unwrap();
    serde_json::from_slice(&run.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&run.stderr)))
}

#[test]
fn the_comment_takes_nothing_but_text_and_a_number() {
    if !runs("node") {
        return;
    }
    let number = file("artifact/number", b"7\n");
    let text = file("artifact/memfit.md", b"### GPU memory\n@everyone\n");
    let folder = Path::new(&number).parent().unwrap();
    let made = comment(folder, &json!([]), "abc");
    assert_eq!((&made[0]["name"], &made[0]["issue_number"]), (&json!("create"), &json!(7)));
    assert_eq!(made[0]["body"], json!("<!-- memfit -->\n### GPU memory\n@\u{200b}everyone\n"));
    let own = json!({"id": 5, "user": {"login": "github-actions[bot]"}, "body": "<!-- memfit -->\nold"});
    let other = json!({"id": 4, "user": {"login": "someone"}, "body": "<!-- memfit -->\nold"});
    let updated = comment(folder, &json!([other, own]), "abc");
    assert_eq!((&updated[0]["name"], &updated[0]["comment_id"]), (&json!("update"), &json!(5)));

    assert_eq!(comment(folder, &json!([]), "def"), json!("another pull request's run"));
    for wrong in ["0", "-3", "7; id", "9e99", "7\n8", ""] {
        fs::write(&number, wrong).unwrap();
        assert_eq!(comment(folder, &json!([]), "abc"), json!("no pull request"), "{wrong}");
    }
    fs::write(&number, "7").unwrap();
    fs::write(&text, "x".repeat(100_000)).unwrap();
    assert!(comment(folder, &json!([]), "abc")[0]["body"].as_str().unwrap().len() < 65_536);
    fs::write(&text, "x".repeat(2_000_000)).unwrap();
    assert!(comment(folder, &json!([]), "abc").is_string());
    #[cfg(unix)]
    {
        fs::remove_file(&text).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", &text).unwrap();
        assert!(comment(folder, &json!([]), "abc").is_string());
        fs::remove_file(&text).unwrap();
    }
}
