//! Dtype policies: the dtype of a layer's variables, of its arithmetic, and whether its matrices are quantised.
//!
//! keras/src/dtype_policies/dtype_policy.py: a dtype's name, `mixed_float16`, `mixed_bfloat16`, or
//! `<mode>_from_<policy>` for quantised layers, where the mode may carry parameters (`gptq/4/128`). Keras 2 knows the first two
//! (mixed_precision/policy.py). A config holds the name, or the serialised object, or a `DTypePolicyMap`.

use crate::config::refused;
use memfit_graph::DType;
use serde_json::Value;

/// What a layer computes in and keeps.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// The dtype of the arithmetic and of the outputs.
    pub compute: DType,
    /// The dtype of the variables.
    pub variable: DType,
    /// How matrices are kept.
    pub quantization: Option<Quantization>,
    /// The policies of layers inside of the layer, by path, where they differ (`DTypePolicyMap`).
    pub parts: Vec<(String, Policy)>,
}

/// How the matrices of a quantised layer are kept.
#[derive(Clone, Debug, PartialEq)]
pub enum Quantization {
    /// 8-bit integers with a scale for each output channel.
    Int8,
    /// 4-bit integers, two in a byte, with a scale for each output channel or each block of inputs.
    Int4 {
        /// Inputs that share a scale; `None` for all of them.
        block: Option<u64>,
    },
    /// Float32 matrices, with scales and histories for 8-bit float arithmetic.
    Float8,
    /// Packed integers with a scale and a zero for each group of inputs.
    Gptq {
        /// Bits of one weight.
        bits: u64,
        /// Inputs that share a scale; `None` for all of them.
        group: Option<u64>,
    },
    /// The same, with scales that follow the activations.
    Awq {
        /// Bits of one weight.
        bits: u64,
        /// Inputs that share a scale; `None` for all of them.
        group: Option<u64>,
    },
}

impl Default for Policy {
    fn default() -> Policy {
        Policy { compute: DType::Float32, variable: DType::Float32, quantization: None, parts: Vec::new() }
    }
}

impl Policy {
    /// What `dtype` in a layer's config says; the default policy where it says nothing.
    pub fn read(dtype: Option<&Value>) -> Result<Policy, String> {
        match dtype {
            None | Some(Value::Null) => Ok(Policy::default()),
            Some(Value::String(name)) => Policy::named(name),
            Some(Value::Object(object)) => Policy::serialised(object.get("config").unwrap_or(&Value::Null)),
            Some(other) => Err(refused("dtype", "the name of a dtype policy", other)),
        }
    }

    /// The config of a serialised policy: a name, a mode with the policy it comes from, or a map with a default.
    fn serialised(config: &Value) -> Result<Policy, String> {
        if let Some(name) = config.get("name").filter(|name| !name.is_string() && !name.is_null()) {
            return Err(refused("dtype", "the name of a dtype policy", name));
        }
        let text = |key: &str| config.get(key).and_then(Value::as_str);
        match (text("name"), text("mode"), text("source_name")) {
            (Some(name), _, _) => Policy::named(name),
            (None, Some(mode), source) => {
                let policy = Policy::named(source.unwrap_or("float32"))?;
                Ok(Policy { quantization: quantization(mode), ..policy })
            }
            (None, None, _) => {
                let mut policy = Policy::read(config.get("default_policy"))?;
                for (path, given) in config.get("policy_map").and_then(Value::as_object).into_iter().flatten()
                {
                    policy.parts.push((path.clone(), Policy::read(Some(given))?));
                }
                Ok(policy)
            }
        }
    }

    /// The policy of this name.
    pub fn named(name: &str) -> Result<Policy, String> {
        if let Some((mode, source)) = name.split_once("_from_") {
            let policy = Policy::named(source)?;
            return Ok(Policy { quantization: quantization(mode), ..policy });
        }
        let (compute, variable) = match name {
            "mixed_float16" => (DType::Float16, DType::Float32),
            "mixed_bfloat16" => (DType::Bfloat16, DType::Float32),
            "_infer" => (DType::Float32, DType::Float32),
            name => {
                let dtype = dtype(name).ok_or_else(|| format!("expected a dtype policy, found `{name}`"))?;
                (dtype, dtype)
            }
        };
        Ok(Policy { compute, variable, ..Policy::default() })
    }

    /// The policy of the layer inside that is called `name`: its own entry, else this one.
    pub fn of_part(&self, name: &str) -> &Policy {
        let is = |path: &str| path.rsplit('/').next() == Some(name);
        self.parts.iter().find(|(path, _)| is(path)).map_or(self, |(_, policy)| policy)
    }

    /// The dtype that a layer computes in when it is fed `dtype`: floats are cast (`autocast`), others stay.
    pub fn cast(&self, dtype: DType) -> DType {
        if dtype.is_float() { self.compute } else { dtype }
    }
}

fn quantization(mode: &str) -> Option<Quantization> {
    let mut parts = mode.split('/');
    let name = parts.next()?;
    let mut numbers = parts.map(|p| p.parse::<i64>().ok());
    // Minus one, as a group or a block, is one for each output channel.
    let positive =
        |n: Option<Option<i64>>| n.flatten().and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0);
    match name {
        "int8" => Some(Quantization::Int8),
        "int4" => Some(Quantization::Int4 { block: positive(numbers.next()) }),
        "float8" => Some(Quantization::Float8),
        "gptq" => {
            let bits = positive(numbers.next()).unwrap_or(4);
            Some(Quantization::Gptq { bits, group: positive(numbers.next()) })
        }
        "awq" => {
            let bits = positive(numbers.next()).unwrap_or(4);
            Some(Quantization::Awq { bits, group: positive(numbers.next()) })
        }
        _ => None,
    }
}

/// The dtype of this name, as Keras and TensorFlow write it.
pub(crate) fn dtype(name: &str) -> Option<DType> {
    let name = match name {
        "half" => "float16",
        "float" => "float32",
        "double" => "float64",
        "int" => "int32",
        "float8_e4m3fn" => "float8e4m3fn",
        "float8_e5m2" => "float8e5m2",
        other => other,
    };
    DType::ALL.into_iter().find(|d| d.name() == name && *d != DType::Undefined)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_and_objects_are_read() {
        let read = |value: Value| Policy::read(Some(&value));
        let mixed =
            json!({"module": "keras", "class_name": "DTypePolicy", "config": {"name": "mixed_bfloat16"}});
        assert_eq!(read(mixed).unwrap().compute, DType::Bfloat16);
        let int8 = json!({"class_name": "QuantizedDTypePolicy", "config": {"mode": "int8", "source_name": "mixed_float16"}});
        assert_eq!(read(int8).unwrap().quantization, Some(Quantization::Int8));
        assert_eq!(read(json!("float16")).unwrap().variable, DType::Float16);
        let gptq = read(json!("gptq/4/128_from_mixed_float16")).unwrap();
        assert_eq!(gptq.quantization, Some(Quantization::Gptq { bits: 4, group: Some(128) }));
        assert_eq!(gptq.compute, DType::Float16);
        let map = json!({"class_name": "DTypePolicyMap", "config": {"default_policy": "mixed_bfloat16",
            "policy_map": {"attention/query": {"class_name": "DTypePolicy", "config": {"name": "float32"}}}}});
        let map = read(map).unwrap();
        assert_eq!(
            (map.of_part("key").compute, map.of_part("query").compute),
            (DType::Bfloat16, DType::Float32)
        );
        assert!(read(json!("float12")).unwrap_err().contains("float12"));
        assert_eq!(Policy::default().cast(DType::Int32), DType::Int32);
    }
}
