//! The structure of a model by itself: what an importer reads of a file, without the weights that it jumps over.
//!
//! Of an ONNX file it is the parts that were read, each at its place; what lies between is nothing, and reads as zeros, which no
//! importer looks at. Of a Keras file it is the config. Opened, it gives the same model as the file. A page keeps it for later and
//! puts it into links.

use memfit_graph::Problem;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::ops::Range;

/// What it begins with: nothing that an ONNX file or a Keras file begins with.
const MAGIC: &[u8] = b"memfit structure 1\n";
/// The most that is read of one.
const MOST: u64 = 256 << 20;

/// Whether a file that begins with `head` is one.
pub(crate) fn is_compact(head: &[u8]) -> bool {
    head.starts_with(MAGIC)
}

/// Takes these parts, ascending, out of a file.
///
/// # Errors
/// When the file cannot be read.
pub(crate) fn write(file: &mut (impl Read + Seek), parts: &[Range<u64>]) -> io::Result<Vec<u8>> {
    let mut out = MAGIC.to_vec();
    number(&mut out, file.seek(SeekFrom::End(0))?);
    number(&mut out, parts.len() as u64);
    let mut at = 0;
    for part in parts {
        number(&mut out, part.start.saturating_sub(at));
        number(&mut out, part.end.saturating_sub(part.start));
        at = part.end;
    }
    for part in parts {
        file.seek(SeekFrom::Start(part.start))?;
        file.by_ref().take(part.end.saturating_sub(part.start)).read_to_end(&mut out)?;
    }
    Ok(out)
}

/// Everything that a file holds, where that is one.
///
/// # Errors
/// When the file cannot be read, or is larger than any structure.
pub(crate) fn copy(file: &mut (impl Read + Seek)) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.by_ref().take(MOST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST { Err(ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
}

/// The file that it was taken from, as a stream.
#[derive(Debug)]
pub(crate) struct Sparse {
    bytes: Vec<u8>,
    parts: Vec<Part>,
    length: u64,
    at: u64,
}

/// Where a part is in the file, and where its first byte is in what was written.
type Part = (Range<u64>, usize);

impl Sparse {
    /// Reads what [`write`] wrote.
    ///
    /// # Errors
    /// When it is damaged.
    pub(crate) fn new(bytes: Vec<u8>) -> Result<Sparse, Problem> {
        parse(&bytes).map(|(length, parts)| Sparse { bytes, parts, length, at: 0 }).ok_or_else(|| {
            Problem::new("file", "a damaged structure: its parts are not where it says")
                .hint("open the model's file again")
        })
    }
}

/// The file's length and the places of its parts.
fn parse(bytes: &[u8]) -> Option<(u64, Vec<Part>)> {
    let mut rest = bytes.strip_prefix(MAGIC)?;
    let length = take(&mut rest)?;
    let count = usize::try_from(take(&mut rest)?).ok().filter(|n| *n <= rest.len())?;
    let (mut places, mut at) = (Vec::with_capacity(count), 0_u64);
    for _ in 0..count {
        let start = at.checked_add(take(&mut rest)?)?;
        at = start.checked_add(take(&mut rest)?).filter(|end| *end <= length)?;
        places.push(start..at);
    }
    let mut offset = bytes.len() - rest.len();
    let mut parts = Vec::with_capacity(count);
    for place in places {
        let size = usize::try_from(place.end - place.start).ok()?;
        parts.push((place, offset));
        offset = offset.checked_add(size)?;
    }
    (offset == bytes.len()).then_some((length, parts))
}

impl Read for Sparse {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.length.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let most = buffer.len().min(left);
        let next = self.parts.partition_point(|(place, _)| place.end <= self.at);
        let (count, source) = match self.parts.get(next) {
            Some((place, offset)) if place.start <= self.at => {
                let within = usize::try_from(self.at - place.start).unwrap_or(usize::MAX);
                let size = usize::try_from(place.end - self.at).unwrap_or(usize::MAX).min(most);
                (size, self.bytes.get(offset.saturating_add(within)..))
            }
            // Nothing up to the next part.
            Some((place, _)) => {
                (usize::try_from(place.start - self.at).unwrap_or(usize::MAX).min(most), None)
            }
            None => (most, None),
        };
        let target = buffer.get_mut(..count).unwrap_or_default();
        match source.and_then(|s| s.get(..count)) {
            Some(bytes) => target.copy_from_slice(bytes),
            None => target.fill(0),
        }
        self.at += count as u64;
        Ok(count)
    }
}

impl Seek for Sparse {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let target = match to {
            SeekFrom::Start(n) => Some(n),
            SeekFrom::End(n) => self.length.checked_add_signed(n),
            SeekFrom::Current(n) => self.at.checked_add_signed(n),
        };
        self.at = target.ok_or(ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

/// Seven bits a byte, the lowest first.
fn number(out: &mut Vec<u8>, mut n: u64) {
    while n > 0x7f {
        out.push(u8::try_from(n & 0x7f).unwrap_or_default() | 0x80);
        n >>= 7;
    }
    out.push(u8::try_from(n).unwrap_or_default());
}

fn take(rest: &mut &[u8]) -> Option<u64> {
    let mut n = 0_u64;
    for shift in (0..63).step_by(7) {
        let (byte, tail) = rest.split_first()?;
        *rest = tail;
        n |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(n);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    #[test]
    fn parts_are_at_their_places_and_the_rest_is_nothing() {
        let file: Vec<u8> = (1..=200).collect();
        let compact = write(&mut Cursor::new(&file), &[0..3, 150..190]).unwrap();
        assert!(is_compact(&compact) && compact.len() < 80);
        let mut back = Vec::new();
        Sparse::new(compact).unwrap().read_to_end(&mut back).unwrap();
        let expected: Vec<u8> =
            (1..=200).map(|n| if n <= 3 || (151..=190).contains(&n) { n } else { 0 }).collect();
        assert_eq!(back, expected);
    }

    #[test]
    fn a_damaged_one_is_refused() {
        let compact = write(&mut Cursor::new(&[7; 40]), &[0..10, 20..40]).unwrap();
        for end in 0..compact.len() {
            assert!(Sparse::new(compact[..end].to_vec()).is_err(), "{end}");
        }
        for i in MAGIC.len()..MAGIC.len() + 6 {
            let mut damaged = compact.clone();
            damaged[i] = 0xff;
            // Either it is refused, or it is another file that can be read to its end.
            if let Ok(mut sparse) = Sparse::new(damaged) {
                sparse.seek(SeekFrom::End(-1)).unwrap();
                assert_eq!(sparse.read(&mut [0; 4]).unwrap(), 1);
            }
        }
    }
}
