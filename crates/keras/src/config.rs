//! How the values of a config are read: what a layer takes is said once, by type, and a value that is none names its attribute.
//!
//! [`read`] gives serde one attribute after the other and keeps its name, so that a message says which one it is, what Keras takes
//! and what the file holds. The functions below are for `deserialize_with`; their bounds are those of Keras' own checks
//! (keras/src/utils/argument_validation.py and the constructors), which raise before anything is built.

use crate::layer::Keras;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, DeserializeSeed, Error as _, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, forward_to_deserialize_any};
use serde_json::{Error, Value};

/// The config as a struct. What the struct does not name is not read.
pub(crate) fn read<T: DeserializeOwned>(config: &Value, keras: Keras) -> Result<T, String> {
    let attributes = config.as_object().into_iter().flatten();
    let attributes = Attributes { left: Box::new(attributes), next: None, keras };
    match config {
        Value::Object(_) | Value::Null => T::deserialize(MapAccessDeserializer::new(attributes)),
        other => T::deserialize(other),
    }
    .map_err(|error| format!("its config: {error}"))
}

/// The attributes that are not read yet.
struct Attributes<'a> {
    left: Box<dyn Iterator<Item = (&'a String, &'a Value)> + 'a>,
    next: Option<(&'a str, &'a Value)>,
    keras: Keras,
}

impl<'de> MapAccess<'de> for Attributes<'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        self.next = self.left.next().map(|(name, value)| (name.as_str(), value));
        self.next.map(|(name, _)| seed.deserialize(name.into_deserializer())).transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let (name, value) = self.next.take().ok_or_else(|| Error::custom("an attribute without a name"))?;
        let named = |error: Error| Error::custom(refused(name, &error.to_string(), value));
        seed.deserialize(Attribute { value, keras: self.keras }).map_err(named)
    }
}

/// `units: expected a positive whole number, found 0`.
pub(crate) fn refused(name: &str, message: &str, value: &Value) -> String {
    let expected = message.rsplit_once("expected ").map_or(message, |(_, expected)| expected);
    let expected = match expected {
        "u64" | "usize" => "a whole number of at least zero",
        "i64" => "a whole number",
        "f64" => "a number",
        other => other,
    };
    format!("{name}: expected {expected}, found {}", shown(value))
}

/// A value as a message shows it.
pub(crate) fn shown(value: &Value) -> String {
    let mut shown = if value.is_null() { "None".to_owned() } else { value.to_string() };
    if let Some((at, _)) = shown.char_indices().nth(60) {
        shown.truncate(at);
        shown.push('…');
    }
    shown
}

/// One value, read as Python reads it: anything is true or false, and Keras 2 takes whole floats for integers
/// (`units = int(units)`, tf_keras/src/layers/core/dense.py).
struct Attribute<'a> {
    value: &'a Value,
    keras: Keras,
}

impl Attribute<'_> {
    fn whole(&self) -> Option<i64> {
        let float = self.value.as_f64().filter(|f| self.value.is_f64() && f.fract() == 0.0)?;
        // Within what a float holds exactly.
        (self.keras != Keras::V3 && float.abs() < 9e15).then_some(float as i64)
    }
}

impl<'de> Deserializer<'de> for Attribute<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.value.deserialize_any(visitor)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bool(truth(self.value))
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.whole() {
            Some(whole) => visitor.visit_i64(whole),
            None => self.value.deserialize_u64(visitor),
        }
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.whole() {
            Some(whole) => visitor.visit_i64(whole),
            None => self.value.deserialize_i64(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.value.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.value.deserialize_enum(name, variants, visitor)
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i128 u8 u16 u32 u128 f32 f64 char str string bytes byte_buf unit unit_struct newtype_struct seq tuple tuple_struct
        map struct identifier ignored_any
    }
}

/// What Python's `if` makes of a value.
pub(crate) fn truth(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(is) => *is,
        Value::Number(n) => n.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
    }
}

const POSITIVE: &str = "expected a positive whole number";

/// A whole number above zero: units, filters, heads.
pub(crate) fn positive<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let number = u64::deserialize(deserializer).map_err(|_| D::Error::custom(POSITIVE))?;
    if number == 0 { Err(D::Error::custom(POSITIVE)) } else { Ok(number) }
}

/// The same, or `None`.
pub(crate) fn positive_or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let expected = || D::Error::custom(format!("{POSITIVE} or None"));
    let number = Option::<u64>::deserialize(deserializer).map_err(|_| expected())?;
    if number == Some(0) { Err(expected()) } else { Ok(number) }
}

/// The rank of a correction; zero is none (`if self.lora_rank: self.enable_lora(…)`).
pub(crate) fn rank<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Ok(Option::<u64>::deserialize(deserializer)?.filter(|rank| *rank > 0))
}

/// What share of elements is dropped.
pub(crate) fn rate<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let expected = || D::Error::custom("expected a number from 0 to 1");
    let number = f64::deserialize(deserializer).map_err(|_| expected())?;
    if (0.0..=1.0).contains(&number) { Ok(number) } else { Err(expected()) }
}

/// A number of at least zero: a slope, a threshold.
pub(crate) fn at_least_zero<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let expected = || D::Error::custom("expected a number of at least zero");
    let number = f64::deserialize(deserializer).map_err(|_| expected())?;
    if number >= 0.0 { Ok(Some(number)) } else { Err(expected()) }
}

/// The same, or `None`.
pub(crate) fn at_least_zero_or_none<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<f64>, D::Error> {
    let expected = || D::Error::custom("expected None, or a number of at least zero");
    let number = Option::<f64>::deserialize(deserializer).map_err(|_| expected())?;
    if number.is_none_or(|n| n >= 0.0) { Ok(number) } else { Err(expected()) }
}

/// A number, also one written as a text, which is what `float(…)` takes.
pub(crate) fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    number_or_none(deserializer)?.ok_or_else(|| D::Error::custom("expected a number"))
}

/// The same, or `None`.
pub(crate) fn number_or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let number = match Value::deserialize(deserializer)? {
        Value::Null => return Ok(None),
        Value::String(text) => text.trim().parse().ok(),
        value => value.as_f64(),
    };
    number.map(Some).ok_or_else(|| D::Error::custom("expected a number"))
}

/// How many groups: a positive number, or minus one for as many as there are channels.
pub(crate) fn groups<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    let expected = || D::Error::custom("expected a positive whole number, or -1 for one a channel");
    let groups = i64::deserialize(deserializer).map_err(|_| expected())?;
    if groups > 0 || groups == -1 { Ok(groups) } else { Err(expected()) }
}

/// One of these words, or `None`. Keras takes some however they are capitalised (`value.lower()`).
pub(crate) fn word<'de, D, T>(
    deserializer: D,
    words: &[(&str, T)],
    any_case: bool,
) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Copy,
{
    let value = Value::deserialize(deserializer)?;
    if value.is_null() {
        return Ok(None);
    }
    let is = |word: &str| match value.as_str() {
        Some(given) if any_case => given.eq_ignore_ascii_case(word),
        given => given == Some(word),
    };
    let known = words.iter().find(|(word, _)| is(word));
    known.map(|(_, meaning)| Some(*meaning)).ok_or_else(|| {
        let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        D::Error::custom(format!("expected {}", words.join(" or ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[derive(Debug, Deserialize)]
    struct Some {
        #[serde(deserialize_with = "positive")]
        units: u64,
        #[serde(default, deserialize_with = "positive_or_none")]
        width: Option<u64>,
        #[serde(default, deserialize_with = "rate")]
        dropout: f64,
        #[serde(default)]
        use_bias: bool,
        #[serde(default, deserialize_with = "rank")]
        lora_rank: Option<u64>,
    }

    #[test]
    fn what_is_refused_is_named_with_what_is_taken() {
        let refused = |config: Value| read::<Some>(&config, Keras::V3).unwrap_err();
        assert_eq!(
            refused(json!({"units": 0})),
            "its config: units: expected a positive whole number, found 0"
        );
        assert_eq!(
            refused(json!({"units": 1, "width": "4"})),
            "its config: width: expected a positive whole number or None, found \"4\""
        );
        assert!(
            refused(json!({"units": 1, "dropout": 1.5}))
                .ends_with("dropout: expected a number from 0 to 1, found 1.5")
        );
        assert!(
            refused(json!({"units": 1, "lora_rank": -2}))
                .ends_with("lora_rank: expected a whole number of at least zero, found -2")
        );
        assert!(refused(json!({"units": null})).ends_with("found None"));
        assert!(refused(json!({"units": "x".repeat(1 << 20)})).len() < 200);
        assert!(refused(json!({})).contains("missing field `units`"));
    }

    #[test]
    fn truth_and_whole_floats_are_pythons() {
        let of =
            |value: Value| read::<Some>(&json!({"units": 1, "use_bias": value}), Keras::V3).unwrap().use_bias;
        assert!(of(json!(7)) && of(json!("yes")) && !of(json!(0)) && !of(json!(null)));
        let units = |keras| read::<Some>(&json!({"units": 2.0}), keras).map(|s| s.units);
        assert_eq!(units(Keras::V2(15)), Ok(2));
        assert!(units(Keras::V3).is_err() && read::<Some>(&json!({"units": 2.5}), Keras::V2(15)).is_err());
        let none = read::<Some>(&json!({"units": 1, "lora_rank": 0, "width": null, "dropout": 1}), Keras::V3)
            .unwrap();
        assert_eq!((none.lora_rank, none.width, none.dropout), (None, None, 1.0));
    }
}
