//! The update of each trained variable as a Keras optimizer composes it of kernels (keras/src/optimizers/*.py, `update_step`).
//!
//! Keras 3 has no fused update: each slot and each variable is changed by elementwise kernels of its size, as soon as its
//! gradient is there. A read of a slot after its update waits for it (automatic control dependencies).

use super::{Builder, Effect, Flow, Wire};
use crate::Category;
use std::collections::BTreeMap;

impl Builder<'_> {
    /// Adds the update of every variable that has a gradient.
    pub(super) fn update(&mut self, gradients: &BTreeMap<u32, Wire>) {
        for (variable, gradient) in gradients {
            let (shape, dtype) = {
                let v = &self.flow.variables[*variable as usize];
                (v.shape.clone(), v.dtype)
            };
            let layer = self.residents[*variable as usize].layer;
            let slots: Vec<u32> = (0..slots(&self.plan.optimizer))
                .map(|_| {
                    self.variable(
                        &shape,
                        dtype,
                        false,
                        Category::OptimizerState,
                        &"optimizer slot".into(),
                        layer,
                    )
                })
                .collect();
            self.flow.layer = layer;
            let gradient = self.flow.cast(*gradient, dtype);
            let mut one = One { flow: &mut self.flow, variable: *variable, slots, written: BTreeMap::new() };
            one.step(&self.plan.optimizer, gradient);
        }
    }
}

/// How many slots an optimizer keeps for each variable.
fn slots(optimizer: &str) -> usize {
    match optimizer {
        "sgd" => 0,
        "momentum" | "nesterov" | "rmsprop" | "adagrad" | "lion" => 1,
        "amsgrad" => 3,
        _ => 2,
    }
}

/// The update of one variable.
struct One<'a> {
    flow: &'a mut Flow,
    variable: u32,
    slots: Vec<u32>,
    /// The kernel that last wrote each variable.
    written: BTreeMap<u32, u32>,
}

impl One<'_> {
    fn read(&mut self, variable: u32) -> Wire {
        let wire = self.flow.read(variable);
        let after = self.written.get(&variable).copied();
        self.flow.kernels[wire.kernel as usize].after.extend(after);
        wire
    }

    fn write(&mut self, name: &'static str, effect: Effect, variable: u32, value: Wire) {
        let wire = self.flow.effect(name, &[value], Vec::new(), effect, None);
        let after = self.written.insert(variable, wire.kernel);
        self.flow.kernels[wire.kernel as usize].after.extend(after);
    }

    fn add(&mut self, variable: u32, value: Wire) {
        self.write("AssignAddVariableOp", Effect::Update(variable), variable, value);
    }

    fn subtract(&mut self, variable: u32, value: Wire) {
        self.write("AssignSubVariableOp", Effect::Update(variable), variable, value);
    }

    fn step(&mut self, optimizer: &str, g: Wire) {
        match (optimizer, self.slots.clone().as_slice()) {
            ("sgd", _) => {
                let scaled = self.flow.scaled("Mul", g);
                self.subtract(self.variable, scaled);
            }
            (_, [m, v, ..]) => self.adam(g, *m, *v),
            (_, [m]) => {
                // m = momentum * m - lr * g; variable += m
                let scaled = self.flow.scaled("Mul", g);
                let old = self.read(*m);
                let kept = self.flow.scaled("Mul", old);
                let new = self.flow.binary("Sub", kept, scaled);
                self.write("AssignVariableOp", Effect::Assign(*m), *m, new);
                self.add(self.variable, new);
            }
            (_, []) => {}
        }
    }

    /// `m += (g - m) * (1 - β1)`, `v += (g² - v) * (1 - β2)`, `variable -= m * α / (√v + ε)`.
    fn adam(&mut self, g: Wire, m: u32, v: u32) {
        let old = self.read(m);
        let difference = self.flow.binary("Sub", g, old);
        let scaled = self.flow.scaled("Mul", difference);
        self.add(m, scaled);
        let square = self.flow.scaled("Square", g);
        let old = self.read(v);
        let difference = self.flow.binary("Sub", square, old);
        let scaled = self.flow.scaled("Mul", difference);
        self.add(v, scaled);
        let m = self.read(m);
        let product = self.flow.scaled("Mul", m);
        let v = self.read(v);
        let root = self.flow.scaled("Sqrt", v);
        let shifted = self.flow.shifted("AddV2", root);
        let quotient = self.flow.binary("RealDiv", product, shifted);
        self.subtract(self.variable, quotient);
    }
}
