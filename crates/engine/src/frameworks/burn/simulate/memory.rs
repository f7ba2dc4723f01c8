//! Device memory as Burn holds it: buffers with reference counts, freed with their last handle.
//!
//! A buffer is a Rust reference count here as it is in cubecl, so that what is written in the same order lives as long, and so that
//! "nobody else holds it" can be asked in the same way.

use super::super::program::Kind;
use crate::timeline::{Event, EventKind, Storage};
use crate::{Category, Phase, StorageId, Timeline};
use memfit_graph::Bytes;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// What a backend makes of kinds and offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Bytes of a truth value: 1 on CUDA, 4 on wgpu.
    pub bool_bytes: u64,
    /// Bytes of an integer.
    pub int_bytes: u64,
    /// What the offset of a view must be a multiple of, in bytes.
    pub alignment: u64,
    /// Whether rows begin at aligned addresses (`PitchedMemoryLayoutPolicy` of cubecl-runtime 0.10), rather than one after the other.
    pub pitched: bool,
}

impl Backend {
    /// `burn-cuda`: truth values are bytes, integers have 32 bits.
    pub const CUDA: Backend = Backend { bool_bytes: 1, int_bytes: 4, alignment: 512, pitched: true };
    /// `burn-wgpu` with WGSL kernels, whose smallest type has four bytes. The alignment is the adapter's; 256 is the most that WebGPU allows.
    pub const WGPU: Backend = Backend { bool_bytes: 4, int_bytes: 4, alignment: 256, pitched: false };
    /// burn-ndarray, which pools nothing.
    pub const PROCESSOR: Backend = Backend { bool_bytes: 1, int_bytes: 8, alignment: 1, pitched: false };
}

/// What happened so far.
#[derive(Default)]
pub(super) struct Recorder {
    pub(super) timeline: Timeline,
    labels: BTreeMap<Arc<str>, u32>,
    pub(super) phase: Phase,
    pub(super) layer: u32,
    /// Where functions of Burn ended.
    pub(super) boundaries: Vec<Boundary>,
}

/// Between two functions of Burn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Boundary {
    /// The index of the next event.
    pub(crate) event: u32,
    /// The phase.
    pub(crate) phase: Phase,
    /// The layer of the function that ended; in backward, of the one that begins.
    pub(crate) layer: u32,
}

pub(super) type Memory = Rc<RefCell<Recorder>>;

/// A buffer; its event of freeing is written when the last handle goes.
#[derive(Debug)]
pub(super) struct Buffer {
    pub(super) id: StorageId,
    memory: std::rc::Weak<RefCell<Recorder>>,
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // The recorder is gone when the step is over: what is alive then was never freed.
        if let Some(memory) = self.memory.upgrade()
            && let Ok(mut r) = memory.try_borrow_mut()
        {
            let (phase, layer) = (r.phase, r.layer);
            r.timeline.events.push(Event { kind: EventKind::Free, storage: self.id, phase, layer });
        }
    }
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} events", self.timeline.events.len())
    }
}

/// A tensor of the backend: a buffer seen through a shape.
#[derive(Clone, Debug)]
pub(super) struct Tensor {
    pub(super) buffer: Rc<Buffer>,
    pub(super) shape: Vec<usize>,
    pub(super) strides: Vec<usize>,
    pub(super) kind: Kind,
}

pub(super) fn contiguous(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1_usize; shape.len()];
    for i in (0..shape.len().saturating_sub(1)).rev() {
        strides[i] = strides[i + 1].saturating_mul(shape[i + 1]);
    }
    strides
}

impl Tensor {
    pub(super) fn elements(&self) -> usize {
        self.shape.iter().fold(1, |n: usize, d| n.saturating_mul(*d))
    }

    pub(super) fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Axes of one element don't count.
    pub(super) fn is_contiguous(&self) -> bool {
        let expected = contiguous(&self.shape);
        self.shape.iter().zip(self.strides.iter().zip(&expected)).all(|(n, (a, b))| *n == 1 || a == b)
    }

    /// Whether rows lie one after the other, each of them together, maybe with a gap behind it (`has_pitched_row_major_strides` of
    /// cubecl-zspace 0.10): what CUDA's kernels read as it is.
    pub(super) fn is_pitched(&self) -> bool {
        let rank = self.rank();
        let row = |i: usize| self.strides[i] == self.strides[i + 1].saturating_mul(self.shape[i + 1]);
        rank == 0
            || self.strides[rank - 1] == 1
                && !self.strides.contains(&0)
                && (rank == 1 || self.strides[rank - 2] >= self.shape[rank - 1])
                && (0..rank.saturating_sub(2)).all(row)
    }

    /// `CubeTensor::is_nonoverlapping`.
    pub(super) fn is_nonoverlapping(&self) -> bool {
        if self.strides.contains(&0) {
            return false;
        }
        let mut axes: Vec<(usize, usize)> =
            self.shape.iter().copied().zip(self.strides.iter().copied()).collect();
        axes.sort_by_key(|(_, stride)| *stride);
        let mut reach = 0_usize;
        self.rank() < 2
            || axes.into_iter().all(|(size, stride)| {
                let fits = stride > reach || size == 1;
                reach = reach.saturating_add(size.saturating_sub(1).saturating_mul(stride));
                fits
            })
    }

    /// Whether it may be written into: nobody else holds its buffer.
    pub(super) fn can_mut(&self) -> bool {
        Rc::strong_count(&self.buffer) == 1 && self.is_nonoverlapping()
    }

    /// `CubeTensor::can_mut_broadcast`.
    pub(super) fn can_hold(&self, other: &Tensor) -> bool {
        self.can_mut() && self.shape.iter().zip(&other.shape).all(|(a, b)| a >= b)
    }
}

/// A backend's memory.
#[derive(Clone, Debug)]
pub(super) struct Device {
    pub(super) memory: Memory,
    pub(super) backend: Backend,
}

impl Device {
    pub(super) fn bytes(&self, kind: Kind, elements: usize) -> Bytes {
        let each = match kind {
            Kind::Float(float) => float.bytes(),
            Kind::Int => self.backend.int_bytes,
            Kind::Bool => self.backend.bool_bytes,
        };
        Bytes((elements as u64).saturating_mul(each))
    }

    /// The distances of a new tensor.
    fn layout(&self, kind: Kind, shape: &[usize]) -> Vec<usize> {
        let mut strides = contiguous(shape);
        let &[.., _, width] = shape else { return strides };
        if self.backend.pitched && width > 1 {
            let each = usize::try_from(self.bytes(kind, 1).0).unwrap_or(1).max(1);
            let row = width.saturating_mul(each);
            // `optimal_align` of cubecl-runtime's memory management.
            let most = usize::try_from(self.backend.alignment).unwrap_or(usize::MAX).max(16);
            let alignment = row.checked_next_power_of_two().unwrap_or(usize::MAX).clamp(16, most);
            let rank = shape.len();
            strides[rank - 2] = row.checked_next_multiple_of(alignment).unwrap_or(usize::MAX) / each;
            for i in (0..rank - 2).rev() {
                strides[i] = strides[i + 1].saturating_mul(shape[i + 1]);
            }
        }
        strides
    }

    pub(super) fn allocate(&self, kind: Kind, shape: &[usize], category: Category, label: &str) -> Tensor {
        self.laid_out(kind, shape, self.layout(kind, shape), category, label)
    }

    fn laid_out(
        &self,
        kind: Kind,
        shape: &[usize],
        strides: Vec<usize>,
        category: Category,
        label: &str,
    ) -> Tensor {
        let elements = match (shape.first(), strides.first()) {
            (Some(rows), Some(distance)) => rows.saturating_mul(*distance),
            _ => 1,
        };
        let bytes = self.bytes(kind, elements);
        let mut r = self.memory.borrow_mut();
        let label = match r.labels.get(label) {
            Some(label) => *label,
            None => {
                let name: Arc<str> = label.into();
                let label = r.timeline.label(name.clone());
                r.labels.insert(name, label);
                label
            }
        };
        let (phase, layer) = (r.phase, r.layer);
        let id = r.timeline.add(Storage { bytes, category, layer, label });
        r.timeline.events.push(Event { kind: EventKind::Allocate, storage: id, phase, layer });
        let buffer = Rc::new(Buffer { id, memory: Rc::downgrade(&self.memory) });
        Tensor { buffer, shape: shape.to_vec(), strides, kind }
    }

    /// A new tensor of what the phase makes.
    pub(super) fn make(&self, kind: Kind, shape: &[usize], label: &str) -> Tensor {
        self.allocate(kind, shape, self.category(), label)
    }

    /// One without gaps on every backend.
    pub(super) fn make_contiguous(&self, kind: Kind, shape: &[usize], label: &str) -> Tensor {
        self.laid_out(kind, shape, contiguous(shape), self.category(), label)
    }

    fn category(&self) -> Category {
        match self.memory.borrow().phase {
            Phase::Setup | Phase::Forward => Category::Activation,
            Phase::Backward => Category::ActivationGradient,
            Phase::OptimizerStep => Category::Transient,
        }
    }

    /// A function of Burn ended here.
    pub(super) fn boundary(&self) {
        let mut r = self.memory.borrow_mut();
        let event = u32::try_from(r.timeline.events.len()).unwrap_or(u32::MAX);
        let (phase, layer) = (r.phase, r.layer);
        r.boundaries.push(Boundary { event, phase, layer });
    }

    pub(super) fn recategorize(&self, tensor: &Tensor, category: Category) {
        if let Some(s) = self.memory.borrow_mut().timeline.storages.get_mut(tensor.buffer.id.0 as usize) {
            s.category = category;
        }
    }

    pub(super) fn at(&self, phase: Phase, layer: u32) {
        let mut r = self.memory.borrow_mut();
        (r.phase, r.layer) = (phase, layer);
    }
}
