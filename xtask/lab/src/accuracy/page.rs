//! `docs/accuracy.md`.

use super::Section;
use super::compare::Row;
use super::summary::{exports, markdown, models, totals};
use anyhow::{Context, Result};
use std::path::PathBuf;

const HEAD: &str = "\
# Accuracy

Written by `cargo xtask accuracy`.

The reference is PyTorch itself: one training step on fake tensors of the device `cuda`, every allocation followed, each
storage rounded up to 512 bytes as PyTorch's allocator does. *Peak* is the largest number of allocated bytes over the
step (parameters, gradients, optimizer state, activations, inputs); *saved* is what autograd holds at the end of forward.
Errors are absolute, as a share of the reference: the median, the error that 95 % of the steps do not exceed, the largest, and how
many are exact to the byte. What a GPU holds on top (driver context, libraries' scratch memory, the allocator's slack) is not in these
numbers.
";

const OTHERS: &str = "\
Above, each model is read from its best export, one that keeps what training needs. Other exports of the same models \
(`eval`: for inference, batch norms folded and dropout gone; `b1`: a fixed batch of 1; `dyn`: the newer exporter), \
read with `--assume-batchnorm`, and with `--assume-dropout` where the model has dropout:
";

/// Writes the page, with further sections where there are any.
pub(super) fn write(sections: &[Section], further: [Option<String>; 5]) -> Result<()> {
    let sections = sections.iter().map(section).chain(further.into_iter().flatten());
    let text = sections.fold(HEAD.to_owned(), |text, section| text + &section);
    std::fs::create_dir_all(crate::root().join("docs"))?;
    std::fs::write(path(), text).with_context(|| path().display().to_string())
}

/// Whether the page says of these sections what would be written now.
pub(super) fn is_current(sections: &[Section]) -> bool {
    let page = std::fs::read_to_string(path()).unwrap_or_default();
    page.starts_with(HEAD) && sections.iter().all(|s| page.contains(&section(s)))
}

fn path() -> PathBuf {
    crate::root().join("docs/accuracy.md")
}

fn section(section: &Section) -> String {
    let rows: Vec<&Row> = section.compared.iter().flat_map(|c| &c.rows).collect();
    let failed = match section.failed() {
        0 => String::new(),
        failed => format!("\nNot estimated: {failed}.\n"),
    };
    let (totals, models) = (markdown(&totals(&rows)), markdown(&models(&section.compared)));
    let exports = markdown(&exports(&section.others));
    format!("\n## {}\n\n{}\n{totals}{failed}\n{models}\n{OTHERS}\n{exports}", section.title, section.about)
}
