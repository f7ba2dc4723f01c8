//! Element types, with their width in bits and the promotion order that frameworks use.

use std::fmt;

/// The type of one element of a tensor. All of ONNX's types, numbered as in `TensorProto.DataType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum DType {
    Undefined,
    Float32,
    Uint8,
    Int8,
    Uint16,
    Int16,
    Int32,
    Int64,
    String,
    Bool,
    Float16,
    Float64,
    Uint32,
    Uint64,
    Complex64,
    Complex128,
    Bfloat16,
    Float8E4M3FN,
    Float8E4M3FNUZ,
    Float8E5M2,
    Float8E5M2FNUZ,
    Uint4,
    Int4,
    Float4E2M1,
    Float8E8M0,
    Uint2,
    Int2,
}

use DType::*;

impl DType {
    /// Every type, in the order of ONNX's numbers 0..=26.
    pub const ALL: [DType; 27] = [
        Undefined,
        Float32,
        Uint8,
        Int8,
        Uint16,
        Int16,
        Int32,
        Int64,
        String,
        Bool,
        Float16,
        Float64,
        Uint32,
        Uint64,
        Complex64,
        Complex128,
        Bfloat16,
        Float8E4M3FN,
        Float8E4M3FNUZ,
        Float8E5M2,
        Float8E5M2FNUZ,
        Uint4,
        Int4,
        Float4E2M1,
        Float8E8M0,
        Uint2,
        Int2,
    ];

    /// The type with ONNX's number `n`.
    pub fn from_onnx(n: i32) -> Option<DType> {
        usize::try_from(n).ok().and_then(|n| Self::ALL.get(n)).copied()
    }

    /// Bits of one element in memory. A string counts as the 16 bytes of its handle.
    pub fn bits(self) -> u64 {
        match self {
            Undefined => 0,
            Uint2 | Int2 => 2,
            Uint4 | Int4 | Float4E2M1 => 4,
            Uint8 | Int8 | Bool | Float8E4M3FN | Float8E4M3FNUZ | Float8E5M2 | Float8E5M2FNUZ
            | Float8E8M0 => 8,
            Uint16 | Int16 | Float16 | Bfloat16 => 16,
            Float32 | Int32 | Uint32 => 32,
            Int64 | Uint64 | Float64 | Complex64 => 64,
            Complex128 | String => 128,
        }
    }

    /// Bytes that `elements` of this type take, rounded up to whole bytes; saturating.
    pub fn size_of(self, elements: u64) -> crate::Bytes {
        match self.bits() {
            bits if bits >= 8 => crate::Bytes(elements) * (bits / 8),
            bits => crate::Bytes(elements.saturating_mul(bits).div_ceil(8)),
        }
    }

    /// Whether a framework can differentiate through it.
    pub fn is_float(self) -> bool {
        matches!(self, Float32 | Float64 | Float16 | Bfloat16 | Complex64 | Complex128)
    }

    /// Whether it is a floating-point type of 16 bits.
    pub fn is_half(self) -> bool {
        matches!(self, Float16 | Bfloat16)
    }

    /// Whether it is an integer or a truth value, whose constants shapes can depend on.
    pub fn is_integer(self) -> bool {
        matches!(
            self,
            Uint2
                | Int2
                | Uint4
                | Int4
                | Uint8
                | Int8
                | Uint16
                | Int16
                | Int32
                | Uint32
                | Int64
                | Uint64
                | Bool
        )
    }

    /// The type of a binary operation on two tensors under PyTorch's promotion (torch.promote_types): bool below
    /// integers below floats; two different halves meet in float32.
    pub fn promote(self, other: DType) -> DType {
        fn rank(d: DType) -> u8 {
            match d {
                Bool => 1,
                Uint8 | Int8 => 2,
                Int16 | Uint16 => 3,
                Int32 | Uint32 => 4,
                Int64 | Uint64 => 5,
                Float16 | Bfloat16 => 7,
                Float32 => 8,
                Float64 => 9,
                Complex64 => 10,
                Complex128 => 11,
                _ => 6,
            }
        }
        match (self, other) {
            (Float16, Bfloat16) | (Bfloat16, Float16) => Float32,
            (a, b) if rank(a) >= rank(b) => a,
            (_, b) => b,
        }
    }

    /// The lower-case name that frameworks print: `float32`, `bfloat16`, `int64`, `bool`.
    pub fn name(self) -> &'static str {
        match self {
            Undefined => "undefined",
            Float32 => "float32",
            Uint8 => "uint8",
            Int8 => "int8",
            Uint16 => "uint16",
            Int16 => "int16",
            Int32 => "int32",
            Int64 => "int64",
            String => "string",
            Bool => "bool",
            Float16 => "float16",
            Float64 => "float64",
            Uint32 => "uint32",
            Uint64 => "uint64",
            Complex64 => "complex64",
            Complex128 => "complex128",
            Bfloat16 => "bfloat16",
            Float8E4M3FN => "float8e4m3fn",
            Float8E4M3FNUZ => "float8e4m3fnuz",
            Float8E5M2 => "float8e5m2",
            Float8E5M2FNUZ => "float8e5m2fnuz",
            Uint4 => "uint4",
            Int4 => "int4",
            Float4E2M1 => "float4e2m1",
            Float8E8M0 => "float8e8m0",
            Uint2 => "uint2",
            Int2 => "int2",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_onnx() {
        assert_eq!(DType::from_onnx(1), Some(Float32));
        assert_eq!(DType::from_onnx(7), Some(Int64));
        assert_eq!(DType::from_onnx(9), Some(Bool));
        assert_eq!(DType::from_onnx(16), Some(Bfloat16));
        assert_eq!(DType::from_onnx(22), Some(Int4));
        assert_eq!(DType::from_onnx(27), None);
        assert_eq!(DType::from_onnx(-1), None);
    }

    #[test]
    fn sub_byte_types_round_up_to_whole_bytes() {
        assert_eq!(Int4.size_of(3).0, 2);
        assert_eq!(Float32.size_of(3).0, 12);
        assert_eq!(Float32.size_of(u64::MAX).0, u64::MAX);
    }

    #[test]
    fn two_halves_meet_in_float32() {
        assert_eq!(Float16.promote(Bfloat16), Float32);
        assert_eq!(Int64.promote(Float16), Float16);
        assert_eq!(Bool.promote(Int32), Int32);
    }
}
