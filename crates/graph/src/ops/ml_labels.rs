//! Labels and maps of the `ai.onnx.ml` domain: CastMap, CategoryMapper, DictVectorizer, LabelEncoder (1, 2, 4), ZipMap.
//!
//! Lookups between strings, integers and floats; no gradient, nothing kept. A map's type says only what its values are.

use super::calls;
use crate::{Attributes, DType, Dim, Infer, Lowering, Op, OpError, OpSpec, Shape, TensorType, Type};
use std::sync::Arc;

/// One of the operators.
#[derive(Clone, Debug)]
pub enum Labels {
    /// A map's values as `[1, N]`, N given where it is sparse.
    CastMap {
        /// The dtype of the result.
        to: DType,
        /// The number of columns.
        columns: Option<u64>,
    },
    /// Strings to integers or back.
    CategoryMapper,
    /// A map's values by vocabulary: `[1, N]`.
    DictVectorizer(u64),
    /// Each element looked up; the dtype that the values have, where the attributes say it.
    LabelEncoder(Option<DType>),
    /// Each row as a map.
    ZipMap,
}

/// How each of them is found.
pub const SPECS: &[OpSpec] = &[
    OpSpec { domain: "ai.onnx.ml", name: "CastMap", since: &[1], build: |a, _| Ok(Arc::new(cast_map(a)?)) },
    OpSpec {
        domain: "ai.onnx.ml",
        name: "CategoryMapper",
        since: &[1],
        build: |_, _| Ok(Arc::new(Labels::CategoryMapper)),
    },
    OpSpec {
        domain: "ai.onnx.ml",
        name: "DictVectorizer",
        since: &[1],
        build: |a, _| {
            let numbers = a.ints("int64_vocabulary")?.map_or(0, |v| v.len());
            let texts = a.texts("string_vocabulary")?.map_or(0, |v| v.len());
            Ok(Arc::new(Labels::DictVectorizer(numbers.max(texts) as u64)))
        },
    },
    OpSpec {
        domain: "ai.onnx.ml",
        name: "LabelEncoder",
        since: &[1, 2, 4],
        build: |a, _| Ok(Arc::new(Labels::LabelEncoder(value_dtype(a)?))),
    },
    OpSpec { domain: "ai.onnx.ml", name: "ZipMap", since: &[1], build: |_, _| Ok(Arc::new(Labels::ZipMap)) },
];

fn cast_map(a: &Attributes) -> Result<Labels, OpError> {
    let to = match a.text("cast_to")?.as_deref() {
        Some("TO_STRING") => DType::String,
        Some("TO_INT64") => DType::Int64,
        _ => DType::Float32,
    };
    let sparse = a.text("map_form")?.as_deref() == Some("SPARSE");
    let columns = a.int("max_map")?.unwrap_or(1);
    Ok(Labels::CastMap { to, columns: u64::try_from(columns).ok().filter(|_| sparse) })
}

fn value_dtype(a: &Attributes) -> Result<Option<DType>, OpError> {
    if let Some(tensor) = a.tensor("values_tensor")? {
        return Ok(Some(tensor.dtype));
    }
    let named = [
        ("values_strings", DType::String),
        ("values_int64s", DType::Int64),
        ("values_floats", DType::Float32),
    ];
    Ok(named.into_iter().find(|(name, _)| a.has(name)).map(|(_, dtype)| dtype))
}

/// Strings become integers and anything else becomes strings.
fn other(dtype: DType) -> DType {
    match dtype {
        DType::String => DType::Int64,
        DType::Undefined => DType::Undefined,
        _ => DType::String,
    }
}

impl Op for Labels {
    fn name(&self) -> &str {
        match self {
            Labels::CastMap { .. } => "ai.onnx.ml.CastMap",
            Labels::CategoryMapper => "ai.onnx.ml.CategoryMapper",
            Labels::DictVectorizer(_) => "ai.onnx.ml.DictVectorizer",
            Labels::LabelEncoder(_) => "ai.onnx.ml.LabelEncoder",
            Labels::ZipMap => "ai.onnx.ml.ZipMap",
        }
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        let input = cx.require(0)?;
        let one_row = |columns: Dim| Some([Dim::Known(1), columns].into_iter().collect::<Shape>());
        match self {
            Labels::CastMap { to, columns } => {
                let columns = columns.map_or_else(|| cx.fresh_dim("values", None), Dim::Known);
                cx.set(0, *to, one_row(columns));
            }
            Labels::CategoryMapper => cx.set(0, other(cx.dtype(0)), cx.shape(0).cloned()),
            Labels::DictVectorizer(n) => {
                let value = if let Type::Map(value) = input { value.dtype() } else { None };
                cx.set(0, value.unwrap_or(DType::Undefined), one_row(Dim::Known(*n)));
            }
            Labels::LabelEncoder(dtype) => {
                cx.set(0, dtype.unwrap_or(other(cx.dtype(0))), cx.shape(0).cloned());
            }
            Labels::ZipMap => {
                let value = Type::Tensor(TensorType { dtype: cx.dtype(0), shape: Some(Shape::scalar()) });
                let element = Box::new(Type::Map(Box::new(value)));
                cx.set_type(0, Type::Sequence { element, items: None });
            }
        }
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        calls::without_gradient(l, "labels");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Attribute;
    use crate::ops::testing::{self, In, float};

    fn run(op: &str, a: Attributes, input: In) -> Type {
        testing::run(&format!("ai.onnx.ml.{op}"), 4, a, &[input], 1).unwrap().remove(0).0
    }

    #[test]
    fn the_values_say_the_dtype() {
        let a = Attributes::from([("values_strings", Attribute::Texts(vec!["a".into()]))]);
        assert_eq!(run("LabelEncoder", a, float(&[2, 3])), Type::tensor(DType::String, Shape::from([2, 3])));
        let texts = In::Typed(Type::tensor(DType::String, Shape::from([4])));
        let first = run("LabelEncoder", Attributes::default(), texts);
        assert_eq!(first, Type::tensor(DType::Int64, Shape::from([4])));
    }

    #[test]
    fn a_map_becomes_one_row() {
        let map = || In::Typed(Type::Map(Box::new(Type::tensor(DType::Float32, Shape::scalar()))));
        let words = Attributes::from([("string_vocabulary", Attribute::Texts(vec!["a".into(), "b".into()]))]);
        assert_eq!(run("DictVectorizer", words, map()), Type::tensor(DType::Float32, Shape::from([1, 2])));
        let sparse = Attributes::from([
            ("map_form", Attribute::Text("SPARSE".into())),
            ("max_map", Attribute::Int(7)),
        ]);
        assert_eq!(run("CastMap", sparse, map()).shape(), Some(&Shape::from([1, 7])));
    }
}
