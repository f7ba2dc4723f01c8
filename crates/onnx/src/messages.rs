//! ONNX's messages, in memory: the fields that memory or shapes depend on, under the names and numbers of `onnx.proto`.
//!
//! What comes here is small: payloads were left out before ([`crate::slim`]). Generated code for all of `onnx.proto` and its
//! library would be a tenth of a clean build; the tests compare with it.

/// Messages nest at most this deep, as in Google's parsers.
const MAX_DEPTH: u32 = 100;

/// What a field holds, as its wire type says.
#[derive(Clone, Copy)]
pub(crate) enum Content<'b> {
    Varint(u64),
    Fixed64([u8; 8]),
    Bytes(&'b [u8]),
    Fixed32([u8; 4]),
}

/// Why bytes are not a message.
pub(crate) type Damage = &'static str;

/// A message, filled field by field.
pub(crate) trait Message: Default {
    /// Takes a field, or passes over it.
    fn put(&mut self, number: u32, content: Content<'_>, depth: u32) -> Result<(), Damage>;

    /// Takes the length of what it was read from.
    fn grow(&mut self, bytes: u64);
}

/// The place of a field. Content of another wire type than the place's is passed over, as an unknown field is.
trait Field {
    fn put(&mut self, content: Content<'_>, depth: u32) -> Result<(), Damage>;
}

/// What a list holds one by one.
trait Element: Field + Default {}

macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident { $($number:literal $field:ident: $ty:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default)]
        pub(crate) struct $name {
            $(pub(crate) $field: $ty,)*
            /// The length of the message.
            pub(crate) bytes: u64,
        }

        impl Message for $name {
            fn put(&mut self, number: u32, content: Content<'_>, depth: u32) -> Result<(), Damage> {
                match number {
                    $($number => Field::put(&mut self.$field, content, depth),)*
                    _ => Ok(()),
                }
            }

            fn grow(&mut self, bytes: u64) {
                self.bytes += bytes;
            }
        }

        impl Field for $name {
            fn put(&mut self, content: Content<'_>, depth: u32) -> Result<(), Damage> {
                match content {
                    Content::Bytes(bytes) => merge(self, bytes, depth + 1),
                    _ => Ok(()),
                }
            }
        }

        impl Element for $name {}
    )*};
}

messages! {
    /// A node.
    NodeProto {
        1 input: Vec<String>,
        2 output: Vec<String>,
        3 name: String,
        4 op_type: String,
        5 attribute: Vec<AttributeProto>,
        7 domain: String,
        8 overload: String,
        9 metadata_props: Vec<StringStringEntryProto>,
    }

    /// An attribute; `type_` says which of its values counts.
    AttributeProto {
        1 name: String,
        2 f: f32,
        3 i: i64,
        4 s: Vec<u8>,
        5 t: Option<Box<TensorProto>>,
        6 g: Option<Box<GraphProto>>,
        7 floats: Vec<f32>,
        8 ints: Vec<i64>,
        9 strings: Vec<Vec<u8>>,
        11 graphs: Vec<GraphProto>,
        20 type_: i32,
        21 ref_attr_name: String,
        22 sparse_tensor: Option<Box<SparseTensorProto>>,
    }

    /// A body. The model's own graph is read from the stream, node by node.
    GraphProto {
        1 node: Vec<NodeProto>,
        2 name: String,
        5 initializer: Vec<TensorProto>,
        11 input: Vec<ValueInfoProto>,
        12 output: Vec<ValueInfoProto>,
        13 value_info: Vec<ValueInfoProto>,
        15 sparse_initializer: Vec<SparseTensorProto>,
    }

    /// A function of the model's own.
    FunctionProto {
        1 name: String,
        4 input: Vec<String>,
        5 output: Vec<String>,
        7 node: Vec<NodeProto>,
        9 opset_import: Vec<OperatorSetIdProto>,
        10 domain: String,
        11 attribute_proto: Vec<AttributeProto>,
        13 overload: String,
    }

    /// The version of a domain's operators.
    OperatorSetIdProto {
        1 domain: String,
        2 version: i64,
    }

    /// A stored tensor. The last two are not ONNX's: the bytes of elements that were left out.
    TensorProto {
        1 dims: Vec<i64>,
        2 data_type: i32,
        4 float_data: Vec<f32>,
        5 int32_data: Vec<i32>,
        7 int64_data: Vec<i64>,
        8 name: String,
        9 raw_data: Vec<u8>,
        10 double_data: Vec<f64>,
        11 uint64_data: Vec<u64>,
        14 data_location: i32,
        100_000 dropped_raw: u64,
        100_001 dropped: u64,
    }

    /// A sparse tensor.
    SparseTensorProto {
        1 values: Option<TensorProto>,
        2 indices: Option<TensorProto>,
        3 dims: Vec<i64>,
    }

    /// A tensor's name and type.
    ValueInfoProto {
        1 name: String,
        2 type_: Option<TypeProto>,
    }

    /// A type: one of these.
    TypeProto {
        1 tensor_type: Option<TensorTypeProto>,
        4 sequence_type: Option<ElementTypeProto>,
        5 map_type: Option<MapTypeProto>,
        8 sparse_tensor_type: Option<TensorTypeProto>,
        9 optional_type: Option<ElementTypeProto>,
    }

    /// The type of a tensor, dense or sparse.
    TensorTypeProto {
        1 elem_type: i32,
        2 shape: Option<TensorShapeProto>,
    }

    /// A sequence or an optional of something.
    ElementTypeProto {
        1 elem_type: Option<Box<TypeProto>>,
    }

    /// A map.
    MapTypeProto {
        2 value_type: Option<Box<TypeProto>>,
    }

    /// Dims.
    TensorShapeProto {
        1 dim: Vec<Dimension>,
    }

    /// A dim: a number, a symbol or nothing.
    Dimension {
        1 dim_value: Option<i64>,
        2 dim_param: Option<String>,
    }

    /// A line of metadata.
    StringStringEntryProto {
        1 key: String,
        2 value: String,
    }
}

/// The kind of an attribute's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum AttributeType {
    Float,
    Int,
    String,
    Tensor,
    Graph,
    Floats,
    Ints,
    Strings,
    Graphs,
    SparseTensor,
    /// Of no operator that memfit knows: several tensors, types.
    Other,
}

impl AttributeType {
    /// The kind with ONNX's number.
    pub(crate) fn of(number: i32) -> Option<AttributeType> {
        Some(match number {
            1 => AttributeType::Float,
            2 => AttributeType::Int,
            3 => AttributeType::String,
            4 => AttributeType::Tensor,
            5 => AttributeType::Graph,
            6 => AttributeType::Floats,
            7 => AttributeType::Ints,
            8 => AttributeType::Strings,
            10 => AttributeType::Graphs,
            11 => AttributeType::SparseTensor,
            9 | 12..=14 => AttributeType::Other,
            _ => return None,
        })
    }
}

impl AttributeProto {
    /// The bodies that it holds.
    pub(crate) fn bodies(&self) -> impl Iterator<Item = &GraphProto> {
        self.g.as_deref().into_iter().chain(&self.graphs)
    }
}

/// Reads a message.
pub(crate) fn parse<M: Message>(bytes: &[u8]) -> Result<M, Damage> {
    let mut message = M::default();
    merge(&mut message, bytes, 0)?;
    Ok(message)
}

fn merge<M: Message>(message: &mut M, mut bytes: &[u8], depth: u32) -> Result<(), Damage> {
    if depth > MAX_DEPTH {
        return Err("messages nested too deep");
    }
    message.grow(bytes.len() as u64);
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        let number = u32::try_from(tag >> 3).ok().filter(|n| *n > 0).ok_or("a field without a number")?;
        let content = match tag & 7 {
            0 => Content::Varint(varint(&mut bytes)?),
            1 => Content::Fixed64(fixed(&mut bytes)?),
            2 => {
                let len = varint(&mut bytes)?;
                let (own, rest) = usize::try_from(len)
                    .ok()
                    .and_then(|n| bytes.split_at_checked(n))
                    .ok_or("a field longer than its message")?;
                bytes = rest;
                Content::Bytes(own)
            }
            5 => Content::Fixed32(fixed(&mut bytes)?),
            _ => return Err("an unknown wire type"),
        };
        message.put(number, content, depth)?;
    }
    Ok(())
}

fn varint(bytes: &mut &[u8]) -> Result<u64, Damage> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or("a number that is cut off")?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err("a number longer than ten bytes")
}

fn fixed<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], Damage> {
    let (own, rest) = bytes.split_first_chunk().ok_or("a number that is cut off")?;
    *bytes = rest;
    Ok(*own)
}

macro_rules! numbers {
    ($($ty:ident: $wire:ident, $read:ident, $of:expr;)*) => {$(
        impl Field for $ty {
            fn put(&mut self, content: Content<'_>, _: u32) -> Result<(), Damage> {
                if let Content::$wire(n) = content {
                    *self = $of(n);
                }
                Ok(())
            }
        }

        // Each in a field, or all packed into one.
        impl Field for Vec<$ty> {
            fn put(&mut self, content: Content<'_>, _: u32) -> Result<(), Damage> {
                match content {
                    Content::$wire(n) => self.push($of(n)),
                    Content::Bytes(mut packed) => {
                        while !packed.is_empty() {
                            self.push($of($read(&mut packed)?));
                        }
                    }
                    _ => {}
                }
                Ok(())
            }
        }
    )*};
}

numbers! {
    i32: Varint, varint, |n: u64| n as i32;
    i64: Varint, varint, |n: u64| n as i64;
    u64: Varint, varint, |n: u64| n;
    f32: Fixed32, fixed, f32::from_le_bytes;
    f64: Fixed64, fixed, f64::from_le_bytes;
}

impl Field for Vec<u8> {
    fn put(&mut self, content: Content<'_>, _: u32) -> Result<(), Damage> {
        if let Content::Bytes(bytes) = content {
            *self = bytes.to_vec();
        }
        Ok(())
    }
}

impl Field for String {
    fn put(&mut self, content: Content<'_>, _: u32) -> Result<(), Damage> {
        if let Content::Bytes(bytes) = content {
            *self = str::from_utf8(bytes).map_err(|_| "text that is not UTF-8")?.to_owned();
        }
        Ok(())
    }
}

impl<F: Field> Field for Box<F> {
    fn put(&mut self, content: Content<'_>, depth: u32) -> Result<(), Damage> {
        F::put(self, content, depth)
    }
}

impl<F: Field + Default> Field for Option<F> {
    fn put(&mut self, content: Content<'_>, depth: u32) -> Result<(), Damage> {
        self.get_or_insert_default().put(content, depth)
    }
}

impl Element for String {}
impl Element for Vec<u8> {}

impl<E: Element> Field for Vec<E> {
    fn put(&mut self, content: Content<'_>, depth: u32) -> Result<(), Damage> {
        if let Content::Bytes(_) = content {
            let mut element = E::default();
            element.put(content, depth)?;
            self.push(element);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onnx_protobuf as generated;
    use protobuf::Message as _;

    #[test]
    fn fields_are_those_of_the_generated_code() {
        let tensor = generated::TensorProto {
            name: "w".into(),
            dims: vec![2, -1],
            data_type: 7,
            float_data: vec![0.5, -2.0],
            int32_data: vec![-1, 300],
            int64_data: vec![-1, i64::MAX],
            double_data: vec![0.1],
            uint64_data: vec![u64::MAX],
            raw_data: vec![1, 2],
            data_location: generated::tensor_proto::DataLocation::EXTERNAL.into(),
            doc_string: "passed over".into(),
            ..Default::default()
        };
        let read: TensorProto = parse(&tensor.write_to_bytes().unwrap()).unwrap();
        assert_eq!((&read.name, &read.dims, read.data_type), (&tensor.name, &tensor.dims, 7));
        assert_eq!((&read.float_data, &read.double_data), (&tensor.float_data, &tensor.double_data));
        assert_eq!((&read.int32_data, &read.int64_data), (&tensor.int32_data, &tensor.int64_data));
        assert_eq!((&read.uint64_data, &read.raw_data), (&tensor.uint64_data, &tensor.raw_data));
        assert_eq!((read.data_location, read.bytes), (1, tensor.compute_size()));

        let attribute = generated::AttributeProto {
            name: "a".into(),
            ref_attr_name: "b".into(),
            type_: generated::attribute_proto::AttributeType::INTS.into(),
            f: 1.5,
            i: -3,
            s: vec![0xff],
            t: Some(tensor).into(),
            floats: vec![1.0, 2.0],
            ints: vec![7, -7],
            strings: vec![vec![1], vec![]],
            ..Default::default()
        };
        let read: AttributeProto = parse(&attribute.write_to_bytes().unwrap()).unwrap();
        assert_eq!((&*read.name, &*read.ref_attr_name, read.type_), ("a", "b", 7));
        assert_eq!((read.f, read.i, &read.s), (1.5, -3, &attribute.s));
        assert_eq!(
            (&read.floats, &read.ints, &read.strings),
            (&attribute.floats, &attribute.ints, &attribute.strings)
        );
        assert_eq!(read.t.unwrap().dims, [2, -1]);
    }

    #[test]
    fn numbers_come_packed_or_one_by_one_and_the_last_of_a_single_one_counts() {
        let read: AttributeProto = parse(&[8 << 3, 5, 8 << 3 | 2, 2, 6, 7, 3 << 3, 1, 3 << 3, 2]).unwrap();
        assert_eq!((read.ints, read.i), (vec![5, 6, 7], 2));
        // The name is a text: a number in its place is passed over.
        assert_eq!(parse::<AttributeProto>(&[1 << 3, 5]).unwrap().name, "");
    }

    #[test]
    fn damage_is_refused() {
        let damage = |bytes: &[u8]| parse::<NodeProto>(bytes).unwrap_err();
        assert_eq!(damage(&[3 << 3 | 2, 5, 0]), "a field longer than its message");
        assert_eq!(damage(&[3 << 3 | 2, 1, 0xff]), "text that is not UTF-8");
        assert_eq!(damage(&[0x80]), "a number that is cut off");
        assert_eq!(damage(&[0xff; 12]), "a number longer than ten bytes");
        assert_eq!(damage(&[0, 0]), "a field without a number");
        assert_eq!(damage(&[3 << 3 | 3]), "an unknown wire type");
        // A sequence of sequences of …
        let mut bytes = Vec::new();
        for _ in 0..60 {
            for number in [1_u8, 4] {
                let mut outer = vec![number << 3 | 2];
                let mut len = bytes.len();
                while len >= 0x80 {
                    outer.push(len as u8 | 0x80);
                    len >>= 7;
                }
                outer.push(len as u8);
                outer.append(&mut bytes);
                bytes = outer;
            }
        }
        assert_eq!(parse::<TypeProto>(&bytes).unwrap_err(), "messages nested too deep");
    }
}
