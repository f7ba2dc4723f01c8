//! The few styles of text output. They are the terminal's own sixteen colours, so that every theme stays readable.

use crate::words;
use anstyle::{AnsiColor, Style};
use memfit_engine::{Category, Verdict};

pub(crate) const HEAD: Style = Style::new().bold();
pub(crate) const NOTE: Style = Style::new().dimmed();
pub(crate) const GOOD: Style = AnsiColor::Green.on_default().bold();
pub(crate) const WARN: Style = AnsiColor::Yellow.on_default().bold();

/// A verdict in words and in its colour.
pub(crate) fn verdict(v: Verdict) -> String {
    let style = if v == Verdict::Fits { GOOD } else { WARN };
    format!("{style}{}{style:#}", words::verdict_in_words(v))
}

/// The colour of a category, the same in every table.
pub(crate) fn category(c: Category) -> Style {
    let colour = match c {
        Category::Parameter | Category::Buffer => AnsiColor::Blue,
        Category::Gradient => AnsiColor::Magenta,
        Category::OptimizerState => AnsiColor::Cyan,
        Category::Activation => AnsiColor::Green,
        Category::ActivationGradient => AnsiColor::Yellow,
        Category::Workspace | Category::Transient => AnsiColor::Red,
        Category::Input => AnsiColor::BrightBlue,
    };
    colour.on_default()
}
