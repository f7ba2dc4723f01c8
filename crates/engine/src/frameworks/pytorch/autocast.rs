//! Autocast: a call's float inputs are cast before it runs, as the lists of autocast say.
//!
//! A leaf parameter's cast is made once per step and kept until forward ends (aten/src/ATen/autocast_mode.cpp, `cached_cast`).
//! cuDNN's recurrences lay the half weights out in one buffer, anew in each call (aten/src/ATen/cudnn/AutocastRNN.cpp).

use super::tape::{Edge, Tape, TensorRef};
use crate::StorageId;
use memfit_graph::{Autocast, Call, DType, Grad, Operand, OutDtype, Place};
use smallvec::SmallVec;

/// The casts that are kept.
#[derive(Debug, Default)]
pub(super) struct Casts {
    /// By leaf, its cast.
    of_leaf: Vec<Option<TensorRef>>,
    storages: Vec<StorageId>,
}

impl Tape {
    /// What this call's float inputs are cast to. Without autocast, a matrix product cannot mix float32 with half: where
    /// float32 arrives in a half model, the model's own cast back is one that its float32 export does not show.
    pub(super) fn cast_target(&self, call: &Call, inputs: &[TensorRef]) -> Option<DType> {
        let Some(half) = self.autocast else {
            let floats =
                inputs.iter().map(|t| self.tensor(*t)).filter(|t| t.dtype.is_float() && !t.is_number);
            let half = floats.clone().map(|t| t.dtype).find(|d| d.is_half())?;
            let mixes = floats.clone().any(|t| t.dtype == DType::Float32);
            return (call.autocast == Autocast::Lower && mixes).then_some(half);
        };
        match call.autocast {
            Autocast::Keep => None,
            Autocast::Lower => Some(half),
            Autocast::Fp32 => Some(DType::Float32),
            Autocast::Promote => Some(self.promoted(inputs)),
        }
    }

    pub(super) fn cast_for_call(
        &mut self,
        call: &Call,
        t: TensorRef,
        target: DType,
        temporaries: &mut SmallVec<[StorageId; 2]>,
    ) -> TensorRef {
        let tensor = *self.tensor(t);
        if tensor.is_number
            || !tensor.dtype.is_float()
            || tensor.dtype == target
            || tensor.dtype == DType::Float64
        {
            return t;
        }
        // Only a leaf that needs a gradient, cast down from float32, is cached.
        let is_kept = tensor.dtype == DType::Float32 && target.is_half() && call.function != "_cudnn_rnn";
        let leaf = match tensor.edge {
            Edge::Leaf(leaf) if is_kept => Some(leaf as usize),
            _ => None,
        };
        if let Some(cast) = leaf.and_then(|leaf| self.casts.of_leaf.get(leaf).copied().flatten()) {
            return cast;
        }
        let cast = self.cast(t, target);
        let storage = self.tensor(cast).storage;
        if let Some(leaf) = leaf {
            let Casts { of_leaf, storages } = &mut self.casts;
            of_leaf.resize(of_leaf.len().max(leaf + 1), None);
            of_leaf[leaf] = Some(cast);
            storages.push(storage);
        } else {
            temporaries.push(storage);
        }
        cast
    }

    /// `aten::_to_copy`: a new tensor in another dtype, laid out like the old one.
    pub(super) fn cast(&mut self, t: TensorRef, target: DType) -> TensorRef {
        let call = Call::new("_to_copy").input(Operand::Input(0), Grad::Pointwise).output(
            self.shape(t),
            OutDtype::Is(target),
            Place::Pointwise,
        );
        self.run(&call, &[t])[0]
    }

    /// Leaves the autocast region: the cached casts that no node keeps are freed.
    pub(super) fn end_autocast(&mut self) {
        for storage in std::mem::take(&mut self.casts).storages {
            self.memory.release(storage);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Category;
    use memfit_graph::{Bytes, Saved};

    #[test]
    fn a_leaf_is_cast_once_and_an_activation_each_time() {
        let mut tape = Tape::new(Some(DType::Bfloat16), true);
        let w = tape.new_tensor(&[4, 4], DType::Float32, Category::Parameter, "w");
        tape.tensors[w.0 as usize].edge = Edge::Leaf(0);
        let call = Call::new("mm")
            .autocast(Autocast::Lower)
            .input(Operand::Input(0), Grad::New)
            .input(Operand::Input(1), Grad::New)
            .output(&[4, 4], OutDtype::Promoted, Place::New)
            .saves([Saved::Input(0), Saved::Input(1)]);
        let y = tape.run(&call, &[w, w])[0];
        assert_eq!(tape.tensor(y).dtype, DType::Bfloat16);
        // The weight, one cast of it, the product.
        assert_eq!(tape.memory.storage(tape.tensor(y).storage).bytes, Bytes(32));
        tape.run(&call, &[y, w]);
        assert_eq!(tape.nodes.iter().filter(|n| n.function == "_to_copy").count(), 1);
    }

    #[test]
    fn a_recurrence_casts_its_weights_in_each_call() {
        for (function, casts) in [("mm", 1), ("_cudnn_rnn", 2)] {
            let mut tape = Tape::new(Some(DType::Bfloat16), true);
            let w = tape.new_tensor(&[4, 4], DType::Float32, Category::Parameter, "w");
            tape.tensors[w.0 as usize].edge = Edge::Leaf(0);
            let call = Call::new(function)
                .autocast(Autocast::Lower)
                .input(Operand::Input(0), Grad::New)
                .output(&[4, 4], OutDtype::Promoted, Place::New)
                .saves([Saved::Input(0)]);
            let before = tape.tensors.len();
            tape.run(&call, &[w]);
            tape.run(&call, &[w]);
            assert_eq!(tape.tensors.len() - before, 2 + casts, "{function}");
        }
    }
}
