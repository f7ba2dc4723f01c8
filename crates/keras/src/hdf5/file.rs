//! Bounded reads from an HDF5 file at its own addresses.

use std::fmt;
use std::io::{Read, Seek, SeekFrom};

/// All blocks of one file together may be at most this large.
const MAX_BYTES: u64 = 64 << 20;

/// What is wrong with a file.
#[derive(Debug)]
pub(super) struct Fault(String);

impl Fault {
    pub(super) fn new(what: impl Into<String>) -> Fault {
        Fault(what.into())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A file with the widths of its addresses and lengths.
pub(super) struct File<'r, R> {
    reader: &'r mut R,
    /// Where address zero is.
    start: u64,
    length: u64,
    left: u64,
    offset_width: usize,
    length_width: usize,
}

impl<'r, R: Read + Seek> File<'r, R> {
    pub(super) fn new(reader: &'r mut R, start: u64, length: u64) -> File<'r, R> {
        File { reader, start, length, left: MAX_BYTES, offset_width: 8, length_width: 8 }
    }

    pub(super) fn set_widths(&mut self, (offset, length): (u8, u8)) -> Result<(), Fault> {
        let is = |w: u8| matches!(w, 2 | 4 | 8);
        if !is(offset) || !is(length) {
            return Err(Fault::new(format!("addresses of {offset} and lengths of {length} bytes")));
        }
        (self.offset_width, self.length_width) = (offset.into(), length.into());
        Ok(())
    }

    /// How many bytes an address takes.
    pub(super) fn offset_width(&self) -> usize {
        self.offset_width
    }

    /// How many bytes a length takes.
    pub(super) fn length_width(&self) -> usize {
        self.length_width
    }

    /// `count` bytes at `address`.
    pub(super) fn bytes(&mut self, address: u64, count: u64) -> Result<Vec<u8>, Fault> {
        let end = self.start.checked_add(address).and_then(|a| a.checked_add(count));
        if end.is_none_or(|end| end > self.length) {
            return Err(Fault::new(format!("{count} bytes at {address} are beyond its end")));
        }
        let left = self.left.checked_sub(count);
        self.left = left.ok_or_else(|| Fault::new("its structure is too large"))?;
        let failed = |error: std::io::Error| Fault::new(format!("cannot be read: {error}"));
        self.reader.seek(SeekFrom::Start(self.start + address)).map_err(failed)?;
        let mut bytes = vec![0; usize::try_from(count).map_err(|_| Fault::new("a block is too large"))?];
        self.reader.read_exact(&mut bytes).map_err(failed)?;
        Ok(bytes)
    }

    /// The address that stands at `address`.
    pub(super) fn address(&mut self, address: u64) -> Result<u64, Fault> {
        let bytes = self.bytes(address, self.offset_width as u64)?;
        Ok(number(&bytes))
    }
}

/// A little-endian number of up to eight bytes.
pub(super) fn number(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).rev().fold(0, |n, b| n << 8 | u64::from(*b))
}

/// Takes parts from the beginning of a block.
pub(super) struct Cursor<'a>(pub(super) &'a [u8]);

impl<'a> Cursor<'a> {
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], Fault> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(|| Fault::new("a block ends early"))?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn number(&mut self, width: usize) -> Result<u64, Fault> {
        Ok(number(self.take(width)?))
    }

    pub(super) fn byte(&mut self) -> Result<u8, Fault> {
        Ok(self.take(1)?[0])
    }

    /// A count that is small enough to index with.
    pub(super) fn size(&mut self, width: usize) -> Result<usize, Fault> {
        usize::try_from(self.number(width)?).map_err(|_| Fault::new("a size is too large"))
    }

    pub(super) fn expect(&mut self, signature: &[u8]) -> Result<(), Fault> {
        if self.take(signature.len())? == signature {
            Ok(())
        } else {
            Err(Fault::new(format!("expected a block `{}`", String::from_utf8_lossy(signature))))
        }
    }
}
