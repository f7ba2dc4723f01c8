//! Writes a [`Program`] call by call, and knows the shape of everything it makes.

use super::fits::{misfit, too_large};
use super::program::{Binary, Compare, Instr, Kind, Prim, Program, Range, Slot, SlotType, Unary};
use std::sync::Arc;

/// Calls with more inputs than these are refused, as are loops that would write more: each is a call or a tensor of its own.
pub(super) const MOST: usize = 1 << 14;

/// Why an operator cannot be written as Burn's primitives.
pub(super) type Refusal = String;

impl Program {
    /// A new tensor.
    pub(super) fn slot(&mut self, kind: Kind, shape: Vec<usize>) -> Slot {
        let kind = if kind == Kind::FLOAT { Kind::Float(self.stored) } else { kind };
        self.slots.push(SlotType { kind, shape });
        Slot(u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX))
    }

    /// The index of a layer.
    pub(super) fn layer(&mut self, name: &Arc<str>) -> u32 {
        if let Some(known) = self.index.layers.get(name) {
            return *known;
        }
        let at = u32::try_from(self.layers.len()).unwrap_or(u32::MAX);
        self.layers.push(name.clone());
        self.index.layers.insert(name.clone(), at);
        at
    }
}

/// Calls that belong to one layer.
pub(super) struct Calls<'a> {
    pub(super) program: &'a mut Program,
    pub(super) layer: u32,
    /// The first call that Burn would not take.
    refused: Option<Refusal>,
}

impl<'a> Calls<'a> {
    pub(super) fn of(program: &'a mut Program, layer: u32) -> Calls<'a> {
        Calls { program, layer, refused: None }
    }
}

impl Calls<'_> {
    /// Says that what is written cannot be run, for [`Calls::end`] to give: most calls have nothing to say that their writer could act on.
    pub(super) fn refuse(&mut self, why: impl Into<Refusal>) {
        if self.refused.is_none() {
            self.refused = Some(why.into());
        }
    }

    /// Whether all calls can be run.
    pub(super) fn end(&mut self) -> Result<(), Refusal> {
        self.refused.take().map_or(Ok(()), Err)
    }

    pub(super) fn shape(&self, slot: Slot) -> Vec<usize> {
        self.program.ty(slot).shape.clone()
    }

    pub(super) fn rank(&self, slot: Slot) -> usize {
        self.program.ty(slot).shape.len()
    }

    pub(super) fn kind(&self, slot: Slot) -> Kind {
        self.program.ty(slot).kind
    }

    /// A call whose inputs are cast as its function asks for ([`super::precision`]). Where it makes floats of floats, they are as
    /// precise.
    pub(super) fn call(&mut self, prim: Prim, inputs: &[Slot], kind: Kind, shape: Vec<usize>) -> Slot {
        let inputs = self.cast_for(&prim, inputs);
        let read = inputs.iter().map(|slot| self.kind(*slot)).find(|kind| kind.is_float());
        let kind = if kind.is_float() && prim != Prim::Convert { read.unwrap_or(kind) } else { kind };
        let types: Vec<&SlotType> = inputs.iter().map(|slot| self.program.ty(*slot)).collect();
        if let Some(why) = misfit(&prim, &types, &shape).or_else(|| too_large(&shape)) {
            self.refuse(why);
        }
        let output = self.program.slot(kind, shape);
        self.program.instrs.push(Instr { prim, inputs, output, layer: self.layer });
        output
    }

    /// A call whose output is like its first input.
    pub(super) fn like(&mut self, prim: Prim, inputs: &[Slot]) -> Slot {
        let ty = self.program.ty(inputs[0]).clone();
        self.call(prim, inputs, ty.kind, ty.shape)
    }

    pub(super) fn unary(&mut self, function: Unary, x: Slot) -> Slot {
        self.like(Prim::Unary(function), &[x])
    }

    /// Both at the rank of the larger one and as precise, which Burn asks for.
    pub(super) fn align(&mut self, a: Slot, b: Slot) -> Result<(Slot, Slot, Vec<usize>), Refusal> {
        let [a, b] = self.alike([a, b]);
        let rank = self.rank(a).max(self.rank(b));
        let (a, b) = (self.unsqueeze_to(a, rank), self.unsqueeze_to(b, rank));
        let (left, right) = (self.shape(a), self.shape(b));
        let broadcast = left.iter().zip(&right).map(|(l, r)| match (*l, *r) {
            (l, r) if l == r => Ok(l),
            (1, n) | (n, 1) => Ok(n),
            (l, r) => Err(format!("sizes {l} and {r} do not go together")),
        });
        let shape = broadcast.collect::<Result<Vec<_>, _>>()?;
        Ok((a, b, shape))
    }

    pub(super) fn binary(&mut self, function: Binary, a: Slot, b: Slot) -> Result<Slot, Refusal> {
        let (a, b, shape) = self.align(a, b)?;
        Ok(self.call(Prim::Binary(function), &[a, b], self.kind(a), shape))
    }

    pub(super) fn compare(&mut self, function: Compare, a: Slot, b: Slot) -> Result<Slot, Refusal> {
        let (a, b, shape) = self.align(a, b)?;
        // Comparisons of Burn's backends do not broadcast on their own.
        let (a, b) = (self.expand(a, shape.clone()), self.expand(b, shape.clone()));
        Ok(self.call(Prim::Compare(function), &[a, b], Kind::Bool, shape))
    }

    pub(super) fn compare_scalar(&mut self, function: Compare, x: Slot, by: f64) -> Slot {
        self.call(Prim::CompareScalar(function, by), &[x], Kind::Bool, self.shape(x))
    }

    pub(super) fn scalar(&mut self, function: Binary, x: Slot, by: f64) -> Slot {
        let prim = match function {
            Binary::Add => Prim::AddScalar(by),
            Binary::Sub => Prim::AddScalar(-by),
            Binary::Mul => Prim::MulScalar(by),
            Binary::Div => Prim::DivScalar(by),
            // burn-backend's `float_powi_scalar` writes a square as a product.
            Binary::Pow if by == 2.0 => {
                let x = self.precise(x);
                return self.like(Prim::Binary(Binary::Mul), &[x, x]);
            }
            Binary::Pow if by == 1.0 => return x,
            Binary::Pow if by == 0.5 => return self.unary(Unary::Sqrt, x),
            Binary::Pow => Prim::PowScalar(by),
        };
        self.like(prim, &[x])
    }

    pub(super) fn reshape(&mut self, x: Slot, shape: Vec<usize>) -> Slot {
        if self.shape(x) == shape {
            return x;
        }
        self.call(Prim::Reshape, &[x], self.kind(x), shape)
    }

    pub(super) fn unsqueeze_to(&mut self, x: Slot, rank: usize) -> Slot {
        let shape = self.shape(x);
        if shape.len() >= rank {
            return x;
        }
        let ones = vec![1; rank - shape.len()];
        self.reshape(x, [ones, shape].concat())
    }

    pub(super) fn permute(&mut self, x: Slot, axes: Vec<usize>) -> Slot {
        let shape = self.shape(x);
        let shape = axes.iter().map(|a| shape.get(*a).copied().unwrap_or(1)).collect();
        self.call(Prim::Permute(axes), &[x], self.kind(x), shape)
    }

    pub(super) fn swap(&mut self, x: Slot, a: usize, b: usize) -> Slot {
        let mut axes: Vec<usize> = (0..self.rank(x)).collect();
        if a.max(b) >= axes.len() {
            self.refuse(format!("there is no axis {}", a.max(b)));
            return x;
        }
        axes.swap(a, b);
        self.permute(x, axes)
    }

    pub(super) fn expand(&mut self, x: Slot, shape: Vec<usize>) -> Slot {
        let x = self.unsqueeze_to(x, shape.len());
        if self.shape(x) == shape {
            return x;
        }
        self.call(Prim::Expand, &[x], self.kind(x), shape)
    }

    pub(super) fn slice(&mut self, x: Slot, ranges: Vec<Range>) -> Slot {
        let size = |r: &Range| r.end.saturating_sub(r.start).div_ceil(r.step.unsigned_abs().max(1));
        let shape: Vec<usize> = ranges.iter().map(size).collect();
        if shape == self.shape(x) && ranges.iter().all(|r| r.step == 1) {
            return x;
        }
        self.call(Prim::Slice(ranges), &[x], self.kind(x), shape)
    }

    /// `from..to` of one axis.
    pub(super) fn narrow(&mut self, x: Slot, axis: usize, from: usize, to: usize) -> Slot {
        let mut ranges: Vec<Range> =
            self.shape(x).iter().map(|n| Range { start: 0, end: *n, step: 1 }).collect();
        match ranges.get_mut(axis) {
            Some(range) => *range = Range { start: from, end: to, step: 1 },
            None => self.refuse(format!("there is no axis {axis}")),
        }
        self.slice(x, ranges)
    }

    pub(super) fn cat(&mut self, parts: &[Slot], axis: usize) -> Slot {
        let Some(first) = parts.first().copied() else {
            self.refuse("nothing to join");
            return self.program.slot(Kind::FLOAT, vec![0]);
        };
        if parts.len() > MOST {
            self.refuse(format!("{} parts to join, more than {MOST}", parts.len()));
            return first;
        }
        let mut shape = self.shape(first);
        let size = |part: &Slot| self.program.ty(*part).shape.get(axis).copied().unwrap_or(0);
        let whole = parts.iter().fold(0, |all: usize, part| all.saturating_add(size(part)));
        shape.get_mut(axis).into_iter().for_each(|size| *size = whole);
        self.call(Prim::Cat(axis), parts, self.kind(first), shape)
    }

    /// A reduction of one axis that stays with one element.
    pub(super) fn reduce(&mut self, prim: Prim, x: Slot, axis: usize) -> Slot {
        let mut shape = self.shape(x);
        shape.get_mut(axis).into_iter().for_each(|size| *size = 1);
        self.call(prim, &[x], self.kind(x), shape)
    }

    pub(super) fn convert(&mut self, x: Slot, kind: Kind) -> Slot {
        if self.kind(x) == kind || self.kind(x).is_float() && kind.is_float() {
            return x;
        }
        self.call(Prim::Convert, &[x], kind, self.shape(x))
    }

    pub(super) fn full(&mut self, kind: Kind, shape: Vec<usize>, value: f64) -> Slot {
        self.call(Prim::Full(value), &[], kind, shape)
    }

    pub(super) fn matmul(&mut self, a: Slot, b: Slot) -> Result<Slot, Refusal> {
        let rank = self.rank(a).max(self.rank(b));
        if self.rank(a) < 2 || self.rank(b) < 2 {
            return Err("a product with a vector".into());
        }
        let (a, b) = (self.unsqueeze_to(a, rank), self.unsqueeze_to(b, rank));
        let (left, right) = (self.shape(a), self.shape(b));
        let mut shape: Vec<usize> = left.iter().zip(&right).map(|(l, r)| *l.max(r)).collect();
        (shape[rank - 2], shape[rank - 1]) = (left[rank - 2], right[rank - 1]);
        Ok(self.call(Prim::MatMul, &[a, b], Kind::FLOAT, shape))
    }

    pub(super) fn linear(&mut self, x: Slot, weight: Slot, bias: Option<Slot>) -> Slot {
        let mut shape = self.shape(x);
        if let (Some(last), Some(out)) = (shape.last_mut(), self.shape(weight).last()) {
            *last = *out;
        }
        let inputs: Vec<Slot> = [x, weight].into_iter().chain(bias).collect();
        self.call(Prim::Linear, &inputs, Kind::FLOAT, shape)
    }

    /// As `ActivationOps::softmax` and `log_softmax` compose it.
    pub(super) fn softmax(&mut self, x: Slot, axis: usize, log: bool) -> Result<Slot, Refusal> {
        let x = self.precise(x);
        let detached = self.like(Prim::Detach, &[x]);
        let max = self.reduce(Prim::MaxDim(axis), detached, axis);
        let shifted = self.binary(Binary::Sub, x, max)?;
        let exp = self.unary(Unary::Exp, shifted);
        let sum = self.reduce(Prim::SumDim(axis), exp, axis);
        if log {
            let sum = self.unary(Unary::Log, sum);
            self.binary(Binary::Sub, shifted, sum)
        } else {
            self.binary(Binary::Div, exp, sum)
        }
    }
}
