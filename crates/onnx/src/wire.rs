//! The protobuf wire format over a stream: field by field, seeking over what is not needed.
//!
//! Generated code reads a message into memory whole, weights included. Here only tags and lengths of the outer
//! messages are read, so that a file costs what its structure costs. Every length is checked against the message
//! that holds it before anything is allocated; a length that runs past the end of the file is a truncated file.

use memfit_graph::Problem;
use memfit_graph::order::sorted_by_key;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::ops::Range;

/// A stream that can be read and moved in.
pub(crate) trait ReadSeek: Read + Seek {}

impl<T: Read + Seek> ReadSeek for T {}

/// A stream with its position and length.
pub(crate) struct Source<'a> {
    inner: BufReader<&'a mut dyn ReadSeek>,
    at: u64,
    len: u64,
    /// What was read, in the order of reading.
    read: Vec<Range<u64>>,
}

/// Why reading stopped.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The file ends before a message does.
    Truncated { len: u64, needed: u64 },
    /// The bytes at this offset are not protobuf, or not ONNX.
    Malformed { at: u64, what: String },
    /// The file asks for more than a model can need.
    TooLarge { at: u64, what: String },
    /// The stream itself failed.
    Io { at: u64, error: io::Error },
}

/// The content of a field; of a length-delimited one, the bytes are still to be read or skipped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Content {
    Varint(u64),
    Fixed64([u8; 8]),
    Fixed32([u8; 4]),
    Bytes(u64),
}

/// A field of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) number: u32,
    pub(crate) content: Content,
}

impl<'a> Source<'a> {
    /// Reads from the beginning of `inner`.
    pub(crate) fn new(inner: &'a mut dyn ReadSeek) -> Result<Source<'a>, Fault> {
        let ends = inner.seek(SeekFrom::End(0)).and_then(|len| inner.seek(SeekFrom::Start(0)).map(|_| len));
        let len = ends.map_err(|error| Fault::Io { at: 0, error })?;
        // Small enough that jumping from weight to weight reads little of what lies between.
        Ok(Source { inner: BufReader::with_capacity(8 << 10, inner), at: 0, len, read: Vec::new() })
    }

    /// What was read since the beginning or since [`Source::forget`], ascending.
    pub(crate) fn read(&self) -> Vec<Range<u64>> {
        let mut read = sorted_by_key(self.read.clone(), |range| range.start);
        read.dedup_by(|next, last| {
            let joins = next.start <= last.end;
            if joins {
                last.end = last.end.max(next.end);
            }
            joins
        });
        read
    }

    /// Forgets what was read.
    pub(crate) fn forget(&mut self) {
        self.read.clear();
    }

    /// The offset of the next byte.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// The length of the file.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Goes to an offset.
    pub(crate) fn go(&mut self, to: u64) -> Result<(), Fault> {
        let forward = to.checked_sub(self.at).and_then(|n| i64::try_from(n).ok());
        let moved = match forward {
            Some(0) => Ok(()),
            Some(n) => self.inner.seek_relative(n),
            None => self.inner.seek(SeekFrom::Start(to)).map(|_| ()),
        };
        moved.map_err(|error| Fault::Io { at: to, error })?;
        self.at = to;
        Ok(())
    }

    /// The next `n` bytes, which lie within the file.
    pub(crate) fn take(&mut self, n: u64) -> Result<Vec<u8>, Fault> {
        let needed = self.at.saturating_add(n);
        let count = usize::try_from(n).ok().filter(|_| needed <= self.len);
        let Some(count) = count else { return Err(Fault::Truncated { len: self.len, needed }) };
        let mut bytes = vec![0; count];
        self.exact(&mut bytes)?;
        Ok(bytes)
    }

    fn exact(&mut self, bytes: &mut [u8]) -> Result<(), Fault> {
        let needed = self.at.saturating_add(bytes.len() as u64);
        self.inner.read_exact(bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Fault::Truncated { len: self.len, needed },
            _ => Fault::Io { at: self.at, error },
        })?;
        match self.read.last_mut() {
            Some(last) if last.end == self.at => last.end = needed,
            _ => self.read.push(self.at..needed),
        }
        self.at = needed;
        Ok(())
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let mut bytes = [0; N];
        self.exact(&mut bytes)?;
        Ok(bytes)
    }

    fn varint(&mut self) -> Result<u64, Fault> {
        let start = self.at;
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = self.fixed()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Fault::Malformed { at: start, what: "a number longer than ten bytes".into() })
    }

    /// The next field of a message that ends at `end`; `None` at its end.
    pub(crate) fn field(&mut self, end: u64) -> Result<Option<Field>, Fault> {
        if self.at >= end {
            return Ok(None);
        }
        let start = self.at;
        let malformed = |what: String| Fault::Malformed { at: start, what };
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).ok().filter(|n| *n > 0 && *n < 1 << 29);
        let Some(number) = number else { return Err(malformed(format!("the field tag {tag:#x}"))) };
        let content = match tag & 7 {
            0 => Content::Varint(self.varint()?),
            1 => Content::Fixed64(self.fixed()?),
            2 => Content::Bytes(self.varint()?),
            5 => Content::Fixed32(self.fixed()?),
            other => return Err(malformed(format!("the wire type {other}"))),
        };
        let needed = match content {
            Content::Bytes(n) => self.at.saturating_add(n),
            _ => self.at,
        };
        if needed > self.len {
            return Err(Fault::Truncated { len: self.len, needed });
        }
        if needed > end {
            return Err(malformed(format!(
                "a field that runs to byte {needed}, past its message's end {end}"
            )));
        }
        Ok(Some(Field { number, content }))
    }
}

impl Fault {
    /// As it is shown.
    pub(crate) fn problem(&self) -> Problem {
        match self {
            Fault::Truncated { len, needed } => Problem::new(
                format!("byte {len}"),
                format!("the file is cut off: it ends at byte {len}, its content goes on to byte {needed} or further"),
            )
            .hint("download or export it again"),
            Fault::Malformed { at, what } => {
                Problem::new(format!("byte {at}"), format!("expected a part of an ONNX model, found {what}"))
                    .hint("the file is damaged or not an ONNX model")
            }
            Fault::TooLarge { at, what } => Problem::new(format!("byte {at}"), what.clone()),
            Fault::Io { at, error } => {
                Problem::new(format!("byte {at}"), format!("the file cannot be read: {error}"))
            }
        }
    }
}
