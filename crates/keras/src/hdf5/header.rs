//! Object headers of both versions: their messages, continuation blocks included.

use super::file::{Cursor, Fault, File};
use std::io::{Read, Seek};

/// A header has at most this many blocks. A chain that comes back to itself ends here.
const MAX_BLOCKS: usize = 256;

const CONTINUATION: u64 = 0x10;

/// One message of a header.
pub(super) struct Message {
    pub(super) kind: u64,
    pub(super) data: Vec<u8>,
}

/// How messages begin.
#[derive(Clone, Copy)]
enum Layout {
    /// Type 2, size 2, flags 1, reserved 3.
    First,
    /// Type 1, size 2, flags 1, and a creation order of 2 where the header says so.
    Second { ordered: bool },
}

/// All messages of the header at `address`.
pub(super) fn messages<R: Read + Seek>(file: &mut File<'_, R>, address: u64) -> Result<Vec<Message>, Fault> {
    let head = file.bytes(address, 16)?;
    let (layout, mut block) = if head.starts_with(b"OHDR") {
        let flags = head[5];
        let mut at = 6 + if flags & 0x20 > 0 { 16 } else { 0 } + if flags & 0x10 > 0 { 4 } else { 0 };
        let width = 1 << (flags & 3);
        let size = file.bytes(address.saturating_add(at), width)?;
        at += width;
        let size = super::file::number(&size);
        (Layout::Second { ordered: flags & 4 > 0 }, file.bytes(address.saturating_add(at), size)?)
    } else if head[0] == 1 {
        let size = super::file::number(&head[8..12]);
        (Layout::First, file.bytes(address.saturating_add(16), size)?)
    } else {
        return Err(Fault::new(format!("expected an object header at {address}")));
    };
    let (mut found, mut more) = (Vec::new(), Vec::new());
    for _ in 0..MAX_BLOCKS {
        split(&block, layout, &mut found, &mut more, file)?;
        let Some((address, length)) = more.pop() else { return Ok(found) };
        block = file.bytes(address, length)?;
        if matches!(layout, Layout::Second { .. }) {
            // A signature before and a checksum behind.
            block = match block.strip_prefix(b"OCHK") {
                Some(rest) if rest.len() >= 4 => rest[..rest.len() - 4].to_vec(),
                _ => return Err(Fault::new("expected a continuation of an object header")),
            };
        }
    }
    Err(Fault::new(format!("an object header has more than {MAX_BLOCKS} blocks")))
}

/// Splits a block into messages; continuations are noted as address and length.
fn split<R: Read + Seek>(
    block: &[u8],
    layout: Layout,
    found: &mut Vec<Message>,
    more: &mut Vec<(u64, u64)>,
    file: &File<'_, R>,
) -> Result<(), Fault> {
    let mut cursor = Cursor(block);
    let head = match layout {
        Layout::First => 8,
        Layout::Second { ordered } => 4 + if ordered { 2 } else { 0 },
    };
    // What is shorter than a message's head is a gap.
    while cursor.0.len() >= head {
        let (kind, size) = match layout {
            Layout::First => (cursor.number(2)?, cursor.size(2)?),
            Layout::Second { .. } => (cursor.number(1)?, cursor.size(2)?),
        };
        cursor.take(head - if matches!(layout, Layout::First) { 4 } else { 3 })?;
        let data = cursor.take(size)?;
        if kind == CONTINUATION {
            let mut data = Cursor(data);
            more.push((data.number(file.offset_width())?, data.number(file.length_width())?));
        } else {
            found.push(Message { kind, data: data.to_vec() });
        }
    }
    Ok(())
}
