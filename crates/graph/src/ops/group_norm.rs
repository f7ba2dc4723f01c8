//! GroupNormalization (ONNX 18, 21), InstanceNormalization (1, 6, 22), and com.microsoft's GroupNorm and SkipGroupNorm.
//! Keras `GroupNormalization`.
//!
//! `native_group_norm` keeps its input, weight and two statistics per group, in the input's dtype (derivatives.yaml); it
//! is on autocast's fp32 list. `at::instance_norm` (aten/src/ATen/native/Normalization.cpp) is batch norm over
//! `[1, N*C, …]` with weight and bias repeated N times: the repeated weight and 2*N*C float32 statistics are kept; it is
//! on no list.

use super::calls::{Traced, positive};
use crate::kernels::TfLowering;
use crate::{
    Attributes, Autocast, Call, DType, Grad, Infer, Lowering, Op, OpError, OpSpec, Operand, OutDtype, Place,
    Saved, elements,
};
use std::sync::Arc;

/// Normalizes groups of channels of each sample.
#[derive(Clone, Copy, Debug)]
pub struct GroupNormalization {
    /// The operator's name.
    pub name: &'static str,
    /// How many groups; `None` for one a channel (instance norm).
    pub groups: Option<u64>,
    /// Whether the channels are the last axis.
    pub channels_last: bool,
    /// Whether SiLU follows.
    pub silu: bool,
    /// Whether input 3 (and a bias, input 4) is added first.
    pub skip: bool,
    /// What is added to the variance.
    pub epsilon: f64,
}

/// How they are found.
pub const SPECS: &[OpSpec] = &[
    OpSpec {
        domain: "",
        name: "GroupNormalization",
        since: &[18, 21],
        build: |a, _| {
            let groups = positive(a, "num_groups", 1)?;
            if !a.has("num_groups") {
                return Err(OpError::missing_attribute("num_groups"));
            }
            let name = "GroupNormalization";
            let groups = Some(groups);
            let epsilon = epsilon(a)?;
            Ok(Arc::new(GroupNormalization {
                name,
                groups,
                channels_last: false,
                silu: false,
                skip: false,
                epsilon,
            }))
        },
    },
    OpSpec {
        domain: "",
        name: "InstanceNormalization",
        since: &[1, 6, 22],
        build: |a, _| {
            let name = "InstanceNormalization";
            Ok(Arc::new(GroupNormalization {
                name,
                groups: None,
                channels_last: false,
                silu: false,
                skip: false,
                epsilon: epsilon(a)?,
            }))
        },
    },
    OpSpec {
        domain: "com.microsoft",
        name: "GroupNorm",
        since: &[1],
        build: |a, _| contrib(a, "com.microsoft.GroupNorm", false),
    },
    OpSpec {
        domain: "com.microsoft",
        name: "SkipGroupNorm",
        since: &[1],
        build: |a, _| contrib(a, "com.microsoft.SkipGroupNorm", true),
    },
];

fn epsilon(a: &Attributes) -> Result<f64, OpError> {
    Ok(a.float("epsilon")?.unwrap_or(1e-5))
}

fn contrib(a: &mut Attributes, name: &'static str, skip: bool) -> Result<Arc<dyn Op>, OpError> {
    Ok(Arc::new(GroupNormalization {
        name,
        groups: Some(positive(a, "groups", 1)?),
        epsilon: epsilon(a)?,
        channels_last: a.int("channels_last")?.unwrap_or(1) != 0,
        silu: a.flag("activation")?,
        skip,
    }))
}

impl Op for GroupNormalization {
    fn name(&self) -> &str {
        self.name
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        let x = cx.require(0)?.clone();
        cx.require(1)?;
        cx.require(2)?;
        if let Some(shape) = x.shape() {
            let at = if self.channels_last { shape.rank().checked_sub(1) } else { Some(1) };
            let channels = at
                .and_then(|i| shape.dims().get(i))
                .ok_or_else(|| OpError::input(0, "batch and channels", format!("shape {shape}")))?;
            if let (Some(c), Some(groups)) = (channels.known(), self.groups)
                && c % groups != 0
            {
                return Err(OpError::input(0, format!("channels in {groups} equal groups"), c));
            }
        }
        cx.set_type(1, x.clone());
        cx.set_type(0, x);
        Ok(())
    }

    fn tensorflow(&self, l: &mut TfLowering<'_>) {
        let mut x = l.input_f32(0);
        if self.skip {
            for i in (3..5).filter(|i| l.has(*i)).collect::<Vec<_>>() {
                let term = l.input_f32(i);
                x = l.binary("AddV2", x, term);
            }
            l.bind(1, x);
        }
        let shape = l.shape(x).to_vec();
        let channels = shape.get(if self.channels_last { shape.len().saturating_sub(1) } else { 1 });
        let channels = channels.copied().unwrap_or(1);
        let groups = self.groups.unwrap_or(channels).max(1);
        let batch = shape.first().copied().unwrap_or(1);
        let inner = l.made(x).elements().checked_div(batch.saturating_mul(groups)).unwrap_or(0);
        let grouped = l.view("Reshape", x, &[batch, groups, inner]);
        let (mean, variance) = l.moments(grouped, &[batch, groups, 1]);
        let y = l.normalize(grouped, (mean, variance), None, None);
        let mut y = l.view("Reshape", y, &shape);
        let mut per_channel = vec![1; shape.len()];
        let at = if self.channels_last { shape.len().saturating_sub(1) } else { 1 };
        per_channel.get_mut(at).into_iter().for_each(|d| *d = channels);
        for (i, name) in [(1, "Mul"), (2, "AddV2")] {
            if l.has(i) && elements(l.in_shape(i)) == channels {
                let weight = l.input_f32(i);
                let weight = l.view("Reshape", weight, &per_channel);
                y = l.binary(name, y, weight);
            }
        }
        let mut y = l.to_compute(y);
        if self.silu {
            y = l.silu(y);
        }
        l.bind(0, y);
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let mut x = Traced::input(l, 0);
        if self.skip {
            let shape = x.shape.clone();
            for term in [3, 4] {
                if let Some(term) = Traced::optional(l, term) {
                    x = x.add(l, &term, &shape);
                }
            }
            x.bind(l, 1);
        }
        let mut y = match self.groups {
            Some(groups) => group_norm(l, &x, groups),
            None => instance_norm(l, &x),
        };
        if self.silu {
            y = y.pointwise(l, "silu", Saved::Input(0));
        }
        y.bind(l, 0);
    }
}

fn group_norm(l: &mut Lowering<'_>, x: &Traced, groups: u64) -> Traced {
    let statistics = [x.shape.first().copied().unwrap_or(1), groups];
    let call = Call::new("native_group_norm")
        .autocast(Autocast::Fp32)
        .input(x.operand, Grad::New)
        .input(Operand::Input(1), Grad::New)
        .input(Operand::Input(2), Grad::New)
        .output(&x.shape, OutDtype::Like(0), Place::New)
        .output(&statistics, OutDtype::Like(0), Place::New)
        .output(&statistics, OutDtype::Like(0), Place::New)
        .saves([Saved::Input(0), Saved::Input(1), Saved::Output(1), Saved::Output(2)]);
    Traced::of(l, call, &x.shape, &[x, &Traced::input(l, 1), &Traced::input(l, 2)])
}

fn instance_norm(l: &mut Lowering<'_>, x: &Traced) -> Traced {
    let (batch, channels) = match x.shape[..] {
        [n, c, ..] => (n, c),
        _ => (1, 1),
    };
    let rows = [batch.saturating_mul(channels)];
    let repeated = |l: &mut Lowering<'_>, i: usize| {
        let call = Call::new("repeat").input(Operand::Input(i), Grad::New);
        let parameter = Traced::input(l, i);
        Traced::of(l, call.output(&rows, OutDtype::Like(0), Place::New), &rows, &[&parameter])
    };
    // A module without weights is exported with constants that training does not have.
    let parameters = [1, 2].iter().any(|i| l.state(*i).is_some_and(|s| s.requires_grad));
    let weights = if parameters { vec![repeated(l, 1), repeated(l, 2)] } else { Vec::new() };
    let spatial = x.shape.get(2..).unwrap_or_default();
    let flat = x.reshape(l, &[&[1], &rows[..], spatial].concat());
    let mut call = Call::new("cudnn_batch_norm").input(flat.operand, Grad::New).saves([Saved::Input(0)]);
    if let [weight, bias] = &weights[..] {
        call = call.input(weight.operand, Grad::New).input(bias.operand, Grad::New).saves([Saved::Input(1)]);
    }
    let call = call
        .output(&flat.shape, OutDtype::Like(0), Place::New)
        .output(&rows, OutDtype::Is(DType::Float32), Place::New)
        .output(&rows, OutDtype::Is(DType::Float32), Place::New)
        .saves([Saved::Output(1), Saved::Output(2)]);
    let inputs: Vec<&Traced> = [&flat].into_iter().chain(&weights).collect();
    let y = Traced::of(l, call, &flat.shape, &inputs);
    y.reshape(l, &x.shape)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OutState, TensorState};

    fn calls(op: &GroupNormalization) -> Vec<Call> {
        let state = |shape| {
            Some(TensorState { shape, dtype: DType::Float32, requires_grad: true, is_initializer: false })
        };
        let inputs = [state(&[4, 8, 6, 6][..]), state(&[8]), state(&[8])];
        let outputs = [Some(OutState { shape: &[4, 8, 6, 6], dtype: DType::Float32 })];
        let mut l = Lowering::new(&inputs, &outputs, None, true);
        op.pytorch(&mut l);
        l.into_parts().0
    }

    #[test]
    fn groups_keep_a_statistic_each_and_instances_a_repeated_weight() {
        let groups = |groups| GroupNormalization {
            name: "",
            groups,
            channels_last: false,
            silu: false,
            skip: false,
            epsilon: 1e-5,
        };
        let grouped = calls(&groups(Some(2)));
        assert_eq!(grouped[0].outputs[1].shape[..], [4, 2]);
        assert_eq!(grouped[0].autocast, Autocast::Fp32);
        let instances = calls(&groups(None));
        let names: Vec<_> = instances.iter().map(|c| c.function).collect();
        assert_eq!(names, ["repeat", "repeat", "reshape", "cudnn_batch_norm", "reshape"]);
        assert_eq!(instances[0].outputs[0].shape[..], [32]);
        assert_eq!(instances[3].saved[1], Saved::Input(1));
    }
}
