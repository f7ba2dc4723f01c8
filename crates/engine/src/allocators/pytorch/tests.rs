//! Numbers by hand from the allocator's rules.

use super::*;

const MIB: u64 = Bytes::MIB;

fn allocator(settings: &str) -> PytorchAllocator {
    PytorchAllocator::new(PytorchAllocatorConfig::default().apply(settings).unwrap())
}

fn within(limit: u64, settings: &str) -> PytorchAllocator {
    let config = PytorchAllocatorConfig::within(Bytes(limit)).apply(settings).unwrap();
    PytorchAllocator::new(config)
}

fn take(a: &mut PytorchAllocator, bytes: u64) -> Block {
    a.allocate(Bytes(bytes)).unwrap()
}

fn held(a: &PytorchAllocator) -> (u64, u64) {
    (a.usage().allocated.0, a.usage().reserved.0)
}

#[test]
fn first_requests_reserve_whole_segments() {
    for (request, allocated, reserved) in [
        (1, 512, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (8_519_680, 8_519_680, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        // The rest of at most 1 MiB is not split off: the block is larger than its request.
        (11 * MIB, 12 * MIB, 12 * MIB),
        (11 * MIB - 511, 12 * MIB, 12 * MIB),
        (10 * MIB + 1, 10 * MIB + 512, 12 * MIB),
    ] {
        let mut a = allocator("");
        take(&mut a, request);
        assert_eq!(held(&a), (allocated, reserved), "{request}");
    }
}

#[test]
fn best_fit_takes_the_smallest_then_the_lowest() {
    let mut a = allocator("");
    let sizes = [30 * MIB, 12 * MIB, 12 * MIB, 16 * MIB];
    let blocks: Vec<Block> = sizes.iter().map(|&s| take(&mut a, s)).collect();
    let lowest = a.chunks[blocks[1].0].address;
    for block in blocks {
        a.free(block);
    }
    let block = take(&mut a, 12 * MIB);
    assert_eq!(a.chunks[block.0].address, lowest);
    // 14 MiB from 16: the rest of 2 MiB is split off and serves 1.5 MiB, whose rest of 0.5 stays with it.
    take(&mut a, 14 * MIB);
    take(&mut a, 3 * MIB / 2);
    assert_eq!(held(&a), (28 * MIB, 70 * MIB));
    assert_eq!(a.segment_count(), 4);
}

#[test]
fn neighbours_join_and_pools_do_not_mix() {
    let mut a = allocator("");
    let blocks: Vec<Block> = (0..4).map(|_| take(&mut a, 5 * MIB)).collect();
    assert_eq!(held(&a), (20 * MIB, 20 * MIB));
    a.free(blocks[0]);
    a.free(blocks[2]);
    assert_eq!(a.largest_free(), Bytes(5 * MIB));
    a.free(blocks[1]);
    assert_eq!(a.largest_free(), Bytes(15 * MIB));
    take(&mut a, 1);
    assert_eq!(held(&a), (5 * MIB + 512, 22 * MIB));
    a.empty_cache();
    assert_eq!(held(&a), (5 * MIB + 512, 22 * MIB));
    a.free(blocks[3]);
    a.empty_cache();
    assert_eq!(held(&a), (512, 2 * MIB));
}

#[test]
fn near_the_limit_cached_segments_are_given_back_first() {
    let mut a = within(64 * MIB, "");
    let first = take(&mut a, 30 * MIB);
    let second = take(&mut a, 30 * MIB);
    a.free(first);
    a.free(second);
    take(&mut a, 40 * MIB);
    assert_eq!((held(&a), a.retries()), ((40 * MIB, 40 * MIB), 1));
    // 20 MiB for 2 MiB fits; then 12 MiB do not, though 22 of 64 MiB are free.
    take(&mut a, 2 * MIB);
    let error = a.allocate(Bytes(19 * MIB)).unwrap_err();
    assert_eq!((error.free(), error.unusable()), (Bytes(22 * MIB), Bytes(18 * MIB)));
    assert_eq!(error.largest_free, Bytes(18 * MIB));
    assert_eq!(
        error.to_string(),
        "19.0 MiB requested, 22.0 MiB of 64.0 MiB free, 18.0 MiB of it in pieces of at most 18.0 MiB"
    );
}

#[test]
fn oversize_blocks_are_not_split_and_serve_only_their_like() {
    let mut a = allocator("max_split_size_mb:100");
    let block = take(&mut a, 200 * MIB);
    a.free(block);
    take(&mut a, 50 * MIB);
    assert_eq!(held(&a).1, 250 * MIB);
    // Not for 150 MiB either: it would waste more than 20 MiB.
    take(&mut a, 150 * MIB);
    assert_eq!(held(&a).1, 400 * MIB);
    take(&mut a, 190 * MIB);
    assert_eq!(held(&a), ((50 + 150 + 200) * MIB, 400 * MIB));
}

#[test]
fn oversize_blocks_go_first_when_the_limit_is_near() {
    let mut a = within(300 * MIB, "max_split_size_mb:100");
    let (large, small) = (take(&mut a, 200 * MIB), take(&mut a, 30 * MIB));
    a.free(large);
    a.free(small);
    take(&mut a, 150 * MIB);
    assert_eq!((held(&a), a.retries()), ((150 * MIB, 180 * MIB), 0));
}

#[test]
fn garbage_collection_gives_back_what_has_gone_unused_longest() {
    let mut config = PytorchAllocatorConfig::default().apply("garbage_collection_threshold:0.5").unwrap();
    config.allowed = Some(Bytes(200 * MIB));
    let mut a = PytorchAllocator::new(config);
    let (old, young, busy) = (take(&mut a, 60 * MIB), take(&mut a, 50 * MIB), take(&mut a, 12 * MIB));
    a.free(busy);
    a.free(old);
    for _ in 0..8 {
        let block = take(&mut a, 12 * MIB);
        a.free(block);
    }
    a.free(young);
    // 122 MiB are above half of 200. The block of 60 is older than the average and goes, which is enough.
    take(&mut a, 70 * MIB);
    assert_eq!(held(&a), (70 * MIB, 132 * MIB));
}

#[test]
fn expandable_segments_grow_in_place() {
    let mut a = allocator("expandable_segments:True");
    let first = take(&mut a, 30 * MIB);
    assert_eq!(held(&a), (30 * MIB, 40 * MIB));
    let second = take(&mut a, 50 * MIB);
    assert_eq!(held(&a), (80 * MIB, 80 * MIB));
    a.free(first);
    a.free(second);
    // One run again: a request larger than each begins in it and maps one page more.
    let block = take(&mut a, 90 * MIB);
    assert_eq!((held(&a), a.segment_count()), ((90 * MIB, 100 * MIB), 1));
    take(&mut a, 1);
    assert_eq!((held(&a), a.segment_count()), ((90 * MIB + 512, 102 * MIB), 2));
    a.free(block);
    a.empty_cache();
    assert_eq!((held(&a), a.segment_count()), ((512, 2 * MIB), 1));
}

#[test]
fn expandable_segments_give_back_pages_in_the_middle() {
    let mut a = within(100 * MIB, "expandable_segments:True");
    let first = take(&mut a, 50 * MIB);
    take(&mut a, 10 * MIB);
    a.free(first);
    assert_eq!(held(&a), (10 * MIB, 60 * MIB));
    // The first two pages move behind the rest: 10 MiB live and 10 free stay in the third.
    take(&mut a, 70 * MIB);
    assert_eq!((held(&a), a.retries()), ((80 * MIB, 100 * MIB), 1));
}
