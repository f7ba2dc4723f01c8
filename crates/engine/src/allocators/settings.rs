//! Which allocator a framework has, as its user may set it: without a limit, and inside of one.
//!
//! Without a limit TensorFlow's allocator is asked how much of one region it touches, because what it reserves by default is the
//! whole card, whatever the step needs.

use super::{
    Allocator, BfcAllocator, BfcConfig, Chip, CubeclConfig, CubeclPools, CudaAsyncPool, PytorchAllocator,
    PytorchAllocatorConfig, Replay, ReplayOptions, TensorflowMemory, replay, replay_with,
};
use crate::{Framework, Timeline};
use memfit_graph::{Bytes, Problem};

/// Settings of the framework's allocator; the default is the framework's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllocatorSettings {
    /// PyTorch: what `PYTORCH_ALLOC_CONF` sets.
    pub pytorch: PytorchAllocatorConfig,
    /// PyTorch and TensorFlow: CUDA's own pool (`backend:cudaMallocAsync`, `TF_GPU_ALLOCATOR=cuda_malloc_async`).
    pub cuda_malloc_async: bool,
    /// TensorFlow: `set_memory_growth`, regions are taken as they are needed.
    pub memory_growth: bool,
    /// `per_process_gpu_memory_fraction`, `set_per_process_memory_fraction`, in thousandths of the card.
    pub memory_fraction: Option<u32>,
    /// TensorFlow: the limit of a logical device.
    pub memory_limit: Option<Bytes>,
}

/// How steps follow each other. Keras builds its optimizer before the first step (keras/src/trainers/trainer.py, `_symbolic_build`), so that
/// its slots stand before all that a step makes.
fn steps(framework: Framework) -> ReplayOptions {
    ReplayOptions { state_first: framework == Framework::Tensorflow, ..ReplayOptions::default() }
}

/// What of a card a process can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// What the driver shows to the process as the total.
    pub total: Bytes,
    /// What is free once the driver's context exists.
    pub after_driver: Bytes,
    /// What is free once the framework's libraries are loaded too.
    pub after_libraries: Bytes,
    /// What TensorFlow's reserve follows from.
    pub chip: Chip,
}

/// So many thousandths.
fn share(bytes: Bytes, thousandths: u32) -> Bytes {
    let part = u128::from(bytes.0) * u128::from(thousandths) / 1000;
    Bytes(u64::try_from(part).unwrap_or(u64::MAX))
}

impl AllocatorSettings {
    /// What no framework would take: a share of the card that is none or more than all, and blocks that PyTorch always splits.
    pub(crate) fn check(&self) -> Vec<Problem> {
        let share = self.memory_fraction.filter(|share| !(1..=1000).contains(share)).map(|share| {
            let found = format!("expected thousandths of the card from 1 to 1000, found `{share}`");
            Problem::new("--memory-fraction", found)
        });
        let split =
            self.pytorch.check().err().map(|wrong| Problem::new("--allocator-conf", wrong.to_string()));
        share.into_iter().chain(split).collect()
    }

    /// The most that the framework's allocator can hold there.
    pub fn limit(&self, framework: Framework, room: &Room) -> Bytes {
        let limit = match framework {
            Framework::Pytorch => self.memory_fraction.map_or(Bytes(u64::MAX), |n| share(room.total, n)),
            // What BFC's limit would be is no more than the size up to which the pool keeps pages
            // (tensorflow/core/common_runtime/gpu/gpu_cudamallocasync_allocator.cc, `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`).
            Framework::Tensorflow if self.cuda_malloc_async => Bytes(u64::MAX),
            Framework::Tensorflow => self.memory_limit.unwrap_or_else(|| {
                let memory = TensorflowMemory {
                    total: room.total,
                    free: room.after_driver,
                    chip: room.chip,
                    fraction: self.memory_fraction,
                    reserve: None,
                };
                memory.limit()
            }),
            Framework::Burn => Bytes(u64::MAX),
        };
        limit.min(room.after_libraries)
    }

    /// The allocator with nothing in its way. `total` is the card's, where one is known.
    pub fn unlimited(&self, framework: Framework, total: Option<Bytes>) -> Box<dyn Allocator> {
        match framework {
            Framework::Pytorch | Framework::Tensorflow if self.cuda_malloc_async => {
                Box::new(CudaAsyncPool::new(Bytes(u64::MAX), None))
            }
            Framework::Pytorch => Box::new(self.pytorch(None)),
            Framework::Tensorflow if self.memory_growth => {
                let limit = Bytes(u64::MAX);
                Box::new(BfcAllocator::new(BfcConfig { allow_growth: true, ..BfcConfig::within(limit) }))
            }
            Framework::Tensorflow => Box::new(BfcAllocator::new(BfcConfig::open())),
            Framework::Burn => {
                // Pages are quarters of the card, and of each other: a card of this size has those of any power of four.
                let config = CubeclConfig::cuda(total.unwrap_or(Bytes(1 << 44)));
                Box::new(CubeclPools::new(CubeclConfig { limit: None, ..config }))
            }
        }
    }

    /// The allocator inside of [`AllocatorSettings::limit`].
    pub fn within(&self, framework: Framework, limit: Bytes, total: Bytes) -> Box<dyn Allocator> {
        match framework {
            Framework::Pytorch | Framework::Tensorflow if self.cuda_malloc_async => {
                Box::new(CudaAsyncPool::new(limit, Some(limit)))
            }
            Framework::Pytorch => Box::new(self.pytorch(Some((limit, total)))),
            Framework::Tensorflow => {
                let allow_growth = self.memory_growth;
                Box::new(BfcAllocator::new(BfcConfig { allow_growth, ..BfcConfig::within(limit) }))
            }
            Framework::Burn => {
                let config = CubeclConfig::cuda(total);
                Box::new(CubeclPools::new(CubeclConfig { limit: Some(limit), ..config }))
            }
        }
    }

    /// PyTorch's own allocator, inside of a limit on a card of a total where there is one. The whole of a card (1.0) is as if
    /// no share were set.
    fn pytorch(&self, room: Option<(Bytes, Bytes)>) -> PytorchAllocator {
        let Some((limit, total)) = room else { return PytorchAllocator::new(self.pytorch.clone()) };
        let part = self.memory_fraction.filter(|thousandths| *thousandths < 1000);
        let allowed = part.map(|thousandths| share(total, thousandths));
        PytorchAllocator::new(PytorchAllocatorConfig { limit: Some(limit), allowed, ..self.pytorch.clone() })
    }

    /// Whether that is the one. Searches for the largest batch run it a thousand times, so it is called directly.
    fn is_pytorch(&self, framework: Framework) -> bool {
        framework == Framework::Pytorch && !self.cuda_malloc_async
    }

    /// Replays a timeline with nothing in its way.
    pub(crate) fn replay_open(
        &self,
        timeline: &Timeline,
        framework: Framework,
        total: Option<Bytes>,
    ) -> Replay {
        if self.is_pytorch(framework) {
            return replay(timeline, &mut self.pytorch(None));
        }
        replay_with(timeline, &mut *self.unlimited(framework, total), steps(framework))
    }

    /// Replays a timeline inside of a limit.
    pub(crate) fn replay_within(
        &self,
        timeline: &Timeline,
        framework: Framework,
        limit: Bytes,
        total: Bytes,
    ) -> Replay {
        if self.is_pytorch(framework) {
            return replay(timeline, &mut self.pytorch(Some((limit, total))));
        }
        replay_with(timeline, &mut *self.within(framework, limit, total), steps(framework))
    }

    /// A warning for each setting that this framework does not know.
    pub fn warnings(&self, framework: Framework) -> Vec<String> {
        let (torch, tensorflow) = (framework == Framework::Pytorch, framework == Framework::Tensorflow);
        let neither = !torch && !tensorflow;
        [
            (self.pytorch != PytorchAllocatorConfig::default() && !torch, "--allocator-conf is PyTorch's"),
            (self.memory_growth && !tensorflow, "--memory-growth is TensorFlow's"),
            (self.memory_limit.is_some() && !tensorflow, "--memory-limit is TensorFlow's"),
            (
                tensorflow
                    && self.cuda_malloc_async
                    && (self.memory_limit.is_some() || self.memory_fraction.is_some()),
                "--memory-limit and --memory-fraction are for TensorFlow's own allocator",
            ),
            (self.memory_fraction.is_some() && neither, "--memory-fraction is for PyTorch and TensorFlow"),
            (self.cuda_malloc_async && neither, "--cuda-malloc-async is for PyTorch and TensorFlow"),
        ]
        .into_iter()
        .filter(|(wrong, _)| *wrong)
        .map(|(_, what)| format!("{what}; it does nothing here"))
        .collect()
    }

    /// Whether the framework takes the whole limit when it begins, whatever it needs.
    pub fn preallocates(&self, framework: Framework) -> bool {
        framework == Framework::Tensorflow && !self.memory_growth && !self.cuda_malloc_async
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = Bytes::MIB;

    /// A V100 with 16 GB as a process sees it, roughly.
    const ROOM: Room = Room {
        total: Bytes(16_000 * MIB),
        after_driver: Bytes(15_700 * MIB),
        after_libraries: Bytes(15_000 * MIB),
        chip: Chip::Cuda(7),
    };

    #[test]
    fn a_setting_of_another_framework_is_named() {
        let mut settings = AllocatorSettings {
            memory_growth: true,
            cuda_malloc_async: true,
            ..AllocatorSettings::default()
        };
        settings.pytorch.expandable_segments = true;
        let named = |framework| {
            settings
                .warnings(framework)
                .into_iter()
                .map(|w| w.split(' ').next().unwrap_or_default().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(named(Framework::Pytorch), ["--memory-growth"]);
        assert_eq!(named(Framework::Tensorflow), ["--allocator-conf"]);
        assert_eq!(named(Framework::Burn), ["--allocator-conf", "--memory-growth", "--cuda-malloc-async"]);
        assert!(AllocatorSettings::default().warnings(Framework::Burn).is_empty());
        // What PyTorch reads is not refused afterwards: a block need be no larger than a segment.
        settings.pytorch = settings.pytorch.apply("large_segment_size_mb:12,max_split_size_mb:15").unwrap();
        assert!(settings.check().is_empty());
    }

    #[test]
    fn each_framework_leaves_its_own_part_of_the_card() {
        let d = AllocatorSettings::default();
        let half = AllocatorSettings { memory_fraction: Some(500), ..d.clone() };
        let logical = AllocatorSettings { memory_limit: Some(Bytes(4_096 * MIB)), ..d.clone() };
        // CUDA's pool takes what there is.
        let pool = AllocatorSettings { cuda_malloc_async: true, ..logical.clone() };
        assert_eq!(pool.warnings(Framework::Tensorflow).len(), 1);
        for (settings, framework, mib) in [
            (&d, Framework::Pytorch, 15_000),
            (&half, Framework::Pytorch, 8_000),
            (&d, Framework::Tensorflow, 15_700 - 1_050),
            (&half, Framework::Tensorflow, 8_000),
            (&logical, Framework::Tensorflow, 4_096),
            (&pool, Framework::Tensorflow, 15_000),
            (&d, Framework::Burn, 15_000),
        ] {
            assert_eq!(settings.limit(framework, &ROOM), Bytes(mib * MIB), "{framework:?} {settings:?}");
        }
    }

    #[test]
    fn a_whole_card_is_no_share_of_it_and_collects_no_garbage() {
        let collects = |thousandths| {
            let settings = AllocatorSettings {
                pytorch: PytorchAllocatorConfig::default().apply("garbage_collection_threshold:0.5").unwrap(),
                memory_fraction: Some(thousandths),
                ..AllocatorSettings::default()
            };
            // 12 GB are left of 16: half of what is allowed is not half of that.
            let mut inside = settings.within(Framework::Pytorch, Bytes(12_000 * MIB), Bytes(16_000 * MIB));
            let (old, more) = (inside.allocate(Bytes(2_000 * MIB)), inside.allocate(Bytes(5_000 * MIB)));
            inside.free(old.unwrap());
            let before = inside.usage().reserved;
            inside.allocate(Bytes(2_100 * MIB)).unwrap();
            inside.free(more.unwrap());
            inside.usage().reserved < before + Bytes(2_100 * MIB)
        };
        assert_eq!([1000, 990, 800].map(collects), [false, false, true]);
    }

    #[test]
    fn a_limit_is_kept_and_its_absence_is_no_limit() {
        let growing = AllocatorSettings { memory_growth: true, ..AllocatorSettings::default() };
        let own = AllocatorSettings { cuda_malloc_async: true, ..AllocatorSettings::default() };
        for settings in [&AllocatorSettings::default(), &growing, &own] {
            for framework in [Framework::Pytorch, Framework::Tensorflow, Framework::Burn] {
                let mut open = settings.unlimited(framework, Some(ROOM.total));
                assert!(open.allocate(Bytes(3_000 * MIB)).is_ok(), "{framework:?} {settings:?}");
                assert!(open.usage().reserved >= Bytes(3_000 * MIB), "{framework:?} {settings:?}");
                assert!(open.usage().reserved < Bytes(5_000 * MIB), "{framework:?} {settings:?}");
                let mut inside = settings.within(framework, Bytes(2_500 * MIB), ROOM.total);
                assert!(inside.allocate(Bytes(3_000 * MIB)).is_err(), "{framework:?} {settings:?}");
                assert!(inside.usage().reserved <= Bytes(2_500 * MIB), "{framework:?} {settings:?}");
            }
        }
    }
}
