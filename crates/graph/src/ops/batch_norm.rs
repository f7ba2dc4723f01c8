//! BatchNormalization. ONNX 1, 6, 7, 9, 14, 15; Keras `BatchNormalization`.
//!
//! While a model trains, autograd keeps the input, the weight and the two float32 statistics of the batch, and reads the
//! running buffers (derivatives.yaml: `cudnn_batch_norm`, `native_batch_norm`). Which of the two kernels runs changes
//! nothing in that list: cuDNN's for float32 and float16 (its reserve is empty for NCHW), PyTorch's own for bfloat16, which
//! writes its result and its gradient in the layout of its input (cuda/Normalization.cu, `empty_like`). On
//! none of autocast's lists, so a half input with float32 weights stays half. The training flag of the file is an
//! exporter's setting: a model that trains uses the batch whatever the file was exported for.

use crate::kernels::TfLowering;
use crate::{
    Call, DType, Grad, Infer, Lowering, Op, OpError, OpSpec, Operand, OutDtype, Place, Saved, Shape,
};
use std::sync::Arc;

/// Normalizes each channel over the batch, or by running statistics.
#[derive(Clone, Copy, Debug)]
pub struct BatchNormalization {
    /// Whether the file says that the batch's own statistics are used.
    pub training_mode: bool,
    /// Opset 1 to 8: statistics per channel (true) or per activation.
    pub spatial: bool,
    /// What is added to the variance.
    pub epsilon: f64,
}

/// How BatchNormalization is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "BatchNormalization",
    since: &[1, 6, 7, 9, 14, 15],
    build: |a, version| {
        let is_test = a.flag("is_test")?;
        Ok(Arc::new(BatchNormalization {
            training_mode: if version < 7 { !is_test } else { a.flag("training_mode")? },
            spatial: a.int("spatial")?.unwrap_or(1) != 0,
            epsilon: a.float("epsilon")?.unwrap_or(1e-5),
        }))
    },
}];

impl Op for BatchNormalization {
    fn name(&self) -> &str {
        "BatchNormalization"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        let x = cx.require(0)?.clone();
        cx.require(1)?;
        cx.require(2)?;
        if let (Some(shape), true) = (x.shape(), self.spatial) {
            let channels = shape.dims().get(1).and_then(crate::Dim::known);
            for i in 1..5 {
                let Some(stat) = cx.shape(i) else { continue };
                if stat.rank() != 1 {
                    return Err(OpError::input(i, "one number a channel", format!("shape {stat}")));
                }
                if let (Some(c), Some(n)) = (channels, stat[0].known())
                    && c != n
                {
                    return Err(OpError::input(i, format!("{c} numbers, one a channel"), n));
                }
            }
        }
        for j in 1..cx.output_count() {
            // running_mean, running_var, then (before opset 14) saved_mean, saved_var
            let like = if j % 2 == 1 { 3 } else { 4 };
            let dtype = if cx.has(like) { cx.dtype(like) } else { cx.dtype(1) };
            let shape: Option<Shape> = cx.shape(like).or_else(|| cx.shape(1)).cloned();
            cx.set(j, dtype, shape);
        }
        cx.set_type(0, x);
        Ok(())
    }

    fn buffer_inputs(&self) -> &'static [usize] {
        &[3, 4]
    }

    fn unexported_buffers(&self) -> &'static [DType] {
        &[DType::Int64]
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let x = l.input_f32(0);
        let (scale, offset) = (l.input_f32(1), l.input_f32(2));
        let channels = l.shape(scale).to_vec();
        let mut per_channel = vec![1; l.shape(x).len()];
        per_channel.iter_mut().skip(1).zip(&channels).for_each(|(to, from)| *to = *from);
        let [scale, offset] = [scale, offset].map(|w| l.view("Reshape", w, &per_channel));
        let statistics = if l.compute.training {
            l.moments(x, &per_channel)
        } else {
            let (mean, variance) = (l.input_f32(3), l.input_f32(4));
            (l.view("Reshape", mean, &per_channel), l.view("Reshape", variance, &per_channel))
        };
        let y = l.normalize(x, statistics, Some(scale), Some(offset));
        let y = l.to_compute(y);
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let channels = [l.shape(0).get(1).copied().unwrap_or(1)];
        let stats: &[u64] = if l.training { &channels } else { &[0] };
        let (name, grad, place) = match l.dtype(0) {
            DType::Bfloat16 => ("native_batch_norm", Grad::Like, Place::Pointwise),
            _ => ("cudnn_batch_norm", Grad::New, Place::New),
        };
        let call = Call::new(name)
            .input(Operand::Input(0), grad)
            .input(Operand::Input(1), Grad::New)
            .input(Operand::Input(2), Grad::New)
            .output(l.out_shape(0), OutDtype::Like(0), place)
            .output(stats, OutDtype::Is(DType::Float32), Place::New)
            .output(stats, OutDtype::Is(DType::Float32), Place::New)
            .saves([Saved::Input(0), Saved::Input(1), Saved::Output(1), Saved::Output(2)]);
        let y = l.call(call);
        l.bind(0, y);
        // The running statistics are updated in place.
        for j in 1..l.output_count() {
            let buffer = if j % 2 == 1 { 3 } else { 4 };
            if l.wants(j) && l.state(buffer).is_some() {
                l.bind(j, Operand::Input(buffer));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attribute, Attributes, OutState, TensorState};

    #[test]
    fn input_weight_and_statistics_are_kept() {
        let state = |shape, dtype| TensorState { shape, dtype, requires_grad: true, is_initializer: false };
        let (half, full) = (DType::Float16, DType::Float32);
        let inputs: Vec<_> =
            [(&[2, 8, 4, 4][..], half), (&[8], full), (&[8], full), (&[8], full), (&[8], full)]
                .into_iter()
                .map(|(shape, dtype)| Some(state(shape, dtype)))
                .collect();
        let outputs = [Some(OutState { shape: &[2, 8, 4, 4], dtype: half }), None, None];
        let mut l = Lowering::new(&inputs, &outputs, Some(half), true);
        let build = SPECS[0].build(Attributes::from([("training_mode", Attribute::Int(1))]), 15).unwrap();
        build.pytorch(&mut l);
        let call = l.into_parts().0.remove(0);
        assert_eq!(call.saved[..], [Saved::Input(0), Saved::Input(1), Saved::Output(1), Saved::Output(2)]);
        assert_eq!((&call.outputs[1].shape[..], call.outputs[1].dtype), (&[8][..], OutDtype::Is(full)));
        // Half input, float32 weight: the output is half.
        assert_eq!(call.outputs[0].dtype, OutDtype::Like(0));
    }

    #[test]
    fn old_opsets_train_unless_they_say_test() {
        let build = |version, attributes| {
            let op = SPECS[0].build(attributes, version).unwrap();
            op.downcast::<BatchNormalization>().unwrap().training_mode
        };
        assert!(build(6, Attributes::default()));
        assert!(!build(6, Attributes::from([("is_test", Attribute::Int(1))])));
        assert!(!build(15, Attributes::default()));
    }
}
