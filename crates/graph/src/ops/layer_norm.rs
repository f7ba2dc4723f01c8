//! LayerNormalization (ONNX 17), RMSNormalization (23), onnxruntime's SimplifiedLayerNormalization, and its
//! SkipLayerNormalization and SkipSimplifiedLayerNormalization, which add a residual first. Keras
//! `LayerNormalization`, `RMSNormalization`.
//!
//! `native_layer_norm` keeps its input, weight, bias and two float32 statistics per row; `_fused_rms_norm` keeps one
//! statistic and has no bias (derivatives.yaml). Both are on autocast's fp32 list: a half input is cast up, and it is the
//! float32 copy that is kept, and the output is float32.

use super::calls::Traced;
use crate::kernels::TfLowering;
use crate::{
    Attributes, Autocast, Call, DType, Dim, Grad, Infer, Lowering, Op, OpError, OpSpec, Operand, OutDtype,
    Place, Saved, Shape,
};
use std::sync::Arc;

/// Normalizes over the axes from `axis` on.
#[derive(Clone, Copy, Debug)]
pub struct LayerNormalization {
    /// The operator's name.
    pub name: &'static str,
    /// The first normalized axis, counted from the back when negative.
    pub axis: i64,
    /// Whether the mean is left in (RMS).
    pub rms: bool,
    /// Whether input 1 is added first.
    pub skip: bool,
    /// The dtype of the statistics.
    pub stash: DType,
    /// What is added to the variance.
    pub epsilon: f64,
}

/// How they are found.
pub const SPECS: &[OpSpec] = &[
    OpSpec {
        domain: "",
        name: "LayerNormalization",
        since: &[1, 17],
        build: |a, _| build(a, "LayerNormalization", false, false),
    },
    OpSpec {
        domain: "",
        name: "RMSNormalization",
        since: &[23],
        build: |a, _| build(a, "RMSNormalization", true, false),
    },
    OpSpec {
        domain: "",
        name: "SimplifiedLayerNormalization",
        since: &[1],
        build: |a, _| build(a, "SimplifiedLayerNormalization", true, false),
    },
    OpSpec {
        domain: "com.microsoft",
        name: "SimplifiedLayerNormalization",
        since: &[1],
        build: |a, _| build(a, "com.microsoft.SimplifiedLayerNormalization", true, false),
    },
    OpSpec {
        domain: "com.microsoft",
        name: "SkipLayerNormalization",
        since: &[1],
        build: |a, _| build(a, "com.microsoft.SkipLayerNormalization", false, true),
    },
    OpSpec {
        domain: "com.microsoft",
        name: "SkipSimplifiedLayerNormalization",
        since: &[1],
        build: |a, _| build(a, "com.microsoft.SkipSimplifiedLayerNormalization", true, true),
    },
];

fn build(a: &mut Attributes, name: &'static str, rms: bool, skip: bool) -> Result<Arc<dyn Op>, OpError> {
    let stash = a.int("stash_type")?.and_then(|n| i32::try_from(n).ok()).and_then(DType::from_onnx);
    Ok(Arc::new(LayerNormalization {
        name,
        axis: a.int("axis")?.unwrap_or(-1),
        rms,
        skip,
        stash: stash.filter(|d| d.is_float()).unwrap_or(DType::Float32),
        // onnxruntime's own that add a residual have a default of their own.
        epsilon: a.float("epsilon")?.unwrap_or(if skip { 1e-12 } else { 1e-5 }),
    }))
}

impl LayerNormalization {
    /// The positions of weight, bias of the norm, and bias that is added with the residual.
    fn slots(&self) -> (usize, Option<usize>, Option<usize>) {
        match (self.skip, self.rms) {
            (false, false) => (1, Some(2), None),
            (false, true) => (1, None, None),
            (true, false) => (2, Some(3), Some(4)),
            (true, true) => (2, None, Some(3)),
        }
    }

    fn first_axis(&self, rank: usize) -> Option<usize> {
        crate::shape::normalize_axis(self.axis, rank)
    }
}

impl Op for LayerNormalization {
    fn name(&self) -> &str {
        self.name
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        let x = cx.require(0)?.clone();
        let weight = self.slots().0;
        cx.require(weight)?;
        let mut statistics = None;
        if let Some(shape) = x.shape() {
            let axis = self.first_axis(shape.rank()).ok_or_else(|| {
                OpError::input(0, format!("a rank that has axis {}", self.axis), format!("shape {shape}"))
            })?;
            let normalized: Shape = shape.dims()[axis..].iter().cloned().collect();
            // It may have leading axes of the input's too: the scale is broadcast to the input.
            if let Some(w) = cx.shape(weight)
                && (w.rank() > shape.rank() || shape.broadcast(w).is_none())
            {
                return Err(OpError::input(weight, format!("the shape {normalized}"), format!("shape {w}")));
            }
            let kept = |(i, d): (usize, &Dim)| if i < axis { d.clone() } else { Dim::Known(1) };
            statistics = Some(shape.dims().iter().enumerate().map(kept).collect::<Shape>());
        }
        for j in 1..cx.output_count() {
            cx.set(j, self.stash, statistics.clone());
        }
        if self.skip {
            cx.set_type(3, x.clone());
        }
        cx.set_type(0, x);
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let (weight, bias, added) = self.slots();
        let mut x = l.input_f32(0);
        if self.skip {
            for term in [Some(1), added].into_iter().flatten().filter(|i| l.has(*i)).collect::<Vec<_>>() {
                let term = l.input_f32(term);
                x = l.binary("AddV2", x, term);
            }
            l.bind(3, x);
        }
        let mut rows = l.shape(x).to_vec();
        let first = self.first_axis(rows.len()).unwrap_or(0);
        rows.iter_mut().skip(first).for_each(|d| *d = 1);
        let scale = l.has(weight).then(|| l.input_f32(weight));
        let offset = bias.filter(|i| l.has(*i)).map(|i| l.input_f32(i));
        let y = if self.rms { l.rms_norm(x, &rows, scale) } else { l.layer_norm(x, &rows, scale, offset) };
        let y = l.to_compute(y);
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let (weight, bias, added) = self.slots();
        let mut x = Traced::input(l, 0);
        if self.skip {
            let shape = x.shape.clone();
            for term in [Some(1), added].into_iter().flatten() {
                if let Some(term) = Traced::optional(l, term) {
                    x = x.add(l, &term, &shape);
                }
            }
            x.bind(l, 3);
        }
        let y = normalize(l, &x, self.first_axis(x.rank()).unwrap_or(0), weight, bias, self.rms);
        l.bind(0, y);
        let Operand::Result { call, .. } = y else { return };
        // By output, the result of the call. onnxruntime's simplified form has the statistic as its second output, the one that adds a
        // residual as its third.
        let statistics: &[(usize, usize)] = match (self.rms, self.skip) {
            (false, _) => &[(1, 1), (2, 2)],
            (true, false) => &[(1, 1)],
            (true, true) => &[(2, 1)],
        };
        for (j, output) in statistics.iter().copied() {
            if l.wants(j) {
                l.bind(j, Operand::Result { call, output });
            }
        }
    }
}

/// `native_layer_norm` or `_fused_rms_norm` of `x` over the axes from `axis` on.
pub(super) fn normalize(
    l: &mut Lowering<'_>,
    x: &Traced,
    axis: usize,
    weight: usize,
    bias: Option<usize>,
    rms: bool,
) -> Operand {
    let rows: Vec<u64> = x.shape.iter().enumerate().map(|(i, d)| if i < axis { *d } else { 1 }).collect();
    let mut call = Call::new(if rms { "_fused_rms_norm" } else { "native_layer_norm" })
        .autocast(Autocast::Fp32)
        .input(x.operand, Grad::New)
        .saves([Saved::Input(0)]);
    for parameter in [Some(weight), bias].into_iter().flatten() {
        if l.state(parameter).is_some() {
            let at = call.inputs.len();
            call = call.input(Operand::Input(parameter), Grad::New).saves([Saved::Input(at)]);
        }
    }
    call = call.output(&x.shape, OutDtype::Promoted, Place::New);
    for output in 1..=if rms { 1 } else { 2 } {
        call = call.output(&rows, OutDtype::Is(DType::Float32), Place::New).saves([Saved::Output(output)]);
    }
    l.call(call)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attribute, OutState, TensorState};

    fn calls(name: &str, shapes: &[&'static [u64]], outputs: usize) -> (Vec<Call>, Vec<(usize, Operand)>) {
        let domain = if name.starts_with("Skip") { "com.microsoft" } else { "" };
        let op = crate::find_op(domain, name, 23).unwrap().build(Attributes::default(), 23).unwrap();
        let state = |shape| {
            Some(TensorState { shape, dtype: DType::Float32, requires_grad: true, is_initializer: false })
        };
        let inputs: Vec<_> = shapes.iter().copied().map(state).collect();
        let outputs = vec![Some(OutState { shape: shapes[0], dtype: DType::Float32 }); outputs];
        let mut l = Lowering::new(&inputs, &outputs, None, true);
        op.pytorch(&mut l);
        let (calls, bound, _) = l.into_parts();
        (calls, bound)
    }

    #[test]
    fn two_float32_statistics_a_row_are_kept() {
        let (calls, _) = calls("LayerNormalization", &[&[4, 6, 8], &[8], &[8]], 1);
        assert_eq!(calls[0].autocast, Autocast::Fp32);
        assert_eq!(calls[0].outputs[1].shape[..], [4, 6, 1]);
        let input = Saved::Input;
        let all = [input(0), input(1), input(2), Saved::Output(1), Saved::Output(2)];
        assert_eq!(calls[0].saved[..], all);
    }

    #[test]
    fn the_simplified_form_keeps_one_statistic() {
        let (calls, bound) = calls("RMSNormalization", &[&[4, 6, 8], &[8]], 1);
        assert_eq!(calls[0].saved[..], [Saved::Input(0), Saved::Input(1), Saved::Output(1)]);
        assert_eq!(bound.len(), 1);
    }

    #[test]
    fn a_statistic_is_one_output_only() {
        let simplified: &[&'static [u64]] = &[&[4, 6, 8], &[8]];
        let skip: &[&'static [u64]] = &[&[4, 6, 8], &[4, 6, 8], &[8]];
        let bound = |name: &str, shapes: &[&'static [u64]]| {
            calls(name, shapes, 4).1.into_iter().map(|(j, _)| j).collect::<Vec<_>>()
        };
        assert_eq!(bound("SimplifiedLayerNormalization", simplified), [0, 1]);
        assert_eq!(bound("SkipSimplifiedLayerNormalization", skip), [3, 0, 2]);
        assert_eq!(bound("SkipLayerNormalization", skip), [3, 0, 1, 2]);
    }

    #[test]
    fn the_skip_forms_add_first() {
        let shapes: [&[u64]; 5] = [&[4, 6, 8], &[4, 6, 8], &[8], &[8], &[8]];
        let (calls, bound) = calls("SkipLayerNormalization", &shapes, 4);
        let names: Vec<_> = calls.iter().map(|c| c.function).collect();
        assert_eq!(names, ["add", "add", "native_layer_norm"]);
        assert_eq!(bound[0], (3, Operand::Result { call: 1, output: 0 }));
    }

    #[test]
    fn an_axis_out_of_range_is_an_error() {
        use crate::{Binding, Graph, Role, Type, infer};
        let mut g = Graph::default();
        let x = g.add_tensor("x", Type::tensor(DType::Float32, Shape::from([2, 3, 4])), Role::Input);
        let w = g.add_tensor("w", Type::tensor(DType::Float32, Shape::from([3, 4])), Role::Initializer);
        g.inputs = vec![x];
        let axis = |n| Attributes::from([("axis", Attribute::Int(n))]);
        let y = g.push("LayerNormalization", axis(-2), &[x, w], "y").unwrap();
        assert_eq!(infer(&g, &Binding::default()).unwrap().shape(y), Some(&Shape::from([2, 3, 4])));
        g.push("LayerNormalization", axis(3), &[x, w], "z").unwrap();
        assert!(infer(&g, &Binding::default()).unwrap_err()[0].message.contains("axis 3"));
    }
}
