//! `TensorProto` without its weights: dtype, dims and, where they are few, the elements that shapes may depend on.
//!
//! Elements come in `raw_data` (little-endian) or in one of the typed fields: `int32_data` carries every integer of up
//! to 32 bits, truth values and the bit patterns of halves; types of four and two bits are packed, lowest bits first.

use crate::slim::{DROPPED, DROPPED_RAW, MAX_FLOATS};
use crate::types;
use memfit_graph::{DType, Num, Problem, Shape, Type, Value};
use onnx_protobuf::tensor_proto::DataLocation;
use onnx_protobuf::{SparseTensorProto, TensorProto};
use protobuf::UnknownValueRef;

/// What is known of a stored tensor.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<u64>,
    pub(crate) value: Option<Value>,
}

impl Stored {
    /// The type of the dense tensor.
    pub(crate) fn ty(&self) -> Type {
        Type::tensor(self.dtype, Shape::from(&self.shape[..]))
    }
}

/// Reads a tensor; `None`, with a problem that names it as `name`, where its dims make no sense.
pub(crate) fn read(name: &str, proto: &TensorProto, problems: &mut Vec<Problem>) -> Option<Stored> {
    let dtype = types::dtype(name, proto.data_type, problems);
    let shape = sizes(name, dtype, &proto.dims, problems)?;
    let elements: u64 = shape.iter().product();
    let external = proto.data_location.enum_value() == Ok(DataLocation::EXTERNAL);
    let found = if external { None } else { found(proto, dtype, elements) };
    if let Some((expected, found, unit)) = found.filter(|(expected, found, _)| expected != found) {
        let message = format!(
            "expected {expected} {unit} of data for {elements} elements of {dtype}, found {found} {unit}"
        );
        problems.push(Problem::new(name, message).hint("the file is damaged; export it again"));
        return None;
    }
    let wanted = if dtype.is_integer() { Value::MAX_ELEMENTS } else { MAX_FLOATS };
    let left_out = proto.special_fields.unknown_fields();
    let dropped = left_out.get(DROPPED).or(left_out.get(DROPPED_RAW)).is_some();
    let value = (!external && !dropped && elements <= wanted)
        .then(|| elements_of(proto, dtype))
        .flatten()
        .filter(|data| data.len() as u64 == elements)
        .map(|data| Value { dtype, shape: shape.clone(), data });
    Some(Stored { dtype, shape, value })
}

/// Reads a sparse tensor as the dense one it stands for.
pub(crate) fn read_sparse(
    name: &str,
    proto: &SparseTensorProto,
    problems: &mut Vec<Problem>,
) -> Option<Stored> {
    let values = proto.values.as_ref().and_then(|v| read(name, v, problems));
    let dtype = values.as_ref().map_or(DType::Undefined, |v| v.dtype);
    let shape = sizes(name, dtype, &proto.dims, problems)?;
    let indices = proto.indices.as_ref().and_then(|i| read(name, i, problems));
    let value = values.zip(indices).and_then(|(values, indices)| {
        let zero = if dtype.is_integer() { Num::Int(0) } else { Num::Float(0.0) };
        let mut dense = Value::filled(dtype, &shape, zero)?;
        let values = values.value?;
        let at = indices.value?.ints()?;
        // One flat index for each value, or one index for each axis.
        let per = if indices.shape.len() == 2 { shape.len() } else { 1 };
        if per == 0 || at.len() != values.data.len().checked_mul(per)? {
            return None;
        }
        for (n, index) in values.data.into_iter().zip(at.chunks(per)) {
            let flat = match index {
                [flat] if per == 1 => *flat,
                index => index.iter().zip(&shape).try_fold(0_i64, |flat, (i, d)| {
                    flat.checked_mul(i64::try_from(*d).ok()?)?.checked_add(*i)
                })?,
            };
            *dense.data.get_mut(usize::try_from(flat).ok()?)? = n;
        }
        Some(dense)
    });
    Some(Stored { dtype, shape, value })
}

/// The dims as sizes, where none is negative and all elements together can be counted in bytes.
fn sizes(name: &str, dtype: DType, dims: &[i64], problems: &mut Vec<Problem>) -> Option<Vec<u64>> {
    if dims.len() > types::MAX_RANK {
        problems.push(types::too_many_dims(name, dims.len()));
        return None;
    }
    if let Some((axis, n)) = dims.iter().enumerate().find(|(_, n)| **n < 0) {
        problems.push(types::negative_dim(name, axis, *n));
        return None;
    }
    let shape: Vec<u64> = dims.iter().map(|n| n.unsigned_abs()).collect();
    // Zero last, so that an absurd size beside it is still seen.
    let bits = shape.iter().filter(|n| **n > 0).try_fold(dtype.bits().max(1), |acc, n| acc.checked_mul(*n));
    if bits.is_none() {
        let message =
            format!("expected a size that fits in memory, found {dtype} {}", Shape::from(&shape[..]));
        problems.push(Problem::new(name, message).hint("the file is damaged"));
        return None;
    }
    Some(shape)
}

/// How much data there should be, how much there is, and in what unit, where the file holds any that can be counted.
fn found(proto: &TensorProto, dtype: DType, elements: u64) -> Option<(u64, u64, &'static str)> {
    if dtype == DType::String {
        return None;
    }
    if let Some(bytes) = raw_bytes(proto) {
        return Some((dtype.size_of(elements).0, bytes, "bytes"));
    }
    let dropped = match proto.special_fields.unknown_fields().get(DROPPED) {
        Some(UnknownValueRef::Varint(bytes)) => bytes,
        _ => 0,
    };
    // Only numbers of a fixed width can be counted by their bytes.
    let numbers = match dtype {
        DType::Float32 => proto.float_data.len() as u64 + dropped / 4,
        DType::Float64 => proto.double_data.len() as u64 + dropped / 8,
        _ if dropped > 0 => return None,
        DType::Int64 => proto.int64_data.len() as u64,
        DType::Uint32 | DType::Uint64 => proto.uint64_data.len() as u64,
        DType::Int32 | DType::Int16 | DType::Int8 | DType::Uint16 | DType::Uint8 => {
            proto.int32_data.len() as u64
        }
        DType::Bool | DType::Float16 | DType::Bfloat16 => proto.int32_data.len() as u64,
        _ => return None,
    };
    // A file without its weights may hold none at all.
    (numbers > 0).then_some((elements, numbers, "numbers"))
}

/// How many bytes of `raw_data` there are in the file, where that field is used.
fn raw_bytes(proto: &TensorProto) -> Option<u64> {
    match proto.special_fields.unknown_fields().get(DROPPED_RAW) {
        Some(UnknownValueRef::Varint(n)) => Some(n),
        _ => (!proto.raw_data.is_empty()).then_some(proto.raw_data.len() as u64),
    }
}

/// The elements, where they are numbers.
fn elements_of(proto: &TensorProto, dtype: DType) -> Option<Vec<Num>> {
    if !proto.raw_data.is_empty() {
        return from_raw(&proto.raw_data, dtype, &proto.dims);
    }
    let from_int32 = |f: &dyn Fn(i32) -> Num| Some(proto.int32_data.iter().map(|n| f(*n)).collect());
    match dtype {
        DType::Float32 => Some(proto.float_data.iter().map(|x| Num::Float(f64::from(*x))).collect()),
        DType::Float64 => Some(proto.double_data.iter().map(|x| Num::Float(*x)).collect()),
        DType::Int64 => Some(proto.int64_data.iter().map(|n| Num::Int(*n)).collect()),
        DType::Uint32 | DType::Uint64 => Some(proto.uint64_data.iter().map(|n| unsigned(*n)).collect()),
        DType::Bool => from_int32(&|n| Num::Int(i64::from(n != 0))),
        DType::Float16 => from_int32(&|n| Num::Float(half(n as u16))),
        DType::Bfloat16 => from_int32(&|n| Num::Float(bfloat(n as u16))),
        DType::Int4 | DType::Uint4 | DType::Int2 | DType::Uint2 => {
            let packed: Vec<u8> = proto.int32_data.iter().map(|n| *n as u8).collect();
            from_raw(&packed, dtype, &proto.dims)
        }
        d if d.is_integer() => from_int32(&|n| Num::Int(i64::from(n))),
        _ => None,
    }
}

fn unsigned(n: u64) -> Num {
    i64::try_from(n).map_or(Num::Unknown, Num::Int)
}

fn from_raw(raw: &[u8], dtype: DType, dims: &[i64]) -> Option<Vec<Num>> {
    fn each<const N: usize>(raw: &[u8], f: impl Fn([u8; N]) -> Num) -> Option<Vec<Num>> {
        Some(raw.as_chunks::<N>().0.iter().map(|c| f(*c)).collect())
    }
    let packed = |bits: u32, signed: bool| {
        let count = dims.iter().try_fold(1_i64, |acc, d| acc.checked_mul(*d))?;
        let per_byte = 8 / bits;
        let elements = raw.iter().flat_map(|byte| {
            (0..per_byte).map(move |k| {
                let n = i64::from(byte >> (k * bits) & ((1 << bits) - 1));
                Num::Int(if signed && n >> (bits - 1) != 0 { n - (1 << bits) } else { n })
            })
        });
        Some(elements.take(usize::try_from(count).ok()?).collect())
    };
    match dtype {
        DType::Float32 => each(raw, |b| Num::Float(f64::from(f32::from_le_bytes(b)))),
        DType::Float64 => each(raw, |b| Num::Float(f64::from_le_bytes(b))),
        DType::Float16 => each(raw, |b| Num::Float(half(u16::from_le_bytes(b)))),
        DType::Bfloat16 => each(raw, |b| Num::Float(bfloat(u16::from_le_bytes(b)))),
        DType::Bool => each(raw, |[b]| Num::Int(i64::from(b != 0))),
        DType::Uint8 => each(raw, |[b]| Num::Int(i64::from(b))),
        DType::Int8 => each(raw, |b| Num::Int(i64::from(i8::from_le_bytes(b)))),
        DType::Uint16 => each(raw, |b| Num::Int(i64::from(u16::from_le_bytes(b)))),
        DType::Int16 => each(raw, |b| Num::Int(i64::from(i16::from_le_bytes(b)))),
        DType::Uint32 => each(raw, |b| Num::Int(i64::from(u32::from_le_bytes(b)))),
        DType::Int32 => each(raw, |b| Num::Int(i64::from(i32::from_le_bytes(b)))),
        DType::Uint64 => each(raw, |b| unsigned(u64::from_le_bytes(b))),
        DType::Int64 => each(raw, |b| Num::Int(i64::from_le_bytes(b))),
        DType::Uint4 => packed(4, false),
        DType::Int4 => packed(4, true),
        DType::Uint2 => packed(2, false),
        DType::Int2 => packed(2, true),
        _ => None,
    }
}

/// An IEEE half as a float.
fn half(bits: u16) -> f64 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff) / 1024.0);
    sign * match exponent {
        0 => fraction * 2.0_f64.powi(-14),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        e => (1.0 + fraction) * 2.0_f64.powi(e - 15),
    }
}

/// A bfloat16 as a float: the upper half of a float32.
fn bfloat(bits: u16) -> f64 {
    f64::from(f32::from_bits(u32::from(bits) << 16))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(proto: &TensorProto) -> Option<Vec<f64>> {
        let mut problems = Vec::new();
        let stored = read("t", proto, &mut problems).unwrap();
        assert_eq!(problems, []);
        stored.value?.floats()
    }

    #[test]
    fn raw_elements_are_little_endian_and_sub_byte_types_start_at_the_low_bits() {
        let raw = |data_type, dims: &[i64], bytes: &[u8]| {
            let dims = dims.to_vec();
            floats(&TensorProto { data_type, dims, raw_data: bytes.to_vec(), ..Default::default() })
        };
        assert_eq!(raw(1, &[1], &1.5_f32.to_le_bytes()).unwrap(), [1.5]);
        assert_eq!(raw(11, &[], &(-2.0_f64).to_le_bytes()).unwrap(), [-2.0]);
        assert_eq!(
            raw(10, &[4], &[0, 0x3c, 1, 0, 0, 0xc0, 0, 0x7c]).unwrap()[..3],
            [1.0, 2.0_f64.powi(-24), -2.0]
        );
        assert_eq!(raw(16, &[2], &[0x80, 0x3f, 0, 0xc0]).unwrap(), [1.0, -2.0]);
        assert_eq!(raw(9, &[3], &[0, 1, 2]).unwrap(), [0.0, 1.0, 1.0]);
        assert_eq!(raw(3, &[1], &[0xff]).unwrap(), [-1.0]);
        assert_eq!(raw(2, &[1], &[0xff]).unwrap(), [255.0]);
        assert_eq!(raw(5, &[1], &[0xfe, 0xff]).unwrap(), [-2.0]);
        assert_eq!(raw(22, &[3], &[0xf1, 0x08]).unwrap(), [1.0, -1.0, -8.0]);
        assert_eq!(raw(21, &[3], &[0xf1, 0x08]).unwrap(), [1.0, 15.0, 8.0]);
        assert_eq!(raw(26, &[5], &[0b11_10_01_00, 1]).unwrap(), [0.0, 1.0, -2.0, -1.0, 1.0]);
        // A uint64 that does not fit stays unknown; shapes cannot need it.
        assert_eq!(raw(13, &[1], &[0xff; 8]), None);
        assert_eq!(raw(13, &[1], &7_u64.to_le_bytes()).unwrap(), [7.0]);
        assert_eq!(raw(8, &[1], &[]), None);
    }

    #[test]
    fn typed_fields_carry_narrow_types_as_int32() {
        let int32 = |data_type, values: &[i32]| {
            let (dims, int32_data) = (vec![2], values.to_vec());
            floats(&TensorProto { data_type, dims, int32_data, ..Default::default() })
        };
        assert_eq!(int32(6, &[1, -2]).unwrap(), [1.0, -2.0]);
        assert_eq!(int32(9, &[0, 5]).unwrap(), [0.0, 1.0]);
        assert_eq!(int32(10, &[0x3c00, 0xc000]).unwrap(), [1.0, -2.0]);
        assert_eq!(int32(16, &[0x3f80, 0xc000]).unwrap(), [1.0, -2.0]);
        assert_eq!(int32(22, &[0xf1]).unwrap(), [1.0, -1.0]);
        let uint = TensorProto { data_type: 12, dims: vec![1], uint64_data: vec![3], ..Default::default() };
        assert_eq!(floats(&uint).unwrap(), [3.0]);
    }

    #[test]
    fn as_many_numbers_as_the_dims_say_or_none() {
        let problem = |proto: &TensorProto| {
            let mut problems = Vec::new();
            let refused = read("t", proto, &mut problems).is_none();
            assert_eq!(refused, !problems.is_empty());
            problems.first().map(|p| p.message.clone())
        };
        let table = |n| TensorProto {
            data_type: 1,
            dims: vec![2, 3],
            float_data: vec![0.5; n],
            ..Default::default()
        };
        assert_eq!(problem(&table(6)), None);
        assert_eq!(problem(&table(0)), None);
        let message = "expected 6 numbers of data for 6 elements of float32, found 5 numbers";
        assert_eq!(problem(&table(5)).unwrap(), message);
        let short = TensorProto { data_type: 6, dims: vec![2], int32_data: vec![1], ..Default::default() };
        assert!(problem(&short).is_some());
        // Of a table that is left out, as of the rest of it, the bytes are counted.
        for (dropped, refused) in [(16, false), (12, true)] {
            let mut proto = table(2);
            proto.special_fields.mut_unknown_fields().add_varint(DROPPED, dropped);
            assert_eq!(problem(&proto).is_some(), refused, "{dropped}");
        }
    }

    #[test]
    fn a_sparse_tensor_is_filled_in() {
        let values =
            TensorProto { data_type: 1, dims: vec![2], float_data: vec![5.0, 7.0], ..Default::default() };
        let sparse = |indices: &[i64], dims: &[i64]| {
            let indices = TensorProto {
                data_type: 7,
                dims: dims.to_vec(),
                int64_data: indices.to_vec(),
                ..Default::default()
            };
            let proto = SparseTensorProto {
                values: Some(values.clone()).into(),
                indices: Some(indices).into(),
                dims: vec![2, 2],
                ..Default::default()
            };
            read_sparse("t", &proto, &mut Vec::new()).unwrap().value?.floats()
        };
        assert_eq!(sparse(&[0, 3], &[2]).unwrap(), [5.0, 0.0, 0.0, 7.0]);
        assert_eq!(sparse(&[0, 1, 1, 0], &[2, 2]).unwrap(), [0.0, 5.0, 7.0, 0.0]);
        assert_eq!(sparse(&[0, 4], &[2]), None);
        assert_eq!(sparse(&[0, -1], &[2]), None);
    }
}
