//! `cargo xtask picture`: the README's picture, `docs/estimate.svg`, from what the program really prints.

use crate::command::{cargo, output, root};
use anyhow::{Context, Result};

const COMMAND: [&str; 6] = ["estimate", "models/resnet50.ts_train.onnx", "-b", "32", "--top", "12"];

/// The height of a line and the margin, in a font of 14 units whose letters are all 8.4 wide.
const LINE: usize = 19;
const MARGIN: usize = 20;
/// Width of ten letters.
const TEN_LETTERS: usize = 84;

/// Runs the program and draws its output.
pub(crate) fn run() -> Result<bool> {
    let mut program = cargo();
    program.args(["run", "--quiet", "--profile", "quick", "--package", "memfit", "--", "--color", "always"]);
    let text = output(program.args(COMMAND).env("COLUMNS", "100"))?;
    let path = root().join("docs/estimate.svg");
    let typed = format!("\u{1b}[1m$ memfit {}\u{1b}[0m\n\n", COMMAND.join(" "));
    std::fs::write(&path, draw(&(typed + &text))).with_context(|| path.display().to_string())?;
    println!("wrote {}", path.display());
    Ok(true)
}

/// How a stretch of text looks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Style {
    bold: bool,
    dim: bool,
    colour: Option<&'static str>,
}

impl Style {
    /// After one of the numbers of an escape sequence.
    fn with(self, number: u32) -> Style {
        // The colours of a terminal with a light background: the picture stands on white and on dark pages.
        let colours =
            ["#24292f", "#c2293a", "#1a7f37", "#9a6700", "#0969da", "#8250df", "#1b7c83", "#6e7781"];
        match number {
            0 => Style::default(),
            1 => Style { bold: true, ..self },
            2 => Style { dim: true, ..self },
            30..=37 => Style { colour: Some(colours[(number - 30) as usize]), ..self },
            90..=97 => Style { colour: Some(colours[(number - 90) as usize]), ..self },
            39 => Style { colour: None, ..self },
            _ => self,
        }
    }

    fn attributes(self) -> String {
        let mut text = String::new();
        if self.bold {
            text += " font-weight=\"bold\"";
        }
        match (self.colour, self.dim) {
            (Some(colour), _) => text += &format!(" fill=\"{colour}\""),
            (None, true) => text += " fill=\"#6e7781\"",
            (None, false) => {}
        }
        text
    }
}

/// Text with escape sequences as SVG.
fn draw(text: &str) -> String {
    let lines: Vec<Vec<(Style, String)>> = parse(text.trim_end());
    let letters = |line: &Vec<(Style, String)>| line.iter().map(|(_, t)| t.chars().count()).sum::<usize>();
    let width = lines.iter().map(letters).max().unwrap_or(0) * TEN_LETTERS / 10 + 2 * MARGIN;
    let height = lines.len() * LINE + 2 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#f6f8fa\"/>\n\
         <g font-family=\"ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace\" \
         font-size=\"14\" fill=\"#24292f\" xml:space=\"preserve\">\n"
    );
    for (row, line) in lines.iter().enumerate() {
        let y = MARGIN + LINE * row + LINE * 3 / 4;
        let mut column = 0;
        for (style, text) in line {
            let length = text.chars().count();
            // Each stretch has its place and its length, so that columns stay in line whatever font a page has.
            if !text.trim().is_empty() {
                let x = MARGIN + column * TEN_LETTERS / 10;
                let wide = length * TEN_LETTERS / 10;
                let attributes = style.attributes();
                let escaped = text.replace('&', "&amp;").replace('<', "&lt;");
                svg += &format!(
                    "<text x=\"{x}\" y=\"{y}\" textLength=\"{wide}\" lengthAdjust=\"spacingAndGlyphs\"{attributes}>{escaped}</text>\n"
                );
            }
            column += length;
        }
    }
    svg + "</g>\n</svg>\n"
}

/// Lines of stretches that look the same.
fn parse(text: &str) -> Vec<Vec<(Style, String)>> {
    let mut style = Style::default();
    let mut lines = Vec::new();
    for line in text.lines() {
        let mut stretches = Vec::new();
        for (i, part) in line.split("\u{1b}[").enumerate() {
            let mut shown = part;
            if let (true, Some((numbers, rest))) = (i > 0, part.split_once('m')) {
                style = numbers.split(';').filter_map(|n| n.parse().ok()).fold(style, Style::with);
                shown = rest;
            }
            if !shown.is_empty() {
                stretches.push((style, shown.to_owned()));
            }
        }
        lines.push(stretches);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn styles_last_until_they_are_reset() {
        let lines = parse("\u{1b}[1mPeak\u{1b}[0m 2 \u{1b}[1;32mGiB\nmore\u{1b}[0m");
        let bold = Style { bold: true, ..Style::default() };
        let green = Style { colour: Some("#1a7f37"), ..bold };
        let s = str::to_owned;
        assert_eq!(lines[0], [(bold, s("Peak")), (Style::default(), s(" 2 ")), (green, s("GiB"))]);
        assert_eq!(lines[1], [(green, s("more"))]);
    }
}
