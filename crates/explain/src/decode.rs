//! The bytes of a log as text that can be searched: UTF-16, which `>` writes in Windows PowerShell, becomes UTF-8, and NULs are left
//! out, which a file that was emptied under its writer begins with and which `>>` puts between the letters of what it adds.

use std::io::{self, Chain, Cursor, Read};

/// Bytes that tell the encoding where the file does not begin with a mark.
const HEAD: usize = 512;
/// Bytes decoded at once.
const PIECE: usize = 1 << 16;

/// How two bytes make a unit of UTF-16.
type Unit = fn([u8; 2]) -> u16;

/// A log's text. Reads what its reader gives but for the encoding.
pub(crate) struct Text<R> {
    reader: Chain<Cursor<Vec<u8>>, R>,
    /// None in UTF-8.
    unit: Option<Unit>,
    /// Bytes that are not decoded yet: half a unit, half a character.
    rest: Vec<u8>,
    decoded: Cursor<Vec<u8>>,
}

impl<R: Read> Text<R> {
    pub(crate) fn new(mut reader: R) -> io::Result<Text<R>> {
        let mut head = Vec::new();
        reader.by_ref().take(HEAD as u64).read_to_end(&mut head)?;
        let (unit, mark) = encoding(&head);
        let reader = Cursor::new(head.split_off(mark)).chain(reader);
        Ok(Text { reader, unit, rest: Vec::new(), decoded: Cursor::default() })
    }

    /// Decodes the next piece; nothing is left where that gives nothing.
    fn decode(&mut self, unit: Unit) -> io::Result<()> {
        let mut raw = std::mem::take(&mut self.rest);
        let before = raw.len();
        raw.resize(before + PIECE, 0);
        let count = match self.reader.read(&mut raw[before..]) {
            Ok(count) => count,
            Err(error) => {
                raw.truncate(before);
                self.rest = raw;
                return Err(error);
            }
        };
        raw.truncate(before + count);
        let mut whole = raw.len() / 2 * 2;
        let last = whole.checked_sub(2).map(|at| unit([raw[at], raw[at + 1]]));
        if count > 0 && last.is_some_and(|unit| (0xD800..0xDC00).contains(&unit)) {
            whole -= 2;
        }
        self.rest = if count > 0 { raw.split_off(whole) } else { Vec::new() };
        let units = raw[..whole].chunks_exact(2).map(|pair| unit([pair[0], pair[1]]));
        let chars = char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER));
        let text: String = chars.filter(|c| *c != '\0').collect();
        self.decoded = Cursor::new(text.into_bytes());
        // Half a unit, or NULs alone: there may be more.
        if self.decoded.get_ref().is_empty() && count > 0 { self.decode(unit) } else { Ok(()) }
    }
}

impl<R: Read> Read for Text<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(unit) = self.unit {
            if self.decoded.position() == self.decoded.get_ref().len() as u64 {
                self.decode(unit)?;
            }
            return self.decoded.read(buffer);
        }
        loop {
            let count = self.reader.read(buffer)?;
            let kept = without_nuls(&mut buffer[..count]);
            if kept > 0 || count == 0 {
                return Ok(kept);
            }
        }
    }
}

/// How units are read where a log is UTF-16, and the length of its mark. Without a mark, every second byte of text in a Latin script
/// is NUL, and no other is.
fn encoding(head: &[u8]) -> (Option<Unit>, usize) {
    match head {
        [0xEF, 0xBB, 0xBF, ..] => return (None, 3),
        [0xFF, 0xFE, ..] => return (Some(u16::from_le_bytes), 2),
        [0xFE, 0xFF, ..] => return (Some(u16::from_be_bytes), 2),
        _ => {}
    }
    let nuls = |first: usize| head.iter().skip(first).step_by(2).filter(|byte| **byte == 0).count();
    let (even, odd) = (nuls(0), nuls(1));
    let most = |these: usize, others: usize| these * 2 > head.len() / 2 && others * 8 < these;
    if most(odd, even) {
        (Some(u16::from_le_bytes), 0)
    } else if most(even, odd) {
        (Some(u16::from_be_bytes), 0)
    } else {
        (None, 0)
    }
}

/// Moves what is not NUL to the front: how much that is.
fn without_nuls(bytes: &mut [u8]) -> usize {
    let Some(first) = memchr::memchr(0, bytes) else { return bytes.len() };
    let mut kept = first;
    for at in first..bytes.len() {
        let byte = bytes[at];
        bytes[kept] = byte;
        kept += usize::from(byte != 0);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that gives a few bytes at a time.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(buffer.len()).min(self.0.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    fn decoded(bytes: &[u8], step: usize) -> String {
        let mut text = String::new();
        Text::new(Slow(bytes, step)).unwrap().read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn utf16_with_and_without_a_mark_is_read_whatever_pieces_come() {
        // U+4E0A ends in the byte of a line feed, and the last character is two units.
        let said = format!("{}Epoch 1 上\r\nKilled 𝄞", "step of a run\n".repeat(70));
        let little: Vec<u8> = said.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let big: Vec<u8> = said.encode_utf16().flat_map(u16::to_be_bytes).collect();
        let marked = |mark: &[u8], bytes: &[u8]| [mark, bytes].concat();
        for step in [1, 3, 7, 4096] {
            for bytes in [&marked(&[0xFF, 0xFE], &little), &marked(&[0xFE, 0xFF], &big), &little, &big] {
                assert_eq!(decoded(bytes, step), said);
            }
            assert_eq!(decoded(&marked(&[0xEF, 0xBB, 0xBF], said.as_bytes()), step), said);
            assert_eq!(decoded(said.as_bytes(), step), said);
        }
    }

    #[test]
    fn nuls_are_left_out() {
        let mut bytes = vec![0; 5000];
        bytes.extend(b"epoch 1\n");
        bytes.extend("Killed\n".encode_utf16().flat_map(u16::to_le_bytes));
        for step in [1, 64, 10_000] {
            assert_eq!(decoded(&bytes, step), "epoch 1\nKilled\n");
        }
        assert_eq!(decoded(&[], 1), "");
        assert_eq!(decoded(&[0, 0, 0], 1), "");
    }
}
