//! Recurrences over time: cuDNN's kernel, and the lists that a `While` keeps its steps in.
//!
//! cuDNN's gradient reads the sequence, the weights, the results and what forward kept for each step (cudnn_rnn_grad.py,
//! `_cudnn_rnn_backward_v3`), and a gradient of each result: zeros of its size where nobody reads it. A list has a tensor of its own for each step: putting a sequence into one copies it, as does taking it out
//! again (core/kernels/list_kernels.h, `TensorListFromTensor`, `TensorListStack`); each is the other's gradient (list_ops.py). The gradient
//! of what a step puts into a list is taken from the list's, which then has zeros there and goes on to the next step (`_TensorListSetItemGrad`).
//! The gradient of what a step takes out of one is added to zeros, of which there is a whole list before the loop's gradient begins
//! (python/ops/while_v2.py, `_preprocess_grad`): it is made as soon as the loop is over.

use super::build::{incoming, new};
use super::{Flow, Kernel, Made, Place, Wire};
use std::collections::BTreeSet;

fn gradient(flow: &mut Flow, kernel: &Kernel, y: Wire, grads: &[Option<Wire>]) -> Vec<Option<Wire>> {
    let mut given: Vec<Wire> = grads.iter().flatten().copied().collect();
    if given.is_empty() {
        return vec![None; kernel.inputs.len()];
    }
    let is_loop = kernel.name == "While";
    let results = kernel.outputs.iter().zip(grads).take(kernel.outputs.len().saturating_sub(1));
    for (made, _) in results.filter(|(_, grad)| !is_loop && grad.is_none()) {
        given.push(flow.zeros(&made.shape, made.dtype));
    }
    let outputs = flow.outputs(y);
    let zeros = kernel.inputs.first().filter(|_| is_loop).and_then(|x| flow.zeros_of(*x));
    given.extend(zeros);
    let reads: Vec<Wire> = kernel.inputs.iter().copied().chain(outputs).chain(given).collect();
    let made = kernel.inputs.iter().map(|w| new(flow.shape(*w), flow.dtype(*w))).collect();
    let name = if is_loop { "WhileGrad" } else { "CudnnRNNBackpropV3" };
    let first = flow.push(name, &reads, made, None);
    (0..).zip(&kernel.inputs).map(|(i, _)| Some(flow.output(first, i))).collect()
}

fn from_list_gradient(
    flow: &mut Flow,
    kernel: &Kernel,
    _: Wire,
    grads: &[Option<Wire>],
) -> Vec<Option<Wire>> {
    let Some(dy) = incoming(grads) else { return vec![None; kernel.inputs.len()] };
    // Steps that are not told apart are one tensor, which has the axis of time still.
    let first = kernel.inputs.first().map(|x| flow.shape(*x).to_vec()).unwrap_or_default();
    let is_block = first.len() == flow.shape(dy).len();
    let early = first.first().copied().filter(|_| is_block).unwrap_or(0);
    flow.to_list(dy, early).into_iter().map(Some).collect()
}

/// What no step gave is zero, without a tensor of its own.
fn to_list_gradient(flow: &mut Flow, kernel: &Kernel, _: Wire, grads: &[Option<Wire>]) -> Vec<Option<Wire>> {
    let given: Vec<Wire> = grads.iter().flatten().copied().collect();
    let (Some(x), false) = (kernel.inputs.first().copied(), given.is_empty()) else { return vec![None] };
    let (shape, dtype) = (flow.shape(x).to_vec(), flow.dtype(x));
    vec![Some(flow.make("TensorListStack", &given, &shape, dtype, None))]
}

/// The parts lie in the whole's buffer; their gradients are put one after the other.
fn unpack_gradient(flow: &mut Flow, kernel: &Kernel, y: Wire, grads: &[Option<Wire>]) -> Vec<Option<Wire>> {
    let part = |flow: &mut Flow, (output, grad): (u32, &Option<Wire>)| {
        let (shape, dtype) = (kernel.outputs[output as usize].shape.clone(), flow.dtype(y));
        grad.unwrap_or_else(|| flow.zeros(&shape, dtype))
    };
    let parts: Vec<Wire> = (0..).zip(grads).map(|pair| part(flow, pair)).collect();
    vec![flow.stack(&parts)]
}

/// Both wait for the list. The item is there at once; the zeros are what the executor comes to last of all that this step can run, so that
/// steps run one after the other.
fn put_gradient(flow: &mut Flow, kernel: &Kernel, _: Wire, grads: &[Option<Wire>]) -> Vec<Option<Wire>> {
    let Some(dy) = incoming(grads) else { return vec![None] };
    let made = Made { place: Place::Alias, ..flow.made(dy).clone() };
    let item = flow.push("TensorListGetItem", &[dy], vec![made], None);
    let list = flow.make("TensorListSetItem", &[], &[0], flow.dtype(dy), None);
    flow.carry(kernel, [item, list]);
    vec![Some(item)]
}

/// Each step's result was put into the same place: of all but the last the gradient is zero.
fn last_gradient(flow: &mut Flow, kernel: &Kernel, _: Wire, grads: &[Option<Wire>]) -> Vec<Option<Wire>> {
    let Some(dy) = incoming(grads) else { return vec![None; kernel.inputs.len()] };
    let Some((last, others)) = kernel.inputs.split_last() else { return Vec::new() };
    let dtype = flow.dtype(*last);
    let mut made: Vec<Option<Wire>> = Vec::with_capacity(kernel.inputs.len());
    for x in others {
        let shape = flow.shape(*x).to_vec();
        made.push(Some(flow.constant(&shape, dtype)));
    }
    made.extend(flow.to_list(dy, 0).first().copied().map(Some));
    made
}

fn item_gradient(flow: &mut Flow, kernel: &Kernel, _: Wire, grads: &[Option<Wire>]) -> Vec<Option<Wire>> {
    let zeros = kernel.inputs.first().and_then(|x| flow.zeros_of(*x));
    let terms: Vec<Wire> = incoming(grads).into_iter().chain(zeros).collect();
    vec![incoming(grads).and_then(|dy| if terms.len() > 1 { flow.add_n(&terms) } else { Some(dy) })]
}

impl Flow {
    /// Runs a recurrence as one kernel: gives tensors of these shapes and, as the last output, `kept` elements for backward.
    pub fn recurrence(
        &mut self,
        name: &'static str,
        inputs: &[Wire],
        shapes: &[Vec<u64>],
        kept: &[u64],
    ) -> Wire {
        let dtype = inputs.first().map_or(crate::DType::Float32, |x| self.dtype(*x));
        let made =
            shapes.iter().map(|shape| &shape[..]).chain([kept]).map(|shape| new(shape, dtype)).collect();
        self.push(name, inputs, made, Some(gradient))
    }

    /// A sequence as a list: a tensor for each index of the first axis, of which the first `early` are left together.
    pub fn to_list(&mut self, x: Wire, early: u64) -> Vec<Wire> {
        let shape = self.shape(x).to_vec();
        let (Some((steps, one)), dtype) = (shape.split_first(), self.dtype(x)) else { return Vec::new() };
        let block = (early > 0).then(|| new(&[&[early], one].concat(), dtype));
        let items = (early..*steps).map(|_| new(one, dtype));
        let made: Vec<Made> = block.into_iter().chain(items).collect();
        let first = self.push("TensorListFromTensor", &[x], made, Some(to_list_gradient));
        self.outputs(first)
    }

    /// The tensors of a list, in the order of their indices, as one of this shape.
    pub fn from_list(&mut self, list: &[Wire], shape: &[u64]) -> Wire {
        let dtype = list.first().map_or(crate::DType::Float32, |x| self.dtype(*x));
        self.make("TensorListStack", list, shape, dtype, Some(from_list_gradient))
    }

    /// What a step of a loop puts into a list, which holds it without a copy.
    pub fn put(&mut self, x: Wire) -> Wire {
        let made = Made { place: Place::Alias, ..self.made(x).clone() };
        self.push("TensorListSetItem", &[x], vec![made], Some(put_gradient))
    }

    /// The last of the tensors that were put into a list of one, each in place of the one before, as a list.
    pub fn last_of(&mut self, list: &[Wire]) -> Option<Wire> {
        let last = self.made(*list.last()?).clone();
        let shape = [&[1][..], &last.shape].concat();
        Some(self.make("TensorListStack", list, &shape, last.dtype, Some(last_gradient)))
    }

    /// A tensor of a list, which stays where it is.
    pub fn item(&mut self, x: Wire) -> Wire {
        let made = Made { place: Place::Alias, ..self.made(x).clone() };
        self.push("TensorListGetItem", &[x], vec![made], Some(item_gradient))
    }

    /// Zeros like a list whose gradient a loop will make, once the kernel of `after` has run.
    pub fn zeros_like_list(&mut self, x: Wire, after: Wire) -> Option<Wire> {
        let is_listed = self.lists && self.is_trained(x);
        let items = self.kernel(x).outputs.iter().map(|made| new(&made.shape, made.dtype));
        let items = items.collect();
        let zeros = is_listed.then(|| self.push("ZerosLike", &[], items, None))?;
        self.wait(zeros, after);
        self.zeros.insert(x.kernel, zeros.kernel);
        Some(zeros)
    }

    /// The zeros that the gradient of a list's item is added to.
    fn zeros_of(&self, x: Wire) -> Option<Wire> {
        self.zeros.get(&x.kernel).map(|zeros| Wire { kernel: *zeros, output: x.output })
    }

    /// The parts of a tensor along its first axis, in its own buffer.
    pub fn unstack(&mut self, x: Wire) -> Vec<Wire> {
        let shape = self.shape(x).to_vec();
        let (Some((steps, one)), dtype) = (shape.split_first(), self.dtype(x)) else { return Vec::new() };
        let part = |_| Made { shape: one.to_vec(), dtype, place: Place::Alias };
        let parts = (0..*steps).map(part).collect();
        let first = self.push("Unpack", &[x], parts, Some(unpack_gradient));
        self.outputs(first)
    }

    /// Bytes that a step of a loop keeps for its gradient: what kernels `from..` made and their gradients read.
    pub fn kept_for_backward(&mut self, from: usize) -> u64 {
        let (to, turn) = (self.kernels.len(), self.turn.take());
        let mut kept = BTreeSet::new();
        for at in from..to {
            let kernel = self.kernels[at].clone();
            let Some(gradient) = kernel.gradient else { continue };
            let y = Wire { kernel: u32::try_from(at).unwrap_or(u32::MAX), output: 0 };
            let grads: Vec<Option<Wire>> =
                kernel.outputs.iter().map(|made| Some(self.constant(&made.shape, made.dtype))).collect();
            let start = self.kernels.len();
            gradient(self, &kernel, y, &grads);
            let read = self.kernels.get(start..).unwrap_or_default().iter().flat_map(|k| &k.inputs);
            kept.extend(read.copied());
            self.kernels.truncate(to);
        }
        self.turn = turn;
        self.forget_lists();
        let of_step = |wire: &Wire| (from..to).contains(&(wire.kernel as usize));
        let storage = |mut wire: Wire| loop {
            match (self.made(wire).place, self.kernel(wire).inputs.first()) {
                (Place::Alias, Some(x)) if of_step(&wire) => wire = *x,
                _ => break wire,
            }
        };
        let own = crate::order::set(kept.into_iter().filter(of_step).map(storage).filter(of_step));
        let bytes = |wire: &Wire| {
            let made = self.made(*wire);
            let is_own = matches!(made.place, Place::New | Place::Reuse);
            if is_own { made.dtype.size_of(made.elements()).0 } else { 0 }
        };
        own.iter().map(bytes).fold(0, u64::saturating_add)
    }
}
