//! The log corpus: each `corpus/*.log` has a line `# name` of expectations in `corpus/expected.txt`.
//!
//! Messages are written as the frameworks' sources print them; the file's name begins with who wrote it, `healthy_` where memory
//! did not run out. `MEMFIT_UPDATE=1 cargo test -p memfit-explain` writes the expectations anew: read the difference.

#![allow(clippy::expect_used)]

use std::fmt::Write;
use std::fs;
use std::path::Path;

fn found(bytes: &[u8]) -> String {
    let log = memfit_explain::read(bytes).expect("bytes can be read");
    let mut line = format!("{:?}", log.outcome());
    for finding in log.findings() {
        let _ =
            write!(line, " | {} {} @{:?}", finding.cause.name(), finding.confidence.name(), finding.lines);
    }
    line
}

#[test]
fn every_log_is_explained_as_expected() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut files: Vec<_> = fs::read_dir(&folder)
        .expect("the corpus is there")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "log"))
        .collect();
    files.sort();
    let mut report = String::new();
    for file in &files {
        let name = file.file_stem().expect("a name").to_string_lossy();
        let _ = writeln!(report, "{name}: {}", found(&fs::read(file).expect("a log")));
    }
    let expected = folder.join("expected.txt");
    if std::env::var_os("MEMFIT_UPDATE").is_some() {
        fs::write(&expected, &report).expect("it can be written");
    }
    assert!(files.len() >= 80, "{} logs", files.len());
    let expected = fs::read_to_string(&expected).expect("the expectations");
    for (found, expected) in report.lines().zip(expected.lines()) {
        assert_eq!(found, expected);
    }
    assert_eq!(report, expected);
}

#[test]
fn healthy_logs_are_healthy() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for entry in fs::read_dir(folder).expect("the corpus is there") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if name.starts_with("healthy_") {
            assert!(found(&fs::read(&path).expect("a log")).starts_with("NoFailure"), "{name}");
        }
    }
}

/// A log cut anywhere, and one of random bytes between its lines, is read without a panic.
#[test]
fn damaged_logs_are_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut state = 1u64;
    for entry in fs::read_dir(folder).expect("the corpus is there") {
        let mut bytes = fs::read(entry.expect("an entry").path()).expect("a log");
        for cut in (0..bytes.len()).step_by(401) {
            found(&bytes[..cut]);
        }
        for _ in 0..4 {
            for _ in 0..8 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let at = usize::try_from(state >> 33).unwrap_or(0) % bytes.len().max(1);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = (state >> 25) as u8;
                }
            }
            found(&bytes);
        }
    }
}
