//! Messages without their payloads: what lies between the stream and the generated code.
//!
//! A message is copied field by field into memory, except tensor elements that are too many to matter to a shape,
//! and documentation. What is left is small and goes to the generated parser. In place of the elements a tensor
//! carries [`DROPPED`], the number of their bytes.

use crate::wire::{Content, Fault, Source};
use memfit_graph::{DType, Value};

/// The field of a slimmed `TensorProto` that says how many bytes of `raw_data` were left out.
pub(crate) const DROPPED_RAW: u32 = 100_000;

/// The same for the other fields of elements, whose bytes depend on the values.
pub(crate) const DROPPED: u32 = 100_001;

/// Messages up to this size are copied as they are; they are too small to hold a weight worth skipping.
const WHOLE: u64 = 1 << 10;

/// Integers fold up to [`Value::MAX_ELEMENTS`] elements; a varint takes at most ten bytes.
const MAX_INTEGER_BYTES: u64 = Value::MAX_ELEMENTS * 10;

/// Floating-point constants that shapes depend on (the scales of Resize) are few.
pub(crate) const MAX_FLOATS: u64 = 64;
const MAX_FLOAT_BYTES: u64 = MAX_FLOATS * 8;

/// Lists of integers and floats in attributes beyond this (tree ensembles have such) mean nothing to a shape.
const MAX_LIST_BYTES: u64 = 1 << 20;

/// Messages nest at most this deep; the generated parser has the same limit.
const MAX_DEPTH: u32 = 100;

/// What the parsed messages may take in memory: so much, and so much for each byte of the file. An attribute of two
/// bytes becomes a struct of 600, so a hostile file could otherwise fill the memory.
const MEMORY_BASE: u64 = 16 << 20;
const MEMORY_PER_BYTE: u64 = 64;

/// The messages that can hold a payload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Node,
    Attribute,
    Graph,
    Tensor,
    Sparse,
    Function,
}

enum Part {
    Copy,
    Drop,
    Elements,
    List,
    Message(Kind),
}

impl Kind {
    fn part(self, number: u32) -> Part {
        match (self, number) {
            (Kind::Node, 5) | (Kind::Function, 11) => Part::Message(Kind::Attribute),
            (Kind::Attribute, 5 | 10) | (Kind::Graph, 5) | (Kind::Sparse, 1 | 2) => {
                Part::Message(Kind::Tensor)
            }
            (Kind::Attribute, 6 | 11) => Part::Message(Kind::Graph),
            (Kind::Attribute, 22 | 23) | (Kind::Graph, 15) => Part::Message(Kind::Sparse),
            (Kind::Graph, 1) | (Kind::Function, 7) => Part::Message(Kind::Node),
            (Kind::Attribute, 7..=9) => Part::List,
            (Kind::Tensor, 4 | 5 | 6 | 7 | 9 | 10 | 11) => Part::Elements,
            (Kind::Node, 6) | (Kind::Attribute, 13) | (Kind::Graph, 10) => Part::Drop,
            (Kind::Tensor, 12) | (Kind::Function, 8) => Part::Drop,
            _ => Part::Copy,
        }
    }
}

/// Reads a message of `len` bytes without its payloads.
pub(crate) fn read(source: &mut Source<'_>, kind: Kind, len: u64) -> Result<Vec<u8>, Fault> {
    if len <= WHOLE {
        return source.take(len);
    }
    let end = source.at().saturating_add(len);
    let mut out = Vec::new();
    let memory = MEMORY_BASE + MEMORY_PER_BYTE.saturating_mul(len);
    Slimmer { source, memory }.message(kind, end, 0, &mut out)?;
    Ok(out)
}

struct Slimmer<'s, 'a> {
    source: &'s mut Source<'a>,
    memory: u64,
}

impl Slimmer<'_, '_> {
    fn message(&mut self, kind: Kind, end: u64, depth: u32, out: &mut Vec<u8>) -> Result<(), Fault> {
        let start = self.source.at();
        if depth > MAX_DEPTH {
            return Err(Fault::TooLarge { at: start, what: "bodies are nested too deep".into() });
        }
        self.memory = self.memory.checked_sub(600).ok_or_else(|| Fault::TooLarge {
            at: start,
            what: "a node holds more attributes and bodies than its size allows".into(),
        })?;
        let mut dtype = DType::Undefined;
        let (mut kept, mut dropped, mut dropped_raw) = (0, 0, 0);
        while let Some(field) = self.source.field(end)? {
            let size = match field.content {
                Content::Varint(n) => {
                    if kind == Kind::Tensor && field.number == 2 {
                        dtype = i32::try_from(n).ok().and_then(DType::from_onnx).unwrap_or(dtype);
                    }
                    varint_len(n)
                }
                Content::Fixed32(_) => 4,
                Content::Fixed64(_) => 8,
                Content::Bytes(n) => n,
            };
            let limit = match kind.part(field.number) {
                Part::Message(inner) => {
                    if let Content::Bytes(n) = field.content {
                        let mut bytes = Vec::new();
                        self.message(inner, self.source.at() + n, depth + 1, &mut bytes)?;
                        put_bytes(out, field.number, &bytes);
                        continue;
                    }
                    u64::MAX
                }
                Part::Copy => u64::MAX,
                Part::Drop => 0,
                Part::List => MAX_LIST_BYTES,
                // Strings never fold.
                Part::Elements if field.number == 6 => 0,
                Part::Elements if dtype == DType::Undefined || dtype.is_integer() => MAX_INTEGER_BYTES,
                Part::Elements => MAX_FLOAT_BYTES,
            };
            let counts = matches!(kind.part(field.number), Part::Elements | Part::List);
            if limit == 0 || (counts && kept + size > limit) {
                if let Content::Bytes(n) = field.content {
                    self.source.go(self.source.at() + n)?;
                }
                match field.number {
                    9 if counts => dropped_raw += size,
                    _ if counts => dropped += size,
                    _ => {}
                }
                continue;
            }
            kept += if counts { size } else { 0 };
            self.copy(field.number, field.content, out)?;
        }
        for (number, bytes) in [(DROPPED_RAW, dropped_raw), (DROPPED, dropped)] {
            if kind == Kind::Tensor && bytes > 0 {
                put_varint(out, u64::from(number) << 3);
                put_varint(out, bytes);
            }
        }
        Ok(())
    }

    fn copy(&mut self, number: u32, content: Content, out: &mut Vec<u8>) -> Result<(), Fault> {
        let tag = u64::from(number) << 3;
        match content {
            Content::Varint(n) => {
                put_varint(out, tag);
                put_varint(out, n);
            }
            Content::Fixed64(bytes) => {
                put_varint(out, tag | 1);
                out.extend_from_slice(&bytes);
            }
            Content::Fixed32(bytes) => {
                put_varint(out, tag | 5);
                out.extend_from_slice(&bytes);
            }
            Content::Bytes(n) => put_bytes(out, number, &self.source.take(n)?),
        }
        Ok(())
    }
}

fn put_varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn put_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_varint(out, u64::from(number) << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn varint_len(n: u64) -> u64 {
    u64::from(64 - (n | 1).leading_zeros()).div_ceil(7)
}

#[cfg(test)]
mod tests {
    use super::*;
    use onnx_protobuf::attribute_proto::AttributeType;
    use onnx_protobuf::{AttributeProto, GraphProto, NodeProto, TensorProto};
    use protobuf::Message;
    use std::io::Cursor;

    fn slimmed<M: Message>(kind: Kind, message: &M) -> (M, usize) {
        let bytes = message.write_to_bytes().unwrap();
        let mut cursor = Cursor::new(&bytes);
        let out = read(&mut Source::new(&mut cursor).unwrap(), kind, bytes.len() as u64).unwrap();
        (M::parse_from_bytes(&out).unwrap(), out.len())
    }

    fn weight(data_type: i32, bytes: usize) -> TensorProto {
        TensorProto { name: "w".into(), data_type, raw_data: vec![1; bytes], ..Default::default() }
    }

    #[test]
    fn weights_inside_of_bodies_are_left_out_and_the_rest_stays() {
        let body =
            GraphProto { initializer: vec![weight(1, 100_000), weight(7, 1000)], ..Default::default() };
        let attribute = AttributeProto {
            name: "then_branch".into(),
            type_: AttributeType::GRAPH.into(),
            g: Some(body).into(),
            ..Default::default()
        };
        let node = NodeProto { op_type: "If".into(), attribute: vec![attribute], ..Default::default() };
        let (node, len) = slimmed(Kind::Node, &node);
        assert!(len < 1200, "{len} bytes");
        let body = node.attribute[0].g.as_ref().unwrap();
        assert_eq!((node.op_type.as_str(), body.initializer[0].name.as_str()), ("If", "w"));
        assert!(body.initializer[0].raw_data.is_empty());
        let left_out = body.initializer[0].special_fields.unknown_fields().get(DROPPED_RAW);
        assert!(matches!(left_out, Some(protobuf::UnknownValueRef::Varint(100_000))));
        assert_eq!(body.initializer[1].raw_data.len(), 1000);
    }

    #[test]
    fn typed_elements_are_left_out_too() {
        let tensor = TensorProto { data_type: 1, float_data: vec![0.5; 10_000], ..Default::default() };
        let (tensor, _) = slimmed(Kind::Tensor, &tensor);
        assert!(tensor.float_data.is_empty());
        assert!(tensor.special_fields.unknown_fields().get(DROPPED).is_some());
    }

    #[test]
    fn a_swarm_of_empty_attributes_is_refused() {
        let bytes = [5 << 3 | 2, 0].repeat(1 << 20);
        let mut cursor = Cursor::new(&bytes);
        let mut source = Source::new(&mut cursor).unwrap();
        let fault = read(&mut source, Kind::Node, bytes.len() as u64).unwrap_err();
        assert!(matches!(fault, Fault::TooLarge { .. }));
    }
}
