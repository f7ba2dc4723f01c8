//! What Keras 3 runs on its PyTorch backend: the ATen calls of a layer.
//!
//! keras/src/backend/torch/nn.py and numpy.py (3.15). Images of channels last are turned around for every window: a contiguous copy, and
//! for a convolution another one in PyTorch's own channels-last layout, as its kernel is. What is not written here stays a bound.

mod activations;
mod attention;
mod cells;
mod nested;
mod norms;
mod recurrent;
mod steps;
mod windows;

use crate::arguments::Arguments;
use crate::layer::{Call as LayerCall, Configured};
use crate::spec::Spec;
use memfit_graph::ops::Traced;
use memfit_graph::ops::matmul::matmul;
use memfit_graph::{Call, DType, Grad, Lowering, OutDtype, Place, Saved, Shape, View, elements};

/// The calls of one layer in the making.
pub struct Torch<'r, 'l> {
    /// The layer and what it is called on.
    pub call: &'r LayerCall<'r>,
    /// The list that is written.
    pub l: &'r mut Lowering<'l>,
    tensors: usize,
    /// Which of the node's inputs is the layer's first variable, and how many it has.
    variables: [usize; 2],
    shape: &'r [u64],
    /// The dtype of the arithmetic, where variables have another one.
    mixed: Option<DType>,
    /// What a layer around this one calls it on, and what came of it.
    given: Vec<Traced>,
    made: Option<Traced>,
    /// What came of it beside its first output.
    others: Vec<Traced>,
}

impl<'r, 'l> Torch<'r, 'l> {
    pub(crate) fn new(call: &'r LayerCall<'r>, l: &'r mut Lowering<'l>, tensors: usize) -> Self {
        // A mixed policy of the file's own; the plan's stands for the global one of a file that has none.
        let policy = &call.facts.policy;
        let is_mixed = policy.compute.is_half() && policy.variable == DType::Float32;
        let mixed = is_mixed.then_some(policy.compute).or(l.autocast.take());
        let variables = [tensors, l.input_count().saturating_sub(tensors)];
        let shape = l.out_shape(0);
        Torch { call, l, tensors, variables, shape, mixed, given: Vec::new(), made: None, others: Vec::new() }
    }

    /// Runs a layer that this one holds on these tensors, its variables being this one's from `first` on. What it gives has this shape.
    pub fn inner(
        &mut self,
        layer: &Configured,
        given: &[Traced],
        first: usize,
        shape: &[u64],
    ) -> Option<Traced> {
        self.inner_call(layer, &Arguments::plain(given.len()), given, first, shape).into_iter().next()
    }

    /// The same with these arguments, of which the given ones are the tensors: all that it gives.
    pub fn inner_call(
        &mut self,
        layer: &Configured,
        arguments: &Arguments,
        given: &[Traced],
        first: usize,
        shape: &[u64],
    ) -> Vec<Traced> {
        let dtype = self.dtype();
        let specs: Vec<Spec> = given.iter().map(|x| Spec::new(Shape::from(&x.shape[..]), dtype)).collect();
        let count = layer.own_weights(arguments, &specs).map_or(0, |weights| weights.len());
        let call = LayerCall { facts: &layer.facts, arguments };
        let mut inner = Torch {
            call: &call,
            l: &mut *self.l,
            tensors: given.len(),
            variables: [self.variables[0] + first, count],
            shape,
            mixed: self.mixed,
            given: given.to_vec(),
            made: None,
            others: Vec::new(),
        };
        layer.layer.pytorch(&mut inner);
        inner.made.into_iter().chain(inner.others).collect()
    }

    /// A bound from above.
    pub fn not_modelled(&mut self) {
        self.l.not_modelled();
    }

    /// How many tensors the call has.
    pub fn tensors(&self) -> usize {
        self.tensors
    }

    /// How many variables the layer has.
    pub fn weights(&self) -> usize {
        self.variables[1]
    }

    /// Whether the layer trains here: batch norm by the batch's statistics, dropout drops.
    pub fn trains(&self) -> bool {
        self.l.training && self.call.facts.trainable
    }

    /// Tensor `i`, cast to what the layer computes in (keras/src/layers/layer.py, `__call__`).
    pub fn x(&mut self, i: usize) -> Traced {
        self.given.get(i).cloned().unwrap_or_else(|| self.cast_input(i, self.mixed.or(self.wider(i))))
    }

    /// What tensor `i` becomes where it is half and the layer's own policy is not.
    fn wider(&self, i: usize) -> Option<DType> {
        let to = self.call.cast(self.l.dtype(i));
        (self.l.dtype(i).is_half() && self.is_wide()).then_some(to)
    }

    /// Whether the layer gives float32 under a plan that leaves dtypes to the file.
    fn is_wide(&self) -> bool {
        self.mixed.is_none() && self.l.out_dtype(0) == DType::Float32
    }

    /// Variable `k`, cast anew each time it is read (keras/src/backend/common/variables.py, `AutocastScope`).
    pub fn weight(&mut self, k: usize) -> Traced {
        self.cast_input(self.variables[0] + k, self.mixed)
    }

    /// Variable `k` as it is (`add_weight(autocast=False)`).
    pub fn own_weight(&mut self, k: usize) -> Traced {
        Traced::input(self.l, self.variables[0] + k)
    }

    /// Tensor `i` of a layer that computes in float32 at least, as it came.
    pub fn widened(&mut self, i: usize) -> Traced {
        match self.given.get(i).cloned() {
            Some(x) => self.wide(&x),
            None => self.cast_input(i, Some(DType::Float32)),
        }
    }

    /// A value in float32.
    pub fn wide(&mut self, x: &Traced) -> Traced {
        self.half().map_or_else(|| x.clone(), |_| x.cast(self.l, DType::Float32))
    }

    /// The result of such a layer, cast to what it gives.
    pub fn narrowed(&mut self, y: &Traced) -> Traced {
        self.half().map_or_else(|| y.clone(), |to| y.cast(self.l, to))
    }

    /// The half dtype that the layer computes in, if it does.
    fn half(&self) -> Option<DType> {
        self.mixed.or(Some(self.l.dtype(0)).filter(|dtype| dtype.is_half() && !self.is_wide()))
    }

    /// The dtype that the layer computes in.
    pub fn dtype(&self) -> DType {
        self.half().unwrap_or(DType::Float32)
    }

    /// The tensor that an argument of the call is, as it came.
    pub fn argument(&mut self, position: usize, name: &str) -> Option<Traced> {
        let at = self.call.arguments.tensor(position, name).filter(|at| *at < self.tensors)?;
        Some(self.given.get(at).cloned().unwrap_or_else(|| Traced::input(self.l, at)))
    }

    fn cast_input(&mut self, i: usize, to: Option<DType>) -> Traced {
        let x = Traced::input(self.l, i);
        let from = self.l.dtype(i);
        match to.filter(|to| *to != from && from.is_float()) {
            Some(to) => x.cast(self.l, to),
            None => x,
        }
    }

    /// The dims of the output.
    pub fn out_shape(&self) -> &'r [u64] {
        self.shape
    }

    /// Makes it the layer's output.
    pub fn finish(&mut self, y: &Traced) {
        if self.given.is_empty() {
            y.bind(self.l, 0);
        } else {
            self.made = Some(y.reshape(self.l, self.shape));
        }
    }

    /// Makes it the layer's output `j` after the first.
    pub fn bind(&mut self, j: usize, y: &Traced) {
        if self.given.is_empty() {
            y.bind(self.l, j);
        } else {
            self.others.push(y.clone());
        }
    }

    /// `torch.matmul`.
    pub fn matmul(&mut self, a: &Traced, b: &Traced) -> Traced {
        matmul(self.l, a, b)
    }

    /// A sum, out of place, with broadcasting.
    pub fn add(&mut self, a: &Traced, b: &Traced) -> Traced {
        let shape = broadcast(&a.shape, &b.shape);
        a.add(self.l, b, &shape)
    }

    /// A product.
    pub fn mul(&mut self, a: &Traced, b: &Traced) -> Traced {
        let shape = broadcast(&a.shape, &b.shape);
        a.mul(self.l, b, &shape)
    }

    /// The larger or the smaller of two. The gradient is `masked_fill(where(self == other, grad / 2, grad), self < other, 0)`: the half, what
    /// is chosen, and two masks.
    pub fn keeping_both(&mut self, a: &Traced, b: &Traced) -> Traced {
        let shape = broadcast(&a.shape, &b.shape);
        let mut call = Self::of_both("maximum", a, b, &shape);
        for dtype in
            [OutDtype::Promoted, OutDtype::Promoted, OutDtype::Is(DType::Bool), OutDtype::Is(DType::Bool)]
        {
            call = call.backward_scratch(&shape, dtype);
        }
        Traced::of(self.l, call, &shape, &[a, b])
    }

    /// A quotient. The divisor's gradient is `-grad * ((self / other) / other)`: two more tensors.
    pub fn divide(&mut self, a: &Traced, b: &Traced) -> Traced {
        let shape = broadcast(&a.shape, &b.shape);
        let mut call = Self::of_both("div", a, b, &shape);
        if b.requires_grad {
            let scratch = |call: Call| call.backward_scratch(&shape, OutDtype::Promoted);
            call = scratch(scratch(call));
        }
        Traced::of(self.l, call, &shape, &[a, b])
    }

    fn of_both(name: &'static str, a: &Traced, b: &Traced, shape: &[u64]) -> Call {
        let call = Call::new(name).input(a.operand, Grad::Pointwise).input(b.operand, Grad::Pointwise);
        let call = call.output(shape, OutDtype::Promoted, Place::Pointwise);
        call.saves([Saved::Input(0), Saved::Input(1)])
    }

    /// Contiguous: a copy where it is not.
    pub fn contiguous(&mut self, x: &Traced) -> Traced {
        let all = elements(&x.shape);
        x.reshape(self.l, &[all]).reshape(self.l, &x.shape)
    }

    /// All tensors of the call behind each other.
    pub fn concatenate(&mut self) {
        let parts: Vec<Traced> = (0..self.tensors).map(|i| self.x(i)).collect();
        let y = self.cat(&parts, self.shape);
        self.finish(&y);
    }

    /// These behind each other, along an axis of theirs or a new one.
    pub fn cat(&mut self, parts: &[Traced], shape: &[u64]) -> Traced {
        let call = parts.iter().fold(Call::new("cat"), |call, part| call.input(part.operand, Grad::Narrow));
        let call = call.output(shape, OutDtype::Promoted, Place::New);
        Traced::of(self.l, call, shape, &parts.iter().collect::<Vec<_>>())
    }

    /// The layer's kernel, with what LoRA adds to it (keras/src/layers/core/dense.py, `kernel`).
    pub fn kernel(&mut self, has_lora: bool) -> Traced {
        let kernel = self.weight(0);
        if !has_lora {
            return kernel;
        }
        let [a, b] = [2, 1].map(|k| self.weight(self.weights().saturating_sub(k)));
        let product = self.matmul(&a, &b).scale(self.l, "mul");
        self.add(&kernel, &product)
    }

    /// `sum`: its gradient is a view.
    pub fn sum(&mut self, x: &Traced, shape: &[u64]) -> Traced {
        let call = Call::new("sum").input(x.operand, Grad::Expand);
        Traced::of(self.l, call.output(shape, OutDtype::Promoted, Place::New), shape, &[x])
    }

    /// `native_dropout`: a mask of one byte an element is kept.
    pub fn dropout(&mut self, x: &Traced) -> Traced {
        let call = Call::new("native_dropout")
            .input(x.operand, Grad::New)
            .output(&x.shape, OutDtype::Like(0), Place::Pointwise)
            .output(&x.shape, OutDtype::Is(DType::Bool), Place::Pointwise)
            .saves([Saved::Output(1)]);
        Traced::of(self.l, call, &x.shape, &[x])
    }

    /// Dropout by a mask of this shape, from noise of a seed of its own (backend/torch/random.py, `dropout`): what is kept is divided, then
    /// chosen, else zeros.
    pub fn dropout_by(&mut self, x: &Traced, noise: &[u64]) -> Traced {
        let make = |run: &mut Self, name, of: &[&Traced]| {
            let call = of.iter().fold(Call::new(name), |call, x| call.input(x.operand, Grad::None));
            Traced::of(run.l, call.output(noise, OutDtype::Is(DType::Float32), Place::New), noise, &[])
        };
        let chance = make(self, "full", &[]);
        let drawn = make(self, "bernoulli", &[&chance]);
        let mask = self.test(&[&drawn], noise);
        let kept = x.scale(self.l, "div");
        let zeros = Call::new("zeros_like").input(x.operand, Grad::None);
        let zeros = zeros.output(&x.shape, OutDtype::Like(0), Place::Pointwise);
        let zeros = Traced::of(self.l, zeros, &x.shape, &[]);
        let y = self.choose(&mask, &[&kept, &zeros]);
        self.holding(&y, &[&chance])
    }

    /// A value until which names of a Python function hold others.
    pub fn holding(&mut self, y: &Traced, held: &[&Traced]) -> Traced {
        let call = Call::new("alias").input(y.operand, Grad::Pass);
        let call = held.iter().fold(call, |call, held| call.input(held.operand, Grad::None));
        let call = call.output(&y.shape, OutDtype::Like(0), Place::View(0, View::Alias));
        Traced::of(self.l, call, &y.shape, &[y])
    }

    /// Noise of this shape.
    pub fn noise(&mut self, like: &Traced) -> Traced {
        let call = Call::new("normal").input(like.operand, Grad::None);
        let call = call.output(&like.shape, OutDtype::Like(0), Place::New);
        Traced::of(self.l, call, &like.shape, &[])
    }

    /// A new tensor with the elements of `x` and more around them.
    pub fn pad(&mut self, x: &Traced, shape: &[u64]) -> Traced {
        let call = Call::new("constant_pad_nd").input(x.operand, Grad::New);
        Traced::of(self.l, call.output(shape, OutDtype::Like(0), Place::New), shape, &[x])
    }

    /// A reduction whose input is not kept (`mean`).
    pub fn mean(&mut self, x: &Traced, shape: &[u64]) -> Traced {
        let call = Call::new("mean").input(x.operand, Grad::New);
        Traced::of(self.l, call.output(shape, OutDtype::Promoted, Place::New), shape, &[x])
    }

    /// Keras' `mean`: in float32 at least.
    pub fn average(&mut self, x: &Traced, shape: &[u64]) -> Traced {
        if self.half().is_none() {
            return self.mean(x, shape);
        }
        let x = x.cast(self.l, DType::Float32);
        let y = self.mean(&x, shape);
        self.narrowed(&y)
    }

    /// `amax`: keeps input and output, and finds the places again in backward.
    pub fn amax(&mut self, x: &Traced, shape: &[u64]) -> Traced {
        let call = Call::new("amax")
            .input(x.operand, Grad::New)
            .output(shape, OutDtype::Promoted, Place::New)
            .saves([Saved::Input(0), Saved::Output(0)])
            .backward_scratch(&x.shape, OutDtype::Is(DType::Bool));
        Traced::of(self.l, call, shape, &[x])
    }

    /// `torch.nn.functional.embedding` of tokens, which are corrected first: a new tensor of integers, which is kept.
    pub fn lookup(&mut self, table: &Traced, tokens: &Traced, shape: &[u64]) -> Traced {
        let call = Call::new("where").input(tokens.operand, Grad::None);
        let call = call.output(&tokens.shape, OutDtype::Is(DType::Int64), Place::New);
        let tokens = Traced::of(self.l, call, &tokens.shape, &[]);
        let call = Call::new("embedding").input(table.operand, Grad::New).input(tokens.operand, Grad::None);
        let call = call.output(shape, OutDtype::Like(0), Place::New).saves([Saved::Input(1)]);
        Traced::of(self.l, call, shape, &[table])
    }
}

/// The dims that both give, aligned from the right.
pub(crate) fn broadcast(a: &[u64], b: &[u64]) -> Vec<u64> {
    let rank = a.len().max(b.len());
    let at = |dims: &[u64], i: usize| (i + dims.len()).checked_sub(rank).map_or(1, |i| dims[i]);
    (0..rank).map(|i| if at(a, i) == 1 { at(b, i) } else { at(a, i) }).collect()
}
