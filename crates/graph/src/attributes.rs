//! An operator's attributes as an importer found them, before the operator's own struct takes them.

use crate::{Graph, OpError, Value};
use std::collections::BTreeMap;

/// The value of one attribute.
#[derive(Clone, Debug)]
pub enum Attribute {
    /// A 64-bit integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// Text; bytes that are not UTF-8 are replaced.
    Text(String),
    /// Integers.
    Ints(Vec<i64>),
    /// Floats.
    Floats(Vec<f64>),
    /// Texts.
    Texts(Vec<String>),
    /// A tensor, with its elements where they are few.
    Tensor(TensorAttribute),
    /// A body.
    Graph(Box<Graph>),
    /// Several bodies.
    Graphs(Vec<Graph>),
    /// A kind that no operator needs (sparse tensors, type protos), kept so that its presence is seen.
    Other,
}

/// A tensor attribute: always its type, its elements only where they are few enough to fold.
#[derive(Clone, Debug)]
pub struct TensorAttribute {
    /// Element type.
    pub dtype: crate::DType,
    /// Dims.
    pub shape: Vec<u64>,
    /// The elements, where there are at most [`Value::MAX_ELEMENTS`] of a foldable type.
    pub value: Option<Value>,
}

/// The attributes of one operator, by name.
#[derive(Clone, Debug, Default)]
pub struct Attributes(pub BTreeMap<String, Attribute>);

macro_rules! getter {
    ($($(#[$doc:meta])* $name:ident, $variant:ident, $t:ty);* $(;)?) => { $(
        $(#[$doc])*
        pub fn $name(&self, name: &str) -> Result<Option<$t>, OpError> {
            match self.0.get(name) {
                None => Ok(None),
                Some(Attribute::$variant(v)) => Ok(Some(v.clone())),
                Some(other) => Err(OpError::attribute(name, stringify!($variant), other.kind())),
            }
        }
    )* };
}

impl Attributes {
    getter! {
        /// An integer attribute, `None` where absent; an error where it is of another kind.
        int, Int, i64;
        /// A float attribute.
        float, Float, f64;
        /// A text attribute.
        text, Text, String;
        /// Integers.
        ints, Ints, Vec<i64>;
        /// Floats.
        floats, Floats, Vec<f64>;
        /// Texts.
        texts, Texts, Vec<String>;
        /// A tensor.
        tensor, Tensor, TensorAttribute;
    }

    /// An integer used as a switch.
    pub fn flag(&self, name: &str) -> Result<bool, OpError> {
        Ok(self.int(name)?.unwrap_or(0) != 0)
    }

    /// Non-negative integers such as strides and kernel sizes.
    pub fn sizes(&self, name: &str) -> Result<Option<Vec<u64>>, OpError> {
        let Some(ints) = self.ints(name)? else { return Ok(None) };
        let sizes = ints.iter().map(|n| u64::try_from(*n)).collect::<Result<_, _>>();
        sizes.map(Some).map_err(|_| OpError::attribute(name, "non-negative integers", format!("{ints:?}")))
    }

    /// Takes a body out.
    pub fn take_graph(&mut self, name: &str) -> Result<Option<Graph>, OpError> {
        match self.0.remove(name) {
            None => Ok(None),
            Some(Attribute::Graph(g)) => Ok(Some(*g)),
            Some(other) => Err(OpError::attribute(name, "Graph", other.kind())),
        }
    }

    /// Whether it is there at all.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

impl Attribute {
    fn kind(&self) -> &'static str {
        match self {
            Attribute::Int(_) => "Int",
            Attribute::Float(_) => "Float",
            Attribute::Text(_) => "Text",
            Attribute::Ints(_) => "Ints",
            Attribute::Floats(_) => "Floats",
            Attribute::Texts(_) => "Texts",
            Attribute::Tensor(_) => "Tensor",
            Attribute::Graph(_) => "Graph",
            Attribute::Graphs(_) => "Graphs",
            Attribute::Other => "another kind",
        }
    }
}

impl<const N: usize> From<[(&str, Attribute); N]> for Attributes {
    fn from(pairs: [(&str, Attribute); N]) -> Attributes {
        Attributes(pairs.into_iter().map(|(name, a)| (name.to_owned(), a)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_checked() {
        let a = Attributes::from([("axis", Attribute::Int(1)), ("pads", Attribute::Ints(vec![-1]))]);
        assert_eq!(a.int("axis").unwrap(), Some(1));
        assert_eq!(a.int("absent").unwrap(), None);
        assert!(a.float("axis").unwrap_err().to_string().contains("axis"));
        assert!(a.sizes("pads").unwrap_err().to_string().contains("[-1]"));
    }
}
