//! `docs/performance.md`.

use super::{BATCH, Line, MODEL, REPEATS, STARTS};
use crate::command::root;
use anyhow::{Context, Result};

/// Writes the page and shows its tables. `growth` is nodes and seconds of transformers.
pub(super) fn write(lines: &[Line], growth: &[(&str, f64)]) -> Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut text = format!(
        "# Performance\n\n\
         Written by `cargo xtask peers`. All tools ran on the same machine ({}, {cores} cores) in the same minutes, one \
         after the other, on the same model (`{MODEL}`) at batch {BATCH}.\n\n\
         *Program* is the time from its start to its end (median of up to {STARTS} starts), *work* the task alone, without \
         starting and without imports (median of up to {REPEATS}), *memory* the largest resident size of the process.\n",
        processor().unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
    );
    let mut task = "";
    let mut table = String::new();
    for line in lines {
        if line.task != task {
            task = line.task;
            table += &format!("\n## {}\n\n", capital(task));
            table += "| tool | program | work | memory | answer |\n| --- | ---: | ---: | ---: | --- |\n";
        }
        let memory =
            line.watched.resident_kib.map_or("-".to_owned(), |kib| format!("{} MiB", kib.div_ceil(1024)));
        let (program, work) = (seconds(line.watched.seconds), seconds(line.work));
        table += &format!("| {} | {program} | {work} | {memory} | {} |\n", line.tool, line.answer);
    }
    table += "\n## Growth\n\nReading and estimating a transformer (batch 32, sequence 128) in ";
    table += "memfit, the work alone.\n\n| nodes | work | for a node |\n| ---: | ---: | ---: |\n";
    for (nodes, work) in growth {
        let each = work / nodes.parse::<f64>()?;
        table += &format!("| {nodes} | {} | {:.1} µs |\n", seconds(*work), each * 1e6);
    }
    println!("{table}");
    text += &table;
    text += "\n\
        MemTracker runs the model's code on fake tensors of the CPU, whose kernels differ in a few places from those of a GPU, and \
        memfit estimates a step on CUDA: the two answers are not the same number. [Accuracy](accuracy.md) compares like with like.\n";
    let path = root().join("docs/performance.md");
    std::fs::write(&path, text).with_context(|| path.display().to_string())
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// In a unit that leaves two or three digits.
fn seconds(value: f64) -> String {
    match value {
        v if v < 1e-3 => format!("{:.0} µs", v * 1e6),
        v if v < 0.1 => format!("{:.1} ms", v * 1e3),
        v if v < 1.0 => format!("{:.0} ms", v * 1e3),
        v => format!("{v:.1} s"),
    }
}

/// The processor's name, where the system tells it.
fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
