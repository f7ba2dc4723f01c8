//! Keras 3's class for what Keras 2 names by a TensorFlow function or kernel.

use serde_json::Value;

/// Functions and kernels whose names do not become the class by themselves.
const RENAMED: &[(&str, &str)] = &[
    ("__operators__.getitem", "GetItem"),
    ("AddV2", "Add"),
    ("BatchMatMulV2", "Matmul"),
    ("BiasAdd", "Add"),
    ("ConcatV2", "Concatenate"),
    ("GatherV2", "Take"),
    ("Mul", "Multiply"),
    ("Pack", "Stack"),
    ("RealDiv", "Divide"),
    ("StridedSlice", "GetItem"),
    ("Sub", "Subtract"),
    ("abs", "Absolute"),
    ("concat", "Concatenate"),
    ("gather", "Take"),
    ("image.resize", "Resize"),
    ("image.resize_images_v2", "Resize"),
    ("linalg.matmul", "Matmul"),
    ("math.acos", "Arccos"),
    ("math.asin", "Arcsin"),
    ("math.atan", "Arctan"),
    ("math.divide", "Divide"),
    ("math.floordiv", "FloorDivide"),
    ("math.l2_normalize", "Normalize"),
    ("math.pow", "Power"),
    ("math.reduce_logsumexp", "Logsumexp"),
    ("math.scalar_mul", "Multiply"),
    ("nn.bias_add", "Add"),
    ("nn.swish", "Silu"),
    ("tensordot", "Tensordot"),
];

/// The class for a TensorFlow function: `math.reduce_mean` is `Mean`, `nn.relu` is `Relu`.
pub(super) fn of_function(function: &str) -> String {
    if let Some((_, class)) = RENAMED.iter().find(|(name, _)| *name == function) {
        return (*class).to_owned();
    }
    let last = function.rsplit('.').next().unwrap_or(function);
    let last = last.strip_prefix("reduce_").unwrap_or(last);
    let words = last.split('_').filter(|word| !word.is_empty());
    words
        .map(|word| {
            let mut letters = word.chars();
            letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
        })
        .map(|word| match word.as_str() {
            "Truediv" => "TrueDivide".to_owned(),
            "Sub" => "Subtract".to_owned(),
            "Mul" => "Multiply".to_owned(),
            "Neg" => "Negative".to_owned(),
            _ => word,
        })
        .collect()
}

/// The class for a kernel in a serialised node: an object, or its text.
pub(super) fn of_kernel(node: &Value) -> String {
    let from_text = |text: &str| {
        let (_, rest) = text.split_once("op: \"")?;
        rest.split_once('"').map(|(op, _)| op.to_owned())
    };
    let op = match node {
        Value::Object(object) => object.get("op").and_then(Value::as_str).map(str::to_owned),
        Value::String(text) => from_text(text)
            .or_else(|| serde_json::from_str::<Value>(text).ok()?.get("op")?.as_str().map(str::to_owned)),
        _ => None,
    };
    let op = op.unwrap_or_else(|| "unknown".to_owned());
    RENAMED.iter().find(|(name, _)| *name == op).map_or(op, |(_, class)| (*class).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_become_classes() {
        let pairs = [
            ("math.add", "Add"),
            ("__operators__.add", "Add"),
            ("math.reduce_mean", "Mean"),
            ("nn.relu", "Relu"),
            ("expand_dims", "ExpandDims"),
            ("linalg.matmul", "Matmul"),
            ("math.truediv", "TrueDivide"),
            ("nn.log_softmax", "LogSoftmax"),
        ];
        for (function, class) in pairs {
            assert_eq!(of_function(function), class);
        }
        assert_eq!(of_kernel(&serde_json::json!("{\"name\": \"a\", \"op\": \"AddV2\"}")), "Add");
        assert_eq!(of_kernel(&serde_json::json!("name: \"a\"\nop: \"Relu\"\n")), "Relu");
    }
}
