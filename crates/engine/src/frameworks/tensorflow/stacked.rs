//! Weights that a loop over time reads, under XLA one of each step.
//!
//! What the body of a `tf.while_loop` makes and its gradient reads is pushed to a list, of which the executor holds references. XLA has
//! buffers of fixed shapes instead, one of all steps for each such list (tf2xla/kernels/tensor_list_ops.cc): a variable that is read inside of the
//! body and multiplied with something whose gradient is asked for is copied into one in each step.

use super::turned::viewed;
use super::{Effect, Flow, Place};
use memfit_graph::kernels::Stage;

/// Gives what a step reads of variables for its gradient buffers of its own.
pub(super) fn stack(flow: &mut Flow) {
    let backward = |stage: Stage| stage == Stage::Backward;
    let gradients = flow.kernels.iter().filter(|kernel| kernel.turn.is_some() && backward(kernel.stage));
    let read = gradients.flat_map(|kernel| &kernel.inputs).map(|wire| viewed(flow, *wire).kernel);
    let is_read_in_turn = |at: &u32| {
        let from = &flow.kernels[*at as usize];
        from.turn.is_some() && !backward(from.stage) && matches!(from.effect, Effect::Read(_))
    };
    let pushed: Vec<u32> = read.filter(is_read_in_turn).collect();
    for at in pushed {
        flow.kernels[at as usize].outputs.iter_mut().for_each(|made| made.place = Place::New);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_graph::DType;

    #[test]
    fn a_weight_whose_gradient_kernel_reads_it_is_copied_in_each_step() {
        let mut flow = Flow::default();
        let [weight, bias] = [0, 1].map(|_| flow.variable(&[4, 4], DType::Float32, true));
        let of = flow.begin_loop(2);
        let mut after = flow.constant(&[], DType::Int32).kernel;
        let mut reads = Vec::new();
        for step in 0..2 {
            after = flow.begin_step(of, step, after);
            reads.push([flow.read(weight), flow.read(bias)]);
        }
        flow.stage = Stage::Backward;
        reads.iter().for_each(|[weight, _]| {
            flow.make("MatMul", &[*weight], &[4, 4], DType::Float32, None);
        });
        flow.end_step();
        stack(&mut flow);
        let places = reads.iter().flatten().map(|wire| flow.made(*wire).place).collect::<Vec<_>>();
        assert_eq!(places, [Place::New, Place::Alias, Place::New, Place::Alias]);
    }
}
