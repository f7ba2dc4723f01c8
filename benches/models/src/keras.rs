//! A stack of dense layers of any height, as Keras writes a model's config.

const WIDTH: u64 = 256;

/// The JSON of a sequential model with so many layers.
pub fn dense(layers: usize) -> String {
    let input = format!(
        r#"{{"class_name": "InputLayer", "config": {{"name": "x", "batch_shape": [null, {WIDTH}]}}}}"#
    );
    let layer = |i: usize| {
        let config =
            format!(r#"{{"name": "dense_{i}", "units": {WIDTH}, "activation": "relu", "use_bias": true}}"#);
        format!(r#"{{"class_name": "Dense", "config": {config}}}"#)
    };
    let all: Vec<String> = std::iter::once(input).chain((0..layers).map(layer)).collect();
    let layers = all.join(", ");
    format!(r#"{{"class_name": "Sequential", "config": {{"name": "dense", "layers": [{layers}]}}}}"#)
}
