//! Steps that need not be run again: between sizes at which a step is the same list of events, each storage nearly always is so many
//! bytes and so many more for each one that the size grows by.
//!
//! Three steps that were really run and say so are a family. A size between two of one family is drawn from it: its storages are
//! written down without running the model. PyTorch's steps are of one family whatever the batch, and while all that were run are, any size
//! is drawn. TensorFlow's kernels run in another order where other tensors are the larger ones; so its steps come in several families.

use crate::Timeline;
use crate::sizes::{LARGEST_STEP, LARGEST_TENSOR};
use memfit_graph::Bytes;
use std::collections::BTreeMap;

/// Steps of no family are kept up to this many; more where they are short, up to so many events in all.
pub(super) const KEPT: usize = 32;
const KEPT_EVENTS: usize = 1 << 22;

/// A step whose storages grow evenly.
struct Family {
    /// At the size that was asked for last, at first the first of three.
    timeline: Timeline,
    /// That size.
    size: Option<u64>,
    /// By storage: bytes at size zero, and for each one more.
    bytes: Vec<(u64, u64)>,
}

/// Whether two steps do the same one after the other, of whatever size. How much a plan on trial asks for decides nothing here, but
/// when one is tried does.
fn is_alike(a: &Timeline, b: &Timeline) -> bool {
    let searches = |t: &Timeline| t.searches.iter().map(|search| search.event).collect::<Vec<_>>();
    a.storages.len() == b.storages.len()
        && a.events == b.events
        && a.optional == b.optional
        && a.carried == b.carried
        && searches(a) == searches(b)
}

impl Family {
    /// Where three steps, the smallest first, are one family.
    fn of([(a, first), (b, second), (c, third)]: [(u64, &Timeline); 3]) -> Option<Family> {
        if !is_alike(first, second) || !is_alike(first, third) {
            return None;
        }
        let even = |i: usize| {
            let [x, y, z] = [first, second, third].map(|t| t.storages.get(i).map_or(0, |s| s.bytes.0));
            let slope = y.checked_sub(x)? / (b - a);
            let base = x.checked_sub(slope.checked_mul(a)?)?;
            let holds = |n: u64, bytes: u64| {
                slope.checked_mul(n).and_then(|more| base.checked_add(more)) == Some(bytes)
            };
            (holds(b, y) && holds(c, z)).then_some((base, slope))
        };
        let bytes = (0..first.storages.len()).map(even).collect::<Option<Vec<_>>>()?;
        Some(Family { timeline: first.clone(), size: Some(a), bytes })
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

    /// Whether a step that was really run at `n` is the one that is drawn.
    fn has(&mut self, n: u64, real: &Timeline) -> bool {
        is_alike(&self.timeline, real) && self.at(n).is_some_and(|drawn| drawn.storages == real.storages)
    }
}

/// What was run, and what can be drawn from it.
#[derive(Default)]
pub(super) struct Families {
    families: Vec<Family>,
    /// By size that was really run, its family.
    ran: BTreeMap<u64, Option<usize>>,
    /// Steps of no family.
    loose: BTreeMap<u64, Timeline>,
}

impl Families {
    /// The families of the next smaller and the next larger size that were run.
    fn beside(&self, n: u64) -> [Option<(u64, usize)>; 2] {
        let of = |(size, family): (&u64, &Option<usize>)| family.map(|family| (*size, family));
        [
            self.ran.range(..n).next_back().and_then(of),
            self.ran.range(n.saturating_add(1)..).next().and_then(of),
        ]
    }

    /// Whether all that was run is of one family.
    pub(super) fn is_one(&self) -> bool {
        self.families.len() == 1 && self.ran.values().all(Option::is_some)
    }

    /// The family of a size.
    fn family(&self, n: u64) -> Option<usize> {
        if let Some(own) = self.ran.get(&n) {
            return *own;
        }
        match self.beside(n) {
            [Some((_, a)), Some((_, b))] if a == b => Some(a),
            _ => Some(0).filter(|_| self.is_one()),
        }
    }

    /// Whether the step of this size is known without running it.
    pub(super) fn knows(&self, n: u64) -> bool {
        self.family(n).is_some() || self.loose.contains_key(&n)
    }

    /// That step, where the model can have it.
    pub(super) fn at(&mut self, n: u64) -> Option<&Timeline> {
        match self.family(n) {
            Some(family) => self.families[family].at(n),
            None => self.loose.get(&n),
        }
    }

    /// Whether the step of this size is a real one, or as good as that: between two, one at most twice the other.
    pub(super) fn is_sure(&self, n: u64) -> bool {
        let is_between = |[below, above]: [Option<(u64, usize)>; 2]| {
            below.zip(above).is_some_and(|((a, x), (b, y))| x == y && b <= a.saturating_mul(2))
        };
        self.ran.contains_key(&n) || is_between(self.beside(n))
    }

    /// Adds what a size really is; nothing where the model can't have it. Whether it is what was drawn.
    pub(super) fn add(&mut self, n: u64, real: Option<Timeline>) -> bool {
        let drawn = self.family(n);
        let candidates = [drawn, self.beside(n)[0].map(|b| b.1), self.beside(n)[1].map(|b| b.1)];
        let own = real.as_ref().and_then(|real| {
            let mut candidates = candidates.into_iter().flatten();
            candidates.find(|family| self.families[*family].has(n, real))
        });
        self.ran.insert(n, own);
        if let (Some(real), None) = (real, own) {
            if self.loose.len() >= KEPT.max(KEPT_EVENTS / real.events.len().max(1)) {
                self.loose.pop_first();
            }
            self.loose.insert(n, real);
            self.found(n);
        }
        drawn.is_none_or(|drawn| own == Some(drawn))
    }

    /// Founds a family of a loose step and two that follow each other beside it.
    fn found(&mut self, n: u64) {
        let below = self.ran.range(..n).rev().take(2).map(|(size, _)| *size);
        let mut sizes: Vec<u64> = below.collect();
        sizes.reverse();
        sizes.extend(self.ran.range(n..).take(3).map(|(size, _)| *size));
        let three = |sizes: &[u64]| {
            let &[a, b, c] = sizes else { return None };
            let of = |size: u64| Some((size, self.loose.get(&size)?));
            Family::of([of(a)?, of(b)?, of(c)?])
        };
        let found = sizes.windows(3).find_map(|sizes| Some((three(sizes)?, sizes.to_vec())));
        if let Some((family, members)) = found {
            self.families.push(family);
            for size in members {
                self.ran.insert(size, Some(self.families.len() - 1));
                self.loose.remove(&size);
            }
        }
    }

    /// The most events of a step.
    pub(super) fn events(&self) -> usize {
        let drawn = self.families.iter().map(|family| &family.timeline);
        drawn.chain(self.loose.values()).map(|step| step.events.len()).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::Storage;
    use crate::{Category, Event, EventKind, Phase, StorageId};

    /// The sizes from which a family is drawn, and the one that must agree with it.
    const SAMPLES: [u64; 3] = [2, 6, 24];

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

    fn of(step: impl Fn(u64) -> Timeline) -> Option<Family> {
        let [a, b, c] = SAMPLES.map(|n| (n, step(n)));
        Family::of([(a.0, &a.1), (b.0, &b.1), (c.0, &c.1)])
    }

    #[test]
    fn a_family_is_drawn_only_where_storages_grow_evenly() {
        let even = |n: u64| timeline([100, 12 + 4 * n]);
        let mut family = of(even).unwrap();
        assert_eq!(family.at(1000).unwrap().storages, even(1000).storages);
        assert!(family.at(u64::MAX).is_none());
        assert!(of(|n| timeline([100, n * n])).is_none());
        // What a step may allocate ends before its largest tensor does.
        let mut many = of(|n| timeline([n << 40; 2000])).unwrap();
        assert!(many.at(1 << 8).is_some() && many.at(1 << 10).is_none());
        // No size of the largest sample fits into 64 bits.
        assert!(of(|n| timeline([100, [1 << 62, 3 << 62, u64::MAX][n as usize / 10]])).is_none());
        assert!(of(|n| timeline([100, 1000 - n])).is_none());
        assert!(of(|n| timeline([100, n.next_multiple_of(4)])).is_none());
    }

    /// From 100 on the second storage comes first.
    fn step(n: u64) -> Timeline {
        let mut step = timeline([100, 12 + 4 * n]);
        if n >= 100 {
            step.events.reverse();
        }
        step
    }

    #[test]
    fn any_size_is_drawn_while_all_that_were_run_are_one_family() {
        let mut seen = Families::default();
        let drawn = |seen: &mut Families, n| Some(seen.at(n)?.storages.clone());
        for n in SAMPLES {
            assert!(!seen.knows(60));
            seen.add(n, Some(step(n)));
        }
        assert!(seen.is_one() && drawn(&mut seen, 60) == Some(step(60).storages));
        assert!(seen.knows(200) && !seen.is_sure(200) && !seen.is_sure(60));
        // It is another one there: from now on what is above is not known.
        assert!(!seen.add(200, Some(step(200))));
        assert!(!seen.is_one() && !seen.knows(60) && !seen.knows(300) && seen.knows(20));
        assert!(seen.is_sure(200) && seen.at(200).unwrap().events == step(200).events);
    }

    #[test]
    fn a_size_is_drawn_between_two_of_one_family() {
        let mut seen = Families::default();
        for n in [2, 6, 24, 300, 310, 500] {
            seen.add(n, Some(step(n)));
        }
        for (n, knows) in
            [(1, false), (2, true), (23, true), (60, false), (301, true), (499, true), (501, false)]
        {
            assert_eq!(seen.knows(n), knows, "{n}");
            if knows {
                let drawn = seen.at(n).unwrap();
                assert!((&drawn.events, &drawn.storages) == (&step(n).events, &step(n).storages), "{n}");
            }
        }
        // The next ones widen a family; where the model has no such size, it ends.
        assert!(seen.add(200, Some(step(200))) && seen.knows(250) && seen.is_sure(350));
        assert!(!seen.add(400, None) && !seen.knows(400) && !seen.knows(401) && seen.knows(305));
    }
}
