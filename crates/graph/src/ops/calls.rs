//! Views and copies between the kernels of one operator: what `permute`, `reshape`, `expand` and `contiguous` do in
//! PyTorch's own composite functions, with the dims tracked.

use crate::{Autocast, Call, DType, Dims, Grad, Lowering, Operand, OutDtype, Place, View};
use smallvec::SmallVec;

/// A value inside one operator's list of calls, with what later calls need to know of it.
#[derive(Clone, Debug)]
pub struct Traced {
    /// The value.
    pub operand: Operand,
    /// Its dims.
    pub shape: Dims,
    /// Whether a gradient flows back through it.
    pub requires_grad: bool,
}

impl Traced {
    /// Input `i` of the node.
    pub fn input(l: &Lowering<'_>, i: usize) -> Traced {
        let requires_grad = l.state(i).is_some_and(|s| s.requires_grad);
        Traced { operand: Operand::Input(i), shape: Dims::from_slice(l.shape(i)), requires_grad }
    }

    /// Input `i` of the node, unless it is omitted.
    pub fn optional(l: &Lowering<'_>, i: usize) -> Option<Traced> {
        l.state(i).is_some().then(|| Traced::input(l, i))
    }

    /// The first output of `call`, which has these dims and depends on `inputs`.
    pub fn of(l: &mut Lowering<'_>, call: Call, shape: &[u64], inputs: &[&Traced]) -> Traced {
        let requires_grad = inputs.iter().any(|t| t.requires_grad);
        Traced { operand: l.call(call), shape: Dims::from_slice(shape), requires_grad }
    }

    /// How many axes.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// A view of it.
    fn view(&self, l: &mut Lowering<'_>, name: &'static str, shape: &[u64], view: View) -> Traced {
        let call = Call::new(name).input(self.operand, Grad::Unview);
        let call = call.output(shape, OutDtype::Like(0), Place::View(0, view));
        Traced::of(l, call, shape, &[self])
    }

    /// Axes reordered; nothing where the order is the same.
    pub fn permute(&self, l: &mut Lowering<'_>, perm: &[usize]) -> Traced {
        if perm.len() != self.rank() || perm.iter().enumerate().all(|(i, p)| i == *p) {
            return self.clone();
        }
        let shape: Dims = perm.iter().map(|p| self.shape.get(*p).copied().unwrap_or(1)).collect();
        self.view(l, "permute", &shape, View::Permute(perm.to_vec()))
    }

    /// Two axes swapped.
    pub fn transpose(&self, l: &mut Lowering<'_>, a: usize, b: usize) -> Traced {
        let mut perm: SmallVec<[usize; 4]> = (0..self.rank()).collect();
        if a < perm.len() && b < perm.len() {
            perm.swap(a, b);
        }
        self.permute(l, &perm)
    }

    /// The last two axes swapped.
    pub fn transpose_last(&self, l: &mut Lowering<'_>) -> Traced {
        match self.rank() {
            rank if rank >= 2 => self.transpose(l, rank - 2, rank - 1),
            _ => self.clone(),
        }
    }

    /// The same elements in another shape: a copy where strides forbid a view.
    pub fn reshape(&self, l: &mut Lowering<'_>, shape: &[u64]) -> Traced {
        if self.shape[..] == *shape { self.clone() } else { self.view(l, "reshape", shape, View::Reshape) }
    }

    /// The result of a product in another shape, which autograd does not know as a view (`_unsafe_view`).
    pub fn unsafe_view(&self, l: &mut Lowering<'_>, shape: &[u64]) -> Traced {
        if self.shape[..] == *shape {
            self.clone()
        } else {
            self.view(l, "_unsafe_view", shape, View::Reshape)
        }
    }

    /// Axes of one repeated without a copy.
    pub fn expand(&self, l: &mut Lowering<'_>, shape: &[u64]) -> Traced {
        if self.shape[..] == *shape { self.clone() } else { self.view(l, "expand", shape, View::Expand) }
    }

    /// `len` elements along `axis` from `start`.
    pub fn narrow(&self, l: &mut Lowering<'_>, axis: usize, start: u64, len: u64) -> Traced {
        let mut shape = self.shape.clone();
        if let Some(dim) = shape.get_mut(axis) {
            *dim = len;
        }
        self.view(l, "slice", &shape, View::Slice { axis, start, step: 1 })
    }

    /// A contiguous copy.
    pub fn copy(&self, l: &mut Lowering<'_>) -> Traced {
        let call = Call::new("clone").input(self.operand, Grad::Pass);
        Traced::of(l, call.output(&self.shape, OutDtype::Like(0), Place::New), &self.shape, &[self])
    }

    /// The cast that autocast makes once at the door of a composite function; nothing where autocast is off.
    pub fn autocast(&self, l: &mut Lowering<'_>, autocast: Autocast) -> Traced {
        if l.autocast.is_none() {
            return self.clone();
        }
        let call = Call::new("autocast").autocast(autocast).input(self.operand, Grad::Unview);
        let call = call.output(&self.shape, OutDtype::Like(0), Place::View(0, View::Alias));
        Traced::of(l, call, &self.shape, &[self])
    }

    /// `aten::_to_copy` to another dtype.
    pub fn cast(&self, l: &mut Lowering<'_>, to: DType) -> Traced {
        let call = Call::new("_to_copy").input(self.operand, Grad::Pointwise);
        Traced::of(l, call.output(&self.shape, OutDtype::Is(to), Place::Pointwise), &self.shape, &[self])
    }

    /// What was computed in float32 under autocast, in this dtype again.
    pub fn back_to(self, l: &mut Lowering<'_>, dtype: DType) -> Traced {
        if l.autocast.is_some() && dtype.is_half() { self.cast(l, dtype) } else { self }
    }

    /// A pointwise function of it that keeps nothing (times a number, plus a number).
    pub fn scale(&self, l: &mut Lowering<'_>, name: &'static str) -> Traced {
        let call = Call::new(name).input(self.operand, Grad::Pointwise);
        let call = call.output(&self.shape, OutDtype::Promoted, Place::Pointwise);
        Traced::of(l, call, &self.shape, &[self])
    }

    /// A pointwise function of it that keeps its input (gelu, silu, abs, pow) or its output (relu, tanh, sigmoid).
    pub fn pointwise(&self, l: &mut Lowering<'_>, name: &'static str, saved: crate::Saved) -> Traced {
        let call = Call::new(name).input(self.operand, Grad::Pointwise).saves([saved]);
        let call = call.output(&self.shape, OutDtype::Promoted, Place::Pointwise);
        Traced::of(l, call, &self.shape, &[self])
    }

    /// The sum of two values.
    pub fn add(&self, l: &mut Lowering<'_>, other: &Traced, shape: &[u64]) -> Traced {
        let call = Call::new("add").input(self.operand, Grad::Pass).input(other.operand, Grad::Pass);
        Traced::of(l, call.output(shape, OutDtype::Promoted, Place::Pointwise), shape, &[self, other])
    }

    /// The product of two values.
    pub fn mul(&self, l: &mut Lowering<'_>, other: &Traced, shape: &[u64]) -> Traced {
        let factor = |input, needed_by| crate::Saved::InputFor { input, needed_by };
        let call = Call::new("mul")
            .input(self.operand, Grad::Pointwise)
            .input(other.operand, Grad::Pointwise)
            .saves([factor(0, 1), factor(1, 0)]);
        Traced::of(l, call.output(shape, OutDtype::Promoted, Place::Pointwise), shape, &[self, other])
    }

    /// Makes it the node's output `j`, in the dims that inference gave that output.
    pub fn bind(&self, l: &mut Lowering<'_>, j: usize) {
        if l.wants(j) {
            let reshaped = self.reshape(l, l.out_shape(j));
            l.bind(j, reshaped.operand);
        }
    }
}

/// A number attribute that may have been written as an integer or a float.
pub(super) fn positive(a: &crate::Attributes, name: &str, default: u64) -> Result<u64, crate::OpError> {
    match a.int(name)? {
        None => Ok(default),
        Some(n) => u64::try_from(n)
            .ok()
            .filter(|n| *n > 0)
            .ok_or_else(|| crate::OpError::attribute(name, "a positive number", n.to_string())),
    }
}

/// An operator whose results have no gradient: it allocates them and keeps nothing.
pub(super) fn without_gradient(l: &mut Lowering<'_>, function: &'static str) {
    let used: Vec<usize> = (0..l.output_count()).filter(|j| l.wants(*j)).collect();
    let mut call = Call::new(function);
    for i in (0..l.input_count()).filter(|i| l.state(*i).is_some()) {
        call = call.input(Operand::Input(i), Grad::None);
    }
    for j in &used {
        call = call.output(l.out_shape(*j), OutDtype::Is(l.out_dtype(*j)), Place::New);
    }
    let Operand::Result { call, .. } = l.call(call) else { return };
    for (output, j) in used.into_iter().enumerate() {
        l.bind(j, Operand::Result { call, output });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, TensorState};

    #[test]
    fn views_that_change_nothing_are_not_calls() {
        let state =
            TensorState { shape: &[2, 3], dtype: DType::Float32, requires_grad: true, is_initializer: false };
        let inputs = [Some(state)];
        let mut l = Lowering::new(&inputs, &[], None, true);
        let x = Traced::input(&l, 0);
        let same = x.permute(&mut l, &[0, 1]).reshape(&mut l, &[2, 3]).expand(&mut l, &[2, 3]);
        assert_eq!(same.operand, Operand::Input(0));
        let turned = x.transpose_last(&mut l);
        assert_eq!((&turned.shape[..], turned.requires_grad), (&[3, 2][..], true));
        assert_eq!(l.into_parts().0.len(), 1);
    }
}
