//! The table of what is supported, for people: made from the lists themselves, so it cannot drift.

use crate::{layers, operations};
use std::fmt::Write;

/// Every layer class with the versions of Keras that have it, and every operation that has a rule for its shape, in Markdown.
pub fn layer_table() -> String {
    let specs = layers::ALL.iter().copied().flatten();
    let mut rows: Vec<(&str, String)> = specs
        .flat_map(|spec| {
            let versions: Vec<String> = spec.keras.iter().map(u8::to_string).collect();
            let versions = versions.join(", ");
            spec.classes.iter().map(move |class| (*class, versions.clone()))
        })
        .collect();
    rows.sort();
    let mut out = format!(
        "# Keras layers\n\n\
         memfit knows {} layer classes of Keras 2 and 3: their variables, and the shapes that they give. Models in models (`Functional`,\n\
         `Sequential`, `Model`), `InputLayer`, and layers that wrap models are read as well. A class that is not here is a custom layer:\n\
         its shape is what the file recorded where it is read or what `--layer` says, and the estimate is marked as a bound.\n\n\
         | class | Keras |\n| --- | --- |\n",
        rows.len()
    );
    for (class, versions) in &rows {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "| {class} | {versions} |");
    }
    let mut names: Vec<&str> = operations::known().collect();
    names.sort_unstable();
    let _ = write!(
        out,
        "\n## Operations\n\n\
         Operations of `keras.ops` between layers (Keras 3), and the TensorFlow functions that they stand for (`TFOpLambda`,\n\
         `SlicingOpLambda`, `TensorFlowOpLayer` of Keras 2). These {} have a rule for their shapes; of all others, what the file recorded\n\
         where they are read is taken.\n\n{}.\n",
        names.len(),
        names.join(", ")
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// `MEMFIT_UPDATE=1` writes the file anew.
    #[test]
    fn the_checked_in_table_is_this_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/layers.md");
        let table = layer_table();
        if std::env::var_os("MEMFIT_UPDATE").is_some() {
            std::fs::write(path, &table).unwrap();
        }
        let there = std::fs::read_to_string(path).unwrap_or_default();
        assert!(there == table, "docs/layers.md is out of date: run this test with MEMFIT_UPDATE=1");
    }

    #[test]
    fn list_and_files_are_in_step() {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/src/layers");
        let text = std::fs::read_to_string(format!("{dir}/mod.rs")).unwrap();
        // What layers share is a private module.
        let is_helper =
            |f: &str| ["custom", "mod", "nested"].contains(&f) || text.contains(&format!("\nmod {f};"));
        let files: BTreeSet<String> = std::fs::read_dir(dir)
            .unwrap()
            .filter_map(|f| Some(f.unwrap().file_name().to_str()?.strip_suffix(".rs")?.to_owned()))
            .filter(|f| !is_helper(f))
            .collect();
        let (_, list) = text.split_once("static ALL").unwrap();
        let (list, _) = list.split_once("];").unwrap();
        let listed: Vec<&str> =
            list.lines().filter_map(|line| line.trim().strip_suffix("::SPECS,")).collect();
        assert_eq!(listed.iter().map(|f| (*f).to_owned()).collect::<BTreeSet<_>>(), files);
        assert!(listed.is_sorted(), "keep the list in alphabetical order");
        let classes: Vec<&str> =
            layers::ALL.iter().copied().flatten().flat_map(|s| s.classes.iter().copied()).collect();
        assert_eq!(classes.iter().collect::<BTreeSet<_>>().len(), classes.len(), "a class is there twice");
    }
}
