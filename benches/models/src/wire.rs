//! The wire format of protocol buffers, as far as writing needs it.

/// A message under construction.
#[derive(Clone, Default)]
pub(crate) struct Message(pub(crate) Vec<u8>);

impl Message {
    /// A field that holds a number.
    pub(crate) fn number(mut self, field: u32, value: u64) -> Message {
        varint(&mut self.0, u64::from(field) << 3);
        varint(&mut self.0, value);
        self
    }

    /// A field that holds bytes, text or a message.
    pub(crate) fn bytes(mut self, field: u32, value: impl AsRef<[u8]>) -> Message {
        self.0.extend(key(field, value.as_ref().len() as u64));
        self.0.extend(value.as_ref());
        self
    }
}

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// What stands before the bytes of a field.
pub(crate) fn key(field: u32, length: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    varint(&mut bytes, u64::from(field) << 3 | 2);
    varint(&mut bytes, length);
    bytes
}

fn varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}
