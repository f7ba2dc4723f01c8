//! Every file of the reference corpus imports without a problem.

use std::path::{Path, PathBuf};

fn files(folder: &str) -> Vec<PathBuf> {
    let dir = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/corpus")).join(folder);
    let Ok(entries) = std::fs::read_dir(&dir) else {
        println!("skipped: {} is not there", dir.display());
        return Vec::new();
    };
    let paths = entries.map(|e| e.unwrap().path());
    let mut files: Vec<_> = paths.filter(|p| p.extension().is_some_and(|e| e == "onnx")).collect();
    files.sort();
    files
}

#[test]
fn every_file_imports() {
    let mut failed = 0;
    for folder in ["onnx", "timm", "light", "operators"] {
        for path in files(folder) {
            let file = std::fs::File::open(&path).unwrap();
            match memfit_onnx::import_from(file) {
                Ok(model) => assert!(!model.graph.outputs.is_empty(), "{}", path.display()),
                Err(problems) => {
                    failed += 1;
                    println!("{}: {} problems, first: {}", path.display(), problems.len(), problems[0]);
                }
            }
        }
    }
    assert_eq!(failed, 0);
}
