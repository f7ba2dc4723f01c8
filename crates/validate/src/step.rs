//! Training steps of a program on a backend.
//!
//! Parameters, buffers, inputs and optimizer state are held as plain tensors of the inner backend; a step lifts them into
//! autodiff, runs forward and loss, goes backward and updates one parameter after the other, as Burn's optimizers do.

use crate::ops::{Value, call, float};
use crate::probe::probe;
use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::strategy::{BalancedCheckpointing, CheckpointStrategy, NoCheckpointing};
use burn_backend::tensor::{Device, FloatTensor};
use burn_backend::{AutodiffBackend, Backend, DType, TensorData, TensorMetadata, get_device_settings};
use memfit_engine::Phase;
use memfit_engine::frameworks::burn::{Fill, Instr, Kind, Program, Slot, SourceKind};
use std::collections::BTreeMap;

/// A tensor of more elements is not filled: they are made on the host first.
const MOST: usize = 1 << 31;

/// Where a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The phase.
    pub phase: Phase,
    /// The layer, an index into [`Program::layers`].
    pub layer: u32,
}

/// Is told after each call.
pub type Watch<'a> = &'a mut dyn FnMut(Moment);

/// Why a step ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// Where.
    pub moment: Moment,
    /// The function, or the backward pass.
    pub call: String,
    /// What Burn said.
    pub message: String,
}

/// A model on a device.
pub struct Trainer<'p, B: Backend> {
    program: &'p Program,
    device: Device<B>,
    held: BTreeMap<Slot, Value<B>>,
    moved: Vec<Vec<bool>>,
}

/// Numbers from a counter: the same on every backend and in every run.
fn random(state: &mut u64) -> f64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    ((*state >> 33) as f64) / ((1_u64 << 31) as f64)
}

impl<'p, B: Backend> Trainer<'p, B> {
    /// Makes every tensor that exists before the step. `given` says other elements for some, by name.
    ///
    /// # Errors
    /// Where given elements are not as many as the tensor has.
    pub fn new(
        program: &'p Program,
        device: Device<B>,
        given: &BTreeMap<String, Vec<f64>>,
    ) -> Result<Trainer<'p, B>, String> {
        let mut held = BTreeMap::new();
        let mut state = 0x2545_f491_4f6c_dd1d;
        for source in &program.sources {
            let ty = program.ty(source.slot);
            let count = ty.elements();
            if count > MOST {
                return Err(format!(
                    "{}: {count} elements, more than the {MOST} that are made on the host",
                    source.name
                ));
            }
            let values = match (given.get(&*source.name), &source.fill) {
                (Some(values), _) if values.len() == count => values.clone(),
                (Some(values), _) => {
                    return Err(format!("{}: {count} elements, {} given", source.name, values.len()));
                }
                (None, Fill::Values(values)) => values.to_vec(),
                (None, Fill::Uniform(low, high)) => {
                    let mut next = || {
                        let x = low + (high - low) * random(&mut state);
                        if ty.kind.is_float() { x } else { x.floor() }
                    };
                    (0..count).map(|_| next()).collect()
                }
            };
            held.insert(source.slot, upload::<B>(ty.kind, &ty.shape, &values, &device)?);
        }
        let kept: Vec<Slot> = program.sources.iter().map(|s| s.slot).collect();
        let kept: Vec<Slot> = kept
            .into_iter()
            .chain(program.loss.is_none().then(|| program.outputs.clone()).into_iter().flatten())
            .chain(program.loss)
            .chain(program.replaced.iter().map(|(_, new)| *new))
            .collect();
        let moved = Program::last_uses(&program.instrs, &kept);
        Ok(Trainer { program, device, held, moved })
    }

    /// What is held for a source now.
    pub fn held(&self, slot: Slot) -> Option<&Value<B>> {
        self.held.get(&slot)
    }

    /// Forward alone, without autodiff; gives the outputs.
    ///
    /// # Errors
    /// Where a function failed.
    pub fn infer(&self, watch: Watch<'_>) -> Result<Vec<Value<B>>, Stopped> {
        let mut values = self.held.clone();
        run(
            self.program,
            &self.program.instrs,
            &self.moved,
            &mut values,
            &self.device,
            Phase::Forward,
            &mut |_, moment, value| {
                watch(moment);
                value
            },
        )?;
        Ok(self.program.outputs.iter().filter_map(|slot| values.get(slot).cloned()).collect())
    }

    /// One training step; `gradients` is shown each parameter's gradient before the update. Gives the last batch's loss.
    ///
    /// # Errors
    /// Where a function failed.
    pub fn step(
        &mut self,
        watch: Watch<'_>,
        gradients: &mut dyn FnMut(Slot, &B::FloatTensorPrimitive),
    ) -> Result<Option<f64>, Stopped> {
        let program = self.program;
        let mut sums = BTreeMap::new();
        let mut loss = None;
        for batch in 0..program.batches() {
            let ran = match program.balanced {
                true => self.batch::<BalancedCheckpointing>(watch)?,
                false => self.batch::<NoCheckpointing>(watch)?,
            };
            let Some((value, found)) = ran else { return Ok(None) };
            loss = value;
            if batch == 0 {
                sums = found;
                continue;
            }
            // burn-optim's `GradientsAccumulator`: the sum so far takes the new ones, a parameter after the other.
            for (slot, new) in found {
                let sum = match sums.remove(&slot) {
                    Some(sum) => B::float_add(sum, new),
                    None => new,
                };
                sums.insert(slot, sum);
                watch(Moment { phase: Phase::Backward, layer: 0 });
            }
        }
        for update in &program.updates {
            let Some(gradient) = sums.remove(&update.parameter) else { continue };
            gradients(update.parameter, &gradient);
            let mut own: BTreeMap<Slot, Value<B>> = BTreeMap::new();
            own.insert(update.gradient, Value::Float(gradient));
            for (old, _) in &update.replaced {
                if let Some(value) = self.held.remove(old) {
                    own.insert(*old, value);
                }
            }
            let kept: Vec<Slot> = update.replaced.iter().map(|(_, new)| *new).collect();
            let moved = Program::last_uses(&update.instrs, &kept);
            let phase = Phase::OptimizerStep;
            run(program, &update.instrs, &moved, &mut own, &self.device, phase, &mut |_, moment, value| {
                watch(moment);
                value
            })?;
            for (old, new) in &update.replaced {
                if let Some(value) = own.remove(new) {
                    self.held.insert(*old, value);
                }
            }
        }
        Ok(loss)
    }

    /// Forward and backward of one batch: the loss, and each parameter's gradient.
    fn batch<C: CheckpointStrategy>(&mut self, watch: Watch<'_>) -> Result<Option<Batch<B>>, Stopped> {
        let mut values: BTreeMap<Slot, Value<Autodiff<B, C>>> = BTreeMap::new();
        for source in self.program.sources.iter().filter(|s| !matches!(s.kind, SourceKind::State(_))) {
            let Some(value) = self.held.get(&source.slot) else { continue };
            let lifted = match value.clone() {
                Value::Float(t) => {
                    let t = <Autodiff<B, C>>::from_inner(t);
                    let trains = source.kind == SourceKind::Parameter;
                    Value::Float(if trains { t.require_grad() } else { t })
                }
                Value::Int(t) => Value::Int(t),
                Value::Bool(t) => Value::Bool(t),
            };
            values.insert(source.slot, lifted);
        }
        let (program, device) = (self.program, &self.device);
        run(
            program,
            &program.instrs,
            &self.moved,
            &mut values,
            device,
            Phase::Forward,
            &mut |i, moment, value| {
                watch(moment);
                match value {
                    Value::Float(t) => Value::Float(probe::<B, C>(t, i)),
                    other => other,
                }
            },
        )?;
        for (old, new) in &program.replaced {
            if let Some(Value::Float(t)) = values.remove(new) {
                values.remove(old);
                self.held.insert(*old, Value::Float(<Autodiff<B, C>>::inner(t)));
            }
        }
        let Some(Value::Float(loss)) = program.loss.and_then(|slot| values.remove(&slot)) else {
            return Ok(None);
        };
        let value = scalar::<B>(loss.primitive.clone());
        let mut grads = <Autodiff<B, C>>::backward(loss);
        watch(Moment { phase: Phase::Backward, layer: 0 });
        let mut found = BTreeMap::new();
        for update in &program.updates {
            let Some(Value::Float(parameter)) = values.get(&update.parameter) else { continue };
            if let Some(gradient) = <Autodiff<B, C>>::grad_remove(parameter, &mut grads) {
                found.insert(update.parameter, gradient);
            }
        }
        Ok(Some((value, found)))
    }
}

/// A batch's loss, and the gradients by parameter.
type Batch<B> = (Option<f64>, BTreeMap<Slot, FloatTensor<B>>);

type Seen<'a, B> = &'a mut dyn FnMut(u32, Moment, Value<B>) -> Value<B>;

/// Runs calls one after the other. What a panic or an error says is given with the call that it happened in.
fn run<B: Backend>(
    program: &Program,
    instrs: &[Instr],
    moved: &[Vec<bool>],
    values: &mut BTreeMap<Slot, Value<B>>,
    device: &Device<B>,
    phase: Phase,
    seen: Seen<'_, B>,
) -> Result<(), Stopped> {
    for (i, (instr, moved)) in (0_u32..).zip(instrs.iter().zip(moved)) {
        let moment = Moment { phase, layer: instr.layer };
        let stopped = |message| Stopped { moment, call: format!("{:?}", instr.prim), message };
        let take = |(slot, moved): (&Slot, &bool)| {
            let value = if *moved { values.remove(slot) } else { values.get(slot).cloned() };
            value.ok_or_else(|| stopped(format!("tensor {} is gone", slot.0)))
        };
        let inputs = instr.inputs.iter().zip(moved).map(take).collect::<Result<Vec<_>, _>>()?;
        let output = call::<B>(program, instr, inputs, device).map_err(stopped)?;
        let ty = program.ty(instr.output);
        debug_assert_eq!(output.shape().to_vec(), ty.shape, "{instr:?}");
        debug_assert!(output.is_of(ty.kind), "{instr:?}");
        let output = seen(i, moment, output);
        values.insert(instr.output, output);
    }
    Ok(())
}

/// A tensor with these elements.
pub(crate) fn upload<B: Backend>(
    kind: Kind,
    shape: &[usize],
    values: &[f64],
    device: &Device<B>,
) -> Result<Value<B>, String> {
    let settings = get_device_settings::<B>(device);
    Ok(match kind {
        Kind::Float(_) => {
            let values: Vec<f32> = values.iter().map(|x| *x as f32).collect();
            let data = TensorData::new(values, shape.to_vec()).convert_dtype(float(kind)?.into());
            Value::Float(B::float_from_data(data, device))
        }
        Kind::Int => {
            let values: Vec<i64> = values.iter().map(|x| *x as i64).collect();
            let data = TensorData::new(values, shape.to_vec()).convert_dtype(settings.int_dtype.into());
            Value::Int(B::int_from_data(data, device))
        }
        Kind::Bool => {
            let values: Vec<bool> = values.iter().map(|x| *x != 0.0).collect();
            let data = TensorData::new(values, shape.to_vec());
            Value::Bool(B::bool_from_data(data.convert_dtype(DType::Bool(settings.bool_dtype)), device))
        }
    })
}

/// The elements of a tensor, in row-major order.
pub fn download<B: Backend>(tensor: B::FloatTensorPrimitive) -> Option<Vec<f32>> {
    let data = burn_backend::read_sync(B::float_into_data(tensor)).ok()?;
    data.convert::<f32>().to_vec().ok()
}

fn scalar<B: Backend>(tensor: B::FloatTensorPrimitive) -> Option<f64> {
    debug_assert_eq!(tensor.shape().num_elements(), 1);
    download::<B>(tensor)?.first().map(|x| f64::from(*x))
}
