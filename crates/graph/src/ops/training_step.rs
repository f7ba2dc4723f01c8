//! The `ai.onnx.preview.training` domain, version 1: Adagrad, Adam, Momentum, Gradient.
//!
//! A graph that holds its own training step. An optimizer gets the rate, the count, then the tensors, their gradients and their states,
//! group by group, and gives the tensors and states back; Gradient gives one tensor of the shape of each of its `xs`. memfit writes the
//! step of the framework itself, so these only allocate what they give.

use super::calls;
use crate::{Infer, Lowering, Op, OpError, OpSpec};
use std::sync::Arc;

/// One of the operators.
#[derive(Clone, Copy, Debug)]
pub struct TrainingStep {
    name: &'static str,
    /// How many states a tensor has; `None` for Gradient.
    pub states: Option<usize>,
}

macro_rules! training_step {
    ($($name:literal $qualified:literal $states:expr;)*) => {
        /// How each of them is found.
        pub const SPECS: &[OpSpec] = &[$(OpSpec {
            domain: "ai.onnx.preview.training",
            name: $name,
            since: &[1],
            build: |_, _| Ok(Arc::new(TrainingStep { name: $qualified, states: $states })),
        }),*];
    };
}

training_step! {
    "Adagrad"  "ai.onnx.preview.training.Adagrad"  Some(1);
    "Adam"     "ai.onnx.preview.training.Adam"     Some(2);
    "Gradient" "ai.onnx.preview.training.Gradient" None;
    "Momentum" "ai.onnx.preview.training.Momentum" Some(1);
}

impl Op for TrainingStep {
    fn name(&self) -> &str {
        self.name
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        let Some(states) = self.states else {
            for j in 0..cx.output_count() {
                cx.set_type(j, cx.ty(j).clone());
            }
            return Ok(());
        };
        let groups = states + 2;
        let given = cx.input_count().saturating_sub(2);
        if !given.is_multiple_of(groups) {
            let expected = format!("{groups} inputs for each tensor after the rate and the count");
            return Err(OpError::mismatch(expected, format!("{given} inputs")));
        }
        let tensors = given / groups;
        for j in 0..cx.output_count() {
            // The tensors come first, then the states; the gradients in between are not given back.
            let from = if j < tensors { 2 + j } else { 2 + tensors + j };
            cx.set_type(j, cx.ty(from).clone());
        }
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        calls::without_gradient(l, "training_step");
    }
}

#[cfg(test)]
mod tests {
    use crate::Attributes;
    use crate::ops::testing::{float, run};

    #[test]
    fn tensors_and_states_come_back_without_the_gradients() {
        let mut inputs = vec![float(&[]), float(&[])];
        for _ in ["values", "gradients", "first moments", "second moments"] {
            inputs.extend([float(&[1]), float(&[2])]);
        }
        let out = run("ai.onnx.preview.training.Adam", 1, Attributes::default(), &inputs, 6).unwrap();
        let shapes: Vec<String> = out.iter().map(|(ty, _)| ty.shape().unwrap().to_string()).collect();
        assert_eq!(shapes, ["1", "2", "1", "2", "1", "2"]);
        inputs.pop();
        assert!(run("ai.onnx.preview.training.Adam", 1, Attributes::default(), &inputs, 6).is_err());
    }
}
