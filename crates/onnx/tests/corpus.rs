//! Every file of the reference corpus imports without a problem.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod common;

#[test]
fn every_file_imports() {
    let mut failed = 0;
    for folder in ["onnx", "timm", "light", "operators"] {
        for path in common::files(&format!("corpus/{folder}"), ".onnx") {
            match memfit_onnx::import_from(std::fs::File::open(&path).unwrap()) {
                Ok(model) => {
                    assert!(!model.graph.outputs.is_empty(), "{}", path.display());
                    for warning in model.warnings {
                        println!("{}: {warning}", path.display());
                    }
                }
                Err(problems) => {
                    failed += 1;
                    println!("{}: {} problems, first: {}", path.display(), problems.len(), problems[0]);
                }
            }
        }
    }
    assert_eq!(failed, 0);
}
