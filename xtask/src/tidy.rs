//! The repository's habits as a check: headers, sizes, no leftovers, links that lead somewhere.

use crate::command::{output, program};
use anyhow::Result;
use std::path::Path;

/// Lines of a source file, its tests excluded.
const MOST_LINES: usize = 400;
/// Lines of the description of the architecture.
const MOST_LINES_OF_ARCHITECTURE: usize = 200;

/// What must stand nowhere: leftovers, and places of one machine. Written in halves so that this file passes.
const FORBIDDEN: &[(&str, &str)] = &[
    (concat!("FIX", "ME"), "unfinished"),
    (concat!("TO", "DO"), "unfinished"),
    (concat!("to", "do!("), "unfinished"),
    (concat!("unimpl", "emented!("), "unfinished"),
    (concat!("#[ig", "nore"), "a test that nobody runs"),
    (concat!(" /ho", "me/"), "a path of one machine"),
    (concat!("\"/ho", "me/"), "a path of one machine"),
    (concat!("/wo", "rk/"), "a path of one machine"),
    (concat!("/op", "t/"), "a path of one machine"),
    (concat!("/tm", "p/"), "a path of one machine"),
    (concat!("debian", ".org"), "a host of one registry"),
    (concat!("index.crates", ".io"), "a host of one registry"),
    (concat!("pypi", ".org"), "a host of one registry"),
    (concat!("registry.npm", "js"), "a host of one registry"),
];

/// Printing belongs to the hosts.
const PRINTS: &[&str] = &["println!", "print!", "eprintln!", "eprint!", "dbg!"];

/// A text file of the repository.
struct File<'a> {
    path: &'a str,
    text: &'a str,
}

/// A habit: the problems of one file that break it.
type Habit = fn(&File) -> Vec<String>;

const HABITS: &[Habit] = &[header, size, printing, leftovers, lints, links];

/// Every problem, with the file it is in.
pub(crate) fn problems(root: &Path) -> Result<Vec<String>> {
    let list = output(program("git").args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"]))?;
    let mut problems = Vec::new();
    for path in list.split('\0').filter(|path| !path.is_empty() && is_text(path)) {
        let Ok(text) = std::fs::read_to_string(root.join(path)) else { continue };
        let file = File { path, text: &text };
        problems.extend(HABITS.iter().flat_map(|habit| habit(&file)).map(|p| format!("{path}{p}")));
    }
    Ok(problems)
}

fn is_text(path: &str) -> bool {
    let endings = ["rs", "md", "toml", "sh", "py", "html", "css", "js", "ts", "yml", "yaml"];
    let ending = Path::new(path).extension().and_then(|e| e.to_str());
    ending.is_some_and(|e| endings.contains(&e)) || path == ".ci/run"
}

fn is_rust(file: &File) -> bool {
    file.path.ends_with(".rs")
}

/// The lines with their numbers, up to the tests.
fn code<'a>(file: &File<'a>) -> impl Iterator<Item = (usize, &'a str)> {
    (1..).zip(file.text.lines()).take_while(|(_, line)| !line.starts_with("#[cfg(test)]"))
}

/// A file of code says at its top what it is and why.
fn header(file: &File) -> Vec<String> {
    let absent = is_rust(file) && !file.text.starts_with("//!");
    absent.then(|| ": it does not begin with a `//!` header".to_owned()).into_iter().collect()
}

fn size(file: &File) -> Vec<String> {
    let is_test = file.path.split('/').any(|part| part == "tests" || part == "benches");
    let (lines, most) = match file.path {
        "docs/ARCHITECTURE.md" => (file.text.lines().count(), MOST_LINES_OF_ARCHITECTURE),
        _ if is_rust(file) && !is_test => (code(file).count(), MOST_LINES),
        _ => return Vec::new(),
    };
    (lines > most).then(|| format!(": {lines} lines, {most} at most")).into_iter().collect()
}

/// Library crates do not print.
fn printing(file: &File) -> Vec<String> {
    if !(is_rust(file) && file.path.starts_with("crates/") && file.path.contains("/src/")) {
        return Vec::new();
    }
    let prints = |line: &str| {
        let line = line.trim_start();
        !line.starts_with("//")
            && PRINTS.iter().any(|p| line.starts_with(p) || line.contains(&format!(" {p}")))
    };
    let found = code(file).filter(|(_, line)| prints(line));
    found.map(|(number, _)| format!(":{number}: a library crate does not print")).collect()
}

fn leftovers(file: &File) -> Vec<String> {
    let mut problems = Vec::new();
    for (number, line) in (1..).zip(file.text.lines()) {
        let found = FORBIDDEN.iter().filter(|(word, _)| line.contains(word));
        problems.extend(found.map(|(word, why)| format!(":{number}: `{}`: {why}", word.trim())));
    }
    problems
}

/// Every crate is under the workspace's lints, or lists its own. Fuzz targets are a workspace apart.
fn lints(file: &File) -> Vec<String> {
    let absent =
        !file.path.contains("/fuzz/") && file.path.ends_with("Cargo.toml") && !file.text.contains("[lints");
    absent.then(|| ": no [lints] table".to_owned()).into_iter().collect()
}

/// A link to a file of the repository leads to one.
fn links(file: &File) -> Vec<String> {
    if !file.path.ends_with(".md") {
        return Vec::new();
    }
    let here = Path::new(file.path).parent().unwrap_or(Path::new(""));
    let mut problems = Vec::new();
    for (number, line) in (1..).zip(file.text.lines()) {
        for target in
            line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
        {
            let target = target.split(['#', ' ']).next().unwrap_or_default();
            let outside = target.is_empty() || target.contains("://") || target.starts_with("mailto:");
            if !outside && !crate::command::root().join(here).join(target).exists() {
                problems.push(format!(":{number}: the link to `{target}` leads nowhere"));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        HABITS.iter().map(|habit| habit(&File { path, text }).len()).sum()
    }

    #[test]
    fn each_habit_is_seen_broken() {
        assert_eq!(found("crates/a/src/b.rs", "//! Good.\nfn f() {}\n"), 0);
        assert_eq!(found("crates/a/src/b.rs", "fn f() {}\n"), 1);
        assert_eq!(found("crates/a/src/b.rs", "//! x\nfn f() { println!(); }\n"), 1);
        assert_eq!(found("crates/a/src/b.rs", "//! x\n#[cfg(test)]\nmod t { println!(); }\n"), 0);
        assert_eq!(found("src/b.rs", &format!("//! x {}\n", concat!("TO", "DO"))), 1);
        assert_eq!(found("Cargo.toml", "[package]\n"), 1);
        assert_eq!(found("x.md", "[a](Cargo.toml) [b](no.md) [c](https://x.y/z)\n"), 1);
    }

    #[test]
    fn tests_do_not_count_as_lines() {
        let long = format!("//! x\n{}", "fn f() {}\n".repeat(MOST_LINES));
        assert_eq!(found("src/a.rs", &long), 1);
        assert_eq!(found("src/a.rs", &format!("//! x\n#[cfg(test)]\n{long}")), 0);
        assert_eq!(found("tests/a.rs", &long), 0);
    }
}
