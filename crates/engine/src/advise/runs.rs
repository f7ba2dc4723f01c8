//! What advice has looked at: a situation that comes again has the outcome it had, and a step that is part of another one is not run
//! again. What an allocator's settings change is where tensors lie, not which there are.

use super::{Outcome, Situation};
use crate::allocators::AllocatorSettings;
use crate::devices::context;
use crate::scenario::Ran;
use crate::{Model, Plan, Timeline};
use memfit_graph::{Binding, Problem};
use std::cell::RefCell;

/// So many steps are kept, those that were asked for last.
const KEPT: usize = 4;

/// The situations of a model that were looked at.
pub(crate) struct Runs<'a> {
    model: &'a Model,
    outcomes: RefCell<Vec<(Situation, Outcome)>>,
    steps: RefCell<Vec<(Binding, Plan, Timeline)>>,
}

impl<'a> Runs<'a> {
    pub(crate) fn of(model: &'a Model) -> Runs<'a> {
        Runs { model, outcomes: RefCell::default(), steps: RefCell::default() }
    }

    /// Runs and replays a situation: the step, and what else happens in the process.
    pub(crate) fn evaluate(&self, s: &Situation) -> Result<Outcome, Vec<Problem>> {
        if let Some((_, outcome)) = self.outcomes.borrow().iter().find(|(of, _)| of == s) {
            return Ok(*outcome);
        }
        let plan = s.plan.on(&s.card);
        let context = context::total(&s.card.context(&plan)).expected;
        let ran = Ran::of(self.model, (&s.binding, &plan), &s.life, &[], |b, p| self.step(b, p))?;
        let (is_partial, slack) = (ran.is_partial(), s.card.slack(&plan).with(ran.spread()));
        // The part that an estimate names, too.
        let (_, fit) = ran.worst_on(&s.card)?;
        let outcome = Outcome {
            device: fit.reserved + context,
            reserved: fit.reserved,
            high: slack.high(fit.reserved),
            usable: fit.usable,
            verdict: fit.verdict,
            held: fit.preallocated.unwrap_or(fit.reserved) + context,
            is_partial,
        };
        self.outcomes.borrow_mut().push((s.clone(), outcome));
        Ok(outcome)
    }

    fn step(&self, binding: &Binding, plan: &Plan) -> Result<Timeline, Vec<Problem>> {
        let plan = Plan { allocator: AllocatorSettings::default(), ..plan.clone() };
        let mut steps = self.steps.borrow_mut();
        let known = steps.iter().position(|(of, under, _)| of == binding && *under == plan);
        let step = match known {
            Some(at) => steps.remove(at),
            None => {
                let timeline = self.model.step(binding, &plan)?.timeline;
                (binding.clone(), plan, timeline)
            }
        };
        let timeline = step.2.clone();
        steps.truncate(KEPT - 1);
        steps.insert(0, step);
        Ok(timeline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Life;
    use crate::devices::Card;
    use crate::scenario::testing::dense;

    #[test]
    fn what_comes_again_is_what_it_was() {
        let model = dense("a");
        let situation = |validation_batch, optimizer: &str| Situation {
            plan: Plan { optimizer: optimizer.into(), ..Plan::default() },
            binding: Binding::default(),
            batch: None,
            card: Card::find("8GiB").unwrap(),
            life: Life { validation_batch, ..Life::default() },
            code: crate::advise::Code::default(),
            api: None,
        };
        let of = [None, Some(4), Some(1 << 16)]
            .into_iter()
            .flat_map(|batch| ["sgd", "adam", "adamw"].map(|optimizer| situation(batch, optimizer)));
        let (seen, all) = (Runs::of(&model), of.collect::<Vec<_>>());
        let fresh: Vec<Outcome> = all.iter().map(|s| Runs::of(&model).evaluate(s).unwrap()).collect();
        for _ in 0..2 {
            let again: Vec<Outcome> = all.iter().rev().map(|s| seen.evaluate(s).unwrap()).collect();
            assert!(again.iter().rev().eq(&fresh), "{again:?}");
        }
        assert_eq!((seen.outcomes.borrow().len(), seen.steps.borrow().len()), (9, KEPT));
    }
}
