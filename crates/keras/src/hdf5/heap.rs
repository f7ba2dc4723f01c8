//! Global heaps, which hold texts of variable length.

use super::file::{Cursor, Fault, File};
use std::io::{Read, Seek};

/// The first `length` bytes of object `index` of the collection at `address`.
pub(super) fn object<R: Read + Seek>(
    file: &mut File<'_, R>,
    address: u64,
    index: u64,
    length: u64,
) -> Result<Vec<u8>, Fault> {
    let width = file.length_width();
    let head = file.bytes(address, 8 + width as u64)?;
    let mut cursor = Cursor(&head);
    cursor.expect(b"GCOL")?;
    cursor.take(4)?;
    let end = cursor.number(width)?;
    let mut at = 8 + width as u64;
    // Objects are numbered with 16 bits, so there are no more than that.
    for _ in 0..=u32::from(u16::MAX) {
        let start = at.checked_add(8 + width as u64).filter(|start| *start <= end);
        let Some(start) = start else { break };
        let head = file.bytes(address.saturating_add(at), 8 + width as u64)?;
        let mut cursor = Cursor(&head);
        let found = cursor.number(2)?;
        cursor.take(6)?;
        let size = cursor.number(width)?;
        if found == index {
            if size < length {
                return Err(Fault::new(format!("a text of {length} bytes in {size}")));
            }
            return file.bytes(address.saturating_add(start), length);
        }
        // Number zero is the free space at the end.
        let next = size.checked_next_multiple_of(8).and_then(|size| start.checked_add(size));
        match next {
            Some(next) if found != 0 => at = next,
            _ => break,
        }
    }
    Err(Fault::new("a text is not in its heap"))
}
