//! A plain table: columns sized to their cells, long names shortened in the middle until it fits the width.

use anstyle::Style;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// How a column stands and gives way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) head: &'static str,
    pub(crate) right: bool,
    /// Cells are shortened down to this width where the table is too wide; `None` where they never are.
    pub(crate) least: Option<usize>,
    /// Whether cells lose their end instead of their middle.
    pub(crate) end: bool,
    /// Columns of the highest rank are left out first where even that is too wide; those of rank 0 never are.
    pub(crate) rank: u8,
}

impl Column {
    /// Text, shortened down to `least`.
    pub(crate) const fn text(head: &'static str, least: usize) -> Column {
        Column { head, right: false, least: Some(least), end: false, rank: 0 }
    }

    /// The same, shortened at the end: a list whose first items matter most.
    pub(crate) const fn end(self) -> Column {
        Column { end: true, ..self }
    }

    /// The same, left out where there is no room.
    pub(crate) const fn rank(self, rank: u8) -> Column {
        Column { rank, ..self }
    }

    /// A number, never shortened.
    pub(crate) const fn number(head: &'static str) -> Column {
        Column { head, right: true, least: None, end: false, rank: 0 }
    }
}

/// Rows of cells under a head; the last ones may stand below a line.
#[derive(Debug, Default)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
    /// How many rows stand above the line, where there is one.
    line: Option<usize>,
}

const GAP: &str = "  ";

impl Table {
    pub(crate) fn new(columns: &[Column]) -> Table {
        Table { columns: columns.to_vec(), ..Table::default() }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.iter().map(|c| printable(c)).collect());
    }

    /// A line between the rows before and those after.
    pub(crate) fn line(&mut self) {
        self.line = Some(self.rows.len());
    }

    /// Writes the table; no line is wider than `width` if the columns' least widths allow it.
    pub(crate) fn write(&self, out: &mut String, width: usize, head: Style) {
        let widths = self.widths(width);
        if self.columns.iter().any(|c| !c.head.is_empty()) {
            let heads: Vec<String> = self.columns.iter().map(|c| c.head.to_owned()).collect();
            out.push_str(&format!("{head}{}{head:#}\n", self.cells(&heads, &widths)));
        }
        for (i, row) in self.rows.iter().enumerate() {
            if self.line == Some(i) {
                let shown = widths.iter().filter(|w| **w > 0).map(|w| w + GAP.len());
                let total = shown.sum::<usize>().saturating_sub(GAP.len());
                out.push_str(&"─".repeat(total));
                out.push('\n');
            }
            out.push_str(&self.cells(row, &widths));
            out.push('\n');
        }
    }

    /// The width of each column, zero where it is left out.
    fn widths(&self, width: usize) -> Vec<usize> {
        let cell = |i: usize| self.rows.iter().filter_map(move |r| r.get(i)).map(|c| c.width()).max();
        let head = |i: usize| self.columns[i].head.width();
        let mut widths: Vec<usize> =
            (0..self.columns.len()).map(|i| cell(i).unwrap_or(0).max(head(i))).collect();
        let least: Vec<usize> = (0..widths.len())
            .map(|i| self.columns[i].least.map_or(widths[i], |least| widths[i].min(least.max(head(i)))))
            .collect();
        let span = |widths: &[usize], least: &[usize]| {
            let shown = widths.iter().zip(least).filter(|(w, _)| **w > 0);
            shown.map(|(_, w)| w + GAP.len()).sum::<usize>().saturating_sub(GAP.len())
        };
        while span(&widths, &least) > width {
            let droppable = (0..widths.len()).filter(|i| widths[*i] > 0 && self.columns[*i].rank > 0);
            let Some(last) = droppable.max_by_key(|i| self.columns[*i].rank) else { break };
            widths[last] = 0;
        }
        while span(&widths, &widths) > width {
            let widest = (0..widths.len()).filter(|i| widths[*i] > least[*i]).max_by_key(|i| widths[*i]);
            let Some(widest) = widest else { break };
            widths[widest] -= 1;
        }
        widths
    }

    fn cells(&self, row: &[String], widths: &[usize]) -> String {
        let mut text = String::new();
        for ((cell, width), column) in row.iter().zip(widths).zip(&self.columns) {
            if *width == 0 {
                continue;
            }
            let cell = if column.end { shorten_end(cell, *width) } else { shorten(cell, *width) };
            let pad = " ".repeat(width.saturating_sub(cell.width()));
            let (before, after) = if column.right { (&*pad, "") } else { ("", &*pad) };
            text.push_str(&format!("{before}{cell}{after}{GAP}"));
        }
        text.truncate(text.trim_end().len());
        text
    }
}

/// Names come from files: what would move the cursor is replaced.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// At most `width` columns wide, with an ellipsis in the middle where something is left out: both ends of a module path
/// say where it is.
pub(crate) fn shorten(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let room = width.saturating_sub(1);
    let front = take(text.chars(), room / 2);
    let back: String = take(text.chars().rev(), room - room / 2).chars().rev().collect();
    format!("{front}…{back}")
}

/// At most `width` columns wide, with an ellipsis at the end where something is left out.
fn shorten_end(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    format!("{}…", take(text.chars(), width.saturating_sub(1)).trim_end())
}

fn take(chars: impl Iterator<Item = char>, width: usize) -> String {
    let mut used = 0;
    chars
        .take_while(|c| {
            used += c.width().unwrap_or(0);
            used <= width
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_give_way_and_numbers_do_not() {
        let mut table = Table::new(&[Column::text("layer", 6), Column::number("MiB")]);
        table.row(vec!["encoder.layer.11.attention".into(), "1,234.5".into()]);
        table.line();
        table.row(vec!["total".into(), "1,234.5".into()]);
        let mut out = String::new();
        table.write(&mut out, 20, Style::new());
        let expected =
            "layer            MiB\nencod…ntion  1,234.5\n────────────────────\ntotal        1,234.5\n";
        assert_eq!(out, expected);
    }

    #[test]
    fn columns_give_way_by_rank() {
        let mut table = Table::new(&[
            Column::text("layer", 10),
            Column::text("operators", 9).rank(1),
            Column::text("output", 10).rank(2),
        ]);
        table.row(vec!["encoder.layer.11".into(), "Conv×10 Relu×9".into(), "8x64x112x112".into()]);
        let heads = |width| {
            let mut out = String::new();
            table.write(&mut out, width, Style::new());
            assert!(out.lines().all(|l| l.width() <= width), "{out}");
            out.lines().next().unwrap().split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(heads(40), ["layer", "operators", "output"]);
        assert_eq!(heads(30), ["layer", "operators"]);
        assert_eq!(heads(20), ["layer"]);
    }

    #[test]
    fn text_is_shortened_by_columns_and_not_by_bytes() {
        assert_eq!(shorten("abcdefgh", 5), "ab…gh");
        assert_eq!(shorten("日本語日本語", 7), "日…語");
        assert_eq!(shorten("日本語日本語", 9), "日本…本語");
        assert_eq!(shorten("abc", 3), "abc");
        assert_eq!(shorten("abc", 0), "…");
        assert_eq!((&*shorten_end("Conv×3 Relu", 8), &*shorten_end("日本語", 4)), ("Conv×3…", "日…"));
        assert_eq!(printable("a\u{1b}[31mb\n"), "a\u{fffd}[31mb\u{fffd}");
    }
}
