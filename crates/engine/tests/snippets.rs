//! The lines of code that advice gives are Python.
#![allow(clippy::unwrap_used, reason = "a failed unwrap in a test is a failed test")]

use memfit_engine::advise::snippets;
use std::io::{ErrorKind, Write};
use std::process::{Command, Stdio};

const PARSE: &str = "
import ast, sys
for part in sys.stdin.read().split('\\0'):
    name, text = part.split('\\n', 1)
    try:
        ast.parse(text)
    except SyntaxError as error:
        sys.exit(f'{name}: {error}')
";

#[test]
fn snippets_are_python() {
    let child =
        Command::new("python3").args(["-c", PARSE]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = match child {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            println!("skipped: there is no python3");
            return;
        }
        child => child.unwrap(),
    };
    let all: Vec<String> =
        snippets().iter().map(|(framework, name, text)| format!("{framework}/{name}\n{text}")).collect();
    child.stdin.take().unwrap().write_all(all.join("\0").as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
