//! What was measured of steps on Burn, apart from what was predicted, and the two side by side as a [`Record`].

use crate::record::{Ended, Layer, Record, Row, Seen};
use memfit_engine::frameworks::burn::Prediction;
use memfit_graph::Bytes;

/// The names of the phases, in the order of [`Measurement::phases`].
pub const PHASES: [&str; 3] = ["forward", "backward", "optimizer_step"];

/// Memory of a device at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of tensors.
    pub in_use: Bytes,
    /// Bytes that pools hold.
    pub reserved: Bytes,
}

/// What training steps held. Bytes are over what was held before the model was made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measurement {
    /// `cpu`, `wgpu`, `cuda`.
    pub backend: String,
    /// The device as its driver calls it.
    pub device: String,
    /// Steps that were completed.
    pub steps: u32,
    /// With parameters, state and the batch on the device, before the first step.
    pub before: Usage,
    /// The highest of the last step between two functions, by phase.
    pub phases: [Bytes; 3],
    /// The same by layer, in the program's order.
    pub layers: Vec<(String, Bytes)>,
    /// Bytes in use after each step.
    pub after_steps: Vec<Bytes>,
    /// What the pools hold after the last step.
    pub reserved: Bytes,
    /// The losses.
    pub losses: Vec<f64>,
    /// What the driver showed of the whole device at certain moments, where it says that.
    pub driver_view: Vec<Seen>,
    /// Why there are not more.
    pub ended: Option<Ended>,
}

impl Measurement {
    /// The highest of all.
    pub fn peak(&self) -> Bytes {
        self.phases.iter().copied().fold(self.before.in_use, Bytes::max)
    }
}

/// The least that a tensor left behind takes: a block of PyTorch's allocator (c10/cuda/CUDACachingAllocator.cpp, `kMinBlockSize`).
const BLOCK: u64 = 512;

/// Bytes that the last step left behind, where each of the last two left about as much: what is kept step by step is the same
/// each time, while what a program notes for itself comes and goes.
pub fn leak(after_steps: &[u64]) -> Option<u64> {
    let grows: Vec<u64> = after_steps.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
    let [.., before, last] = grows[..] else { return None };
    (last >= BLOCK && before.abs_diff(last) <= last / 8).then_some(last)
}

/// A measurement beside the prediction for the same program.
#[derive(Clone, Debug)]
pub struct Comparison<'a> {
    /// What was measured.
    pub measured: &'a Measurement,
    /// What was predicted.
    pub predicted: &'a Prediction,
    /// What the pools were predicted to hold.
    pub reserved: Option<Bytes>,
}

/// Predicted less measured, in per cent of the measured; none where nothing was measured.
pub fn error_percent(measured: Bytes, predicted: Bytes) -> Option<f64> {
    (measured > Bytes::ZERO).then(|| 100.0 * (predicted.0 as f64 - measured.0 as f64) / measured.0 as f64)
}

impl Comparison<'_> {
    /// Fills a record with all that was measured and predicted.
    pub fn fill(&self, record: &mut Record) {
        let (m, p) = (self.measured, self.predicted);
        (record.backend, record.device) = (m.backend.clone(), m.device.clone());
        record.steps = m.steps;
        record.rows.push(Row::new("before", m.before.in_use, p.steady));
        let phases = PHASES.iter().zip(m.phases).zip(p.phases);
        record.rows.extend(phases.map(|((what, m), p)| Row::new(what, m, p)));
        record.rows.push(Row::new("peak", m.peak(), p.between));
        record.rows.extend(self.reserved.map(|reserved| Row::new("reserved", m.reserved, reserved)));
        record.layers_are = "highest".into();
        let layers = m.layers.iter().zip(&p.layers);
        record.layers = layers
            .map(|((name, measured), predicted)| Layer {
                name: name.clone(),
                measured_bytes: measured.0,
                predicted_bytes: predicted.0,
            })
            .collect();
        record.after_step_bytes = m.after_steps.iter().map(|b| b.0).collect();
        record.leak_bytes = leak(&record.after_step_bytes);
        record.driver_view.clone_from(&m.driver_view);
        record.losses = m.losses.iter().map(|x| x.is_finite().then_some(*x)).collect();
        record.ended.clone_from(&m.ended);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leak_is_as_much_in_each_of_the_last_steps() {
        assert_eq!(leak(&[1000, 2000, 2000, 2000]), None);
        assert_eq!(leak(&[1000, 2000, 3001]), Some(1001));
        assert_eq!(leak(&[1000, 2000]), None);
        assert_eq!(leak(&[1000, 1032, 1064]), None, "no tensor is as small");
        assert_eq!(leak(&[1000, 1680, 10_384]), None, "a list that grew");
    }

    #[test]
    fn errors_are_relative_to_the_measurement() {
        assert_eq!(error_percent(Bytes(200), Bytes(190)), Some(-5.0));
        assert_eq!(error_percent(Bytes(0), Bytes(190)), None);
    }
}
