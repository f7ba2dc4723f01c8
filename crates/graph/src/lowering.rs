//! How an operator writes its list of [`Call`]s: what it may know of its node, and what its outputs are.

use crate::{Call, DType, Grad, Operand, OutDtype, Place, Saved, Value};

/// What the engine knows of an input when the operator runs.
#[derive(Clone, Copy, Debug)]
pub struct TensorState<'a> {
    /// Dims.
    pub shape: &'a [u64],
    /// The dtype it really has, which autocast may have changed.
    pub dtype: DType,
    /// Whether a gradient flows back through it.
    pub requires_grad: bool,
    /// Whether it is a parameter, a buffer or a constant.
    pub is_initializer: bool,
}

/// What inference knows of an output before the operator runs.
#[derive(Clone, Copy, Debug)]
pub struct OutState<'a> {
    /// Dims.
    pub shape: &'a [u64],
    /// The dtype in the model's precision, before autocast.
    pub dtype: DType,
}

/// The list that an operator writes.
pub struct Lowering<'a> {
    inputs: &'a [Option<TensorState<'a>>],
    outputs: &'a [Option<OutState<'a>>],
    values: &'a [Option<&'a Value>],
    /// The autocast dtype, where autocast is on.
    pub autocast: Option<DType>,
    /// Whether the model trains (dropout draws a mask, batch norm uses the batch).
    pub training: bool,
    /// The card's compute capability, where it is known: which kernels there are depends on it.
    pub capability: Option<(u32, u32)>,
    calls: Vec<Call>,
    bound: Vec<(usize, Operand)>,
    modelled: bool,
}

impl<'a> Lowering<'a> {
    /// In the place of an output: what is added to the loss.
    pub const LOSS: usize = usize::MAX;

    /// An empty list for a node with these inputs and output shapes.
    pub fn new(
        inputs: &'a [Option<TensorState<'a>>],
        outputs: &'a [Option<OutState<'a>>],
        autocast: Option<DType>,
        training: bool,
    ) -> Lowering<'a> {
        let (calls, bound) = (Vec::new(), Vec::new());
        Lowering {
            inputs,
            outputs,
            values: &[],
            autocast,
            training,
            capability: None,
            calls,
            bound,
            modelled: true,
        }
    }

    /// The same with what inference folded of each input: indices, ratios, modes that decide what runs.
    pub fn with_values(mut self, values: &'a [Option<&'a Value>]) -> Lowering<'a> {
        self.values = values;
        self
    }

    /// The same on a card of this compute capability.
    pub fn on_card(mut self, capability: Option<(u32, u32)>) -> Lowering<'a> {
        self.capability = capability;
        self
    }

    /// The same, written into the lists that an earlier operator left.
    pub fn reusing(mut self, mut lists: (Vec<Call>, Vec<(usize, Operand)>)) -> Lowering<'a> {
        lists.0.clear();
        lists.1.clear();
        (self.calls, self.bound) = lists;
        self
    }

    /// The folded elements of input `i`.
    pub fn value(&self, i: usize) -> Option<&'a Value> {
        self.values.get(i).copied().flatten()
    }

    /// Input `i`, unless it is omitted.
    pub fn state(&self, i: usize) -> Option<&TensorState<'a>> {
        self.inputs.get(i)?.as_ref()
    }

    /// How many inputs the node has, omitted ones included.
    pub fn input_count(&self) -> usize {
        self.inputs.len()
    }

    /// How many outputs the node has, unused ones included.
    pub fn output_count(&self) -> usize {
        self.outputs.len()
    }

    /// The dims of input `i`; empty where it is omitted.
    pub fn shape(&self, i: usize) -> &'a [u64] {
        self.state(i).map_or(&[], |s| s.shape)
    }

    /// Whether output `j` is used.
    pub fn wants(&self, j: usize) -> bool {
        matches!(self.outputs.get(j), Some(Some(_)))
    }

    /// The dims of output `j`; empty where it is unused.
    pub fn out_shape(&self, j: usize) -> &'a [u64] {
        self.outputs.get(j).copied().flatten().map_or(&[], |o| o.shape)
    }

    /// The dtype that inference gave output `j`; float32 where it is unused.
    pub fn out_dtype(&self, j: usize) -> DType {
        self.outputs.get(j).copied().flatten().map_or(DType::Float32, |o| o.dtype)
    }

    /// The dtype of input `i`; float32 where it is omitted.
    pub fn dtype(&self, i: usize) -> DType {
        self.state(i).map_or(DType::Float32, |s| s.dtype)
    }

    /// Adds a call; the operand is its first output.
    #[inline]
    pub fn call(&mut self, call: Call) -> Operand {
        self.calls.push(call);
        Operand::Result { call: self.calls.len() - 1, output: 0 }
    }

    /// What node outputs are so far.
    pub fn bound(&self) -> &[(usize, Operand)] {
        &self.bound
    }

    /// Adds a scalar to the loss.
    pub fn add_to_loss(&mut self, scalar: Operand) {
        self.bind(Self::LOSS, scalar);
    }

    /// How many calls are written.
    pub fn written(&self) -> usize {
        self.calls.len()
    }

    /// Takes the calls from `from` on out of autograd's record, as a graph that nothing leads to; gives what they would keep.
    pub fn unrecorded(&mut self, from: usize) -> Vec<Operand> {
        let mut kept = Vec::new();
        for (k, call) in self.calls.iter_mut().enumerate().skip(from) {
            for saved in std::mem::take(&mut call.saved) {
                match saved {
                    Saved::Input(i) | Saved::InputFor { input: i, .. } => {
                        kept.extend(call.inputs.get(i).copied());
                    }
                    Saved::Output(output) => kept.push(Operand::Result { call: k, output }),
                }
            }
            call.grads.iter_mut().for_each(|grad| *grad = Grad::None);
        }
        kept
    }

    /// Says that node output `j` is this value.
    pub fn bind(&mut self, j: usize, operand: Operand) {
        self.bound.push((j, operand));
    }

    /// Adds a call whose first output is the node's first output.
    pub fn finish(&mut self, call: Call) {
        let result = self.call(call);
        self.bind(0, result);
    }

    /// A bound from above for an operator whose rule is not known: it keeps all inputs and outputs.
    pub fn not_modelled(&mut self) {
        self.is_bound();
        let mut call = Call::new("unknown");
        for i in (0..self.inputs.len()).filter(|i| self.inputs[*i].is_some()) {
            call = call.input(Operand::Input(i), Grad::New);
            call.saved.push(Saved::Input(call.inputs.len() - 1));
        }
        let used: Vec<usize> = (0..self.outputs.len()).filter(|j| self.outputs[*j].is_some()).collect();
        for (k, j) in used.iter().enumerate() {
            call = call
                .output(self.out_shape(*j), OutDtype::Is(self.out_dtype(*j)), Place::New)
                .saves([Saved::Output(k)]);
        }
        self.call(call);
        let call = self.calls.len() - 1;
        self.bound
            .extend(used.into_iter().enumerate().map(|(output, j)| (j, Operand::Result { call, output })));
    }

    /// Says that what is written is a bound from above.
    pub fn is_bound(&mut self) {
        self.modelled = false;
    }

    /// The calls, the bound outputs, and whether the operator has a rule.
    pub fn into_parts(self) -> (Vec<Call>, Vec<(usize, Operand)>, bool) {
        (self.calls, self.bound, self.modelled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_rule_keeps_everything() {
        let state =
            TensorState { shape: &[2, 3], dtype: DType::Float32, requires_grad: true, is_initializer: false };
        let (inputs, outputs) =
            ([Some(state), None], [Some(OutState { shape: &[6], dtype: DType::Float32 })]);
        let mut lowering = Lowering::new(&inputs, &outputs, None, true);
        lowering.not_modelled();
        let (calls, bound, modelled) = lowering.into_parts();
        assert_eq!(calls[0].saved[..], [Saved::Input(0), Saved::Output(0)]);
        assert_eq!(bound, [(0, Operand::Result { call: 0, output: 0 })]);
        assert!(!modelled);
    }
}
