//! From gradients to updates: what surrounds a Keras optimizer's own step (keras/src/optimizers/base_optimizer.py, `apply`).
//!
//! Keras 3 has no fused update: each slot and each variable is changed by elementwise kernels of its size, as soon as its gradient
//! is there. Gradient accumulation keeps a sum for each variable, an exponential moving average a copy. Rows of a table
//! arrive as `IndexedSlices` and stay such in products, squares and quotients; what adds them to something else makes them dense first
//! (`UnsortedSegmentSum`), and a variable that is changed by them is changed row by row (keras/src/backend/tensorflow/sparse.py).

use super::roots::Rule;
use super::{Builder, Effect, Flow, Wire};
use crate::Category;
use crate::optimizers::{Parameter, keras_slots};
use crate::parameters::is_table_of_keras;
use memfit_graph::{Bytes, DType, elements};
use std::collections::BTreeMap;

/// One variable while it is updated.
pub(super) struct Update<'a> {
    pub(super) flow: &'a mut Flow,
    pub(super) variable: u32,
    pub(super) slots: Vec<u32>,
    /// The kernel that last wrote each variable.
    written: BTreeMap<u32, u32>,
    /// All kernels that write a variable, in the order in which they were made.
    writes: Vec<u32>,
}

impl Builder<'_> {
    /// Adds the update of every variable that has a gradient; gives the kernels from which grappler walks, in its order.
    pub(super) fn update(&mut self, gradients: &BTreeMap<u32, Wire>) -> Vec<u32> {
        let optimizer = self.plan.optimizer.clone();
        let rule = Rule::of(&optimizer, self.flow.keras_2);
        // Those whose weight decay is not `None` unless it is asked for: 0.004 (adamw.py, muon.py).
        let decays = self.plan.weight_decay || ["adamw", "muon"].contains(&&*optimizer);
        let finite = self.finite(gradients);
        let norm = self.plan.clip_norm.then(|| self.norm(gradients));
        let mut roots = Vec::new();
        for (variable, gradient) in gradients {
            let of = self.flow.variables[*variable as usize].clone();
            let layer = self.residents[*variable as usize].layer;
            let is_table = is_table_of_keras(&self.residents[*variable as usize].name);
            let shapes =
                keras_slots(rule.name, &Parameter { shape: of.shape[..].into(), dtype: of.dtype, is_table });
            let slot = |b: &mut Self, shape: &[u64]| {
                b.variable(shape, of.dtype, false, Category::OptimizerState, &"optimizer slot".into(), layer)
            };
            let slots: Vec<u32> = shapes.iter().map(|shape| slot(self, shape)).collect();
            let accumulator = (self.plan.accumulate > 1).then(|| slot(self, &of.shape));
            let average = self.plan.ema.then(|| slot(self, &of.shape));
            self.note_state(*variable, slots.iter().chain(&accumulator).chain(&average));
            self.flow.layer = layer;
            let mut one = Update::new(&mut self.flow, *variable, slots);
            let mut gradient = one.flow.cast(*gradient, of.dtype);
            if let Some(finite) = finite {
                gradient = one.flow.scaled("RealDiv", gradient);
                one.flow.wait(gradient, finite);
            }
            if let Some(norm) = norm {
                gradient = one.flow.scaled("Mul", gradient);
                one.flow.wait(gradient, norm);
            }
            if let Some(sum) = accumulator {
                let sum_so_far = one.read(sum);
                let dense = one.dense(gradient);
                let total = one.flow.binary("AddV2", dense, sum_so_far);
                gradient = one.flow.scaled("RealDiv", total);
                let zeros = one.flow.make("Fill", &[], &of.shape, of.dtype, None);
                one.write("AssignVariableOp", Effect::Assign(sum), sum, zeros);
            }
            if decays {
                let value = one.read(*variable);
                let scaled = one.flow.scaled("Mul", value);
                one.subtract(*variable, scaled);
            }
            let before = one.writes.len();
            if rule.is_fused && one.flow.shape(gradient) == of.shape {
                one.write("ResourceApply", Effect::Update(*variable), *variable, gradient);
            } else {
                one.step(rule.name, gradient);
            }
            roots.extend(rule.root(&one.writes[before..]));
            if let Some(average) = average {
                let mut one = Update::new(&mut self.flow, *variable, Vec::new());
                let old = one.read(average);
                let kept = one.flow.scaled("Mul", old);
                let value = one.read(*variable);
                let share = one.flow.scaled("Mul", value);
                let new = one.flow.binary("AddV2", kept, share);
                one.write("AssignVariableOp", Effect::Assign(average), average, new);
            }
        }
        self.copy_on_read();
        rule.sort(decays, roots)
    }

    /// Whether all gradients are finite, which a loss scale asks before any of them is used
    /// (loss_scale_optimizer.py, `check_finite`): until then each of them is held.
    fn finite(&mut self, gradients: &BTreeMap<u32, Wire>) -> Option<Wire> {
        if !self.plan.loss_scale || self.plan.precision != crate::Precision::MixedFp16 {
            return None;
        }
        self.assumptions
            .push("the optimizer scales the loss, as compile() makes it do under mixed_float16".into());
        let mut each = Vec::new();
        for (variable, gradient) in gradients {
            self.flow.layer = self.residents[*variable as usize].layer;
            let finite = self.flow.test("IsFinite", *gradient);
            each.push(self.flow.reduce("All", finite, &[]));
        }
        let shape: &[u64] = &[];
        Some(self.flow.make("All", &each, shape, DType::Bool, None))
    }

    /// The norm of all gradients together (base_optimizer.py, `clip_by_global_norm`): none of them is applied before it is there.
    fn norm(&mut self, gradients: &BTreeMap<u32, Wire>) -> Wire {
        let mut squares = Vec::new();
        for (variable, gradient) in gradients {
            self.flow.layer = self.residents[*variable as usize].layer;
            let square = self.flow.scaled("Square", *gradient);
            squares.push(self.flow.reduce("Sum", square, &[]));
        }
        self.flow.make("Sum", &squares, &[], DType::Float32, None)
    }

    /// A variable that is updated row by row is copied by every read.
    fn copy_on_read(&mut self) {
        let flow = &mut self.flow;
        for kernel in &mut flow.kernels {
            if let Effect::Read(variable) = kernel.effect
                && flow.variables[variable as usize].copy_on_read
            {
                kernel.outputs.iter_mut().for_each(|made| made.place = super::Place::New);
            }
        }
    }

    /// Counts slots beside the parameter that they are for.
    fn note_state<'s>(&mut self, variable: u32, slots: impl Iterator<Item = &'s u32>) {
        let bytes: Bytes = slots
            .map(|slot| {
                let v = &self.flow.variables[*slot as usize];
                v.dtype.size_of(elements(&v.shape))
            })
            .sum();
        // Parameters and buffers were the first variables, in the order of `stored`.
        if let Some(stored) = self.stored.get_mut(variable as usize) {
            stored.optimizer_bytes += bytes;
        }
    }
}

impl<'a> Update<'a> {
    fn new(flow: &'a mut Flow, variable: u32, slots: Vec<u32>) -> Update<'a> {
        Update { flow, variable, slots, written: BTreeMap::new(), writes: Vec::new() }
    }

    /// Reads a variable after it was last written.
    pub(super) fn read(&mut self, variable: u32) -> Wire {
        let wire = self.flow.read(variable);
        let after = self.written.get(&variable).copied();
        self.flow.kernels[wire.kernel as usize].after.extend(after);
        wire
    }

    /// Writes a variable after it was last written.
    pub(super) fn write(&mut self, name: &'static str, effect: Effect, variable: u32, value: Wire) {
        let wire = self.flow.effect(name, &[value], Vec::new(), effect, None);
        let after = self.written.insert(variable, wire.kernel);
        self.writes.push(wire.kernel);
        self.flow.kernels[wire.kernel as usize].after.extend(after);
    }

    /// `variable += value`.
    pub(super) fn add(&mut self, variable: u32, value: Wire) {
        self.change(["AssignAddVariableOp", "ResourceScatterAdd"], variable, value);
    }

    /// `variable -= value`.
    pub(super) fn subtract(&mut self, variable: u32, value: Wire) {
        self.change(["AssignSubVariableOp", "ResourceScatterSub"], variable, value);
    }

    fn change(&mut self, [whole, by_row]: [&'static str; 2], variable: u32, value: Wire) {
        let of = &mut self.flow.variables[variable as usize];
        let (name, effect) =
            if self.flow.kernels[value.kernel as usize].outputs[value.output as usize].shape == of.shape {
                (whole, Effect::Update(variable))
            } else {
                of.copy_on_read = true;
                (by_row, Effect::Scatter(variable))
            };
        self.write(name, effect, variable, value);
    }

    /// `variable = value`.
    pub(super) fn assign(&mut self, variable: u32, value: Wire) {
        self.write("AssignVariableOp", Effect::Assign(variable), variable, value);
    }

    /// Rows as a tensor of the variable's shape.
    pub(super) fn dense(&mut self, gradient: Wire) -> Wire {
        self.dense_as(self.variable, gradient)
    }

    /// Rows as a tensor of this variable's shape.
    pub(super) fn dense_as(&mut self, variable: u32, rows: Wire) -> Wire {
        let of = &self.flow.variables[variable as usize];
        let (shape, dtype) = (of.shape.clone(), of.dtype);
        if self.flow.shape(rows) == shape {
            return rows;
        }
        self.flow.make("UnsortedSegmentSum", &[rows], &shape, dtype, None)
    }

    /// A quotient. Rows are divided by the same rows of the other, once it is known to have neither zeros nor NaNs.
    pub(super) fn quotient(&mut self, value: Wire, by: Wire) -> Wire {
        if self.flow.shape(value) == self.flow.shape(by) {
            return self.flow.binary("RealDiv", value, by);
        }
        let [zero, nan] = ["Equal", "IsNan"].map(|name| self.flow.test(name, by));
        let either = self.flow.binary("LogicalOr", zero, nan);
        let any = self.flow.reduce("Any", either, &[]);
        let (shape, dtype) = (self.flow.shape(value).to_vec(), self.flow.dtype(by));
        let rows = self.flow.make("GatherV2", &[by], &shape, dtype, None);
        self.flow.wait(rows, any);
        self.flow.binary("RealDiv", value, rows)
    }
}
