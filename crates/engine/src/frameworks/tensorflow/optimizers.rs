//! The `update_step` of each Keras optimizer as kernels (keras/src/optimizers/*.py, 3.15).
//!
//! Factors that are scalars are left out: a product with one is a kernel of one input.

use super::Wire;
use super::update::Update;

/// How often Muon iterates (muon.py, `ns_steps`).
const ITERATIONS: usize = 5;

impl Update<'_> {
    /// One step of the optimizer of this name.
    pub(super) fn step(&mut self, optimizer: &str, gradient: Wire) {
        let slots = self.slots.clone();
        match (optimizer, &slots[..]) {
            ("adamax", [m, u]) => self.adamax(gradient, *m, *u),
            ("adadelta", [sum, delta]) => self.adadelta(gradient, *sum, *delta),
            ("adagrad", [sum]) => self.adagrad(gradient, *sum),
            ("lion", [m]) => self.lion(gradient, *m),
            ("rmsprop", [velocity]) => self.rmsprop(gradient, *velocity, None, None),
            ("rmsprop-momentum", [velocity, momentum]) => {
                self.rmsprop(gradient, *velocity, Some(*momentum), None)
            }
            ("rmsprop-centered", [velocity, average]) => {
                self.rmsprop(gradient, *velocity, None, Some(*average))
            }
            ("ftrl", [accumulator, linear]) => self.ftrl(gradient, *accumulator, *linear),
            ("adafactor", _) => self.adafactor(gradient, &slots),
            ("nadam", [m, v]) => self.nadam(gradient, *m, *v),
            ("lamb", [m, v]) => self.lamb(gradient, *m, *v),
            // What is no matrix has Adam's slots, and Adam's step.
            ("muon", [m]) => self.muon(gradient, *m),
            ("schedule-free-adamw", [m, v]) => self.schedule_free(gradient, *m, *v),
            (_, []) => {
                let scaled = self.flow.scaled("Mul", gradient);
                self.subtract(self.variable, scaled);
            }
            (_, [m]) => self.momentum(gradient, *m, optimizer == "nesterov"),
            (_, [m, v]) => self.adam(gradient, *m, *v, None),
            (_, [m, v, largest, ..]) => self.adam(gradient, *m, *v, Some(*largest)),
        }
    }

    /// `slot += (value - slot) * (1 - β)`.
    fn decay_towards(&mut self, slot: u32, value: Wire) {
        let value = self.dense(value);
        let old = self.read(slot);
        let difference = self.flow.binary("Sub", value, old);
        let scaled = self.flow.scaled("Mul", difference);
        self.add(slot, scaled);
    }

    /// `slot = ρ * slot + (1 - ρ) * value`.
    fn mix_into(&mut self, slot: u32, value: Wire) {
        let old = self.read(slot);
        let kept = self.flow.scaled("Mul", old);
        let share = self.flow.scaled("Mul", value);
        let share = self.dense_as(slot, share);
        let new = self.flow.binary("AddV2", kept, share);
        self.assign(slot, new);
    }

    fn momentum(&mut self, gradient: Wire, m: u32, nesterov: bool) {
        let old = self.read(m);
        let kept = self.flow.scaled("Mul", old);
        let scaled = self.flow.scaled("Mul", gradient);
        let scaled = self.dense(scaled);
        let new = self.flow.binary("Sub", kept, scaled);
        self.assign(m, new);
        let mut by = self.read(m);
        if nesterov {
            // Of both products of the gradient, grappler and XLA keep one, but Keras 2 reads the learning rate for each.
            let again = self.flow.keras_2.map(|_| self.flow.scaled("Mul", gradient));
            let again = again.map_or(scaled, |again| self.dense(again));
            let kept = self.flow.scaled("Mul", by);
            by = self.flow.binary("Sub", kept, again);
        }
        self.add(self.variable, by);
    }

    /// `variable -= m * α / (√v + ε)`.
    fn adam(&mut self, gradient: Wire, m: u32, v: u32, largest: Option<u32>) {
        self.decay_towards(m, gradient);
        let square = self.flow.scaled("Square", gradient);
        self.decay_towards(v, square);
        let mut v = self.read(v);
        if let Some(slot) = largest {
            let old = self.read(slot);
            let new = self.flow.binary("Maximum", old, v);
            self.assign(slot, new);
            v = self.read(slot);
        }
        let m = self.read(m);
        let product = self.flow.scaled("Mul", m);
        let root = self.flow.scaled("Sqrt", v);
        let shifted = self.flow.shifted("AddV2", root);
        let quotient = self.flow.binary("RealDiv", product, shifted);
        self.subtract(self.variable, quotient);
    }

    fn nadam(&mut self, gradient: Wire, m: u32, v: u32) {
        self.decay_towards(m, gradient);
        let square = self.flow.scaled("Square", gradient);
        self.decay_towards(v, square);
        let (m, v) = (self.read(m), self.read(v));
        let scaled = self.flow.scaled("Mul", m);
        let first = self.flow.scaled("RealDiv", scaled);
        let scaled = self.flow.scaled("Mul", gradient);
        let second = self.flow.scaled("RealDiv", scaled);
        let second = self.dense(second);
        let m_hat = self.flow.binary("AddV2", first, second);
        let v_hat = self.flow.scaled("RealDiv", v);
        let scaled = self.flow.scaled("Mul", m_hat);
        let root = self.flow.scaled("Sqrt", v_hat);
        let shifted = self.flow.shifted("AddV2", root);
        let quotient = self.flow.binary("RealDiv", scaled, shifted);
        self.subtract(self.variable, quotient);
    }

    fn lamb(&mut self, gradient: Wire, m: u32, v: u32) {
        self.decay_towards(m, gradient);
        let square = self.flow.scaled("Square", gradient);
        self.decay_towards(v, square);
        let (m, v) = (self.read(m), self.read(v));
        let m_hat = self.flow.scaled("RealDiv", m);
        let v_hat = self.flow.scaled("RealDiv", v);
        let root = self.flow.scaled("Sqrt", v_hat);
        let shifted = self.flow.shifted("AddV2", root);
        let update = self.flow.binary("RealDiv", m_hat, shifted);
        let norms: Vec<Wire> = [self.read(self.variable), update]
            .into_iter()
            .map(|x| {
                let square = self.flow.scaled("Square", x);
                self.flow.reduce("Sum", square, &[])
            })
            .collect();
        // ratio * lr * update: the ratio is a scalar that waits for both norms.
        let scaled = self.flow.scaled("Mul", update);
        norms.into_iter().for_each(|norm| self.flow.wait(scaled, norm));
        self.subtract(self.variable, scaled);
    }

    /// `variable -= α z(gradient + μ m)` with `m += gradient + (μ - 1) m`, where `z` brings a matrix near to an orthogonal one.
    fn muon(&mut self, gradient: Wire, m: u32) {
        let gradient = self.dense(gradient);
        let old = self.read(m);
        let share = self.flow.scaled("Mul", old);
        let by = self.flow.binary("AddV2", gradient, share);
        self.add(m, by);
        let new = self.read(m);
        let share = self.flow.scaled("Mul", new);
        let ahead = self.flow.binary("AddV2", gradient, share);
        let matrix = self.newton_schulz(ahead);
        let scaled = self.flow.scaled("Mul", matrix);
        let adjusted = self.flow.scaled("Mul", scaled);
        self.subtract(self.variable, adjusted);
    }

    /// Five times `x = a x + (b A + c A A) x` with `A = x xᵀ`, whose side is the shorter one (muon.py, `zeropower_via_newtonschulz5`).
    fn newton_schulz(&mut self, x: Wire) -> Wire {
        let [rows, columns] = self.flow.shape(x)[..] else { return x };
        let (short, long) = (rows.min(columns), rows.max(columns));
        let turn = |one: &mut Self, x: Wire, shape: [u64; 2]| match rows > columns {
            true => one.flow.moved("Transpose", x, &shape),
            false => x,
        };
        let x = turn(self, x, [short, long]);
        let square = self.flow.scaled("Square", x);
        let norm = self.flow.reduce("Sum", square, &[]);
        let mut value = self.flow.scaled("RealDiv", x);
        self.flow.wait(value, norm);
        for _ in 0..ITERATIONS {
            let turned = self.flow.turned(value, &[long, short]);
            let square = self.flow.matmul("MatMul", value, turned, &[short, short]);
            let once = self.flow.scaled("Mul", square);
            let scaled = self.flow.scaled("Mul", square);
            let twice = self.flow.matmul("MatMul", scaled, square, &[short, short]);
            let polynomial = self.flow.binary("AddV2", once, twice);
            let kept = self.flow.scaled("Mul", value);
            let more = self.flow.matmul("MatMul", polynomial, value, &[short, long]);
            value = self.flow.binary("AddV2", kept, more);
        }
        turn(self, value, [rows, columns])
    }

    /// `variable = (1 - β) m + β x` with `m -= α gradient / (√v + ε)` and an average `x`, which is found again from the variable.
    fn schedule_free(&mut self, gradient: Wire, m: u32, v: u32) {
        let square = self.flow.scaled("Square", gradient);
        self.decay_towards(v, square);
        let v = self.read(v);
        let scaled = self.flow.scaled("RealDiv", v);
        let root = self.flow.scaled("Sqrt", scaled);
        let shifted = self.flow.shifted("AddV2", root);
        let scaled = self.flow.scaled("Mul", gradient);
        let by = self.quotient(scaled, shifted);
        self.subtract(m, by);
        let (new, old) = (self.read(m), self.read(self.variable));
        let share = self.flow.scaled("Mul", new);
        let difference = self.flow.binary("Sub", old, share);
        let mut value = self.flow.scaled("RealDiv", difference);
        for _ in 0..2 {
            let kept = self.flow.scaled("Mul", value);
            let new = self.read(m);
            let share = self.flow.scaled("Mul", new);
            value = self.flow.binary("AddV2", kept, share);
        }
        self.assign(self.variable, value);
    }

    fn adamax(&mut self, gradient: Wire, m: u32, u: u32) {
        self.decay_towards(m, gradient);
        let old = self.read(u);
        let kept = self.flow.scaled("Mul", old);
        let absolute = self.flow.scaled("Abs", gradient);
        let absolute = self.dense(absolute);
        let new = self.flow.binary("Maximum", kept, absolute);
        self.assign(u, new);
        let (m, u) = (self.read(m), self.read(u));
        let product = self.flow.scaled("Mul", m);
        let shifted = self.flow.shifted("AddV2", u);
        let scaled = self.flow.scaled("Mul", shifted);
        let quotient = self.flow.binary("RealDiv", product, scaled);
        self.subtract(self.variable, quotient);
    }

    fn adagrad(&mut self, gradient: Wire, sum: u32) {
        let square = self.flow.scaled("Square", gradient);
        self.add(sum, square);
        let scaled = self.flow.scaled("Mul", gradient);
        let sum = self.read(sum);
        let shifted = self.flow.shifted("AddV2", sum);
        let root = self.flow.scaled("Sqrt", shifted);
        let quotient = self.quotient(scaled, root);
        self.subtract(self.variable, quotient);
    }

    fn adadelta(&mut self, gradient: Wire, sum: u32, delta: u32) {
        let square = self.flow.scaled("Square", gradient);
        self.mix_into(sum, square);
        let rms = |one: &mut Self, slot: u32| {
            let value = one.read(slot);
            let shifted = one.flow.shifted("AddV2", value);
            one.flow.scaled("Sqrt", shifted)
        };
        let (top, bottom) = (rms(self, delta), rms(self, sum));
        let (shape, dtype) = (self.flow.shape(gradient).to_vec(), self.flow.dtype(top));
        let top = if self.flow.shape(top) == shape {
            top
        } else {
            self.flow.make("GatherV2", &[top], &shape, dtype, None)
        };
        let product = self.flow.binary("Mul", top, gradient);
        let quotient = self.quotient(product, bottom);
        let by = self.flow.scaled("Neg", quotient);
        let square = self.flow.scaled("Square", by);
        self.mix_into(delta, square);
        let scaled = self.flow.scaled("Mul", by);
        self.add(self.variable, scaled);
    }

    /// `variable = (clip(linear) - linear) / (accumulator^½ / α + 2 λ)`; both slots are read before and after they change.
    fn ftrl(&mut self, gradient: Wire, accumulator: u32, linear: u32) {
        let dense = self.dense(gradient);
        let value = self.read(self.variable);
        let shrunk = self.flow.scaled("Mul", value);
        let used = self.flow.binary("AddV2", dense, shrunk);
        let old = self.read(accumulator);
        let square = self.flow.scaled("Square", gradient);
        let square = self.dense(square);
        let new = self.flow.binary("AddV2", old, square);
        let after = self.flow.scaled("Pow", new);
        let old = self.read(accumulator);
        let before = self.flow.scaled("Pow", old);
        let difference = self.flow.binary("Sub", after, before);
        let scaled = self.flow.scaled("RealDiv", difference);
        let value = self.read(self.variable);
        let product = self.flow.binary("Mul", scaled, value);
        let by = self.flow.binary("Sub", used, product);
        self.add(linear, by);
        let scaled = self.flow.scaled("RealDiv", after);
        let quadratic = self.flow.shifted("AddV2", scaled);
        let value = self.read(linear);
        let clipped = self.flow.clipped(value);
        let value = self.read(linear);
        let difference = self.flow.binary("Sub", clipped, value);
        let new_value = self.flow.binary("RealDiv", difference, quadratic);
        self.assign(self.variable, new_value);
        self.assign(accumulator, new);
    }

    fn lion(&mut self, gradient: Wire, m: u32) {
        let old = self.read(m);
        let kept = self.flow.scaled("Mul", old);
        let share = self.flow.scaled("Mul", gradient);
        let share = self.dense(share);
        let sum = self.flow.binary("AddV2", kept, share);
        let sign = self.flow.scaled("Sign", sum);
        let scaled = self.flow.scaled("Mul", sign);
        self.subtract(self.variable, scaled);
        self.mix_into(m, gradient);
    }

    fn rmsprop(&mut self, gradient: Wire, velocity: u32, momentum: Option<u32>, average: Option<u32>) {
        let square = self.flow.scaled("Square", gradient);
        self.mix_into(velocity, square);
        let mut denominator = self.read(velocity);
        if let Some(average) = average {
            self.mix_into(average, gradient);
            let average = self.read(average);
            let square = self.flow.scaled("Square", average);
            denominator = self.flow.binary("Sub", denominator, square);
        }
        let shifted = self.flow.shifted("AddV2", denominator);
        let scaled = self.flow.scaled("Mul", gradient);
        let root = self.flow.scaled("Sqrt", shifted);
        let increment = self.quotient(scaled, root);
        match momentum {
            Some(slot) => {
                let increment = self.dense(increment);
                let old = self.read(slot);
                let kept = self.flow.scaled("Mul", old);
                let new = self.flow.binary("AddV2", kept, increment);
                self.assign(slot, new);
                let by = self.read(slot);
                self.subtract(self.variable, by);
            }
            None => self.subtract(self.variable, increment),
        }
    }

    fn adafactor(&mut self, gradient: Wire, slots: &[u32]) {
        let value = self.read(self.variable);
        let size = self.mean_square(value);
        let square = self.flow.scaled("Square", gradient);
        let square = self.dense(square);
        let regulated = self.flow.shifted("AddV2", square);
        let v = match slots {
            [rows, columns, v] => {
                for slot in [rows, columns] {
                    let shape = self.flow.variables[*slot as usize].shape.clone();
                    let mean = self.flow.reduce("Mean", regulated, &shape);
                    self.mix_into(*slot, mean);
                }
                let (rows, columns) = (self.read(*rows), self.read(*columns));
                let mut tall = self.flow.shape(rows).to_vec();
                tall.push(1);
                let mut wide = self.flow.shape(columns).to_vec();
                wide.insert(wide.len().saturating_sub(1), 1);
                let (rows, columns) =
                    (self.flow.view("ExpandDims", rows, &tall), self.flow.view("ExpandDims", columns, &wide));
                let product = self.flow.binary("Mul", rows, columns);
                self.assign(*v, product);
                *v
            }
            [v, ..] => {
                self.mix_into(*v, regulated);
                *v
            }
            [] => return,
        };
        let value = self.read(v);
        let root = self.flow.scaled("Sqrt", value);
        let update = self.quotient(gradient, root);
        let rms = self.mean_square(update);
        let clipped = self.flow.scaled("RealDiv", update);
        self.flow.wait(clipped, rms);
        let scaled = self.flow.scaled("Mul", clipped);
        self.flow.wait(scaled, size);
        self.subtract(self.variable, scaled);
    }

    fn mean_square(&mut self, x: Wire) -> Wire {
        let square = self.flow.scaled("Square", x);
        self.flow.reduce("Mean", square, &[])
    }
}
