//! Lists that a loop over time keeps for its gradient, under XLA one buffer of all steps each.
//!
//! What the body of a `tf.while_loop` makes and its gradient reads is pushed to a list, of which the executor holds references. XLA has
//! buffers of fixed shapes instead, one of all steps for each such list (tf2xla/kernels/tensor_list_ops.cc): zeros that are made before the
//! loop begins, written step by step and there until its gradient has ended. Forward and backward are two computations to XLA, so that no
//! fusion reaches from one to the other: all that the gradient kernels read is in such a list, also the part of a sequence
//! and what a step reads of a variable. Zeros of one shape are made by one kernel with many outputs (multi_output_fusion.cc).

use super::turned::is_view;
use super::{Flow, Place, Wire};
use memfit_graph::DType;
use memfit_graph::kernels::{Made, Stage, Turn};
use std::collections::BTreeMap;

/// What reads an item of a list.
pub(super) const ITEM: &str = "TensorListPopBack";

/// What makes lists.
const LISTS: &str = "TensorListReserve";

/// A list of a loop: which kernel of the body fills it, and with which output.
type Key = (u32, u64, u32);

/// Gives lists to what gradients read of a loop's steps.
pub(super) fn stack(flow: &mut Flow) {
    let pushed = pushed(flow);
    if pushed.is_empty() {
        return;
    }
    // By list, what one item is.
    let mut items: BTreeMap<Key, Wire> = BTreeMap::new();
    pushed.iter().for_each(|(_, _, wire, turn)| {
        items.entry((turn.of, turn.place, wire.output)).or_insert(*wire);
    });
    let blocks = blocks(flow);
    // Lists of one shape together.
    let mut alike: BTreeMap<(Vec<u64>, u64), Vec<Key>> = BTreeMap::new();
    for (key, item) in &items {
        let early = blocks.get(&key.0).map_or(0, |block| first_length(flow, *block));
        let made = flow.made(*item);
        let steps = early.saturating_add(flow.steps(key.0).into());
        alike.entry(([&[steps][..], &made.shape].concat(), made.dtype.size_of(1).0)).or_default().push(*key);
    }
    let mut lists: BTreeMap<Key, Wire> = BTreeMap::new();
    for ((shape, _), keys) in alike {
        let dtype = |key: &Key| items.get(key).map_or(DType::Float32, |item| flow.dtype(*item));
        let made = |key: &Key| Made { shape: shape.clone(), dtype: dtype(key), place: Place::New };
        let made = keys.iter().map(made).collect();
        let layer = keys.first().and_then(|key| items.get(key)).map_or(0, |item| flow.kernel(*item).layer);
        let first = flow.push(LISTS, &[], made, None);
        (flow.kernels[first.kernel as usize].stage, flow.kernels[first.kernel as usize].layer) =
            (Stage::Forward, layer);
        lists.extend(keys.into_iter().zip(flow.outputs(first)));
    }
    let mut read: BTreeMap<Wire, Wire> = BTreeMap::new();
    for (reader, input, wire, turn) in pushed {
        let Some(list) = lists.get(&(turn.of, turn.place, wire.output)).copied() else { continue };
        let item = *read.entry(wire).or_insert_with(|| {
            let made = Made { place: Place::Alias, ..flow.made(wire).clone() };
            let layer = flow.kernel(wire).layer;
            let item = flow.push(ITEM, &[list], vec![made], None);
            let kernel = &mut flow.kernels[item.kernel as usize];
            (kernel.stage, kernel.layer) = (Stage::Backward, layer);
            item
        });
        flow.kernels[reader].inputs[input] = item;
    }
    begin_with(flow, &lists, &blocks);
}

/// What gradient kernels read of a forward step: reader, which input, and what the step made.
fn pushed(flow: &Flow) -> Vec<(usize, usize, Wire, Turn)> {
    let mut pushed = Vec::new();
    for (at, kernel) in flow.kernels.iter().enumerate().filter(|(_, k)| k.stage == Stage::Backward) {
        for (input, wire) in kernel.inputs.iter().enumerate() {
            let is_number = flow.made(*wire).place != Place::Host;
            let is_forward = flow.kernel(*wire).stage != Stage::Backward;
            let Some(mut turn) = flow.kernel(*wire).turn.filter(|_| is_number && is_forward) else {
                continue;
            };
            // A view of what the step made is the same item.
            let mut of = *wire;
            while let Some(from) =
                flow.kernel(of).inputs.first().copied().filter(|_| is_view(flow.kernel(of)))
            {
                let Some(earlier) = flow.kernel(from).turn else { break };
                (of, turn) = (from, earlier);
            }
            pushed.push((at, input, of, turn));
        }
    }
    pushed
}

/// By loop, the kernel that stands for its early steps.
fn blocks(flow: &Flow) -> BTreeMap<u32, u32> {
    let mut blocks = BTreeMap::new();
    for kernel in &flow.kernels {
        let Some(turn) = kernel.turn.filter(|_| kernel.stage != Stage::Backward) else { continue };
        let block = kernel.inputs.iter().find(|wire| flow.kernel(**wire).name == "While");
        blocks.extend(block.map(|wire| (turn.of, wire.kernel)));
    }
    blocks
}

/// How many steps a kernel stands for.
fn first_length(flow: &Flow, block: u32) -> u64 {
    let made = flow.kernels.get(block as usize).and_then(|kernel| kernel.outputs.first());
    made.and_then(|made| made.shape.first().copied()).unwrap_or(0)
}

/// Lets loops begin with their lists there, and those of their early steps keep nothing else.
fn begin_with(flow: &mut Flow, lists: &BTreeMap<Key, Wire>, blocks: &BTreeMap<u32, u32>) {
    let mut first: BTreeMap<u32, u32> = BTreeMap::new();
    for kernel in &flow.kernels {
        if let Some(turn) = kernel.turn.filter(|turn| turn.step == 0) {
            first.entry(turn.of).or_insert(turn.start());
        }
    }
    for ((of, ..), list) in lists {
        let block = blocks.get(of).copied();
        let begin = block.or(first.get(of).copied());
        begin.into_iter().for_each(|at| flow.kernels[at as usize].after.push(list.kernel));
        let Some(block) = block else { continue };
        flow.kernels[block as usize].outputs.last_mut().into_iter().for_each(|made| made.shape = vec![0]);
        let gradients = flow.kernels.iter_mut().filter(|kernel| {
            kernel.name == "WhileGrad" && kernel.inputs.iter().any(|wire| wire.kernel == block)
        });
        gradients.for_each(|kernel| kernel.inputs.push(*list));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_step_makes_for_its_gradient_is_in_a_list_of_all_steps() {
        let mut flow = Flow::default();
        let [weight, bias] = [0, 1].map(|_| flow.variable(&[4, 4], DType::Float32, true));
        let of = flow.begin_loop(2);
        let mut after = flow.constant(&[], DType::Int32).kernel;
        let (mut starts, mut reads) = (Vec::new(), Vec::new());
        for step in 0..2 {
            after = flow.begin_step(of, step, after);
            starts.push(after);
            let bias = flow.read(bias);
            reads.push([flow.read(weight), flow.unary("Tanh", bias)]);
        }
        flow.stage = Stage::Backward;
        let mut gradient = |read: &[Wire]| flow.make("MatMul", read, &[4, 4], DType::Float32, None);
        let gradients: Vec<Wire> = reads.iter().map(|read| gradient(read)).collect();
        flow.end_step();
        stack(&mut flow);
        let lists = |flow: &Flow, wire: Wire| {
            flow.kernel(wire).inputs.iter().map(|item| flow.kernel(*item).inputs[0]).collect::<Vec<_>>()
        };
        let [first, second] = [0, 1].map(|step: usize| lists(&flow, gradients[step]));
        // A list for the weight and one for the result, made together before the first step, for both steps.
        assert_eq!((first.len(), &first), (2, &second));
        assert_eq!(first[0].kernel, first[1].kernel);
        assert_eq!(flow.shape(first[0]), [2, 4, 4]);
        assert!(flow.kernels[starts[0] as usize].after.contains(&first[0].kernel));
        assert!(!flow.kernels[starts[1] as usize].after.contains(&first[0].kernel));
    }
}
