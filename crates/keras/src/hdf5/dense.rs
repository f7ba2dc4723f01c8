//! Attributes that are kept densely: names in a version 2 B-tree, messages in a fractal heap.
//!
//! h5py writes them so from nine attributes on, or where a caller asks for the latest format. A tree of one node (29
//! attributes) and a heap whose blocks hang on its root are read; more says so.

use super::attribute::managed_id;
use super::file::{Cursor, Fault, File};
use std::io::{Read, Seek};

/// The type of B-tree records that index attributes by name: heap id 8, flags 1, creation order 4, hash 4.
const BY_NAME: u8 = 8;

/// What is needed of a fractal heap's header.
struct Heap {
    offset_width: usize,
    width: u64,
    start_size: u64,
    largest: u64,
    root: u64,
    rows: u64,
    /// Bytes before the first child of an indirect block.
    indirect_head: u64,
}

/// The messages of all attributes that the attribute info points to.
pub(super) fn attributes<R: Read + Seek>(file: &mut File<'_, R>, info: &[u8]) -> Result<Vec<Vec<u8>>, Fault> {
    let mut cursor = Cursor(info);
    cursor.byte()?;
    if cursor.byte()? & 1 > 0 {
        cursor.take(2)?;
    }
    let width = file.offset_width();
    let (heap, tree) = (cursor.number(width)?, cursor.number(width)?);
    // All ones: there are none.
    if heap == u64::MAX >> (64 - 8 * width) {
        return Ok(Vec::new());
    }
    let heap = header(file, heap)?;
    let mut messages = Vec::new();
    for id in records(file, tree)? {
        let (offset, length) = managed_id(&id, heap.offset_width)?;
        let address = locate(file, &heap, offset)?;
        messages.push(file.bytes(address, length)?);
    }
    Ok(messages)
}

fn header<R: Read + Seek>(file: &mut File<'_, R>, address: u64) -> Result<Heap, Fault> {
    let (offset, length) = (file.offset_width(), file.length_width());
    let head = file.bytes(address, (26 + 12 * length + 3 * offset) as u64)?;
    let mut cursor = Cursor(&head);
    cursor.expect(b"FRHP")?;
    cursor.take(3)?;
    if cursor.number(2)? > 0 {
        return Err(Fault::new("its attributes are filtered"));
    }
    cursor.take(5 + 2 * length + 2 * offset + 8 * length)?;
    let width = cursor.number(2)?;
    let (start_size, largest) = (cursor.number(length)?, cursor.number(length)?);
    let bits = cursor.number(2)?;
    cursor.take(2)?;
    let root = cursor.number(offset)?;
    let rows = cursor.number(2)?;
    let offset_width = usize::try_from(bits.div_ceil(8)).unwrap_or(usize::MAX);
    if offset_width > 8 || width == 0 || start_size == 0 {
        return Err(Fault::new("a fractal heap without blocks"));
    }
    let indirect_head = 5 + offset as u64 + offset_width as u64;
    Ok(Heap { offset_width, width, start_size, largest, root, rows, indirect_head })
}

/// The heap ids of a tree that is one leaf.
fn records<R: Read + Seek>(file: &mut File<'_, R>, address: u64) -> Result<Vec<Vec<u8>>, Fault> {
    let width = file.offset_width();
    let head = file.bytes(address, 18 + width as u64)?;
    let mut cursor = Cursor(&head);
    cursor.expect(b"BTHD")?;
    cursor.byte()?;
    if cursor.byte()? != BY_NAME {
        return Err(Fault::new("expected a tree of attributes by name"));
    }
    cursor.take(4)?;
    let (size, depth) = (cursor.size(2)?, cursor.number(2)?);
    cursor.take(2)?;
    let (root, count) = (cursor.number(width)?, cursor.number(2)?);
    if depth > 0 || size < 8 {
        return Err(Fault::new("it has more attributes than are read"));
    }
    let leaf = file.bytes(root, 6 + count * size as u64)?;
    let mut cursor = Cursor(&leaf);
    cursor.expect(b"BTLF")?;
    cursor.take(2)?;
    (0..count).map(|_| Ok(cursor.take(size)?[..8].to_vec())).collect()
}

/// The file's address of an offset in the heap's space. Blocks of the first two rows are of the first size; from there each
/// row's are twice as large.
fn locate<R: Read + Seek>(file: &mut File<'_, R>, heap: &Heap, offset: u64) -> Result<u64, Fault> {
    let beyond = || Fault::new("an attribute lies beyond the blocks that are read");
    if heap.rows == 0 {
        return heap.root.checked_add(offset).ok_or_else(beyond);
    }
    let (mut begin, mut child) = (0_u64, heap.root.saturating_add(heap.indirect_head));
    for row in 0..heap.rows.min(64) {
        let size = heap.start_size.checked_shl(u32::try_from(row.saturating_sub(1)).unwrap_or(64));
        let size = size.filter(|s| *s > 0 && *s <= heap.largest).ok_or_else(beyond)?;
        let end = size.checked_mul(heap.width).and_then(|row| begin.checked_add(row)).ok_or_else(beyond)?;
        if offset < end {
            let at = (offset - begin) / size;
            let address = file.address(child.saturating_add(at * file.offset_width() as u64))?;
            return address.checked_add((offset - begin) % size).ok_or_else(beyond);
        }
        begin = end;
        child = child.saturating_add(heap.width * file.offset_width() as u64);
    }
    Err(beyond())
}
