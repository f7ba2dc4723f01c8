//! The model of TensorFlow's allocator beside TensorFlow's own: what each has in use after every event of recorded cases
//! (`models/reference/tensorflow_bfc.py`, whose head says how they were recorded).
#![allow(clippy::unwrap_used, reason = "a failed unwrap in a test is a failed test")]

use memfit_engine::allocators::{Allocator, BfcAllocator, BfcConfig};
use memfit_graph::Bytes;
use serde_json::Value;

#[test]
fn bytes_in_use_are_those_of_tensorflow() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/reference/tensorflow_bfc.json");
    let cases: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert!(cases.len() > 4);
    for case in &cases {
        let limit = Bytes::mib(case["limit_mib"].as_u64().unwrap());
        // The allocator of the CPU grows and does not collect.
        let config = BfcConfig { allow_growth: true, garbage_collection: false, ..BfcConfig::within(limit) };
        let mut allocator = BfcAllocator::new(config);
        let (mut blocks, mut peak) = (Vec::new(), 0);
        let events = case["events"].as_array().unwrap().iter().map(|e| e.as_i64().unwrap());
        for (i, event) in events.enumerate() {
            let block = match usize::try_from(event) {
                Ok(bytes) => Some(allocator.allocate(Bytes(bytes as u64)).unwrap()),
                Err(_) => {
                    let of = usize::try_from(-1 - event).unwrap();
                    allocator.free(Option::take(&mut blocks[of]).unwrap());
                    None
                }
            };
            blocks.push(block);
            let in_use = allocator.usage().allocated.0;
            peak = in_use.max(peak);
            let told = &case["told"][i];
            assert_eq!(
                (in_use, peak),
                (told[0].as_u64().unwrap(), told[1].as_u64().unwrap()),
                "{} at event {i}: {event}",
                case["name"]
            );
        }
    }
}
