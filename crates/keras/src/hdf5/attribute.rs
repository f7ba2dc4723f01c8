//! Attributes whose value is a text, kept in the object's header or densely beside it.

use super::file::{Cursor, Fault, File, number};
use super::header::Message;
use super::{dense, heap};
use std::io::{Read, Seek};

const ATTRIBUTE: u64 = 0x0C;
const ATTRIBUTE_INFO: u64 = 0x15;

/// An attribute message taken apart.
struct Attribute<'a> {
    name: &'a [u8],
    datatype: &'a [u8],
    data: &'a [u8],
}

impl<'a> Attribute<'a> {
    fn read(message: &'a [u8]) -> Result<Attribute<'a>, Fault> {
        let mut cursor = Cursor(message);
        let version = cursor.byte()?;
        if !(1..=3).contains(&version) {
            return Err(Fault::new(format!("attribute version {version}")));
        }
        cursor.byte()?;
        let [name, datatype, dataspace] = [cursor.size(2)?, cursor.size(2)?, cursor.size(2)?];
        if version == 3 {
            cursor.byte()?;
        }
        // The first version pads each part to eight bytes.
        let padded = |size: usize| if version == 1 { size.next_multiple_of(8) } else { size };
        let name = cursor.take(padded(name))?;
        let name = name.split(|b| *b == 0).next().unwrap_or(name);
        let datatype = cursor.take(padded(datatype))?;
        cursor.take(padded(dataspace))?;
        Ok(Attribute { name, datatype, data: cursor.0 })
    }
}

/// The text of the attribute `name`, if the object has it.
pub(super) fn text<R: Read + Seek>(
    file: &mut File<'_, R>,
    messages: &[Message],
    name: &str,
    most: u64,
) -> Result<Option<Vec<u8>>, Fault> {
    for message in messages.iter().filter(|m| m.kind == ATTRIBUTE) {
        let attribute = Attribute::read(&message.data)?;
        if attribute.name == name.as_bytes() {
            return value(file, &attribute, most).map(Some);
        }
    }
    for info in messages.iter().filter(|m| m.kind == ATTRIBUTE_INFO) {
        for message in dense::attributes(file, &info.data)? {
            let attribute = Attribute::read(&message)?;
            if attribute.name == name.as_bytes() {
                return value(file, &attribute, most).map(Some);
            }
        }
    }
    Ok(None)
}

/// The elements of a text: in place where its length is fixed, else in a global heap.
fn value<R: Read + Seek>(
    file: &mut File<'_, R>,
    attribute: &Attribute<'_>,
    most: u64,
) -> Result<Vec<u8>, Fault> {
    let mut datatype = Cursor(attribute.datatype);
    let class = datatype.byte()? & 0x0F;
    let kind = datatype.byte()? & 0x0F;
    datatype.take(2)?;
    let size = datatype.size(4)?;
    let mut data = Cursor(attribute.data);
    let mut text = match (class, kind) {
        (3, _) => data.take(size)?.to_vec(),
        // A sequence of bytes is a text too.
        (9, _) => {
            let length = data.number(4)?;
            let address = data.number(file.offset_width())?;
            let index = data.number(4)?;
            if length > most {
                return Err(Fault::new(format!("a text of {length} bytes")));
            }
            heap::object(file, address, index, length)?
        }
        _ => return Err(Fault::new("expected a text as an attribute's value")),
    };
    while text.last().is_some_and(|b| *b == 0 || *b == b' ') {
        text.pop();
    }
    Ok(text)
}

/// A dense attribute's heap id: where in the heap's space, and how long.
pub(super) fn managed_id(id: &[u8], offset_width: usize) -> Result<(u64, u64), Fault> {
    let mut cursor = Cursor(id);
    if cursor.byte()? & 0x30 != 0 {
        return Err(Fault::new("an attribute is kept outside of its heap's blocks"));
    }
    let offset = cursor.number(offset_width)?;
    Ok((offset, number(cursor.0)))
}
