//! The command line from outside: what is typed, what is written, and the exit code.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod advise;
mod completions;
mod cuda;
mod documents;
mod estimate;
mod explain;
mod fit;
mod gpus;
mod inspect;
mod keras;
mod models;
mod schema;
mod snapshots;
mod usage;
mod validate;
mod workflows;

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// How a run ended.
struct Run {
    code: i32,
    out: String,
    err: String,
}

impl Run {
    fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {}{}", self.out, self.err))
    }
}

impl From<Output> for Run {
    fn from(output: Output) -> Run {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let code = output.status.code().unwrap_or_else(|| panic!("killed: {}", output.status));
        Run { code, out: text(output.stdout), err: text(output.stderr) }
    }
}

/// The binary, away from the settings of whoever runs the tests.
fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memfit"));
    command.args(args).env_remove("CLICOLOR_FORCE").env_remove("NO_COLOR").env_remove("COLUMNS");
    command
}

fn memfit(args: &[&str]) -> Run {
    command(args).stdin(Stdio::null()).output().unwrap().into()
}

fn memfit_with_input(args: &[&str], input: &[u8]) -> Run {
    let mut child = command(args);
    let child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // The program may be done before it has read everything.
    let _ = stdin.write_all(input);
    drop(stdin);
    child.wait_with_output().unwrap().into()
}

/// A file of this content below the build directory.
fn file(name: &str, content: &[u8]) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_owned()
}
