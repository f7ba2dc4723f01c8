//! The model of PyTorch's allocator beside PyTorch's own: what each holds after every event of recorded cases, and how its segments
//! are cut at the end (`models/reference/pytorch_caching.py`, whose head says how they were recorded).
#![allow(clippy::unwrap_used, reason = "a failed unwrap in a test is a failed test")]

use memfit_engine::allocators::{Allocator, PytorchAllocator, PytorchAllocatorConfig};
use memfit_graph::Bytes;
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    settings: String,
    total_mib: u64,
    fraction: f64,
    events: Vec<i64>,
    told: Vec<(u64, u64, u32, u32)>,
    failed: Vec<usize>,
    segments: Vec<Vec<i64>>,
}

impl Case {
    fn allocator(&self) -> PytorchAllocator {
        let total = Bytes::mib(self.total_mib);
        let allowed = (self.fraction > 0.0 && self.fraction < 1.0)
            .then_some(Bytes((self.fraction * total.0 as f64) as u64));
        let config = PytorchAllocatorConfig { allowed, ..PytorchAllocatorConfig::within(total) };
        PytorchAllocator::new(config.apply(&self.settings).unwrap())
    }
}

/// As the recording program makes it.
fn fingerprint(allocator: &PytorchAllocator) -> u32 {
    let mix = |mark: u32, n: u32| mark.wrapping_mul(31).wrapping_add(n);
    allocator.layout().iter().fold(0, |mark, segment| {
        let blocks = segment.runs.iter().map(|run| (run.bytes.0 / 512 * 2) as u32 + u32::from(run.live));
        mix(blocks.fold(mark, mix), 7)
    })
}

#[test]
fn bytes_and_segments_are_those_of_pytorch() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/reference/pytorch_caching.json");
    let cases: Vec<Case> = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert!(cases.len() > 9);
    for (at, case) in cases.iter().enumerate() {
        let name = format!("case {at}, {} MiB, {}, {:?}", case.total_mib, case.fraction, case.settings);
        let mut allocator = case.allocator();
        let mut blocks = Vec::new();
        for (i, &event) in case.events.iter().enumerate() {
            let mut block = None;
            match event {
                0 => allocator.empty_cache(),
                1.. => block = allocator.allocate(Bytes(event.unsigned_abs())).ok(),
                _ => {
                    if let Some(block) = Option::take(&mut blocks[usize::try_from(-1 - event).unwrap()]) {
                        allocator.free(block);
                    }
                }
            }
            let usage = allocator.usage();
            let held = (usage.allocated.0, usage.reserved.0, allocator.retries(), fingerprint(&allocator));
            assert_eq!(held, case.told[i], "{name}, event {i}: {event}");
            assert_eq!(event > 0 && block.is_none(), case.failed.contains(&i), "{name}, event {i}: {event}");
            blocks.push(block);
        }
        let sign = |live: bool, bytes: u64| if live { -bytes.cast_signed() } else { bytes.cast_signed() };
        let segments: Vec<Vec<i64>> = allocator
            .layout()
            .iter()
            .map(|segment| segment.runs.iter().map(|run| sign(run.live, run.bytes.0)).collect())
            .collect();
        assert_eq!(segments, case.segments, "{name}");
    }
}
