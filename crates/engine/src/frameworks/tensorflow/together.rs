//! XLA updates a variable and its slots in one fusion.
//!
//! The new values are elementwise of one gradient, and what reads the same tensors becomes one kernel with several outputs
//! (xla/service/gpu/transforms/multi_output_fusion.cc). They are put in the old ones' place, so they take no room; the scheduler, which knows
//! nothing of that, counts them as made.

use super::dependencies::has_effect;
use super::{Effect, Flow, Place, Wire};
use memfit_graph::kernels::{Made, Stage};

/// Makes the kernels that write a variable and its slots one.
pub(super) fn join(flow: &mut Flow) {
    for at in (0..flow.kernels.len()).rev() {
        let kernel = &flow.kernels[at];
        if kernel.stage != Stage::Update || !has_effect(kernel) {
            continue;
        }
        let (mut inputs, mut after): (Vec<Wire>, Vec<u32>) = (Vec::new(), Vec::new());
        let mut written = Vec::new();
        let mut stack = vec![at];
        while let Some(one) = stack.pop() {
            let kernel = &mut flow.kernels[one];
            written.extend(kernel.effect.variable());
            let mut waits = std::mem::take(&mut kernel.after);
            for wire in std::mem::take(&mut kernel.inputs) {
                // What an earlier kernel of these wrote is read where it was computed.
                let read = &flow.kernels[wire.kernel as usize];
                if matches!(read.effect, Effect::Read(_)) && !read.after.is_empty() {
                    waits.extend(&read.after);
                } else if !inputs.contains(&wire) {
                    inputs.push(wire);
                }
            }
            if one != at {
                flow.kernels[one].effect = Effect::None;
            }
            for wait in waits {
                let earlier = &flow.kernels[wait as usize];
                if earlier.stage == Stage::Update && has_effect(earlier) {
                    stack.push(wait as usize);
                } else if wait as usize != one {
                    after.push(wait);
                }
            }
        }
        written.sort_unstable();
        written.dedup();
        let made = written.iter().map(|variable| {
            let of = &flow.variables[*variable as usize];
            Made { shape: of.shape.clone(), dtype: of.dtype, place: Place::Host }
        });
        let made = made.collect();
        let kernel = &mut flow.kernels[at];
        (kernel.inputs, kernel.after, kernel.outputs) = (inputs, after, made);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_graph::DType;

    #[test]
    fn a_variable_and_its_slot_are_updated_by_one_kernel() {
        let mut flow = Flow::default();
        flow.stage = Stage::Update;
        let [variable, slot] = [0, 1].map(|_| flow.variable(&[8], DType::Float32, true));
        let gradient = flow.make("X", &[], &[8], DType::Float32, None);
        let old = flow.read(slot);
        let first =
            flow.effect("AssignAddVariableOp", &[gradient, old], Vec::new(), Effect::Update(slot), None);
        let new = flow.read(slot);
        flow.kernels[new.kernel as usize].after.push(first.kernel);
        let last = flow.effect("AssignSubVariableOp", &[new], Vec::new(), Effect::Update(variable), None);
        join(&mut flow);
        let last = flow.kernel(last);
        assert_eq!((&last.inputs[..], &last.after[..]), (&[gradient, old][..], &[][..]));
        // Both new values are its own, in the place of the old ones.
        assert_eq!(last.outputs.iter().map(|made| made.place).collect::<Vec<_>>(), [Place::Host; 2]);
        assert!(!has_effect(flow.kernel(first)));
    }
}
