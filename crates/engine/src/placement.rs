//! One step on one card: what a process holds with nothing in its way, and whether the step runs inside of what there is.
//!
//! These are two replays. An allocator near its limit gives cached segments back and tries again, so that a step which
//! would reserve more than the card has may still run; and free memory in pieces may not do for one large tensor, so
//! that a step whose tensors would fit may still fail.

use crate::allocators::{AllocatorSettings, Chip, Failure, Replay, Room};
use crate::devices::context::{self, ContextItem};
use crate::devices::{Card, Device};
use crate::model::block;
use crate::{Framework, Phase, Plan, Timeline, range, replay};
use memfit_graph::Bytes;
use std::borrow::Cow;
use std::ops::Range;

/// Whether a step fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It does not even if all goes as expected.
    DoesNotFit,
    /// It does if all goes as expected; at the high end of the range it does not.
    Tight,
    /// It does at the high end of the range too.
    Fits,
}

/// A request that could not be met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The tensor or the kernel.
    pub tensor: String,
    /// The layer that runs.
    pub layer: String,
    /// The phase.
    pub phase: Phase,
    /// What it asked for.
    pub request: Bytes,
    /// What was free then.
    pub free: Bytes,
    /// The part of it in segments that other tensors live in, in pieces too small.
    pub unusable: Bytes,
    /// The largest piece.
    pub largest_free: Bytes,
}

impl From<&Failure> for Shortage {
    fn from(failure: &Failure) -> Shortage {
        let out = &failure.out_of_memory;
        Shortage {
            tensor: failure.label.to_string(),
            layer: failure.layer.to_string(),
            phase: failure.moment.phase,
            request: out.request,
            free: out.free(),
            unusable: out.unusable(),
            largest_free: out.largest_free,
        }
    }
}

/// How a step gets on inside of a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fit {
    /// The card's id, or what was given in its place.
    pub gpu: String,
    /// The total that the driver shows.
    pub capacity: Bytes,
    /// What the framework's allocator can have: without what the driver keeps, others hold, the context and the libraries
    /// take, and the framework leaves to the system.
    pub usable: Bytes,
    /// Segments held at most inside of it; what the step would reserve where it does not fit.
    pub reserved: Bytes,
    /// Whether it fits.
    pub verdict: Verdict,
    /// How often the allocator gave its cached segments back to go on.
    pub retries: u32,
    /// Where it fails, if all goes as expected.
    pub shortage: Option<Shortage>,
    /// What the framework takes at its start, whatever it needs.
    pub preallocated: Option<Bytes>,
    /// What the driver keeps of the card.
    pub kept: Bytes,
    /// What the framework leaves to the system.
    pub system: Bytes,
    /// What others hold.
    pub others: Vec<ContextItem>,
}

impl Fit {
    /// How bad it is: of the parts of a process the worst is what is said of all.
    pub(crate) fn badness(&self) -> (std::cmp::Reverse<Verdict>, Bytes) {
        (std::cmp::Reverse(self.verdict), self.reserved)
    }
}

impl Fit {
    /// What is left, or missing.
    pub fn headroom(&self) -> i64 {
        let signed = |bytes: Bytes| i64::try_from(bytes.0).unwrap_or(i64::MAX);
        signed(self.usable).saturating_sub(signed(self.reserved))
    }
}

/// What the allocator can have of a card, if all goes as expected and at the high end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) expected: Bytes,
    pub(crate) cautious: Bytes,
}

/// The limits under a plan of a step whose kernels may hold `spread` thousandths more in another order.
pub(crate) fn limits(plan: &Plan, card: &Card, spread: u64) -> Limits {
    let items = card.context(plan);
    let (context, others) = (context::total(&items), context::total(&card.others()));
    let driver = items.iter().find(|item| item.name == context::DRIVER);
    let usable = card.device.usable();
    let room = |of: fn(&ContextItem) -> Bytes| {
        let free = usable.saturating_sub(of(&others));
        Room {
            total: usable,
            after_driver: free.saturating_sub(driver.map_or(Bytes::ZERO, of)),
            after_libraries: free.saturating_sub(of(&context)),
            chip: Chip::of(&card.device),
        }
    };
    let limit = |room: Room| plan.allocator.limit(plan.framework, &room);
    let expected = limit(room(|item| item.expected));
    Limits {
        expected,
        cautious: range::cautious(limit(room(|item| item.high)), card.slack(plan).with(spread)).min(expected),
    }
}

/// Replays a step with nothing in its way.
pub(crate) fn open(
    timeline: &Timeline,
    framework: Framework,
    settings: &AllocatorSettings,
    device: Option<&Device>,
) -> Replay {
    settings.replay_open(timeline, framework, device.map(Device::usable))
}

/// Replays a step inside of a limit.
pub(crate) fn inside_of(timeline: &Timeline, plan: &Plan, limit: Bytes, total: Bytes) -> Replay {
    plan.allocator.replay_within(timeline, plan.framework, limit, total)
}

/// The limits inside of which a replay is the same as inside of `limit`: those that grant and refuse the same segments.
pub(crate) fn alike(replay: &Replay, plan: &Plan, limit: Bytes) -> Range<Bytes> {
    if heeds_limits_late(plan) {
        return replay.peak_reserved.usage.reserved..replay.refused.unwrap_or(Bytes(u64::MAX));
    }
    limit..limit + Bytes(1)
}

/// Whether a limit that is never met changes nothing, so that a replay inside of it is the one with nothing in its way: PyTorch's
/// allocator asks for its limit only where it takes a segment, unless it collects garbage or sets address space aside. Of no
/// other allocator is that known.
fn heeds_limits_late(plan: &Plan) -> bool {
    let settings = &plan.allocator;
    plan.framework == Framework::Pytorch
        && !settings.cuda_malloc_async
        && !settings.pytorch.expandable_segments
        && settings.pytorch.garbage_collection_threshold == 0
}

/// What a step would reserve with nothing in its way. More than an allocator has addresses for ends its replay early; what is alive
/// at once is the least that it needs then.
pub(crate) fn wanted(timeline: &Timeline, framework: Framework, open: &Replay) -> Bytes {
    let reserved = open.peak_reserved.usage.reserved;
    if open.fits() { reserved } else { reserved.max(replay::highest(timeline, block(framework))) }
}

/// How the step gets on inside of the card. `open` is its replay with nothing in its way.
pub(crate) fn place(timeline: &Timeline, plan: &Plan, card: &Card, open: &Replay) -> Fit {
    let limits = limits(plan, card, timeline.spread);
    let inside = |limit: Bytes| {
        if heeds_limits_late(plan) && open.fits() && open.peak_reserved.usage.reserved <= limit {
            return Cow::Borrowed(open);
        }
        Cow::Owned(inside_of(timeline, plan, limit, card.device.usable()))
    };
    let expected = inside(limits.expected);
    let preallocates = plan.allocator.preallocates(plan.framework);
    let verdict = match expected.failure {
        Some(_) => Verdict::DoesNotFit,
        None if !timeline.is_partial && inside(limits.cautious).fits() => Verdict::Fits,
        None => Verdict::Tight,
    };
    let context = context::total(&card.context(plan)).expected;
    let others = context::total(&card.others()).expected;
    let free = card.device.usable().saturating_sub(others).saturating_sub(context);
    // Of a region that is taken whole, the part that is needed shows where it has no end; one that ends in time has no more.
    let reserved = match (expected.fits(), preallocates) {
        (true, false) => expected.peak_reserved.usage.reserved,
        (true, true) => wanted(timeline, plan.framework, open).min(limits.expected),
        (false, _) => wanted(timeline, plan.framework, open),
    };
    Fit {
        gpu: card.device.id.clone(),
        capacity: card.device.total(),
        usable: limits.expected,
        reserved,
        verdict,
        retries: expected.retries,
        shortage: expected.failure.as_ref().map(Shortage::from),
        preallocated: preallocates.then_some(limits.expected),
        kept: card.device.total().saturating_sub(card.device.usable()),
        system: free.saturating_sub(limits.expected),
        others: card.others(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::{Event, EventKind, Storage, StorageId};
    use crate::{Category, Precision};

    /// Tensors of so many MiB, all alive at the end.
    fn timeline(mib: &[u64]) -> Timeline {
        let mut t = Timeline { layers: vec!["stem".into()], labels: vec!["x".into()], ..Timeline::default() };
        for (id, mib) in (0..).map(StorageId).zip(mib) {
            let bytes = Bytes::mib(*mib);
            t.storages.push(Storage { bytes, category: Category::Activation, layer: 0, label: 0 });
            t.events.push(Event { kind: EventKind::Allocate, storage: id, phase: Phase::Forward, layer: 0 });
        }
        t
    }

    fn verdict(mib: &[u64], gpu: &str) -> Fit {
        let (plan, card) = (Plan::default(), Card::find(gpu).unwrap());
        let timeline = timeline(mib);
        let replayed = open(&timeline, plan.framework, &plan.allocator, Some(&card.device));
        place(&timeline, &plan, &card, &replayed)
    }

    #[test]
    fn a_verdict_is_safe() {
        // An RTX 3090 has 24,121 MiB; the context takes 1,020 of them, at most 1,530.
        let limits = limits(&Plan::default(), &Card::find("rtx-3090").unwrap(), 0);
        let (expected, cautious) = (limits.expected.0 / Bytes::MIB, limits.cautious.0 / Bytes::MIB);
        assert_eq!(expected, 24_121 - 1_020);
        assert!(cautious < 24_121 - 1_530);
        for (mib, expect) in [
            (cautious - 2, Verdict::Fits),
            (cautious + 4, Verdict::Tight),
            (expected - 2, Verdict::Tight),
            (expected + 2, Verdict::DoesNotFit),
        ] {
            let fit = verdict(&[mib], "rtx-3090");
            assert_eq!(fit.verdict, expect, "{mib}");
            assert_eq!(fit.headroom() < 0, expect == Verdict::DoesNotFit, "{fit:?}");
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config::with_cases(64))]

        /// Whatever a step holds, on a card of any size.
        #[test]
        fn a_verdict_says_what_replays_say(
            mib in proptest::collection::vec(1_u64..4_000, 1..30),
            dies in proptest::collection::vec(proptest::bool::ANY, 30),
            gib in 2_u64..48,
            others in 0_u64..3_000,
        ) {
            let mut timeline = timeline(&mib);
            // Some die when the one after the next has come.
            let mut events = Vec::new();
            for (event, dies) in timeline.events.iter().zip(&dies) {
                events.push(*event);
                if let (true, Some(before)) = (*dies, event.storage.0.checked_sub(1)) {
                    events.push(Event { kind: EventKind::Free, storage: StorageId(before), ..*event });
                }
            }
            timeline.events = events;
            let plan = Plan::default();
            let mut card = Card::find(&format!("{gib}GiB")).unwrap();
            card.other_processes = Bytes::mib(others);
            let limits = limits(&plan, &card, 0);
            let open = open(&timeline, plan.framework, &plan.allocator, Some(&card.device));
            let fit = place(&timeline, &plan, &card, &open);
            let fits = |limit| inside_of(&timeline, &plan, limit, card.device.usable()).fits();
            proptest::prop_assert!(limits.cautious <= limits.expected && limits.expected <= card.device.usable());
            let expect = match (fits(limits.expected), fits(limits.cautious)) {
                (true, true) => Verdict::Fits,
                (true, false) => Verdict::Tight,
                (false, _) => Verdict::DoesNotFit,
            };
            proptest::prop_assert_eq!(fit.verdict, expect);
            // At the high end segments are larger, and the context too: it fits even so.
            let high = card.slack(&plan).high(open.peak_reserved.usage.reserved);
            let context = context::total(&card.context(&plan)).high + card.other_processes;
            if high + context <= card.device.usable() {
                proptest::prop_assert_eq!(fit.verdict, Verdict::Fits);
            }
            if fit.verdict == Verdict::Fits {
                let allocated = crate::replay::highest(&timeline, 512);
                proptest::prop_assert!(allocated + context <= card.device.usable());
                proptest::prop_assert!(fit.headroom() >= 0 && fit.shortage.is_none());
            }
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config::with_cases(64))]

        /// From the least that was granted to the least that was refused.
        #[test]
        fn limits_are_alike_up_to_what_they_grant_and_refuse(
            mib in proptest::collection::vec(1_u64..400, 2..40),
            limit in 100_u64..4_000,
            within in 0_u64..1_000,
        ) {
            let (plan, mut timeline) = (Plan::default(), timeline(&mib));
            // Every other one dies when the next has come.
            let dies = |event: &Event| Event { kind: EventKind::Free, ..*event };
            let pairs = timeline.events.chunks(2).flat_map(|pair| pair.iter().copied().chain(pair.get(1).map(|_| dies(&pair[0]))));
            timeline.events = pairs.collect();
            let at = |limit| {
                let replay = inside_of(&timeline, &plan, limit, Bytes::mib(8_000));
                let reserved = replay.peak_reserved.usage.reserved;
                (replay.fits(), reserved, alike(&replay, &plan, limit))
            };
            let found = at(Bytes::mib(limit));
            let limits = found.2.clone();
            proptest::prop_assert!(limits.contains(&Bytes::mib(limit)));
            let end = limits.end.min(Bytes::mib(20_000));
            let other = limits.start + Bytes((end - limits.start).0.saturating_sub(1) / 1_000 * within);
            proptest::prop_assert_eq!(at(other), found);
        }
    }

    #[test]
    fn a_shortage_says_what_was_asked_for_and_what_there_was() {
        let fit = verdict(&[15_000, 15_000], "rtx-3090");
        let shortage = fit.shortage.unwrap();
        assert_eq!((shortage.request, &*shortage.layer), (Bytes::mib(15_000), "stem"));
        assert_eq!(shortage.free, Bytes::mib(24_121 - 1_020 - 15_000));
    }

    #[test]
    fn others_and_the_frameworks_own_reserve_come_off() {
        let mut card = Card::find("v100-16gb").unwrap();
        let plan = Plan { precision: Precision::MixedFp16, ..Plan::default() };
        let alone = limits(&plan, &card, 0).expected;
        let tensorflow = Plan { framework: Framework::Tensorflow, ..plan.clone() };
        assert!(limits(&tensorflow, &card, 0).expected < card.device.usable() - Bytes::mib(1_050));
        card.other_processes = Bytes::mib(500);
        assert_eq!(alone - limits(&plan, &card, 0).expected, Bytes::mib(500));
        card.other_processes = Bytes(u64::MAX);
        assert_eq!(limits(&plan, &card, 0).expected, Bytes::ZERO);
    }
}
