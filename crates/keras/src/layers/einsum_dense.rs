//! EinsumDense. Keras 2 (2.6) and 3.
//!
//! keras/src/layers/core/einsum_dense.py, `_analyze_split_string`: the equation's letters tell the kernel's shape from the input's and the
//! output's; an ellipsis at the left or the right stands for axes that pass through.

use super::LayerSpec;
use super::quantized::{self, Projection};
use crate::activation::Activation;
use crate::layer::{Call, Layer, Weight};
use crate::operations::contraction;
use crate::reader::boxed;
use crate::run::Run;
use crate::spec::{self, Spec};
use crate::torch::Torch;
use memfit_graph::{Dim, OpError};
use serde::Deserialize;
use std::collections::BTreeMap;

/// A product by an equation.
#[derive(Clone, Debug, Deserialize)]
pub struct EinsumDense {
    /// The equation: `abc,cde->abde`.
    pub equation: String,
    /// The output's shape without the batch; open sizes are the input's.
    #[serde(deserialize_with = "shape")]
    pub output_shape: Vec<Option<u64>>,
    /// Letters of the output along which there is a bias.
    #[serde(default)]
    pub bias_axes: Option<String>,
    /// Applied to the sum.
    #[serde(default)]
    pub activation: Activation,
    /// The rank of the trained correction, where there is one.
    #[serde(default, deserialize_with = "crate::config::rank")]
    pub lora_rank: Option<u64>,
}

fn shape<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<Option<u64>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Shape {
        One(u64),
        Many(Vec<Option<u64>>),
    }
    Ok(match Shape::deserialize(deserializer)? {
        Shape::One(n) => vec![Some(n)],
        Shape::Many(dims) => dims,
    })
}

/// How it is found.
pub const SPECS: &[LayerSpec] =
    &[LayerSpec { classes: &["EinsumDense"], keras: &[2, 3], build: |s| boxed(s.read::<EinsumDense>()?) }];

/// What the equation says of some input.
struct Analysis {
    output: Vec<Dim>,
    kernel: Vec<u64>,
    /// Which axes of the kernel are summed over.
    reduced: Vec<bool>,
    /// Axes of the output that the kernel does not have, which 8-bit scales keep with one element.
    ones: usize,
    bias: Option<Vec<u64>>,
}

impl EinsumDense {
    /// How many axes are summed over, where they are the last of the input and the first of the kernel and all others keep their order.
    fn last_summed(&self) -> Option<usize> {
        let equation: String = self.equation.chars().filter(|c| !c.is_whitespace()).collect();
        let (inputs, output) = equation.split_once("->")?;
        let (input, kernel) = inputs.split_once(',')?;
        let summed: String = kernel.chars().filter(|c| !output.contains(*c)).collect();
        let (outer, columns) = (input.strip_suffix(&*summed)?, kernel.strip_prefix(&*summed)?);
        (output.strip_prefix(outer)? == columns).then_some(summed.len())
    }

    fn analyze(&self, x: &Spec) -> Result<Analysis, OpError> {
        let wrong = || OpError::attribute("equation", "`ab,bc->ac`", &self.equation);
        let equation: String = self.equation.chars().filter(|c| !c.is_whitespace()).collect();
        let (inputs, output) = equation.split_once("->").ok_or_else(wrong)?;
        let (input, kernel) = inputs.split_once(',').ok_or_else(wrong)?;
        let left = input.starts_with("...");
        let letters = |text: &str| text.chars().filter(|c| *c != '.').collect::<Vec<char>>();
        let (input_letters, output_letters) = (letters(input), letters(output));
        let has_ellipsis = input.contains("...");
        let elided =
            x.rank().checked_sub(input_letters.len()).filter(|n| has_ellipsis || *n == 0).ok_or_else(
                || OpError::mismatch(format!("an input for `{input}`"), format!("shape {}", x.shape)),
            )?;
        let batch = x.dims().first().cloned().ok_or_else(wrong)?;
        // The given shape lacks the batch, and the axes that an ellipsis stands for.
        let shift = if left { elided } else { 0 };
        let passed = x.dims().get(1..shift).unwrap_or(&[]).iter().cloned().map(Some);
        let given = self.output_shape.iter().map(|d| d.map(Dim::Known));
        let shape: Vec<Option<Dim>> = [Some(batch)].into_iter().chain(passed).chain(given).collect();
        let ins: BTreeMap<char, &Dim> =
            input_letters.iter().copied().zip(x.dims().iter().skip(shift)).collect();
        let mut outs: BTreeMap<char, Dim> = BTreeMap::new();
        for (i, letter) in output_letters.iter().enumerate() {
            let given = shape.get(i + shift).cloned().flatten();
            if let Some(dim) = given.or_else(|| ins.get(letter).map(|d| (*d).clone())) {
                outs.insert(*letter, dim);
            }
        }
        let size = |letter: &char| match (ins.get(letter), outs.get(letter)) {
            (Some(dim), _) => spec::number(dim),
            (None, Some(dim)) => spec::number(dim),
            (None, None) => Err(wrong()),
        };
        let kernel_letters = letters(kernel);
        let kernel = kernel_letters.iter().map(size).collect::<Result<Vec<_>, _>>()?;
        let reduced = kernel_letters.iter().map(|l| !output_letters.contains(l)).collect();
        let ones = output_letters.iter().filter(|l| !kernel_letters.contains(l)).count();
        let mut result: Vec<Dim> = Vec::new();
        let own = |l: &char| outs.get(l).cloned().ok_or_else(wrong);
        let passed = if left { x.dims().get(..elided) } else { x.dims().get(input_letters.len()..) };
        let passed = passed.unwrap_or(&[]);
        if left {
            result.extend(passed.iter().cloned());
        }
        result.extend(output_letters.iter().map(own).collect::<Result<Vec<_>, _>>()?);
        if !left {
            result.extend(passed.iter().cloned());
        }
        let bias = match self.bias_axes.as_deref() {
            None => None,
            Some(axes) => {
                let unknown = || {
                    OpError::attribute(
                        "bias_axes",
                        format!("None, or letters of the output `{output}`"),
                        axes,
                    )
                };
                let is_known = axes.chars().all(|l| output_letters.contains(&l));
                let first = output_letters.iter().position(|l| is_known && axes.contains(*l));
                let first = first.ok_or_else(unknown)?;
                let of =
                    |l: &char| if axes.contains(*l) { own(l).and_then(|d| spec::number(&d)) } else { Ok(1) };
                let mut bias = output_letters[first..].iter().map(of).collect::<Result<Vec<_>, _>>()?;
                if !left {
                    bias.extend(std::iter::repeat_n(1, elided));
                }
                Some(bias)
            }
        };
        Ok(Analysis { output: result, kernel, reduced, ones, bias })
    }
}

/// The variables of a product whose kernel has these axes, some of which are summed over. `ones` are the axes of the output
/// that come before the kernel's (`_get_kernel_scale_shape`).
pub(super) fn projection(
    call: &Call<'_>,
    kernel: Vec<u64>,
    reduced: &[bool],
    ones: usize,
    bias: Option<Vec<u64>>,
    lora_rank: Option<u64>,
) -> Result<Vec<Weight>, OpError> {
    let of = |wanted: bool| {
        let sizes = kernel.iter().zip(reduced).filter(|(_, r)| **r == wanted).map(|(n, _)| *n);
        sizes.into_iter().try_fold(1_u64, spec::times)
    };
    let (rows, columns) = (of(true)?, of(false)?);
    let kept = kernel.iter().zip(reduced).filter(|(_, r)| !**r).map(|(n, _)| *n);
    let scale = std::iter::repeat_n(1, ones).chain(kept).collect();
    let (last, rest) = kernel.split_last().map_or((1, &[][..]), |(last, rest)| (*last, rest));
    let lora = lora_rank.map(|rank| [[rest, &[rank]].concat(), vec![rank, last]]);
    quantized::weights(call, &Projection { rows, columns, scale, bias, lora, kernel: kernel.clone() })
}

impl Layer for EinsumDense {
    fn weights(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Weight>, OpError> {
        let Analysis { kernel, reduced, ones, bias, .. } = self.analyze(spec::input(inputs, 0)?)?;
        projection(call, kernel, &reduced, ones, bias, self.lora_rank)
    }

    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        Ok(vec![call.output(self.analyze(spec::input(inputs, 0)?)?.output)])
    }

    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        let Some(summed) = self.last_summed().filter(|_| run.call.facts.policy.quantization.is_none()) else {
            return run.not_modelled();
        };
        let (x, kernel) = (run.x(0), run.kernel(self.lora_rank.is_some()));
        let mut y = run.contract(&x, &kernel, summed);
        if self.bias_axes.as_deref().is_some_and(|axes| !axes.is_empty()) {
            let bias = run.weight(1);
            y = run.add(&y, &bias);
        }
        let y = run.activate(&self.activation, &y);
        run.finish(&y);
    }

    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        if run.call.facts.policy.quantization.is_some() {
            return run.not_modelled();
        }
        let (x, kernel, shape) = (run.x(0), run.weight(0), run.out_shape(0));
        let kernel = super::quantized::corrected(run, kernel, self.lora_rank);
        let mut y = contraction::einsum(run, &self.equation, x, kernel, shape);
        if self.bias_axes.as_deref().is_some_and(|axes| !axes.is_empty()) {
            let bias = run.weight(1);
            y = run.binary("AddV2", y, bias);
        }
        let y = run.activate(&self.activation, y);
        run.finish(y);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_graph::{DType, Shape};
    use serde_json::json;

    fn shapes(
        equation: &str,
        output: serde_json::Value,
        bias: Option<&str>,
        x: &[u64],
    ) -> (Vec<u64>, Vec<u64>, Option<Vec<u64>>) {
        let config = json!({"equation": equation, "output_shape": output, "bias_axes": bias});
        let layer: EinsumDense = serde_json::from_value(config).unwrap();
        let a = layer.analyze(&Spec::new(Shape::from(x), DType::Float32)).unwrap();
        (a.output.iter().map(|d| d.known().unwrap()).collect(), a.kernel, a.bias)
    }

    #[test]
    fn letters_and_ellipses() {
        assert_eq!(
            shapes("ab,bc->ac", json!(64), Some("c"), &[8, 32]),
            (vec![8, 64], vec![32, 64], Some(vec![64]))
        );
        let heads = shapes("abc,cde->abde", json!([null, 4, 16]), Some("de"), &[8, 128, 64]);
        assert_eq!(heads, (vec![8, 128, 4, 16], vec![64, 4, 16], Some(vec![4, 16])));
        let left = shapes("...x,xy->...y", json!(7), Some("y"), &[8, 3, 5, 6]);
        assert_eq!(left, (vec![8, 3, 5, 7], vec![6, 7], Some(vec![7])));
        let right = shapes("ab...,bc->ac...", json!(9), None, &[8, 3, 5, 6]);
        assert_eq!(right, (vec![8, 9, 5, 6], vec![3, 9], None));
        let heads_only = shapes("abc,cde->abde", json!([null, 4, 16]), Some("e"), &[8, 128, 64]);
        assert_eq!(heads_only.2, Some(vec![16]));
    }
}
