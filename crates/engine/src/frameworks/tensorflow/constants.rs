//! Small constants that kernels read: axes, multiples and shapes.
//!
//! They take no room that counts, but grappler's sort begins at what reads nothing, and of equal constants there is one in the graph
//! (common_subgraph_elimination.cc). So the readers of one stand beside each other: all means over the same axes, all gradients of one
//! shape. Shapes that the gradient of a convolution asks for come behind its input and begin nothing.

use super::Flow;
use memfit_graph::kernels::{Kernel, Stage};
use std::collections::BTreeMap;

/// Which kernel reads which constant.
pub(super) struct Constants {
    /// By kernel.
    pub(super) of: Vec<Option<u32>>,
    /// How many there are.
    pub(super) count: u32,
}

impl Constants {
    /// The constants of a step's graph. What a loop's body reads begins with the step.
    pub(super) fn of(flow: &Flow) -> Constants {
        let mut numbers: BTreeMap<Vec<u64>, u32> = BTreeMap::new();
        let mut of = Vec::with_capacity(flow.kernels.len());
        for kernel in &flow.kernels {
            let read = kernel.turn.is_none() && kernel.stage != Stage::Update;
            of.push(value(flow, kernel).filter(|_| read).map(|value| {
                let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
                *numbers.entry(value).or_insert(next)
            }));
        }
        Constants { of, count: u32::try_from(numbers.len()).unwrap_or(u32::MAX) }
    }
}

/// Which of a kernel's inputs is the constant.
pub(super) fn place(kernel: &Kernel) -> usize {
    match kernel.name {
        "DepthwiseConv2dNativeBackpropInput" => 0,
        _ => 1,
    }
}

/// The elements of the constant that a kernel reads.
fn value(flow: &Flow, kernel: &Kernel) -> Option<Vec<u64>> {
    let made = &kernel.outputs.first()?.shape;
    let read = kernel.inputs.first().map(|wire| flow.shape(*wire))?;
    let pairs = || read.iter().zip(made);
    match kernel.name {
        "Tile" => Some(pairs().map(|(from, to)| to.checked_div(*from).unwrap_or(0)).collect()),
        "Max" | "Mean" | "Sum" if read.len() == made.len() => {
            Some((0..).zip(pairs()).filter(|(_, (from, to))| from != to).map(|(axis, _)| axis).collect())
        }
        // Axes from the first, or all but the last.
        "Max" | "Mean" | "Sum" => {
            let begin = if read.ends_with(made) { 0 } else { made.len() as u64 };
            Some((begin..).take(read.len().saturating_sub(made.len())).collect())
        }
        "Reshape" | "DepthwiseConv2dNativeBackpropFilter" | "DepthwiseConv2dNativeBackpropInput" => {
            Some(made.clone())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_graph::DType;

    #[test]
    fn equal_constants_are_one() {
        let mut flow = Flow::default();
        let variable = flow.variable(&[2, 3, 4], DType::Float32, true);
        let x = flow.read(variable);
        let mean = flow.reduce("Mean", x, &[1, 1, 4]);
        let last = flow.reduce("Sum", x, &[4]);
        let other = flow.reduce("Sum", x, &[2, 3]);
        let flat = flow.view("Reshape", last, &[2, 3, 1]);
        let tiled = flow.broadcast_to(mean, &[2, 3, 4]);
        let constants = Constants::of(&flow);
        let of = |wire: memfit_graph::kernels::Wire| constants.of[wire.kernel as usize];
        assert_eq!((of(x), constants.count), (None, 3));
        assert_eq!(of(mean), of(last), "both are over the first two axes");
        assert_ne!(of(mean), of(other));
        assert_eq!(of(flat), of(tiled), "a shape and multiples of the same numbers");
    }
}
