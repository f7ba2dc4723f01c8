//! What a file records of a tensor where it is read: the only trace of what a custom layer gives.
//!
//! Keras 3 writes shape and dtype of each tensor of a functional model; both versions write, later on, for what input a layer was
//! built (`build_config`).

use crate::object::Object;
use crate::policy;
use crate::spec::Spec;
use memfit_graph::{DType, Dim};
use serde_json::Value;

/// A recorded shape and dtype.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Recorded {
    dims: Vec<Option<u64>>,
    dtype: Option<DType>,
}

impl Recorded {
    /// Reads the config of a `__keras_tensor__`.
    pub(crate) fn read(config: &Value) -> Option<Recorded> {
        let dims = config.get("shape")?.as_array()?.iter().map(Value::as_u64).collect();
        let dtype = config.get("dtype").and_then(Value::as_str).and_then(policy::dtype);
        Some(Recorded { dims, dtype })
    }

    /// What a layer's `build_config` says of its only input.
    pub(crate) fn of_build(object: &Object<'_>) -> Option<Recorded> {
        let dims = object.raw.get("build_config")?.get("input_shape")?.as_array()?;
        let is_shape = dims.iter().all(|d| d.is_null() || d.is_u64());
        is_shape.then(|| Recorded { dims: dims.iter().map(Value::as_u64).collect(), dtype: None })
    }

    /// As a spec: an open size is the input's where it stands on the same axis of the first input, else a symbol of the layer.
    pub(crate) fn spec(&self, path: &str, inputs: &[Spec], dtype: DType) -> Spec {
        let first = inputs.first().map_or(&[][..], |s| s.dims());
        let dim = |(i, n): (usize, &Option<u64>)| match (n, first.get(i)) {
            (Some(n), _) => Dim::Known(*n),
            (None, Some(dim)) if dim.known().is_none() => dim.clone(),
            (None, _) => Dim::symbol(&format!("{path}_d{i}")),
        };
        Spec::new(self.dims.iter().enumerate().map(dim).collect(), self.dtype.unwrap_or(dtype))
    }
}
