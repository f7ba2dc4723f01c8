//! `cargo xtask peers`: memfit and other tools, on the same machine, in the same minutes; writes `docs/performance.md`.
//!
//! Every program is started several times and watched from outside: how long it takes from its start to its end, and
//! how much memory it holds at most. How long the work alone takes, each tool says itself; `page` says what that is.

mod page;
mod watch;

use crate::command::{cargo, output, program, root, shown, succeeds};
use crate::python;
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use watch::{Watched, watch};

/// The model that all tools read, and the batch size.
const MODEL: &str = "models/resnet50.ts_train.onnx";
const BATCH: &str = "32";
/// How often each program is started; the median counts.
const STARTS: usize = 5;
/// How often a tool repeats its work inside of one start; the median counts.
const REPEATS: &str = "5";
/// The same for estimates of a model that is ready.
const ESTIMATES: &str = "101";

/// Lengths of the transformers that show how time grows.
const NODES: [u32; 4] = [1250, 2500, 5000, 10000];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// A Python that has onnx, torch and torchvision, instead of a new environment in target/peers
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
}

/// memfit alone on one model.
struct Growth {
    model: String,
    nodes: Option<u32>,
    /// Seconds from the file to the answer.
    from_file: f64,
    /// Seconds of an estimate once the model is ready.
    ready: f64,
}

/// One line of the table.
struct Line {
    task: &'static str,
    tool: String,
    watched: Watched,
    /// Seconds of the work alone.
    work: f64,
    answer: String,
    /// Seconds of a part of the work that others are timed at alone.
    part: Option<f64>,
}

/// Measures and writes the page.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let python = match &options.python {
        Some(python) => python.clone(),
        None => python::environment("peers", "onnx, torch, torchvision")?,
    };
    let mut build = cargo();
    build.args(["build", "--release", "--package", "memfit", "--package", "lab"]);
    if !succeeds(&mut build)? {
        bail!("`{}` failed", shown(&build));
    }
    let release = root().join("target/release");
    let large = root().join("target/large.onnx").to_string_lossy().into_owned();
    output(&mut call(&release.join("lab"), &["make", &large]))?;

    let memfit = |arguments: &[&str]| call(&release.join("memfit"), arguments);
    let timed = |work: &str, file: &str, batch: &str, repeats: &str| {
        call(&release.join("lab"), &["time", work, file, batch, repeats])
    };
    let lab = |work: &str, file: &str, batch: &str| timed(work, file, batch, REPEATS);
    let script = |name: &str, arguments: &[&str]| {
        let path = root().join("xtask/peers").join(name);
        call(&python, &[&[&*path.to_string_lossy()], arguments].concat())
    };
    let before = page::load_average();
    let shapes = "the shape of every tensor of ResNet-50";
    let peak = "the peak of one training step of ResNet-50";
    let opening = "opening a file with 2 GiB of weights inside";
    let inspect = line(shapes, memfit(&["inspect", MODEL, "-b", BATCH]), lab("inspect", MODEL, BATCH))?;
    let (_, _, infer) = told(&mut timed("infer", MODEL, BATCH, ESTIMATES))?;
    let lines = [
        Line { part: Some(infer), ..inspect },
        line(
            shapes,
            script("onnx_shapes.py", &[MODEL, BATCH, "1"]),
            script("onnx_shapes.py", &[MODEL, BATCH, REPEATS]),
        )?,
        line(peak, memfit(&["estimate", MODEL, "-b", BATCH]), lab("estimate", MODEL, BATCH))?,
        line(peak, script("mem_tracker.py", &[BATCH, "1"]), script("mem_tracker.py", &[BATCH, REPEATS]))?,
        line(opening, memfit(&["inspect", &large, "-b", "1"]), lab("inspect", &large, "1"))?,
    ];
    std::fs::remove_file(&large)?;
    let alone = |model: String, nodes, file: &str| -> Result<Growth> {
        let (_, _, from_file) = told(&mut lab("estimate", file, BATCH))?;
        let (_, _, ready) = told(&mut timed("ready", file, BATCH, ESTIMATES))?;
        Ok(Growth { model, nodes, from_file, ready })
    };
    let mut growth = vec![alone("ResNet-50".to_owned(), None, MODEL)?];
    for nodes in NODES {
        let path = root().join("target/transformer.onnx").to_string_lossy().into_owned();
        output(&mut call(&release.join("lab"), &["make", &path, "--nodes", &nodes.to_string()]))?;
        growth.push(alone(format!("transformer of {nodes} nodes"), Some(nodes), &path)?);
    }
    page::write(&lines, &growth, [before, page::load_average()])?;
    Ok(true)
}

/// Watches `start` several times, and lets `work` tell how long the work alone takes.
fn line(task: &'static str, mut start: Command, mut work: Command) -> Result<Line> {
    println!("{}", shown(&start));
    let watched = watch(&mut start, STARTS)?;
    let (tool, answer, work) = told(&mut work)?;
    Ok(Line { task, tool, watched, work, answer, part: None })
}

/// Version, answer and seconds, which stand between tabs.
fn told(work: &mut Command) -> Result<(String, String, f64)> {
    let printed = output(work)?;
    let cells: Vec<&str> = printed.trim().split('\t').collect();
    let [tool, answer, seconds] = cells[..] else { bail!("`{}` printed `{}`", shown(work), printed.trim()) };
    Ok((tool.to_owned(), answer.to_owned(), seconds.parse()?))
}

fn call(path: &Path, arguments: &[&str]) -> Command {
    let mut command = program(path);
    command.args(arguments);
    command
}
