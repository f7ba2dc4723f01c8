//! The model of TensorFlow's allocator beside TensorFlow's own: what each has in use and where after every event of recorded cases
//! (`models/reference/tensorflow_bfc.py`, whose head says how they were recorded).
#![allow(clippy::unwrap_used, reason = "a failed unwrap in a test is a failed test")]

use memfit_engine::allocators::{Allocator, BfcAllocator, BfcConfig};
use memfit_graph::Bytes;
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    limit: u64,
    device: u64,
    growth: bool,
    collects: bool,
    events: Vec<i64>,
    told: Vec<(u64, u64, u32)>,
    failed: Vec<usize>,
}

/// As the recording program makes it.
fn fingerprint(allocator: &BfcAllocator) -> u32 {
    let mut mark = 0_u32;
    for segment in allocator.layout() {
        let mut address = segment.address;
        for run in &segment.runs {
            if run.live {
                for n in [address, run.bytes.0] {
                    mark = mark.wrapping_mul(31).wrapping_add((n / 256) as u32);
                }
            }
            address += run.bytes.0;
        }
    }
    mark
}

#[test]
fn chunks_in_use_are_those_of_tensorflow() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/reference/tensorflow_bfc.json");
    let cases: Vec<Case> = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert!(cases.len() > 9);
    for (at, case) in cases.iter().enumerate() {
        let name = format!("case {at}, {} of {}, {} {}", case.limit, case.device, case.growth, case.collects);
        let mut allocator = BfcAllocator::new(BfcConfig {
            allow_growth: case.growth,
            garbage_collection: case.collects,
            device_free: Some(Bytes(case.device)),
            ..BfcConfig::within(Bytes(case.limit))
        });
        let mut blocks = Vec::new();
        for (i, &event) in case.events.iter().enumerate() {
            let mut block = None;
            if event > 0 {
                block = allocator.allocate(Bytes(event.unsigned_abs())).ok();
                assert_eq!(block.is_none(), case.failed.contains(&i), "{name}, event {i}: {event}");
            } else if let Some(block) = Option::take(&mut blocks[usize::try_from(-1 - event).unwrap()]) {
                allocator.free(block);
            }
            blocks.push(block);
            let usage = allocator.usage();
            let held = (usage.allocated.0, usage.reserved.0, fingerprint(&allocator));
            assert_eq!(held, case.told[i], "{name}, event {i}: {event}");
        }
    }
}
