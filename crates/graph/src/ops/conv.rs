//! Conv. ONNX 1, 11, 22; Keras `Conv1D`, `Conv2D`, `Conv3D`, `DepthwiseConv2D`.
//!
//! Autograd keeps the input and the weight, not the bias (derivatives.yaml: `convolution_backward`). On autocast's
//! lower-precision list. The kernels want contiguous operands, so a permuted input or gradient is copied first.

use super::calls::positive;
use super::spatial::Window;
use crate::kernels::TfLowering;
use crate::{
    Autocast, Call, Grad, Infer, Lowering, Op, OpError, OpSpec, Operand, OutDtype, Place, Saved, Shape,
};
use std::sync::Arc;

/// Convolution over any number of spatial axes: input `[N, C, …]`, weight `[K, C/groups, …]`.
#[derive(Clone, Debug)]
pub struct Conv {
    /// Kernel, strides, pads, dilations.
    pub window: Window,
    /// Channel groups.
    pub groups: u64,
}

/// How Conv is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "Conv",
    since: &[1, 11, 22],
    build: |a, _| {
        let groups = positive(a, "group", 1)?;
        Ok(Arc::new(Conv { window: Window::read(a)?, groups }))
    },
}];

/// The shape of a convolution of input and weight at these positions, for any operator that convolves.
pub(super) fn convolved(
    cx: &Infer<'_>,
    window: &Window,
    groups: u64,
    [x_at, w_at]: [usize; 2],
    channels_last: bool,
) -> Result<Option<Shape>, OpError> {
    cx.require(x_at)?;
    cx.require(w_at)?;
    let (Some(x), Some(w)) = (cx.shape(x_at), cx.shape(w_at)) else { return Ok(None) };
    if x.rank() < 3 {
        let expected = "batch, channels and at least one spatial axis";
        return Err(OpError::input(x_at, expected, format!("shape {x}")));
    }
    if w.rank() != x.rank() {
        return Err(OpError::input(w_at, format!("a weight of rank {}", x.rank()), format!("shape {w}")));
    }
    let axes = x.rank() - 2;
    let (channels, first) = if channels_last { (axes + 1, 1) } else { (1, 2) };
    // An image that hangs on constants alone still has the exported batch.
    let possible = [of_samples(cx, groups, w_at), groups];
    if let (Some(c), Some(per_group)) = (x[channels].known(), w[1].known())
        && possible.iter().all(|groups| Some(c) != per_group.checked_mul(*groups))
    {
        let groups = possible[0];
        let expected = format!("{c} channels in {groups} group(s)");
        return Err(OpError::input(w_at, expected, format!("a weight of shape {w}")));
    }
    let mut shape = x.clone();
    shape.dims_mut()[channels] = w[0].clone();
    for i in 0..axes {
        let kernel = window.kernel.as_ref().and_then(|k| k.get(i).copied()).or_else(|| w[i + 2].known());
        shape.dims_mut()[first + i] = match kernel {
            Some(kernel) => window.output(i, axes, &x[first + i], kernel)?,
            None => cx.fresh_dim(&format!("dim{}", first + i), None),
        };
    }
    Ok(Some(shape))
}

/// The groups that the kernel runs in. Where a model computes a weight for each sample, it convolves them as groups of one image
/// (`groups=batch`: StyleGAN2's modulated convolutions, dynamic filters), so that in a file of a fixed batch their number is a
/// multiple of it and follows a new one.
fn of_samples(cx: &Infer<'_>, groups: u64, w_at: usize) -> u64 {
    match cx.batch() {
        Some((old, new)) if old > 0 && groups.is_multiple_of(old) && !cx.stays(w_at) => {
            (groups / old).saturating_mul(new)
        }
        _ => groups,
    }
}

impl Op for Conv {
    fn name(&self) -> &str {
        "Conv"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        let shape = convolved(cx, &self.window, self.groups, [0, 1], false)?;
        cx.set(0, cx.dtype(0), shape);
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let spatial = l.in_shape(0).len().saturating_sub(2);
        // One filter for each channel runs as TensorFlow's depthwise kernel; other groups are Conv2D's own.
        let depthwise = self.groups > 1 && l.in_shape(1).get(1) == Some(&1);
        let name = match spatial {
            3 => "Conv3D",
            _ if depthwise => "DepthwiseConv2dNative",
            _ => "Conv2D",
        };
        let (x, w) = (l.input(0), l.input(1));
        let out = l.out_shape(0);
        let mut y = l.convolution(name, x, w, out);
        if l.has(2) {
            let bias = l.input(2);
            y = l.bias_add(y, bias);
        }
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let mut call = Call::new("convolution")
            .autocast(Autocast::Lower)
            .input(Operand::Input(0), Grad::New)
            .input(Operand::Input(1), Grad::New);
        if l.state(2).is_some() {
            call = call.input(Operand::Input(2), Grad::New);
        }
        l.finish(
            call.output(l.out_shape(0), OutDtype::Promoted, Place::New)
                .saves([Saved::Input(0), Saved::Input(1)]),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attribute, Attributes, Binding, DType, Graph, Role, TensorState, Type, infer};

    fn conv(x: [u64; 4], w: [u64; 4], attributes: Attributes) -> Result<Shape, String> {
        let mut g = Graph::default();
        let x = g.add_tensor("x", Type::tensor(DType::Float32, Shape::from(x)), Role::Input);
        let w = g.add_tensor("w", Type::tensor(DType::Float32, Shape::from(w)), Role::Initializer);
        g.inputs = vec![x];
        let y = g.push("Conv", attributes, &[x, w], "y").unwrap();
        infer(&g, &Binding::default()).map(|i| i.shape(y).unwrap().clone()).map_err(|p| p[0].to_string())
    }

    #[test]
    fn the_stem_of_a_resnet() {
        let attributes = Attributes::from([
            ("strides", Attribute::Ints(vec![2, 2])),
            ("pads", Attribute::Ints(vec![3, 3, 3, 3])),
        ]);
        assert_eq!(
            conv([8, 3, 224, 224], [64, 3, 7, 7], attributes).unwrap(),
            Shape::from([8, 64, 112, 112])
        );
    }

    #[test]
    fn a_weight_for_each_sample_has_as_many_groups_as_a_new_batch() {
        let mut g = Graph::default();
        let float = |g: &mut Graph, name, shape: &[u64], role| {
            g.add_tensor(name, Type::tensor(DType::Float32, Shape::from(shape)), role)
        };
        let x = float(&mut g, "x", &[2, 8, 4, 4], Role::Input);
        let style = float(&mut g, "style", &[2, 3, 8, 1, 1], Role::Input);
        g.inputs = vec![x, style];
        let mut reshaped = |x, to: [i64; 4], name| {
            let to = g.add_constant(format!("{name}_shape"), crate::Value::vector(DType::Int64, to));
            g.push("Reshape", Attributes::default(), &[x, to], name).unwrap()
        };
        let (image, weight) = (reshaped(x, [1, 16, 4, 4], "image"), reshaped(style, [6, 8, 1, 1], "weight"));
        let groups = Attributes::from([("group", Attribute::Int(2))]);
        let y = g.push("Conv", groups, &[image, weight], "y").unwrap();
        let seven = Binding { batch: Some(7), ..Binding::default() };
        assert_eq!(infer(&g, &seven).unwrap().shape(y), Some(&Shape::from([1, 21, 4, 4])));
    }

    #[test]
    fn channels_must_match_the_groups() {
        let depthwise = || Attributes::from([("group", Attribute::Int(32))]);
        assert!(conv([1, 32, 8, 8], [32, 1, 3, 3], depthwise()).is_ok());
        assert!(conv([1, 32, 8, 8], [32, 2, 3, 3], depthwise()).unwrap_err().contains("32 channels"));
        assert!(conv([1, 32, 2, 2], [32, 32, 3, 3], Attributes::default()).is_err());
    }

    #[test]
    fn input_and_weight_are_kept_and_the_bias_is_not() {
        let op = Conv { window: Window::default(), groups: 1 };
        let state =
            |shape| TensorState { shape, dtype: DType::Float32, requires_grad: true, is_initializer: false };
        let inputs = [Some(state(&[1, 3, 4, 4])), Some(state(&[8, 3, 1, 1])), Some(state(&[8]))];
        let mut l = Lowering::new(&inputs, &[], None, true);
        op.pytorch(&mut l);
        assert_eq!(l.into_parts().0[0].saved[..], [Saved::Input(0), Saved::Input(1)]);
    }
}
