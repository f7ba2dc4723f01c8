//! SpectralNormalization and the plain Wrapper: layers around one layer. Keras 2 and 3.
//!
//! keras/src/layers/normalization/spectral_normalization.py: `vector_u` with one element for each column of the wrapped kernel,
//! not trained; power iterations and a scaled copy of the kernel in every step.

use super::LayerSpec;
use crate::layer::{Call, Configured, Layer, Weight};
use crate::reader::boxed;
use crate::run::Run;
use crate::spec::Spec;
use memfit_graph::OpError;
use serde::Deserialize;

/// A layer whose kernel is divided by its spectral norm.
#[derive(Clone, Debug)]
pub struct SpectralNormalization {
    /// The wrapped layer.
    pub layer: Configured,
    /// How often the norm is refined.
    pub power_iterations: u64,
}

#[derive(Deserialize)]
struct Iterations {
    #[serde(default = "super::one_u64", deserialize_with = "crate::config::positive")]
    power_iterations: u64,
}

/// A layer that passes its call on.
#[derive(Clone, Debug)]
pub struct Wrapper {
    /// The wrapped layer.
    pub layer: Configured,
}

/// How they are found.
pub const SPECS: &[LayerSpec] = &[
    LayerSpec {
        classes: &["SpectralNormalization"],
        keras: &[2, 3],
        build: |s| {
            let Iterations { power_iterations } = s.read()?;
            boxed(SpectralNormalization { layer: s.inner("layer")?, power_iterations })
        },
    },
    LayerSpec {
        classes: &["Wrapper"],
        keras: &[2, 3],
        build: |s| boxed(Wrapper { layer: s.inner("layer")? }),
    },
];

impl Layer for SpectralNormalization {
    fn weights(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Weight>, OpError> {
        let mut weights = self.layer.weights(call.arguments, inputs)?;
        let is_kernel = |w: &&Weight| w.name.ends_with("kernel") || w.name.ends_with("embeddings");
        let kernel = weights.iter().find(is_kernel);
        let kernel =
            kernel.ok_or_else(|| OpError::mismatch("a layer with a kernel", &self.layer.facts.class))?;
        let columns = kernel.shape.last().copied().unwrap_or(1);
        let vector = Weight { dtype: kernel.dtype, ..call.state("vector_u", [1, columns]) };
        weights.push(vector);
        Ok(weights)
    }

    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        self.layer.outputs(call.arguments, inputs)
    }

    fn calls(&self, call: &Call<'_>, inputs: &[Spec], most: u64) -> u64 {
        self.layer.calls(call.arguments, inputs, most)
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        // Power iterations read the kernel as a matrix; the kernel divided by its norm is a tensor of its own.
        let tensors: Vec<_> = (0..run.tensors()).map(|i| run.x(i)).collect();
        let kernel = run.weight(0);
        let scaled = run.scaled("RealDiv", kernel);
        let outputs = run.inner(&self.layer, &tensors, 0);
        if let Some(first) = outputs.first() {
            run.wait(*first, scaled);
        }
        for (j, y) in outputs.into_iter().enumerate() {
            run.bind(j, y);
        }
    }
}

impl Layer for Wrapper {
    fn weights(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Weight>, OpError> {
        self.layer.weights(call.arguments, inputs)
    }

    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        self.layer.outputs(call.arguments, inputs)
    }

    fn calls(&self, call: &Call<'_>, inputs: &[Spec], most: u64) -> u64 {
        self.layer.calls(call.arguments, inputs, most)
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        let tensors: Vec<_> = (0..run.tensors()).map(|i| run.x(i)).collect();
        let outputs = run.inner(&self.layer, &tensors, 0);
        for (j, y) in outputs.into_iter().enumerate() {
            run.bind(j, y);
        }
    }
}
