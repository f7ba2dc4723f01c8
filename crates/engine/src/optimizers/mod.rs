//! One file per optimizer: the state it keeps for a parameter, and the temporaries of its step.
//!
//! A step is written as the Python code runs it: which variables hold which tensors, when they are rebound and when
//! the function returns ([`Recorder`]). The foreach implementations make lists as long as the model; the loop
//! implementations one tensor after the other, with the last one still bound while the next is made; fused
//! implementations make none. Every rule here is compared, event by event, with what PyTorch does on fake CUDA
//! tensors (`models/reference/optimizers.py`).
//!
//! Adding an optimizer is its file, a `mod` line and one line in [`ALL`]; a test keeps the three in step.

use crate::OptimizerImpl;
use memfit_graph::{Bytes, DType, Dims, elements};
use smallvec::{SmallVec, smallvec};
use std::borrow::Cow;

mod adadelta;
mod adafactor;
mod adagrad;
mod adam;
mod adam8bit;
mod adamax;
mod asgd;
mod ftrl;
mod keras;
mod lamb;
mod lars;
mod lion;
mod muon;
mod nadam;
mod radam;
mod recorder;
mod rmsprop;
mod rprop;
mod schedule_free_adamw;
mod sgd;
mod trust;

pub(crate) use keras::{keras_slots, keras_step};
pub use recorder::Recorder;

/// Every optimizer, family by family, in alphabetical order of the files.
pub static ALL: &[&[&dyn Optimizer]] = &[
    adadelta::ALL,
    adafactor::ALL,
    adagrad::ALL,
    adam::ALL,
    adam8bit::ALL,
    adamax::ALL,
    asgd::ALL,
    ftrl::ALL,
    lamb::ALL,
    lars::ALL,
    lion::ALL,
    muon::ALL,
    nadam::ALL,
    radam::ALL,
    rmsprop::ALL,
    rprop::ALL,
    schedule_free_adamw::ALL,
    sgd::ALL,
];

/// One trained parameter; they are given in model order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its dims; none for a scalar.
    pub shape: Dims,
    /// Its dtype, which is its gradient's too.
    pub dtype: DType,
    /// Whether rows of it are looked up: an embedding's table.
    pub is_table: bool,
}

impl Parameter {
    /// Elements, saturating.
    pub fn elements(&self) -> u64 {
        elements(&self.shape)
    }

    /// Bytes as requested, before any allocator's rounding.
    pub fn bytes(&self) -> Bytes {
        self.dtype.size_of(self.elements())
    }
}

/// A tensor that the optimizer keeps from step to step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateTensor {
    /// The key under which the framework stores it.
    pub label: &'static str,
    /// Its dims.
    pub shape: Dims,
    /// Its dtype.
    pub dtype: DType,
    /// Whether it is on the device: step counters of the foreach and loop implementations are on the CPU.
    pub on_device: bool,
}

/// What is kept for one parameter: three tensors at most, as a rule.
pub type State = SmallVec<[StateTensor; 3]>;

impl StateTensor {
    /// A tensor of the parameter's shape and dtype.
    pub fn like(label: &'static str, p: &Parameter) -> StateTensor {
        StateTensor { label, shape: Dims::from_slice(&p.shape), dtype: p.dtype, on_device: true }
    }

    /// A float32 scalar.
    pub fn scalar(label: &'static str, on_device: bool) -> StateTensor {
        StateTensor { label, shape: Dims::new(), dtype: DType::Float32, on_device }
    }

    /// Bytes on the device, before rounding.
    pub fn device_bytes(&self) -> Bytes {
        if self.on_device { self.dtype.size_of(elements(&self.shape)) } else { Bytes::ZERO }
    }
}

/// What happens to a temporary of the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepEvent {
    /// It is made.
    Allocate {
        /// Unique in the step.
        id: u32,
        /// As requested, before rounding.
        bytes: Bytes,
        /// The Python variable or call that holds it.
        label: &'static str,
        /// Index of the parameter it is for.
        parameter: u32,
    },
    /// It is given back.
    Free {
        /// That of its allocation.
        id: u32,
    },
}

/// How the step is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepConfig {
    /// Lists, one kernel, or one parameter after the other. Where the optimizer has no such implementation, its
    /// default is used; see [`Optimizer::implementation`].
    pub implementation: OptimizerImpl,
    /// Whether weight decay is not zero.
    pub weight_decay: bool,
    /// Whether half-precision parameters are updated through a float32 copy; see [`Optimizer::state`].
    pub master_weights: bool,
}

/// An optimizer's rules.
pub trait Optimizer: Sync {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// Other names for it.
    fn aliases(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whose code the rules follow.
    fn source(&self) -> &'static str;

    /// The implementations that its constructor accepts, the default first.
    fn implementations(&self) -> &'static [OptimizerImpl] {
        &[OptimizerImpl::Foreach, OptimizerImpl::Loop]
    }

    /// The state of one parameter as the optimizer itself sees it, without master weights.
    fn own_state(&self, p: &Parameter, how: &StepConfig) -> State;

    /// Tensors that are kept once for all parameters.
    fn shared_state(&self, _params: &[Parameter], _how: &StepConfig) -> Vec<StateTensor> {
        Vec::new()
    }

    /// Writes a step, state existing already, as the optimizer's code runs it on the parameters at `indices`.
    fn record(&self, step: &mut Recorder<'_>, indices: &[usize], how: &StepConfig);

    /// `asked` where the optimizer has it, its default otherwise.
    fn implementation(&self, asked: OptimizerImpl) -> OptimizerImpl {
        let have = self.implementations();
        if have.contains(&asked) { asked } else { have.first().copied().unwrap_or_default() }
    }

    /// The persistent state of one parameter.
    ///
    /// Master weights follow apex's `FP16_Optimizer` and Megatron's `Float16OptimizerWithFloat16Params`: a float32
    /// copy of each half-precision parameter is what the optimizer sees; its state is float32 too.
    fn state(&self, p: &Parameter, how: &StepConfig) -> State {
        let how = StepConfig { implementation: self.implementation(how.implementation), ..*how };
        if !has_master(p, &how) {
            return self.own_state(p, &how);
        }
        let seen = seen(p, &how);
        let mut state: State = smallvec![StateTensor::like("master", &seen)];
        state.extend(self.own_state(&seen, &how));
        state
    }

    /// The step's temporaries, in order, state existing already.
    ///
    /// With master weights, float32 copies of all half-precision gradients are made first and dropped at the end;
    /// copying the updated masters back makes nothing.
    fn step(&self, params: &[Parameter], how: &StepConfig) -> Vec<StepEvent> {
        let how = StepConfig { implementation: self.implementation(how.implementation), ..*how };
        let all: Cow<'_, [Parameter]> = if params.iter().any(|p| has_master(p, &how)) {
            params.iter().map(|p| seen(p, &how)).collect()
        } else {
            params.into()
        };
        let indices: Vec<usize> = (0..params.len()).collect();
        let mut step = Recorder::new(&all);
        let copies: Vec<u32> = indices
            .iter()
            .filter(|i| params[**i].dtype != all[**i].dtype)
            .map(|i| step.like("master_grad", *i))
            .collect();
        if !indices.is_empty() {
            self.record(&mut step, &indices, &how);
        }
        step.end_function();
        for copy in copies {
            step.drop_value(copy);
        }
        step.into_events()
    }
}

/// Whether the optimizer sees a copy of the parameter.
fn has_master(p: &Parameter, how: &StepConfig) -> bool {
    how.master_weights && p.dtype.is_half()
}

/// The parameter as the optimizer sees it.
fn seen(p: &Parameter, how: &StepConfig) -> Parameter {
    let dtype = if has_master(p, how) { DType::Float32 } else { p.dtype };
    Parameter { shape: p.shape.clone(), dtype, is_table: p.is_table }
}

/// Every optimizer.
pub fn all() -> impl Iterator<Item = &'static dyn Optimizer> {
    ALL.iter().copied().flatten().copied()
}

/// The names of all optimizers, without their aliases.
pub fn names() -> impl Iterator<Item = &'static str> {
    all().map(Optimizer::name)
}

/// The optimizer called `name`; case, `-`, `_`, `.` and spaces don't matter.
pub fn find(name: &str) -> Option<&'static dyn Optimizer> {
    fn plain(name: &str) -> String {
        name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
    }
    if let Some(exact) = all().find(|o| o.name() == name) {
        return Some(exact);
    }
    let wanted = plain(name);
    all().find(|o| std::iter::once(&o.name()).chain(o.aliases()).any(|known| plain(known) == wanted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn list_and_files_are_in_step() {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/src/optimizers");
        let helpers = ["keras", "mod", "recorder", "trust"];
        let files: BTreeSet<String> = std::fs::read_dir(dir)
            .unwrap()
            .filter_map(|f| Some(f.unwrap().file_name().to_str()?.strip_suffix(".rs")?.to_owned()))
            .filter(|f| !helpers.contains(&f.as_str()))
            .collect();
        let text = std::fs::read_to_string(format!("{dir}/mod.rs")).unwrap();
        let (list, _) = text.split_once("static ALL").unwrap().1.split_once("];").unwrap();
        let listed: Vec<String> = list
            .split("::ALL")
            .filter_map(|part| part.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next())
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect();
        assert_eq!(listed.iter().cloned().collect::<BTreeSet<_>>(), files);
        assert!(listed.is_sorted(), "keep the list in alphabetical order");
    }

    #[test]
    fn names_are_forgiving_and_lead_to_one_optimizer() {
        for name in ["adamw", "AdamW", "adam-w", "Adam_W"] {
            assert_eq!(find(name).unwrap().name(), "adamw");
        }
        assert_eq!(find("SGD momentum").unwrap().name(), "momentum");
        assert!(find("adamx").is_none() && find("").is_none());
        let mut seen = BTreeSet::new();
        for optimizer in all() {
            for name in std::iter::once(&optimizer.name()).chain(optimizer.aliases()) {
                assert!(seen.insert(name.replace(['-', '_'], "")), "{name} is there twice");
            }
        }
    }

    #[test]
    fn master_weights_add_a_float32_copy_and_gradients_for_the_step() {
        let half = Parameter { shape: [10, 10].as_slice().into(), dtype: DType::Bfloat16, is_table: false };
        let how = StepConfig { master_weights: true, ..StepConfig::default() };
        let adam = find("adam").unwrap();
        let bytes: Bytes = adam.state(&half, &how).iter().map(StateTensor::device_bytes).sum();
        assert_eq!(bytes, Bytes(3 * 400));
        let first = adam.step(std::slice::from_ref(&half), &how)[0];
        assert!(matches!(first, StepEvent::Allocate { bytes: Bytes(400), label: "master_grad", .. }));
        let full = Parameter { dtype: DType::Float32, ..half };
        assert_eq!(adam.state(&full, &how), adam.state(&full, &StepConfig::default()));
    }

    #[test]
    fn an_implementation_that_does_not_exist_becomes_the_default() {
        assert_eq!(find("rprop").unwrap().implementation(OptimizerImpl::Fused), OptimizerImpl::Foreach);
        assert_eq!(find("adafactor").unwrap().implementation(OptimizerImpl::Fused), OptimizerImpl::Loop);
        assert!(find("adam").unwrap().step(&[], &StepConfig::default()).is_empty());
    }
}
