//! A part of the process, such as the steps of one plan, at different sizes, each made once and replayed inside of any limit.
//!
//! Along the batch a step is the same list of events, and nearly always each storage is so many bytes and so many more a
//! sample. Where three sizes say so, other sizes are written down from that without running the model again, and the
//! answer is checked with a step that was really run.

use super::search::{Answer, Start};
use super::shelf::Shelf;
use super::{Axis, Subject};
use crate::scenario::Ran;
use crate::sizes::{LARGEST_STEP, LARGEST_TENSOR};
use crate::{Framework, Plan, Timeline, placement, replay};
use memfit_graph::{Bytes, Problem};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

/// The sizes from which a family is drawn, and the one that must agree with it.
const SAMPLES: [u64; 3] = [2, 6, 24];
/// Timelines are kept up to this many, where they can't be drawn from a family; more where they are short, up to so many events in all.
pub(super) const KEPT: usize = 32;
const KEPT_EVENTS: usize = 1 << 22;

/// Events that may be replayed to try the sizes above an answer; a step that has to be run for each of them counts so many times.
const EFFORT: usize = 1 << 21;
const RUN: usize = 16;

/// A step whose storages grow evenly.
struct Family {
    /// At the size that was asked for last, at first the first of [`SAMPLES`].
    timeline: Timeline,
    /// That size.
    size: Option<u64>,
    /// By storage: bytes at size zero, and for each one more.
    bytes: Vec<(u64, u64)>,
    /// Of the largest sample: how much more another order of its kernels may hold.
    spread: u64,
}

impl Family {
    /// Where three steps are one family.
    fn of([first, second, third]: [Timeline; 3]) -> Option<Family> {
        // How much a plan on trial asks for decides nothing here, but when one is tried does.
        let same = |t: &Timeline| {
            let searches = t.searches.iter().map(|s| s.event).eq(first.searches.iter().map(|s| s.event));
            searches && t.events == first.events && t.storages.len() == first.storages.len()
        };
        if !same(&second) || !same(&third) {
            return None;
        }
        let [a, b, c] = SAMPLES;
        let even = |i: usize| {
            let [x, y, z] = [&first, &second, &third].map(|t| t.storages.get(i).map_or(0, |s| s.bytes.0));
            let slope = y.checked_sub(x)? / (b - a);
            let base = x.checked_sub(slope.checked_mul(a)?)?;
            let holds = |n: u64, bytes: u64| {
                slope.checked_mul(n).and_then(|more| base.checked_add(more)) == Some(bytes)
            };
            (holds(b, y) && holds(c, z)).then_some((base, slope))
        };
        let bytes = (0..first.storages.len()).map(even).collect::<Option<Vec<_>>>()?;
        Some(Family { timeline: first, size: Some(a), bytes, spread: third.spread })
    }

    fn at(&mut self, n: u64) -> Option<&Timeline> {
        if self.size == Some(n) {
            return Some(&self.timeline);
        }
        self.size = None;
        let mut all = Bytes::ZERO;
        for (storage, (base, slope)) in self.timeline.storages.iter_mut().zip(&self.bytes) {
            let bytes = slope.checked_mul(n)?.checked_add(*base)?;
            storage.bytes = Some(Bytes(bytes)).filter(|bytes| *bytes <= LARGEST_TENSOR)?;
            all += storage.bytes;
        }
        if all > LARGEST_STEP {
            return None;
        }
        self.size = Some(n);
        Some(&self.timeline)
    }
}

/// What is known of one size.
#[derive(Default)]
struct Known {
    /// The peak of tensors alone, which no allocator can go below.
    allocated: Bytes,
    /// By the limits of which it holds, what was reserved inside of them; none where it did not fit.
    inside: Vec<(Range<Bytes>, Option<Bytes>)>,
}

/// One part of the process under one plan.
pub(crate) struct Steps<'a> {
    subject: Subject<'a>,
    shelf: Rc<Shelf>,
    plan: Plan,
    /// Which of the process's parts; the first is the step.
    part: usize,
    family: Option<Family>,
    made: BTreeMap<u64, Timeline>,
    /// By size; none where the model can't have it.
    known: BTreeMap<u64, Option<Known>>,
    /// Sizes at which a drawn step was the one that is really run.
    held: BTreeSet<u64>,
    /// By limit, the largest size that was found to fit.
    answers: BTreeMap<Bytes, u64>,
    /// By size, by how much another order of its kernels may hold more.
    spreads: BTreeMap<u64, u64>,
    /// How much of a limit tensors fill in the largest step that fits, in thousandths.
    filled: u64,
}

impl<'a> Steps<'a> {
    /// Looks at the plan at a few sizes.
    ///
    /// # Errors
    /// What is wrong at the size `first`: sizes that are not given, shapes that do not go together.
    pub(crate) fn new(
        subject: Subject<'a>,
        plan: Plan,
        part: usize,
        shelf: Rc<Shelf>,
        first: u64,
    ) -> Result<Steps<'a>, Vec<Problem>> {
        let (made, known) = (BTreeMap::new(), BTreeMap::new());
        let (held, answers) = (BTreeSet::new(), BTreeMap::new());
        let mut steps = Steps {
            subject,
            shelf,
            plan,
            part,
            family: None,
            made,
            known,
            held,
            answers,
            spreads: BTreeMap::new(),
            filled: 970,
        };
        if *subject.axis == Axis::Batch {
            let samples: Result<Vec<Timeline>, _> = SAMPLES.iter().map(|n| steps.run(*n)).collect();
            let samples: Option<[Timeline; 3]> = samples.ok().and_then(|all| all.try_into().ok());
            // Validation has a batch of its own.
            if let (Some([one, two, _]), 0) = (&samples, part)
                && one.storages == two.storages
            {
                let message = "the model has no batch axis: its inputs are the same at any batch size";
                return Err(vec![Problem::new("batch", message)]);
            }
            steps.family = samples.and_then(Family::of);
        }
        if steps.family.is_none() {
            let timeline = steps.run(first)?;
            steps.made.insert(first, timeline);
        }
        Ok(steps)
    }

    /// Whether a step is the same under another plan: the same kernels run.
    pub(crate) fn is_step_of(&mut self, other: &Plan) -> bool {
        let [first, ..] = SAMPLES;
        let at = if self.family.is_some() { first } else { super::start(self.subject.axis) };
        match (self.run_as(other, at), self.timeline(at)) {
            (Ok(a), Some(b)) => a.events == b.events && a.storages == b.storages && a.searches == b.searches,
            _ => false,
        }
    }

    fn run(&self, n: u64) -> Result<Timeline, Vec<Problem>> {
        self.run_as(&self.plan, n)
    }

    fn run_as(&self, plan: &Plan, n: u64) -> Result<Timeline, Vec<Problem>> {
        let Subject { model, binding, axis, life } = self.subject;
        let size = n.saturating_mul(axis.step());
        let binding = axis.bind(model.graph(), binding, size);
        if let Some(made) = self.shelf.take(plan, n, self.part) {
            return Ok(made);
        }
        let step = |binding: &_, plan: &_| Ok(model.step(binding, plan)?.timeline);
        let ran = Ran::of(model, (&binding, plan), life, &[], step)?;
        let mut parts: Vec<Option<Timeline>> = ran.parts().into_iter().map(|p| Some(p.timeline)).collect();
        let own = parts.get_mut(self.part).and_then(Option::take);
        self.shelf.put(plan, n, parts);
        Ok(own.unwrap_or_default())
    }

    /// By how much, in thousandths, another order of the same kernels may hold more.
    pub(crate) fn spread(&self) -> u64 {
        let made = self.made.values().map(|timeline| timeline.spread);
        self.family.iter().map(|family| family.spread).chain(made).max().unwrap_or(0)
    }

    /// The same of this size, which is run for it: TensorFlow's executor alone has other orders, unless XLA compiles the step.
    pub(crate) fn spread_at(&mut self, n: u64) -> u64 {
        let usual = self.spread();
        if usual == 0 && (self.plan.framework != Framework::Tensorflow || self.plan.xla) {
            return 0;
        }
        if let Some(spread) = self.spreads.get(&n) {
            return *spread;
        }
        let spread = self.run(n).map_or(usual, |timeline| timeline.spread);
        self.spreads.insert(n, spread);
        spread
    }

    /// Whether something ran whose need is not known.
    pub(crate) fn is_partial(&self) -> bool {
        self.family
            .iter()
            .map(|family| &family.timeline)
            .chain(self.made.values())
            .any(|step| step.is_partial)
    }

    fn timeline(&mut self, n: u64) -> Option<&Timeline> {
        if self.family.is_some() {
            return self.family.as_mut()?.at(n);
        }
        if !self.made.contains_key(&n) {
            let timeline = self.run(n).ok()?;
            if self.made.len() >= KEPT.max(KEPT_EVENTS / timeline.events.len().max(1)) {
                self.made.pop_first();
            }
            self.spreads.insert(n, timeline.spread);
            self.made.insert(n, timeline);
        }
        self.made.get(&n)
    }

    fn known(&mut self, n: u64) -> Option<&mut Known> {
        if !self.known.contains_key(&n) {
            let block = crate::model::block(self.plan.framework);
            let known = self
                .timeline(n)
                .map(|timeline| Known { allocated: replay::highest(timeline, block), ..Known::default() });
            self.known.insert(n, known);
        }
        self.known.get_mut(&n)?.as_mut()
    }

    /// Whether the model can have this size at all.
    pub(crate) fn exists(&mut self, n: u64) -> bool {
        self.known(n).is_some()
    }

    /// How many sizes above an answer may be tried.
    pub(crate) fn trials(&self) -> u64 {
        let drawn = self.family.as_ref().map(|family| family.timeline.events.len());
        let made = || self.made.values().map(|timeline| timeline.events.len() * RUN).max();
        (EFFORT / drawn.or_else(made).unwrap_or(0).max(1)).max(1) as u64
    }

    /// Whether this size fits inside of a limit. Along any axis tensors grow, so one too many for them is the end.
    pub(crate) fn ask(&mut self, n: u64, limit: Bytes, total: Bytes) -> Answer {
        match self.inside(n, limit, total) {
            Some(_) => Answer::Fits,
            None if self.known(n).is_some_and(|known| known.allocated <= limit) => Answer::Fails,
            None => Answer::Hopeless,
        }
    }

    /// What the allocator reserves at this size inside of a limit; none where it does not fit.
    pub(crate) fn inside(&mut self, n: u64, limit: Bytes, total: Bytes) -> Option<Bytes> {
        let known = self.known(n)?;
        if known.allocated > limit {
            return None;
        }
        if let Some((_, reserved)) = known.inside.iter().find(|(limits, _)| limits.contains(&limit)) {
            return *reserved;
        }
        let plan = self.plan.clone();
        let replayed = placement::inside_of(self.timeline(n)?, &plan, limit, total);
        let reserved = replayed.fits().then_some(replayed.peak_reserved.usage.reserved);
        let limits = placement::alike(&replayed, &plan, limit);
        self.known(n)?.inside.push((limits, reserved));
        reserved
    }

    /// About which size fills a limit.
    pub(crate) fn guess(&mut self, limit: Bytes, most: u64) -> u64 {
        let target = u128::from(limit.0) * u128::from(self.filled) / 1000;
        let (mut low, mut high) = (1, 2);
        let mut best = 1;
        for _ in 0..8 {
            let allocated = |steps: &mut Self, n| steps.known(n).map(|k| u128::from(k.allocated.0));
            let (Some(a), Some(b)) = (allocated(self, low), allocated(self, high)) else { break };
            let slope = b.saturating_sub(a).max(1);
            let more = target.saturating_sub(a) * u128::from(high - low) / slope;
            let next = u64::try_from(more).unwrap_or(u64::MAX).saturating_add(low).clamp(1, most);
            if next == best {
                break;
            }
            best = next;
            (low, high) = if next > high { (high, next) } else { (next, next.saturating_add(1)) };
        }
        best
    }

    /// Where to look for the answer inside of a limit. What fits inside of less is taken to fit, and what does not inside of
    /// more not to; between two answers sizes grow about evenly.
    pub(crate) fn start(&mut self, limit: Bytes, most: u64) -> Start {
        let below = self.answers.range(..=limit).next_back().map(|(l, n)| (*l, *n));
        let above = self.answers.range(limit..).next().map(|(l, n)| (*l, *n));
        let (low, high) = (below.map_or(0, |b| b.1), above.map_or(u64::MAX, |a| a.1.saturating_add(1)));
        let (guess, stride) = match (below, above) {
            (Some((a, x)), Some((b, y))) if a < b && x <= y => {
                let part = u128::from(y - x) * u128::from((limit - a).0) / u128::from((b - a).0);
                (x + u64::try_from(part).unwrap_or(0), x / 1024)
            }
            (Some((_, 0)), None) => (1, 1),
            _ if *self.subject.axis == Axis::Batch => {
                let guess = self.guess(limit, most);
                (guess, guess / if self.answers.is_empty() { 128 } else { 512 })
            }
            (Some((_, x)), _) => (x, x / 16),
            (None, Some((_, y))) => (y, y / 16),
            (None, None) => (super::start(self.subject.axis), 1),
        };
        Start { low, high, guess, stride }
    }

    /// Learns from an answer how full a card can be.
    pub(crate) fn learn(&mut self, n: u64, limit: Bytes) {
        self.answers.insert(limit, n);
        if let Some(known) = self.known(n)
            && limit > Bytes::ZERO
        {
            let filled = u128::from(known.allocated.0) * 1000 / u128::from(limit.0);
            self.filled = u64::try_from(filled).unwrap_or(1000).clamp(500, 1000);
        }
    }

    /// Whether a step that is really run is the one that was drawn. Where it is not, nothing is drawn from now on. Between two
    /// sizes at which it was, one at most twice the other, it is not asked again.
    pub(crate) fn holds(&mut self, n: u64) -> bool {
        let (below, above) = (self.held.range(..=n).next_back(), self.held.range(n..).next());
        let is_between = matches!((below, above), (Some(a), Some(b)) if *b <= a.saturating_mul(2));
        if self.family.is_none() || is_between {
            return true;
        }
        let Ok(real) = self.run(n) else {
            self.forget();
            return false;
        };
        self.spreads.insert(n, real.spread);
        let drawn = self.timeline(n);
        let holds = drawn.is_some_and(|d| d.events == real.events && d.storages == real.storages);
        if holds {
            self.held.insert(n);
        } else {
            self.forget();
        }
        holds
    }

    fn forget(&mut self) {
        self.family = None;
        self.known.clear();
        self.answers.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::Storage;
    use crate::{Category, Event, EventKind, Phase, StorageId};

    fn timeline<const N: usize>(bytes: [u64; N]) -> Timeline {
        let storage =
            |bytes| Storage { bytes: Bytes(bytes), category: Category::Activation, layer: 0, label: 0 };
        let event =
            |id| Event { kind: EventKind::Allocate, storage: StorageId(id), phase: Phase::Forward, layer: 0 };
        Timeline {
            storages: bytes.map(storage).to_vec(),
            events: vec![event(0), event(1)],
            ..Timeline::default()
        }
    }

    #[test]
    fn a_family_is_drawn_only_where_storages_grow_evenly() {
        let even = |n: u64| timeline([100, 12 + 4 * n]);
        let mut family = Family::of(SAMPLES.map(even)).unwrap();
        assert_eq!(family.at(1000).unwrap().storages, even(1000).storages);
        assert!(family.at(u64::MAX).is_none());
        assert!(Family::of(SAMPLES.map(|n| timeline([100, n * n]))).is_none());
        // What a step may allocate ends before its largest tensor does.
        let mut many = Family::of(SAMPLES.map(|n| timeline([n << 40; 2000]))).unwrap();
        assert!(many.at(1 << 8).is_some() && many.at(1 << 10).is_none());
        // No size of the largest sample fits into 64 bits.
        let huge = [1 << 62, 3 << 62, u64::MAX];
        assert!(Family::of(huge.map(|bytes| timeline([100, bytes]))).is_none());
        assert!(Family::of(SAMPLES.map(|n| timeline([100, 1000 - n]))).is_none());
        assert!(Family::of(SAMPLES.map(|n| timeline([100, n.next_multiple_of(4)]))).is_none());
    }
}
