//! What was made of a process beside the part that was asked for, until another part asks for it.

use super::families::KEPT;
use crate::{Plan, Timeline};
use std::cell::RefCell;

/// Parts of a process that were made beside the one that was asked for: one that is, finds itself here.
#[derive(Default)]
pub(crate) struct Shelf(RefCell<Vec<Made>>);

/// Under a plan, at a size: the parts that nobody took yet.
type Made = (Plan, u64, Vec<Option<Timeline>>);

impl Shelf {
    pub(super) fn take(&self, plan: &Plan, n: u64, part: usize) -> Option<Timeline> {
        let mut made = self.0.borrow_mut();
        made.iter_mut().find(|(of, size, _)| *size == n && of == plan)?.2.get_mut(part)?.take()
    }

    pub(super) fn put(&self, plan: &Plan, n: u64, parts: Vec<Option<Timeline>>) {
        let mut made = self.0.borrow_mut();
        made.retain(|(of, size, parts)| (*size != n || of != plan) && parts.iter().any(Option::is_some));
        if made.len() < KEPT && parts.iter().any(Option::is_some) {
            made.push((plan.clone(), n, parts));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Category;
    use crate::timeline::Storage;
    use memfit_graph::Bytes;

    fn two() -> Timeline {
        let storage =
            |bytes| Storage { bytes: Bytes(bytes), category: Category::Activation, layer: 0, label: 0 };
        Timeline { storages: [1, 2].map(storage).to_vec(), ..Timeline::default() }
    }

    #[test]
    fn a_part_that_was_made_beside_another_is_taken_once() {
        let (shelf, plan) = (Shelf::default(), Plan::default());
        shelf.put(&plan, 2, vec![None, Some(two())]);
        let other = Plan { weight_decay: true, ..Plan::default() };
        assert!(shelf.take(&plan, 2, 0).is_none() && shelf.take(&plan, 3, 1).is_none());
        assert!(shelf.take(&other, 2, 1).is_none());
        assert_eq!(shelf.take(&plan, 2, 1).unwrap().storages.len(), 2);
        assert!(shelf.take(&plan, 2, 1).is_none());
        (0..100).for_each(|n| shelf.put(&plan, n, vec![None, Some(two())]));
        assert_eq!(shelf.0.borrow().len(), KEPT);
    }
}
