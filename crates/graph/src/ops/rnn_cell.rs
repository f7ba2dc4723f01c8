//! LSTMCell and GRUCell: one step of a recurrence. Made by recomposition only.
//!
//! On a GPU `torch.lstm_cell` and `torch.gru_cell` are two products and one kernel (aten/src/ATen/native/RNN.cpp,
//! `LSTMCell`, `GRUCell`; native/cuda/RNN.cu, 2.15). The kernel keeps both products, both biases, the state and a workspace
//! of its own of four (GRU: five) gates, beside an LSTM's new cell state (derivatives.yaml). Backward makes one gradient for
//! both products of an LSTM and for both its biases; a GRU has one for each. All inputs are cast at autocast's door.

use super::calls::Traced;
use super::matmul::matmul_as_is;
use crate::{Autocast, Call, Grad, Infer, Lowering, Op, OpError, OpSpec, OutDtype, Place, Saved, View};

/// A step: inputs are x, the hidden state, both weights `[gates, size]`, both biases, and the cell state of an LSTM.
/// Outputs are the new hidden state and an LSTM's new cell state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RnnCell {
    /// With a cell state.
    Lstm,
    /// Without.
    Gru,
}

/// No file holds it.
pub const SPECS: &[OpSpec] = &[];

/// Where the cell state stands.
const CELL_STATE: usize = 6;

impl Op for RnnCell {
    fn name(&self) -> &str {
        match self {
            RnnCell::Lstm => "LSTMCell",
            RnnCell::Gru => "GRUCell",
        }
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(5)?;
        let hidden = cx.require(1)?.clone();
        cx.set_type(0, hidden);
        if *self == RnnCell::Lstm {
            let cell = cx.require(CELL_STATE)?.clone();
            cx.set_type(1, cell);
        }
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let inputs: Vec<Traced> =
            (0..l.input_count()).map(|i| Traced::input(l, i).autocast(l, Autocast::Lower)).collect();
        let [x, hidden, weight_ih, weight_hh, bias_ih, bias_hh, ..] = &inputs[..] else {
            return l.not_modelled();
        };
        let product = |l: &mut Lowering<'_>, x: &Traced, weight: &Traced| {
            let weight = weight.transpose_last(l);
            matmul_as_is(l, x, &weight)
        };
        let (igates, hgates) = (product(l, x, weight_ih), product(l, hidden, weight_hh));
        match (self, inputs.get(CELL_STATE)) {
            (RnnCell::Lstm, Some(cell)) => {
                let (gates, bias) = (both(l, &igates, &hgates), both(l, bias_ih, bias_hh));
                let call = Call::new(LSTM)
                    .input(gates.operand, Grad::New)
                    .input(cell.operand, Grad::New)
                    .input(bias.operand, Grad::New)
                    .output(&hidden.shape, OutDtype::Like(0), Place::New)
                    .output(&cell.shape, OutDtype::Like(0), Place::New)
                    .output(&gates.shape, OutDtype::Like(0), Place::New)
                    .saves([0, 1, 2].map(Saved::Input))
                    .saves([Saved::Output(1), Saved::Output(2)]);
                super::bind_used(l, call);
            }
            (RnnCell::Lstm, None) => l.not_modelled(),
            (RnnCell::Gru, _) => {
                let mut workspace = hidden.shape.clone();
                if let Some(size) = workspace.last_mut() {
                    *size = size.saturating_mul(5);
                }
                let mut call = Call::new("_thnn_fused_gru_cell");
                for input in [&igates, &hgates, hidden, bias_ih, bias_hh] {
                    call = call.input(input.operand, Grad::New);
                }
                let call = call
                    .output(&hidden.shape, OutDtype::Like(0), Place::New)
                    .output(&workspace, OutDtype::Like(0), Place::New)
                    .saves((0..5).map(Saved::Input))
                    .saves([Saved::Output(1)]);
                l.finish(call);
            }
        }
    }
}

const LSTM: &str = "_thnn_fused_lstm_cell";

/// Two inputs of the kernel that get one gradient: the kernel's first input stands for both, and keeps both.
fn both(l: &mut Lowering<'_>, a: &Traced, b: &Traced) -> Traced {
    let call = Call::new(LSTM)
        .input(a.operand, Grad::Pass)
        .input(b.operand, Grad::Pass)
        .output(&a.shape, OutDtype::Like(0), Place::View(0, View::Alias))
        .saves([Saved::Input(1)]);
    Traced::of(l, call, &a.shape, &[a, b])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Binding, DType, Graph, Num, OutState, Role, Shape, TensorState, Type, Value, infer};
    use std::sync::Arc;

    #[test]
    fn states_that_are_known_before_a_step_are_not_known_after() {
        let mut g = Graph::default();
        let float = |shape: &[u64]| Type::tensor(DType::Float32, Shape::from(shape));
        let inputs = [&[2, 4][..], &[2, 8], &[24, 4], &[24, 8], &[24], &[24]]
            .map(|shape| g.add_tensor("t", float(shape), Role::Initializer));
        g.tensors[inputs[1].index()].value =
            Value::filled(DType::Float32, &[2, 8], Num::Float(0.0)).map(Arc::new);
        let y = g.add_tensor("y", Type::Unknown, Role::Intermediate);
        g.add_node("cell", Arc::new(RnnCell::Gru), inputs.map(Some).into(), vec![Some(y)]);
        let inferred = infer(&g, &Binding::default()).unwrap();
        assert_eq!((inferred.shape(y), inferred.value(y)), (Some(&Shape::from(&[2, 8][..])), None));
    }

    #[test]
    fn the_kernels_keep_products_states_and_a_workspace() {
        let out = |shape| Some(OutState { shape, dtype: DType::Float32 });
        for (cell, gates, kept, workspace) in [(RnnCell::Lstm, 32, 5, 32), (RnnCell::Gru, 24, 6, 40)] {
            let (ih, hh, bias) = ([gates, 4], [gates, 8], [gates]);
            let state = |shape| {
                Some(TensorState { shape, dtype: DType::Float32, requires_grad: true, is_initializer: false })
            };
            let inputs = [&[2, 4][..], &[2, 8], &ih, &hh, &bias, &bias, &[2, 8]].map(state);
            let outputs = [out(&[2, 8]), out(&[2, 8])];
            let count = if cell == RnnCell::Lstm { 7 } else { 6 };
            let mut l = Lowering::new(&inputs[..count], &outputs[..count - 5], None, true);
            cell.pytorch(&mut l);
            let (calls, bound, modelled) = l.into_parts();
            let kernel = calls.last().unwrap();
            assert!(modelled && bound.len() == count - 5);
            assert_eq!(
                (kernel.saved.len(), &kernel.outputs.last().unwrap().shape[..]),
                (kept, &[2, workspace][..])
            );
        }
    }
}
