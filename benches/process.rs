//! The whole program, from its start to its last line, as a person waits for it.

use criterion::{Criterion, criterion_group, criterion_main};
use std::process::{Command, Stdio};

fn process(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("process");
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("transformer.onnx");
    if let Err(error) = std::fs::write(&path, memfit_bench_models::transformer(5000)) {
        panic!("{}: {error}", path.display());
    }
    let mut run = |name: &str, arguments: &[&str]| {
        group.bench_function(name, |b| {
            b.iter(|| {
                let mut command = Command::new(env!("CARGO_BIN_EXE_memfit"));
                let status = command.args(arguments).stdout(Stdio::null()).status();
                assert!(status.is_ok_and(|status| status.success()), "{arguments:?}");
            });
        });
    };
    let (resnet50, transformer) =
        (concat!(env!("CARGO_MANIFEST_DIR"), "/models/resnet50.ts_train.onnx"), path.to_string_lossy());
    run("version", &["--version"]);
    if std::path::Path::new(resnet50).exists() {
        run("resnet50", &["estimate", resnet50, "-b", "32"]);
    }
    run("transformer of 5000 nodes", &["estimate", &transformer, "-b", "32", "--set", "sequence=128"]);
}

criterion_group!(benches, process);
criterion_main!(benches);
