//! What must hold of every model after every request, for any requests.

use super::*;
use proptest::prelude::*;

const MIB: u64 = Bytes::MIB;

/// A request of a size, or the death of one of the live blocks.
#[derive(Clone, Debug)]
enum Step {
    Allocate(u64),
    Free(usize),
    EmptyCache,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let size = prop_oneof![
        4 => 1..4096_u64,
        4 => 1..(2 * MIB),
        4 => MIB..(40 * MIB),
        1 => (40 * MIB)..(300 * MIB),
        1 => Just(0_u64),
    ];
    let step = prop_oneof![
        6 => size.prop_map(Step::Allocate),
        5 => any::<usize>().prop_map(Step::Free),
        1 => Just(Step::EmptyCache),
    ];
    prop::collection::vec(step, 1..200)
}

fn settings() -> impl Strategy<Value = PytorchAllocatorConfig> {
    let text = prop::sample::select(vec![
        "",
        "expandable_segments:True",
        "max_split_size_mb:64",
        "roundup_power2_divisions:4",
        "garbage_collection_threshold:0.6",
        "expandable_segments:True,large_segment_size_mb:32",
        "max_split_size_mb:21,garbage_collection_threshold:0.3,roundup_power2_divisions:[1:8,64:2,>:4]",
    ]);
    (text, prop::option::of(0..(600 * MIB)), prop::option::of(0..(600 * MIB))).prop_map(
        |(text, limit, allowed)| {
            let config = PytorchAllocatorConfig::default().apply(text).unwrap();
            PytorchAllocatorConfig { limit: limit.map(Bytes), allowed: allowed.map(Bytes), ..config }
        },
    )
}

fn bfc() -> impl Strategy<Value = BfcConfig> {
    (0..(900 * MIB), any::<bool>(), any::<bool>(), prop::option::of(0..(900 * MIB))).prop_map(
        |(limit, allow_growth, garbage_collection, device)| BfcConfig {
            counts_touched: false,
            memory_limit: Bytes(limit),
            allow_growth,
            garbage_collection,
            device_free: device.map(Bytes),
        },
    )
}

/// Totals re-add from the layout, segments don't overlap, free neighbours are joined.
fn check_layout(a: &dyn Allocator) {
    let (usage, layout) = (a.usage(), a.layout());
    assert_eq!(layout.iter().map(Segment::bytes).sum::<Bytes>(), usage.reserved);
    let live = layout.iter().flat_map(|s| &s.runs).filter(|r| r.live);
    assert_eq!(live.map(|r| r.bytes).sum::<Bytes>(), usage.allocated);
    for pair in layout.windows(2) {
        assert!(pair[0].address + pair[0].bytes().0 <= pair[1].address, "segments overlap");
    }
    for segment in &layout {
        assert!(segment.runs.windows(2).all(|w| w[0].live || w[1].live), "free neighbours apart");
    }
    let free = layout.iter().flat_map(|s| &s.runs).filter(|r| !r.live).map(|r| r.bytes).max();
    assert_eq!(free.unwrap_or_default(), a.largest_free());
}

/// Meets a request. Where the allocator knows what it would hold while it meets it and takes it back, it is left so.
fn brief(a: &mut dyn Allocator, request: Bytes) -> Result<Block, OutOfMemory> {
    let foretold = a.usage_with(request);
    let (usage, layout) = (a.usage(), a.layout());
    let block = a.allocate(request)?;
    let Some(foretold) = foretold else { return Ok(block) };
    assert_eq!(a.usage(), foretold);
    a.free(block);
    assert_eq!((a.usage(), a.layout()), (usage, layout));
    a.allocate(request)
}

fn run(a: &mut dyn Allocator, steps: &[Step], has_layout: bool) {
    let mut live = Vec::new();
    let mut requested = Bytes::ZERO;
    for step in steps {
        match *step {
            Step::Allocate(bytes) => match brief(a, Bytes(bytes)) {
                Ok(block) => {
                    requested += Bytes(bytes);
                    live.push((block, Bytes(bytes)));
                }
                Err(error) => {
                    assert_eq!(error.usage, a.usage());
                    assert!(error.request.0 == bytes && a.limit().is_some());
                }
            },
            Step::Free(i) if !live.is_empty() => {
                let (block, bytes) = live.swap_remove(i % live.len());
                a.free(block);
                requested -= bytes;
            }
            Step::Free(_) => {}
            Step::EmptyCache => a.empty_cache(),
        }
        let usage = a.usage();
        assert_eq!(usage.requested, requested);
        assert!(usage.requested <= usage.allocated && usage.allocated <= usage.reserved, "{usage:?}");
        assert!(a.limit().is_none_or(|limit| usage.reserved <= limit), "{usage:?}");
        if has_layout {
            check_layout(a);
        }
    }
    for (block, _) in live {
        a.free(block);
    }
    let usage = a.usage();
    assert_eq!((usage.requested, usage.allocated), (Bytes::ZERO, Bytes::ZERO));
    if has_layout {
        check_layout(a);
        assert!(a.layout().iter().all(|s| s.runs.len() == 1), "a segment in pieces");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pytorch(config in settings(), steps in steps()) {
        let mut a = PytorchAllocator::new(config);
        run(&mut a, &steps, true);
        a.empty_cache();
        assert_eq!((a.usage(), a.segment_count()), (Usage::default(), 0));
    }

    #[test]
    fn tensorflow(config in bfc(), steps in steps()) {
        run(&mut BfcAllocator::new(config), &steps, true);
    }

    #[test]
    fn burn(total in (1_u64 << 20)..(3000 * MIB), alignment in 0..1000_u64, steps in steps()) {
        let config = CubeclConfig { alignment, ..CubeclConfig::cuda(Bytes(total)) };
        let mut a = CubeclPools::new(config);
        run(&mut a, &steps, true);
        a.empty_cache();
        assert_eq!((a.usage(), a.segment_count()), (Usage::default(), 0));
    }

    #[test]
    fn others(limit in prop::option::of(0..(600 * MIB)), threshold in 0..(600 * MIB), steps in steps()) {
        run(&mut ExactAllocator::new(512, limit.map(Bytes)), &steps, false);
        run(&mut CudaAsyncPool::new(Bytes(threshold), limit.map(Bytes)), &steps, false);
    }

    #[test]
    fn settings_never_panic(text in "[a-z_:,\\[\\]0-9.> ]{0,40}") {
        let _ = PytorchAllocatorConfig::default().apply(&text);
        let _ = PytorchAllocatorConfig::default().apply(&format!("roundup_power2_divisions:{text}"));
    }
}

#[test]
fn absurd_requests_are_out_of_memory_everywhere() {
    let mut all: [Box<dyn Allocator>; 6] = [
        Box::new(CubeclPools::new(CubeclConfig { limit: None, ..CubeclConfig::cuda(Bytes(u64::MAX)) })),
        Box::new(ExactAllocator::new(512, None)),
        Box::new(CudaAsyncPool::new(Bytes(u64::MAX), None)),
        Box::new(BfcAllocator::new(BfcConfig::within(Bytes(u64::MAX)))),
        Box::new(PytorchAllocator::new(PytorchAllocatorConfig::default())),
        Box::new(PytorchAllocator::new(
            PytorchAllocatorConfig::default()
                .apply("expandable_segments:True,roundup_power2_divisions:2")
                .unwrap(),
        )),
    ];
    for a in &mut all {
        for bytes in [u64::MAX, u64::MAX - 511, 1 << 63, (1 << 46) + 1] {
            assert!(a.allocate(Bytes(bytes)).is_err(), "{} took {bytes}", a.name());
        }
        assert!(a.allocate(Bytes(1)).is_ok(), "{}", a.name());
    }
}
