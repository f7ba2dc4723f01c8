//! Lines of a log as bytes: where one begins and ends, how many there are, what is text in one.

use std::borrow::Cow;

/// The longest line that is read as one; of a longer one this much around the needle, a quarter of it before.
pub(crate) const LINE: usize = 1 << 13;

/// What a terminal takes for itself: what a colour begins with, and a step back.
pub(crate) const ESCAPE: u8 = 0x1b;
pub(crate) const BACKSPACE: u8 = 0x08;

/// Where the line around a needle begins and ends; not before `from`, and of a very long line only a part.
pub(crate) fn around(bytes: &[u8], from: usize, hit: usize) -> (usize, usize) {
    let low = from.max(hit.saturating_sub(LINE / 4));
    let start = memchr::memrchr2(b'\n', b'\r', &bytes[low..hit]).map_or(low, |at| low + at + 1);
    let high = bytes.len().min(hit + LINE / 4 * 3);
    let end = memchr::memchr2(b'\n', b'\r', &bytes[hit..high]).map_or(high, |at| hit + at);
    (start, end)
}

pub(crate) fn newlines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

/// Whether a line has these words. The standard library looks for up to 32 bytes many at once, and prepares a search for more.
pub(crate) fn has(line: &str, words: &str) -> bool {
    words.get(..32).is_none_or(|start| line.contains(start)) && line.contains(words)
}

/// Where words stand in a line. Most stand in few, and asking whether they do takes less.
pub(crate) fn place(line: &str, words: &str) -> Option<usize> {
    has(line, words).then(|| memchr::memmem::find(line.as_bytes(), words.as_bytes()))?
}

/// Text without what a terminal takes for itself: colours, links, the backspaces of old progress bars.
pub(crate) fn plain(bytes: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(bytes);
    if text.bytes().all(|byte| byte >= b' ' || matches!(byte, b'\t' | b'\n')) {
        return text;
    }
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' if chars.next_if_eq(&'[').is_some() => {
                while chars.next().is_some_and(|c| !c.is_ascii_alphabetic()) {}
            }
            // An operating system command, such as a link, ends in a bell or an escape with a backslash.
            '\u{1b}' if chars.next_if_eq(&']').is_some() => {
                while chars.next_if(|c| !matches!(c, '\u{7}' | '\u{1b}')).is_some() {}
                if chars.next() == Some('\u{1b}') {
                    chars.next_if_eq(&'\\');
                }
            }
            '\t' | '\n' | '\r' => plain.push(c),
            c if c.is_control() => {}
            c => plain.push(c),
        }
    }
    plain.into()
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_a_terminal_takes_is_no_text() {
        let plain = |text: &'static str| super::plain(text.as_bytes());
        assert_eq!(plain("\u{1b}[1;31mKilled\u{1b}[0m"), "Killed");
        assert_eq!(plain("\u{1b}]8;;https://a.b/c\u{1b}\\train.py\u{1b}]8;;\u{7}:3"), "train.py:3");
        assert_eq!(plain("1/5\u{8}\u{8}\u{8}2/5\tloss"), "1/52/5\tloss");
    }
}
