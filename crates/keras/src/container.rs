//! What kind of file it is, by its first bytes, and the config in it.

use crate::{archive, hdf5};
use memfit_graph::Problem;
use std::io::{Read, Seek, SeekFrom};

/// The largest config that is read. Parsed, text takes up to twenty times its size.
pub(crate) const MAX_CONFIG: u64 = 16 << 20;

/// A config with what a file keeps beside it.
#[derive(Debug, Default)]
pub(crate) struct Text {
    pub(crate) json: Vec<u8>,
    pub(crate) version: Option<String>,
    /// What it was compiled with, where that stands apart.
    pub(crate) training: Option<Vec<u8>>,
}

/// Whether a file that begins with `head` can hold a Keras model: an archive that is not PyTorch's, HDF5, or JSON.
pub fn is_keras(head: &[u8]) -> bool {
    let has = |needle: &[u8]| head.windows(needle.len()).any(|w| w == needle);
    let is_torch = || has(b"data.pkl") || has(b"/version") || has(b".data/serialization_id");
    (head.starts_with(ZIP) && !is_torch()) || hdf5::is_hdf5(head) || is_json(head)
}

const ZIP: &[u8] = b"PK\x03\x04";

fn is_json(head: &[u8]) -> bool {
    let head = head.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(head);
    head.iter().find(|b| !b.is_ascii_whitespace()).is_some_and(|b| matches!(b, b'{' | b'"'))
}

/// Reads the config of any kind of file.
pub(crate) fn config<R: Read + Seek>(reader: &mut R) -> Result<Text, Problem> {
    let failed = |error: std::io::Error| Problem::new("file", format!("cannot be read: {error}"));
    let length = reader.seek(SeekFrom::End(0)).map_err(failed)?;
    reader.seek(SeekFrom::Start(0)).map_err(failed)?;
    let mut head = Vec::new();
    reader.take(64).read_to_end(&mut head).map_err(failed)?;
    reader.seek(SeekFrom::Start(0)).map_err(failed)?;
    if head.is_empty() {
        return Err(Problem::new("file", "expected a Keras model, found an empty file"));
    }
    if head.starts_with(ZIP) || head.starts_with(b"PK\x05\x06") {
        return archive::config(reader);
    }
    if is_json(&head) {
        return Ok(Text { json: bounded(reader, "file", length)?, ..Text::default() });
    }
    if let Some(start) = hdf5::find(reader, length).map_err(failed)? {
        return hdf5::config(reader, start, length);
    }
    Err(Problem::new("file", "expected a .keras archive, an HDF5 file or JSON, found something else")
        .hint("model.save(\"model.keras\") or model.to_json() writes one"))
}

/// Reads to the end, but no more than a config may have. What a header says of the size is not relied on.
pub(crate) fn bounded(reader: impl Read, place: &str, said: u64) -> Result<Vec<u8>, Problem> {
    let large =
        || Problem::new(place, format!("expected a config of at most {} MiB, found more", MAX_CONFIG >> 20));
    if said > MAX_CONFIG {
        return Err(large());
    }
    let mut bytes = Vec::new();
    reader
        .take(MAX_CONFIG + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Problem::new(place, format!("cannot be read: {error}")))?;
    if bytes.len() as u64 > MAX_CONFIG { Err(large()) } else { Ok(bytes) }
}
