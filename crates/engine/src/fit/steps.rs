//! A part of the process, such as the steps of one plan, at different sizes, each made once and replayed inside of any limit.
//!
//! Along the batch most sizes need not be run: they are drawn from others (`families`), and the answer is checked with a step that was
//! really run.

use super::families::Families;
use super::search::{Answer, Start};
use super::shelf::Shelf;
use super::{Axis, Subject};
use crate::scenario::Ran;
use crate::{Framework, Plan, Timeline, placement, replay};
use memfit_graph::{Bytes, Problem};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

/// The sizes that are run first.
const SAMPLES: [u64; 3] = [2, 6, 24];

/// Events that may be replayed to try the sizes above an answer; a step that has to be run for each of them counts so many times.
const EFFORT: usize = 1 << 21;
const RUN: usize = 16;

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
    families: Families,
    /// By size; none where the model can't have it.
    known: BTreeMap<u64, Option<Known>>,
    /// By limit, the largest size that was found to fit.
    answers: BTreeMap<Bytes, u64>,
    /// By size, by how much another order of its kernels may hold more.
    spreads: BTreeMap<u64, u64>,
    /// Whether something ran whose need is not known.
    is_partial: bool,
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
        let mut steps = Steps {
            subject,
            shelf,
            plan,
            part,
            families: Families::default(),
            known: BTreeMap::new(),
            answers: BTreeMap::new(),
            spreads: BTreeMap::new(),
            is_partial: false,
            filled: 970,
        };
        if *subject.axis == Axis::Batch {
            let samples: Result<Vec<Timeline>, _> = SAMPLES.iter().map(|n| steps.run(*n)).collect();
            let samples = samples.unwrap_or_default();
            // Validation has a batch of its own.
            if let ([one, two, _], 0) = (&samples[..], part)
                && one.storages == two.storages
            {
                let message = "the model has no batch axis: its inputs are the same at any batch size";
                return Err(vec![Problem::new("batch", message)]);
            }
            SAMPLES.into_iter().zip(samples).for_each(|(n, sample)| _ = steps.note(n, Some(sample)));
        }
        if !steps.families.is_one() {
            let timeline = steps.run(first)?;
            steps.note(first, Some(timeline));
        }
        Ok(steps)
    }

    /// Whether a step is the same under another plan: the same kernels run.
    pub(crate) fn is_step_of(&mut self, other: &Plan) -> bool {
        let [first, ..] = SAMPLES;
        let at = if self.families.is_one() { first } else { super::start(self.subject.axis) };
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

    /// Keeps what a size really is; nothing where the model can't have it. Whether it is what was drawn: where it is not, what was found
    /// with that may be wrong.
    fn note(&mut self, n: u64, real: Option<Timeline>) -> bool {
        if let Some(real) = &real {
            self.spreads.insert(n, real.spread);
            self.is_partial |= real.is_partial;
        }
        let holds = self.families.add(n, real);
        if !holds {
            self.known.clear();
            self.answers.clear();
        }
        holds
    }

    /// By how much, in thousandths, another order of the kernels may hold more at this size, which is run for it: TensorFlow's executor
    /// alone has other orders, unless XLA compiles the step.
    pub(crate) fn spread_at(&mut self, n: u64) -> u64 {
        let usual = self.spreads.values().copied().max().unwrap_or(0);
        if usual == 0 && (self.plan.framework != Framework::Tensorflow || self.plan.xla) {
            return 0;
        }
        if !self.spreads.contains_key(&n) {
            let real = self.run(n).ok();
            self.note(n, real);
        }
        self.spreads.get(&n).copied().unwrap_or(usual)
    }

    /// Whether something ran whose need is not known.
    pub(crate) fn is_partial(&self) -> bool {
        self.is_partial
    }

    fn timeline(&mut self, n: u64) -> Option<&Timeline> {
        if !self.families.knows(n) {
            let timeline = self.run(n).ok()?;
            self.note(n, Some(timeline));
        }
        self.families.at(n)
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
        let each = if self.families.is_one() { 1 } else { RUN };
        (EFFORT / (self.families.events() * each).max(1)).max(1) as u64
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

    /// Whether a step that is really run is the one that was drawn.
    pub(crate) fn holds(&mut self, n: u64) -> bool {
        if !self.families.knows(n) || self.families.is_sure(n) {
            return true;
        }
        let real = self.run(n).ok();
        self.note(n, real)
    }
}
