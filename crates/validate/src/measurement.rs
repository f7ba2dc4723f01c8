//! What was measured, apart from what was predicted, and the two side by side.

use memfit_engine::frameworks::burn::{Prediction, Program};
use memfit_graph::Bytes;
use serde_json::{Value, json};

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

/// Why steps ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// `out-of-memory`, `failed` or `interrupted`.
    pub kind: &'static str,
    /// The layer, where it was in one.
    pub layer: String,
    /// The function of Burn.
    pub function: String,
    /// What was said.
    pub message: String,
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
    /// Why there are not more.
    pub ended: Option<Ended>,
}

impl Measurement {
    /// The highest of all.
    pub fn peak(&self) -> Bytes {
        self.phases.iter().copied().fold(self.before.in_use, Bytes::max)
    }

    /// Bytes that the last step left behind, where each of the last steps left some.
    pub fn leak(&self) -> Option<Bytes> {
        let grows: Vec<Bytes> =
            self.after_steps.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
        let last = grows.get(grows.len().saturating_sub(2)..).unwrap_or_default();
        (last.len() == 2 && last.iter().all(|b| *b > Bytes::ZERO)).then(|| last[1])
    }
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
    /// The program, for its layers.
    pub program: &'a Program,
}

/// Measured less predicted in per cent of the measured; none where nothing was measured.
pub fn error_percent(measured: Bytes, predicted: Bytes) -> Option<f64> {
    (measured > Bytes::ZERO).then(|| 100.0 * (predicted.0 as f64 - measured.0 as f64) / measured.0 as f64)
}

impl Comparison<'_> {
    /// Name, measured, predicted: the peak, the phases, the pools.
    pub fn rows(&self) -> Vec<(&'static str, Bytes, Bytes)> {
        let (m, p) = (self.measured, self.predicted);
        let mut rows = vec![("before the step", m.before.in_use, p.steady)];
        rows.extend(PHASES.iter().zip(m.phases).zip(p.phases).map(|((name, m), p)| (*name, m, p)));
        rows.push(("peak", m.peak(), p.between));
        if let Some(reserved) = self.reserved {
            rows.push(("reserved", m.reserved, reserved));
        }
        rows
    }

    /// Layers whose error is largest in bytes: name, measured, predicted.
    pub fn worst_layers(&self, most: usize) -> Vec<(String, Bytes, Bytes)> {
        let pairs = self.measured.layers.iter().zip(&self.predicted.layers);
        let mut rows: Vec<(String, Bytes, Bytes)> =
            pairs.map(|((name, measured), predicted)| (name.clone(), *measured, *predicted)).collect();
        rows.retain(|(_, measured, _)| *measured > Bytes::ZERO);
        rows.sort_by_key(|(_, m, p)| std::cmp::Reverse(m.0.abs_diff(p.0)));
        rows.truncate(most);
        rows
    }

    /// As JSON, with integers in keys that end in `_bytes`.
    pub fn json(&self) -> Value {
        let m = self.measured;
        let rows: Vec<Value> = self
            .rows()
            .into_iter()
            .map(|(name, measured, predicted)| {
                json!({"what": name, "measured_bytes": measured.0, "predicted_bytes": predicted.0,
                       "error_percent": error_percent(measured, predicted)})
            })
            .collect();
        let layers: Vec<Value> = self
            .measured
            .layers
            .iter()
            .zip(&self.predicted.layers)
            .map(|((name, measured), predicted)| {
                json!({"name": name, "measured_bytes": measured.0, "predicted_bytes": predicted.0})
            })
            .collect();
        let ended = m
            .ended
            .as_ref()
            .map(|e| json!({"kind": e.kind, "layer": e.layer, "function": e.function, "message": e.message}));
        json!({
            "backend": m.backend, "device": m.device, "steps": m.steps, "losses": m.losses,
            "after_step_bytes": m.after_steps.iter().map(|b| b.0).collect::<Vec<u64>>(),
            "leak_bytes": m.leak().map(|b| b.0), "ended": ended, "rows": rows, "layers": layers,
        })
    }

    /// As text: a table, then the layers that differ most.
    pub fn text(&self) -> String {
        let m = self.measured;
        let mut out = format!("{} steps on {} ({})\n\n", m.steps, m.device, m.backend);
        let line = |name: &str, measured: Bytes, predicted: Bytes| {
            let error = error_percent(measured, predicted).map_or(String::new(), |e| format!("{e:+.1} %"));
            format!("{name:<32} {:>12} {:>12} {error:>9}\n", measured.to_string(), predicted.to_string())
        };
        out += &format!("{:<32} {:>12} {:>12} {:>9}\n", "", "measured", "predicted", "error");
        for (name, measured, predicted) in self.rows() {
            out += &line(&name.replace('_', " "), measured, predicted);
        }
        let worst = self.worst_layers(5);
        if worst.iter().any(|(_, m, p)| m != p) {
            out += "\nlayers that differ most\n";
            for (name, measured, predicted) in worst {
                out += &line(&name, measured, predicted);
            }
        }
        if let Some(leak) = m.leak() {
            out += &format!("\nleak: each step leaves {leak} behind\n");
        }
        if let Some(e) = &m.ended {
            out += &format!("\n{} after {} steps", e.kind, m.steps);
            if !e.layer.is_empty() {
                out += &format!(" in {} ({})", e.layer, e.function);
            }
            out += &format!(": {}\n", e.message);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leak_is_growth_in_each_of_the_last_steps() {
        let after = |bytes: &[u64]| Measurement {
            after_steps: bytes.iter().map(|b| Bytes(*b)).collect(),
            ..Measurement::default()
        };
        assert_eq!(after(&[100, 110, 110, 110]).leak(), None);
        assert_eq!(after(&[100, 110, 120]).leak(), Some(Bytes(10)));
        assert_eq!(after(&[100, 110]).leak(), None);
    }

    #[test]
    fn errors_are_relative_to_the_measurement() {
        assert_eq!(error_percent(Bytes(200), Bytes(190)), Some(-5.0));
        assert_eq!(error_percent(Bytes(0), Bytes(190)), None);
    }
}
