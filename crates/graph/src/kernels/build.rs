//! Makers of single kernels: a lowering, a gradient and an optimizer's update are written with these.

use super::{Effect, Flow, Gradient, Made, Place, Stage, Wire};
use crate::DType;

/// A new buffer of this shape.
pub(super) fn new(shape: &[u64], dtype: DType) -> Made {
    Made { shape: shape.to_vec(), dtype, place: Place::New }
}

impl Flow {
    /// A kernel with one output in a new buffer.
    pub fn make(
        &mut self,
        name: &'static str,
        inputs: &[Wire],
        shape: &[u64],
        dtype: DType,
        gradient: Option<Gradient>,
    ) -> Wire {
        self.push(name, inputs, vec![new(shape, dtype)], gradient)
    }

    /// A kernel with one output that may take the place of an input.
    pub fn reuse(
        &mut self,
        name: &'static str,
        inputs: &[Wire],
        shape: &[u64],
        dtype: DType,
        gradient: Option<Gradient>,
    ) -> Wire {
        let made = Made { shape: shape.to_vec(), dtype, place: Place::Reuse };
        self.push(name, inputs, vec![made], gradient)
    }

    /// A kernel that makes a tensor like its first input, in its place where it may.
    pub(super) fn like(
        &mut self,
        name: &'static str,
        inputs: &[Wire],
        gradient: Option<Gradient>,
    ) -> Option<Wire> {
        let first = *inputs.first()?;
        let (shape, dtype) = (self.shape(first).to_vec(), self.dtype(first));
        Some(self.reuse(name, inputs, &shape, dtype, gradient))
    }

    /// A constant that lives on the host or is too small to count.
    pub fn constant(&mut self, shape: &[u64], dtype: DType) -> Wire {
        let made = Made { shape: shape.to_vec(), dtype, place: Place::Host };
        self.push("Const", &[], vec![made], None)
    }

    /// A constant like `x`, in another shape or dtype, where `x` is the gradient of the loss itself, or what is made of that alone.
    pub(super) fn folded(&mut self, x: Wire, shape: &[u64], dtype: DType) -> Option<Wire> {
        let is_folded = self.folds && self.stage == Stage::Backward && self.kernel(x).name == "Const";
        is_folded.then(|| self.constant(shape, dtype))
    }

    /// Whether a gradient flows through it to a variable.
    pub fn is_trained(&self, wire: Wire) -> bool {
        let mut seen = vec![false; self.kernels.len()];
        let mut stack = vec![wire];
        while let Some(at) = stack.pop() {
            if std::mem::replace(&mut seen[at.kernel as usize], true) || !self.dtype(at).is_float() {
                continue;
            }
            let kernel = self.kernel(at);
            match kernel.effect {
                Effect::Read(variable) if self.variables[variable as usize].trainable => return true,
                Effect::None if kernel.gradient.is_some() => stack.extend(&kernel.inputs),
                _ => {}
            }
        }
        false
    }

    /// A wire that is another output of the same kernel.
    pub fn output(&self, wire: Wire, output: u32) -> Wire {
        Wire { output, ..wire }
    }

    /// All outputs of a kernel.
    pub fn outputs(&self, wire: Wire) -> Vec<Wire> {
        (0..).zip(&self.kernel(wire).outputs).map(|(output, _)| self.output(wire, output)).collect()
    }
}

/// The gradients of a list whose only differentiable input is the first.
pub(super) fn first(wire: Wire) -> Vec<Option<Wire>> {
    vec![Some(wire)]
}

/// The gradient of the first output.
pub(super) fn incoming(grads: &[Option<Wire>]) -> Option<Wire> {
    grads.first().copied().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gradients_of_a_constant_are_constants_where_grappler_folds() {
        for (folds, stage, expected) in [
            (true, Stage::Backward, "Const"),
            (false, Stage::Backward, "RealDiv"),
            (true, Stage::Forward, "RealDiv"),
        ] {
            let mut flow = Flow { folds, stage, ..Flow::default() };
            let one = flow.constant(&[], DType::Float32);
            let column = flow.view("Reshape", one, &[1, 1]);
            let tiled = flow.broadcast_to(column, &[8, 4]);
            let share = flow.scaled("RealDiv", tiled);
            assert_eq!((flow.kernel(share).name, flow.shape(share)), (expected, &[8, 4][..]));
        }
    }

    #[test]
    fn a_gradient_flows_to_trained_variables_alone() {
        let mut flow = Flow::default();
        let found = [true, false].map(|trainable| {
            let variable = flow.variable(&[4], DType::Float32, trainable);
            let x = flow.read(variable);
            let squared = flow.unary("Square", x);
            let rounded = flow.make("Augment", &[squared], &[4], DType::Float32, None);
            let chosen = flow.test("Greater", squared);
            [squared, rounded, chosen].map(|wire| flow.is_trained(wire))
        });
        assert_eq!(found, [[true, false, false], [false; 3]]);
    }

    #[test]
    fn of_two_reshapes_one_is_left() {
        let mut flow = Flow::default();
        let variable = flow.variable(&[6, 4], DType::Float32, true);
        let x = flow.read(variable);
        let flat = flow.view("Reshape", x, &[24]);
        let square = flow.view("Reshape", flat, &[3, 8]);
        assert_eq!(flow.kernel(square).inputs, [x]);
        assert_eq!(flow.view("Reshape", square, &[6, 4]), x);
    }
}
