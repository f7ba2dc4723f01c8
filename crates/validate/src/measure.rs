//! Runs steps and asks the device between functions.

use crate::driver::Sampler;
use crate::measurement::{Measurement, Usage};
use crate::probe::observe;
use crate::record::{Ended, Seen};
use crate::silence::{Elsewhere, Silence, said};
use crate::step::{Moment, Stopped, Trainer, download};
use burn_backend::tensor::Device;
use burn_backend::{Backend, FloatDType};
use memfit_engine::Phase;
use memfit_engine::frameworks::burn::{Program, phase_index};
use memfit_graph::Bytes;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

/// Reads a device's memory.
pub trait Meter: 'static {
    /// What is held now; on a device that keeps count itself, the most since it was last asked.
    fn usage(&mut self) -> Usage;

    /// What went wrong in a function that was only queued, where the device says so when it is asked for its memory.
    fn failure(&mut self) -> Option<String> {
        None
    }

    /// What the driver shows of the whole device, where it says that.
    fn device(&mut self) -> Option<Bytes> {
        None
    }
}

struct Gauge<M> {
    meter: M,
    elsewhere: Elsewhere,
    base: Usage,
    phases: [Bytes; 3],
    layers: Vec<Bytes>,
    layer: u32,
    phase: Phase,
    limit: Option<Bytes>,
}

impl<M: Meter> Gauge<M> {
    fn now(&mut self) -> Usage {
        let usage = self.meter.usage();
        Usage { in_use: usage.in_use.saturating_sub(self.base.in_use), ..usage }
    }

    /// Keeps what the driver shows now.
    fn show(&mut self, m: &mut Measurement, moment: &str) {
        if let Some(bytes) = self.meter.device() {
            let reserved_bytes = Some(self.meter.usage().reserved.0);
            m.driver_view.push(Seen { moment: moment.into(), device_bytes: bytes.0, reserved_bytes });
        }
    }

    fn at(&mut self, moment: Moment) -> Bytes {
        let usage = self.now();
        (self.phase, self.layer) = (moment.phase, moment.layer);
        if let Some(slot) = phase_index(moment.phase).and_then(|at| self.phases.get_mut(at)) {
            *slot = (*slot).max(usage.in_use);
        }
        if let Some(slot) = self.layers.get_mut(moment.layer as usize) {
            *slot = (*slot).max(usage.in_use);
        }
        usage.in_use
    }

    /// What went wrong outside of this thread.
    fn failure(&mut self) -> Option<String> {
        let told = self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner).take();
        told.or_else(|| self.meter.failure())
    }

    /// What failed by now; more than is allowed, as a backend would say it.
    fn check(gauge: &Rc<RefCell<Gauge<M>>>, moment: Moment) {
        let mut g = gauge.borrow_mut();
        let in_use = g.at(moment);
        if let Some(failure) = g.failure() {
            drop(g);
            std::panic::panic_any(failure);
        }
        let Some(limit) = g.limit.filter(|limit| in_use > *limit) else { return };
        drop(g);
        std::panic::panic_any(format!(
            "out of memory: {in_use} of tensors, more than the {limit} that were allowed"
        ));
    }
}

/// Is told a parameter's name and its gradient's elements.
pub type Show<'a> = &'a dyn Fn(&str, &[f32]);

/// What is to be run.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    /// The step.
    pub program: &'a Program,
    /// How often.
    pub steps: u32,
    /// Set to end after the step that runs.
    pub interrupted: &'a AtomicBool,
    /// The most that tensors may take; more is as if the device had no more.
    pub limit: Option<Bytes>,
    /// Is shown each parameter's name and gradient, which then are read from the device.
    pub gradients: Option<Show<'a>>,
}

/// Measures steps on a device. `progress` is told after each one: how many, and the highest so far.
pub fn measure<B: Backend>(
    run: Run<'_>,
    device: Device<B>,
    meter: impl Meter,
    progress: &mut dyn FnMut(u32, Bytes),
) -> Measurement {
    let program = run.program;
    let elsewhere = Elsewhere::default();
    let _silence = Silence::new(Arc::clone(&elsewhere));
    let mut gauge = Gauge {
        meter,
        elsewhere,
        base: Usage::default(),
        phases: [Bytes::ZERO; 3],
        layers: vec![Bytes::ZERO; program.layers.len()],
        layer: 0,
        phase: Phase::Setup,
        limit: run.limit,
    };
    let mut m = Measurement::default();
    let sampler = gauge.meter.device().map(|before| Sampler::start(std::process::id(), before));
    gauge.show(&mut m, "start");
    if sampler.is_some() {
        let one = B::float_zeros([1].into(), &device, FloatDType::F32);
        let _ = B::float_add_scalar(one, 1.0.into());
        let _ = B::sync(&device);
        gauge.show(&mut m, "first kernel");
    }
    // Twice: the first answer may be the highest of what was there before.
    gauge.meter.usage();
    gauge.base = gauge.meter.usage();
    let gauge = Rc::new(RefCell::new(gauge));
    steps::<B, _>(run, &device, &gauge, &mut m, progress);
    if let Some(highest) = sampler.and_then(Sampler::end) {
        let reserved_bytes = Some(m.reserved.0);
        m.driver_view.push(Seen { moment: "highest".into(), device_bytes: highest.0, reserved_bytes });
    }
    m
}

fn steps<B: Backend, M: Meter>(
    run: Run<'_>,
    device: &Device<B>,
    gauge: &Rc<RefCell<Gauge<M>>>,
    m: &mut Measurement,
    progress: &mut dyn FnMut(u32, Bytes),
) {
    let program = run.program;
    let made = guarded(gauge, program, || Trainer::<B>::new(program, device.clone(), &BTreeMap::new()));
    let mut trainer = match made {
        Ok(Ok(trainer)) => trainer,
        Ok(Err(message)) => {
            m.ended = Some(ended(program, gauge, "", message));
            return;
        }
        Err(ended) => {
            m.ended = Some(ended);
            return;
        }
    };
    if let Err(error) = B::sync(device) {
        m.ended = Some(ended(program, gauge, "", error.to_string()));
        return;
    }
    // Twice: the first answer may be the highest of what made the tensors.
    gauge.borrow_mut().now();
    m.before = gauge.borrow_mut().now();
    let failure = gauge.borrow_mut().failure();
    if let Some(message) = failure {
        m.ended = Some(ended(program, gauge, "", message));
        return;
    }
    gauge.borrow_mut().show(m, "model");
    let calls: Vec<u32> = program.instrs.iter().map(|i| i.layer).collect();
    for step in 0..run.steps {
        if run.interrupted.load(Ordering::Relaxed) {
            let message = "ended by the user".to_owned();
            m.ended = Some(Ended { kind: "interrupted".into(), ..ended(program, gauge, "", message) });
            break;
        }
        {
            let mut g = gauge.borrow_mut();
            g.phases = [Bytes::ZERO; 3];
            g.layers.iter_mut().for_each(|b| *b = Bytes::ZERO);
            g.now();
        }
        let (seen, calls) = (gauge.clone(), calls.clone());
        observe(Some(Box::new(move |call| {
            let layer = calls.get(call as usize).copied().unwrap_or(0);
            Gauge::check(&seen, Moment { phase: Phase::Backward, layer });
        })));
        let watch = gauge.clone();
        let result = guarded(gauge, program, || {
            trainer.step(&mut |moment| Gauge::check(&watch, moment), &mut |parameter, gradient| {
                let Some(show) = run.gradients else { return };
                let source = program.sources.iter().find(|source| source.slot == parameter);
                if let Some((source, elements)) = source.zip(download::<B>(gradient.clone())) {
                    show(&source.name, &elements);
                }
            })
        });
        observe(None);
        let result = result.and_then(|r| r.map_err(|s: Stopped| ended(program, gauge, &s.call, s.message)));
        let result = result.and_then(|loss| match B::sync(device) {
            Ok(()) => Ok(loss),
            Err(error) => Err(ended(program, gauge, "", error.to_string())),
        });
        let result = result.and_then(|loss| {
            let failure = gauge.borrow_mut().failure();
            failure.map_or(Ok(loss), |message| Err(ended(program, gauge, "", message)))
        });
        match result {
            Ok(loss) => m.losses.extend(loss),
            Err(ended) => {
                m.ended = Some(ended);
                break;
            }
        }
        let mut g = gauge.borrow_mut();
        // Twice: the first answer may be the highest of what ended.
        g.now();
        let after = g.now();
        m.after_steps.push(after.in_use);
        m.reserved = after.reserved;
        m.phases = g.phases;
        let layers = program.layers.iter().zip(&g.layers);
        m.layers = layers.map(|(name, bytes)| (name.to_string(), *bytes)).collect();
        if step == 0 {
            g.show(m, "first step");
        }
        drop(g);
        m.steps = step + 1;
        progress(m.steps, m.peak());
    }
}

/// What a panic says is an ending, not a crash.
fn guarded<T, M: Meter>(
    gauge: &Rc<RefCell<Gauge<M>>>,
    program: &Program,
    run: impl FnOnce() -> T,
) -> Result<T, Ended> {
    let result = catch_unwind(AssertUnwindSafe(run));
    result.map_err(|payload| ended(program, gauge, "", said(&*payload)))
}

fn ended<M: Meter>(program: &Program, gauge: &Rc<RefCell<Gauge<M>>>, call: &str, message: String) -> Ended {
    let (phase, layer) = gauge.try_borrow().map_or((Phase::Setup, 0), |g| (g.phase, g.layer));
    let layer = program.layers.get(layer as usize).map_or(String::new(), |l| l.to_string());
    let function = if call.is_empty() { format!("{phase:?}").to_lowercase() } else { call.to_owned() };
    let kind = if is_out_of_memory(&message) { "out-of-memory" } else { "failed" };
    Ended { kind: kind.into(), layer, function, message }
}

/// How wgpu, cubecl and CUDA say it.
fn is_out_of_memory(message: &str) -> bool {
    let text = message.to_lowercase();
    ["out of memory", "outofmemory", "out_of_memory", "buffertoobig", "can't allocate buffer", "alloc size"]
        .iter()
        .any(|s| text.contains(s))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocators_are_understood() {
        assert!(is_out_of_memory("called unwrap on Err: DriverError(CUDA_ERROR_OUT_OF_MEMORY)"));
        assert!(is_out_of_memory("BufferTooBig(8589934592)"));
        assert!(is_out_of_memory("can't allocate buffer of size: 104857600"));
        assert!(!is_out_of_memory("shapes do not match"));
    }
}
