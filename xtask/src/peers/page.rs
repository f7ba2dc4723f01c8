//! `docs/performance.md`.

use super::{BATCH, ESTIMATES, Growth, Line, MODEL, REPEATS, STARTS};
use crate::command::root;
use anyhow::{Context, Result};

/// Writes the page and shows its tables. `load` is what the machine did before and after.
pub(super) fn write(lines: &[Line], growth: &[Growth], load: [Option<String>; 2]) -> Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut text = format!(
        "# Performance\n\n\
         Written by `cargo xtask peers`. All tools ran on the same machine ({}, {cores} cores, {}) in the same minutes, one \
         after the other, on the same model (`{MODEL}`) at batch {BATCH}.\n\n",
        processor().unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
        std::env::consts::OS,
    );
    if let [Some(before), Some(after)] = load {
        text += &format!(
            "The load average was {before} before and {after} after. Where that is well above one the machine had other work \
             too, and all times are longer than they would be alone.\n\n"
        );
    }
    text += &format!(
        "*Program* is the time from a program's start to its end (median of up to {STARTS} starts) and *memory* its largest \
         resident size. *Work* is the task alone, without the start of a program (median of up to {REPEATS}):\n\n\
         - shapes: memfit opens the file, reads it and infers; onnx has read the file before, and \
         `onnx.shape_inference.infer_shapes` alone is timed; memfit's inference alone is told below the table (median of \
         {ESTIMATES});\n\
         - peak: memfit opens the file, reads it, puts the model back together and estimates; MemTracker makes the model and its \
         optimizer and runs two steps on fake tensors, after PyTorch is imported;\n\
         - weights: memfit opens the file, reads it and infers.\n"
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
        // memfit comes first.
        let first = lines.iter().find(|first| first.task == line.task);
        if let Some(first) = first.filter(|first| !std::ptr::eq(*first, line)) {
            let times = line.work / first.work;
            table += &format!("\nThe work alone: memfit is {} times as fast.\n", factor(times));
            if let Some(part) = first.part {
                let (times, part) = (factor(line.work / part), seconds(part));
                table += &format!(
                    "Inference alone, of a file read before, takes memfit {part}: {times} times as fast.\n"
                );
            }
        }
    }
    table += &format!(
        "\n## memfit alone\n\n*From the file* is reading, putting together and estimating. *Ready* is an estimate of a model that \
         was read before, as a search for the largest batch makes it again and again: shapes, the whole step and the allocator's \
         course, with nothing kept from one estimate to the next (median of {ESTIMATES}).\n\n\
         | model | from the file | ready | ready, for a node |\n| --- | ---: | ---: | ---: |\n"
    );
    for row in growth {
        let each = row.nodes.map_or("".to_owned(), |n| format!("{:.1} µs", row.ready / f64::from(n) * 1e6));
        let (from_file, ready) = (seconds(row.from_file), seconds(row.ready));
        table += &format!("| {} | {from_file} | {ready} | {each} |\n", row.model);
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

/// With a decimal where it matters.
fn factor(times: f64) -> String {
    if times < 10.0 { format!("{times:.1}") } else { format!("{times:.0}") }
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

/// The number of processes that wanted to run in the last minute, where the system tells it.
pub(super) fn load_average() -> Option<String> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next().map(str::to_owned)
}

/// The processor's name, where the system tells it.
fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
