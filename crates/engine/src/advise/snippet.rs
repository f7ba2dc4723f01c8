//! The lines of code that a change asks for. They are files of Python, so that tools can parse and run them; names between
//! double underscores stand for what depends on the situation.

use crate::Framework;

/// Fills a snippet in; a leading comment that names the placeholders is not part of it.
pub(super) fn fill(text: &str, values: &[(&str, String)]) -> String {
    let mut text = text.trim_end().to_owned();
    for (name, value) in values {
        text = text.replace(&format!("__{name}__"), value);
    }
    text
}

/// The text for a framework: PyTorch's or Keras'.
pub(super) fn of(framework: Framework, pytorch: &'static str, keras: &'static str) -> &'static str {
    if framework == Framework::Tensorflow { keras } else { pytorch }
}

/// Every snippet by its path: framework, name, text.
pub fn snippets() -> Vec<(&'static str, &'static str, &'static str)> {
    macro_rules! all {
        ($($framework:literal: $($name:literal),+;)+) => {
            vec![$($(($framework, $name, include_str!(concat!("snippets/", $framework, "/", $name, ".py")))),+),+]
        };
    }
    all! {
        "pytorch": "accumulate", "allocator", "channels_last", "checkpoint", "freeze", "fused", "gradients", "mixed",
            "optimizer", "shorten", "shrink";
        "keras": "accumulate", "allocator", "freeze", "growth", "mixed", "optimizer", "shorten", "shrink";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_take_the_place_of_names() {
        assert_eq!(fill("a = __K__\n", &[("K", "4".into())]), "a = 4");
    }

    #[test]
    fn list_and_files_are_in_step() {
        for framework in ["pytorch", "keras"] {
            let dir = format!("{}/src/advise/snippets/{framework}", env!("CARGO_MANIFEST_DIR"));
            let files = std::fs::read_dir(dir).unwrap().count();
            assert_eq!(snippets().iter().filter(|s| s.0 == framework).count(), files, "{framework}");
        }
    }
}
