//! A file read slice by slice, synchronously, so that a file of any size is opened without being loaded.
//!
//! A worker has `FileReaderSync`, which reads a slice of a `Blob` at once. Reads are small and jump over weights: a jump
//! fetches a little, and only reading on without a jump fetches more each time.

use js_sys::{Function, Reflect, Uint8Array};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use wasm_bindgen::prelude::*;
use web_sys::{Blob, FileReaderSync};

/// Bytes fetched after a jump, and at most when reading on.
const LEAST: u64 = 16 << 10;
const MOST: u64 = 512 << 10;

/// What slices come from.
enum Source {
    Bytes(Uint8Array),
    Blob(Blob, FileReaderSync),
    /// An object with `read(offset, length)`.
    Custom(JsValue, Function),
}

/// A file as a stream.
pub struct Slices {
    source: Source,
    length: u64,
    at: u64,
    /// What was fetched last, and where it begins.
    fetched: Vec<u8>,
    fetched_at: u64,
    next_fetch: u64,
    told: Option<Told>,
}

/// Hears where the stream stands, and how long it is.
type Told = Box<dyn FnMut(u64, u64)>;

impl Slices {
    /// Takes bytes, a blob (in a worker), or an object with `size` and `read(offset, length)`.
    ///
    /// # Errors
    /// It is none of them, or a blob outside of a worker.
    pub fn new(value: JsValue) -> Result<Slices, JsValue> {
        let (source, length) = if let Some(bytes) = value.dyn_ref::<Uint8Array>() {
            (Source::Bytes(bytes.clone()), u64::from(bytes.length()))
        } else if Reflect::get(&js_sys::global(), &"Blob".into())?.is_function()
            && value.is_instance_of::<Blob>()
        {
            let blob: Blob = value.unchecked_into();
            let message = "a Blob is read synchronously, which only a worker can; elsewhere give its bytes";
            let reader = FileReaderSync::new().map_err(|_| JsValue::from(js_sys::Error::new(message)))?;
            let length = size(blob.size())?;
            (Source::Blob(blob, reader), length)
        } else {
            let read = Reflect::get(&value, &"read".into()).ok().and_then(|f| f.dyn_into::<Function>().ok());
            let length = Reflect::get(&value, &"size".into()).ok().and_then(|n| n.as_f64());
            let (Some(read), Some(length)) = (read, length) else {
                let message =
                    "expected a Uint8Array, a Blob, or an object with size and read(offset, length)";
                return Err(js_sys::TypeError::new(message).into());
            };
            (Source::Custom(value, read), size(length)?)
        };
        let (fetched, fetched_at, next_fetch) = (Vec::new(), 0, LEAST);
        Ok(Slices { source, length, at: 0, fetched, fetched_at, next_fetch, told: None })
    }

    /// Tells at each fetch how far it is: disks can be slow.
    #[must_use]
    pub fn telling(self, told: impl FnMut(u64, u64) + 'static) -> Slices {
        Slices { told: Some(Box::new(told)), ..self }
    }

    /// Fetches the slice that begins where the stream stands.
    fn fetch(&mut self) -> io::Result<()> {
        let reads_on = self.fetched_at + self.fetched.len() as u64 == self.at;
        self.next_fetch = if reads_on { (self.next_fetch * 2).min(MOST) } else { LEAST };
        let end = self.length.min(self.at.saturating_add(self.next_fetch));
        if let Some(told) = &mut self.told {
            told(self.at, self.length);
        }
        let slice = self.slice(self.at, end).map_err(|error| {
            let message = error.dyn_ref::<js_sys::Error>().map(|e| String::from(e.message()));
            io::Error::other(message.unwrap_or_else(|| "the file cannot be read any more".into()))
        })?;
        if slice.length() == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        (self.fetched, self.fetched_at) = (slice.to_vec(), self.at);
        Ok(())
    }

    fn slice(&self, from: u64, to: u64) -> Result<Uint8Array, JsValue> {
        match &self.source {
            Source::Bytes(bytes) => {
                // A typed array's length fits in 32 bits here, and so do offsets within it.
                let narrow = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
                Ok(bytes.subarray(narrow(from), narrow(to)))
            }
            Source::Blob(blob, reader) => {
                let part = blob.slice_with_f64_and_f64(from as f64, to as f64)?;
                Ok(Uint8Array::new(&reader.read_as_array_buffer(&part)?.into()))
            }
            Source::Custom(this, read) => {
                let read = read.call2(this, &(from as f64).into(), &((to - from) as f64).into())?;
                read.dyn_into().map_err(|_| js_sys::TypeError::new("read() must return a Uint8Array").into())
            }
        }
    }
}

/// A size as JavaScript has it. Above 2^53 a number does not tell neighbours apart, and no file is so large.
fn size(n: f64) -> Result<u64, JsValue> {
    if (0.0..=9_007_199_254_740_992.0).contains(&n) {
        Ok(n as u64)
    } else {
        Err(js_sys::RangeError::new("the size is not that of a file").into())
    }
}

impl Read for Slices {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at >= self.length || buffer.is_empty() {
            return Ok(0);
        }
        let within = |s: &Slices| s.at >= s.fetched_at && s.at < s.fetched_at + s.fetched.len() as u64;
        if !within(self) {
            self.fetch()?;
        }
        let from = usize::try_from(self.at - self.fetched_at).unwrap_or(usize::MAX);
        let mut rest = self.fetched.get(from..).unwrap_or_default();
        let read = rest.read(buffer)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl Seek for Slices {
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
