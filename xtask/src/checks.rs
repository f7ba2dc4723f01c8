//! `cargo xtask test`: every check, one after the other, all failures listed at the end.

use crate::command::{cargo, root, shown, succeeds, watched};
use crate::{lab, lavapipe, setup, tidy, tree, web};
use anyhow::{Result, bail};
use std::process::Command;
use std::time::{Duration, Instant};

/// The crates that also run in a browser.
const PORTABLE: [&str; 7] = [
    "memfit-graph",
    "memfit-onnx",
    "memfit-keras",
    "memfit-engine",
    "memfit-report",
    "memfit-wasm",
    "memfit-web",
];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Runs only these checks
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Leaves these checks out
    #[arg(long, value_name = "NAME")]
    skip: Vec<String>,
}

/// What runs real steps, with all its devices: always these packages with these features, so that it is compiled once.
pub(crate) const DEVICES: [&str; 6] =
    ["--package", "memfit", "--package", "memfit-validate", "--features", "wgpu,cuda"];

/// How a check went.
struct Outcome {
    name: &'static str,
    took: Duration,
    /// What passed and failed inside of it: its tests, or itself.
    passed: usize,
    failed: usize,
}

/// A check: its name, and what it does.
type Check = (&'static str, fn() -> Result<Counts>);

/// How many passed and failed.
#[derive(Clone, Copy, Default)]
struct Counts {
    passed: usize,
    failed: usize,
}

/// All checks, the quick ones first.
const CHECKS: &[Check] = &[
    ("set-up", || setup::run().map(|()| one(true))),
    ("format", || command(cargo().args(["fmt", "--all", "--check"]))),
    ("tidy", || list(&tidy::problems(&root())?)),
    ("dependencies", || list(&tree::problems()?)),
    ("clippy", || command(lint(cargo().args(["clippy", "--workspace", "--all-targets"])))),
    ("clippy-wasm", || {
        setup::wasm()?;
        command(lint(portable(cargo().args(["clippy", "--target", setup::WASM]))))
    }),
    ("test", || tests(&["--workspace", "--no-fail-fast"])),
    ("devices", || {
        let of = ["clippy", "--package", "memfit-validate", "--features", "wgpu,cuda", "--all-targets"];
        command(lint(cargo().args(of)))
    }),
    ("validate", || {
        // What needs an adapter is `lavapipe`'s.
        let of = ["--lib", "--test", "steps", "--test", "values", "--", "--skip", "wgpu"];
        tests(&[&DEVICES[..], &of].concat())
    }),
    ("cuda", || tests(&[&DEVICES[..], &["--test", "cli", "--", "cuda::"]].concat())),
    ("lavapipe", || Ok(one(lavapipe::passes()? != Some(false)))),
    ("doc", || {
        let mut doc = cargo();
        doc.args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings");
        command(&mut doc)
    }),
    ("wasm", || {
        setup::wasm()?;
        let mut build = cargo();
        build.args(["build", "--profile", "quick", "--target", setup::WASM, "--package", "memfit-parity"]);
        Ok(one(command(&mut build)?.failed == 0 && lab::run("parity", &[])?))
    }),
    ("web", || Ok(one(web::test(false)? != web::Verdict::Failed))),
    ("accuracy", || Ok(one(lab::run("accuracy", &["--check".to_owned()])?))),
];

/// Runs the checks; whether all passed.
pub(crate) fn run(options: &Options) -> Result<bool> {
    for name in options.only.iter().chain(&options.skip) {
        if !CHECKS.iter().any(|(known, _)| known == name) {
            let names: Vec<&str> = CHECKS.iter().map(|(name, _)| *name).collect();
            bail!("there is no check `{name}`; the checks are: {}", names.join(", "));
        }
    }
    let wanted = |name: &str| {
        let named = |list: &[String]| list.iter().any(|n| n == name);
        (options.only.is_empty() || named(&options.only)) && !named(&options.skip)
    };
    let begin = Instant::now();
    let outcomes: Vec<Outcome> =
        CHECKS.iter().filter(|(name, _)| wanted(name)).map(|check| time(*check)).collect();

    println!("\n{:<14} {:>9} {:>8} {:>8}", "check", "seconds", "passed", "failed");
    for o in &outcomes {
        println!("{:<14} {:>9.1} {:>8} {:>8}", o.name, o.took.as_secs_f64(), o.passed, o.failed);
    }
    println!("{:<14} {:>9.1}", "in all", begin.elapsed().as_secs_f64());
    let bad: Vec<&str> = outcomes.iter().filter(|o| o.failed > 0).map(|o| o.name).collect();
    if !bad.is_empty() {
        println!("failed: {}", bad.join(", "));
    }
    let sum = |of: fn(&Outcome) -> usize| outcomes.iter().map(of).sum::<usize>();
    println!("{} passed, {} failed", sum(|o| o.passed), sum(|o| o.failed));
    Ok(bad.is_empty() && !outcomes.is_empty())
}

fn time((name, check): Check) -> Outcome {
    println!("\n── {name}");
    let begin = Instant::now();
    let Counts { passed, failed } = check().unwrap_or_else(|error| {
        println!("{error:#}");
        one(false)
    });
    Outcome { name, took: begin.elapsed(), passed, failed }
}

/// A check that counts as itself.
fn one(passed: bool) -> Counts {
    Counts { passed: usize::from(passed), failed: usize::from(!passed) }
}

fn command(command: &mut Command) -> Result<Counts> {
    println!("{}", shown(command));
    Ok(one(succeeds(command)?))
}

fn list(problems: &[String]) -> Result<Counts> {
    for problem in problems {
        println!("{problem}");
    }
    Ok(one(problems.is_empty()))
}

fn lint(clippy: &mut Command) -> &mut Command {
    clippy.args(["--quiet", "--", "-D", "warnings"])
}

fn portable(cargo: &mut Command) -> &mut Command {
    PORTABLE.iter().fold(cargo, |cargo, name| cargo.args(["--package", name]))
}

/// Tests: unit, corpus, end-to-end and those in documentation.
fn tests(which: &[&str]) -> Result<Counts> {
    let mut cargo = cargo();
    cargo.args(["test", "--quiet"]).args(which);
    println!("{}", shown(&cargo));
    let mut counts = Counts::default();
    let succeeded = watched(&mut cargo, |line| {
        if let Some(found) = result_line(line) {
            counts.passed += found.passed;
            counts.failed += found.failed;
        }
    })?;
    // What does not compile has no line of its own.
    if !succeeded && counts.failed == 0 {
        counts.failed = 1;
    }
    Ok(counts)
}

/// `test result: ok. 12 passed; 0 failed; 0 ignored; …`
fn result_line(line: &str) -> Option<Counts> {
    let rest = line.strip_prefix("test result: ")?.split_once(". ")?.1;
    let number =
        |what: &str| rest.split("; ").find_map(|part| part.strip_suffix(what)?.trim().parse::<usize>().ok());
    Some(Counts { passed: number("passed")?, failed: number("failed")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_line_of_a_test_binary_is_counted() {
        let line = "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out";
        let counts = result_line(line).unwrap();
        assert_eq!((counts.passed, counts.failed), (12, 3));
        assert!(result_line("test result_line ... ok").is_none());
    }
}
