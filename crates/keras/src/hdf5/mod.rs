//! The architecture in an HDF5 file: the attribute `model_config` of its root, which Keras 2 and 3 write as JSON, and `training_config`.
//!
//! A reader of its own rather than one from the registry. hdf5-reader (0.12) and hdf5-pure (0.47) read such attributes, but own
//! their source (`'static + Send + Sync`), so that the bytes that a page lends or the stream that a caller opened would have to be
//! copied whole; hdf5-pure and rust-hdf5 (0.7) also need a newer compiler than this workspace promises. Each brings datasets, filters
//! and caches, 30,000 lines and more, for one attribute of one group. What is needed is superblock → object header → attribute →
//! text, which is small enough to bound everything that a hostile file could ask for: nothing here recurses, and the blocks and
//! bytes that are read are counted.
//!
//! Source: HDF5 File Format Specification, version 3.0 (superblock II.A, object header IV.A, attributes IV.A.2.m and IV.A.2.v,
//! global heap III.E, fractal heap III.G, version 2 B-tree III.A.2).

mod attribute;
mod dense;
mod file;
mod header;
mod heap;

use crate::container::{MAX_CONFIG, Text};
use file::{Fault, File};
use memfit_graph::Problem;
use std::io::{self, Read, Seek, SeekFrom};

const SIGNATURE: &[u8] = b"\x89HDF\r\n\x1a\n";

/// Whether a file begins like one.
pub(crate) fn is_hdf5(head: &[u8]) -> bool {
    head.starts_with(SIGNATURE)
}

/// Where the superblock is: at the beginning, or behind a block of the user's of 512, 1024, … bytes.
pub(crate) fn find<R: Read + Seek>(reader: &mut R, length: u64) -> io::Result<Option<u64>> {
    let mut at = 0;
    while at < length.min(1 << 20) {
        reader.seek(SeekFrom::Start(at))?;
        let mut found = [0; 8];
        if reader.read_exact(&mut found).is_err() {
            return Ok(None);
        }
        if found == SIGNATURE {
            return Ok(Some(at));
        }
        at = if at == 0 { 512 } else { at * 2 };
    }
    Ok(None)
}

/// Reads the config and the version.
pub(crate) fn config<R: Read + Seek>(reader: &mut R, start: u64, length: u64) -> Result<Text, Problem> {
    let damaged = |fault: Fault| Problem::new("file", format!("a damaged HDF5 file: {fault}"));
    let (mut file, root) = superblock(reader, start, length).map_err(damaged)?;
    let messages = header::messages(&mut file, root).map_err(damaged)?;
    let mut text = |name| attribute::text(&mut file, &messages, name, MAX_CONFIG).map_err(damaged);
    let Some(json) = text("model_config")? else {
        let problem = Problem::new("file", "expected an HDF5 file with a `model_config`, found one without");
        return Err(problem.hint(
            "it holds weights alone; model.save(\"model.keras\") or model.to_json() keeps the architecture",
        ));
    };
    let version = text("keras_version").unwrap_or(None);
    let training = text("training_config").unwrap_or(None);
    Ok(Text { json, version: version.and_then(|v| String::from_utf8(v).ok()), training })
}

/// Reads the superblock; gives the file with its widths and the address of the root group's header.
fn superblock<R: Read + Seek>(reader: &mut R, start: u64, length: u64) -> Result<(File<'_, R>, u64), Fault> {
    let mut file = File::new(reader, start, length);
    let head = file.bytes(0, 16)?;
    let version = head[8];
    let (widths, at) = match version {
        0 | 1 => ((head[13], head[14]), if version == 0 { 24 } else { 28 }),
        2 | 3 => ((head[9], head[10]), 12),
        other => return Err(Fault::new(format!("superblock version {other}"))),
    };
    file.set_widths(widths)?;
    let offset = u64::from(widths.0);
    // Four addresses follow: base, two others, and last the root's entry or header. An entry begins with a name's offset.
    let root = at + if version < 2 { 5 * offset } else { 3 * offset };
    let root = file.address(root)?;
    Ok((file, root))
}
