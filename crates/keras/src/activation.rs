//! Activation functions by the names that Keras gives them.
//!
//! keras/src/activations/__init__.py. A layer composes differently with each: ReLU keeps its output, GELU comes in pieces.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

macro_rules! activations {
    ($($variant:ident $name:literal $(| $other:literal)*),+ $(,)?) => {
        /// An activation function.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum Activation {
            $($variant,)+
            /// One that is not Keras' own, by its name.
            Other(String),
            /// None, which is the identity.
            #[default]
            Linear,
        }

        impl Activation {
            /// The function of this name.
            pub fn named(name: &str) -> Activation {
                match name {
                    "linear" | "Linear" => Activation::Linear,
                    $($name $(| $other)* => Activation::$variant,)+
                    other => Activation::Other(other.to_owned()),
                }
            }

            /// Its name.
            pub fn name(&self) -> &str {
                match self {
                    Activation::Linear => "linear",
                    $(Activation::$variant => $name,)+
                    Activation::Other(name) => name,
                }
            }
        }
    };
}

activations! {
    Celu "celu",
    Elu "elu" | "ELU",
    Exponential "exponential",
    Gelu "gelu",
    Glu "glu",
    HardShrink "hard_shrink",
    HardSigmoid "hard_sigmoid",
    HardSilu "hard_silu" | "hard_swish",
    HardTanh "hard_tanh",
    LeakyRelu "leaky_relu" | "LeakyReLU",
    LogSigmoid "log_sigmoid",
    LogSoftmax "log_softmax",
    Mish "mish",
    Relu "relu" | "ReLU",
    Relu6 "relu6",
    Selu "selu",
    Sigmoid "sigmoid",
    Silu "silu" | "swish",
    Softmax "softmax" | "Softmax",
    SoftShrink "soft_shrink",
    Softplus "softplus",
    Softsign "softsign",
    SparsePlus "sparse_plus",
    Sparsemax "sparsemax",
    SparseSigmoid "sparse_sigmoid",
    Squareplus "squareplus",
    Tanh "tanh",
    TanhShrink "tanh_shrink",
    Threshold "threshold",
}

impl Activation {
    /// The function that an operation of this class applies: `HardSigmoid` for `hard_sigmoid`.
    pub fn of_class(class: &str) -> Activation {
        let mut name = String::new();
        for (i, c) in class.char_indices() {
            if c.is_uppercase() && i > 0 {
                name.push('_');
            }
            name.extend(c.to_lowercase());
        }
        Activation::named(&name)
    }
}

impl<'de> Deserialize<'de> for Activation {
    /// A name, nothing, or a serialised function or layer: `{"class_name": "function", "config": "gelu", …}`.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Activation, D::Error> {
        Ok(match Value::deserialize(deserializer)? {
            Value::String(name) => Activation::named(&name),
            Value::Object(object) => {
                let text = |key: &str| object.get(key).and_then(Value::as_str);
                let function = if text("class_name") == Some("function") { text("config") } else { None };
                let name = function.or_else(|| text("registered_name")).or_else(|| text("class_name"));
                Activation::named(name.unwrap_or("custom"))
            }
            Value::Null => Activation::Linear,
            _ => {
                let expected = "expected None, the name of a function or a serialised one";
                return Err(serde::de::Error::custom(expected));
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_objects_and_nothing() {
        let read = |value: Value| serde_json::from_value::<Activation>(value).unwrap();
        assert_eq!(read(json!("swish")), Activation::Silu);
        assert_eq!(read(json!(null)), Activation::Linear);
        let custom = json!({"module": "builtins", "class_name": "function", "config": "my_act", "registered_name": "function"});
        assert_eq!(read(custom), Activation::Other("my_act".into()));
        assert_eq!(
            read(json!({"module": "keras.layers", "class_name": "ReLU", "config": {}})),
            Activation::Relu
        );
    }
}
