//! How a step gets on inside of the log's card: the replay inside of it, near whose limit an allocator gives back what it caches, says
//! whether it fits; what a step takes with nothing in its way does not.

use memfit_engine::devices::Card;
use memfit_engine::devices::context::total;
use memfit_engine::{Model, Plan, Verdict};
use memfit_graph::{Binding, Bytes};

/// What there was, and what of it is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// What the driver shows of the step.
    pub(crate) device: Bytes,
    /// What of that the framework's allocator reserves.
    pub(crate) reserved: Bytes,
    /// The most that it may reserve.
    pub(crate) usable: Bytes,
    /// Whether the step fits.
    pub(crate) verdict: Verdict,
    /// Whether it is a limit of the allocator that ends it, not the card.
    is_limited: bool,
    /// What others hold.
    others: Bytes,
}

/// How a step, or a forward pass alone, gets on on a card that lacks what the process keeps beside it.
pub(super) fn of(model: &Model, binding: &Binding, plan: &Plan, card: &Card, kept: Bytes) -> Option<Room> {
    let fit = model.estimate_on(binding, plan, Some(card)).ok()?.fit?;
    let context = total(&card.context(&plan.on(card))).expected;
    let others = total(&card.others()).expected;
    let left = card.device.usable().saturating_sub(others).saturating_sub(context);
    let limited = plan.allocator.memory_fraction.is_some() || plan.allocator.memory_limit.is_some();
    Some(Room {
        device: fit.reserved + kept + context,
        reserved: fit.reserved + kept,
        usable: fit.usable + kept,
        verdict: fit.verdict,
        is_limited: limited && fit.usable < left,
        others,
    })
}

impl Room {
    /// Whether it is a limit of the allocator that ends the step.
    pub(super) fn is_limited(&self) -> bool {
        self.is_limited
    }

    /// What there was for a number of bytes as the driver shows it, or as the allocator has it where its limit ends it.
    fn there(&self) -> Bytes {
        if self.is_limited { self.usable } else { self.usable + (self.device - self.reserved) }
    }

    /// In words.
    fn there_in_words(&self) -> String {
        let there = self.there();
        match (self.is_limited, self.others) {
            (true, _) => format!("the {there} that it may take"),
            (false, Bytes::ZERO) => format!("the {there} there were"),
            (false, others) => format!("the {there} that others left, which hold {others}"),
        }
    }

    /// Behind what the step takes: whether it fits, and in what.
    pub(super) fn verdict_in_words(&self) -> String {
        let (need, there) =
            (if self.is_limited { self.reserved } else { self.device }, self.there_in_words());
        let part = match self.is_limited {
            true => format!(", {need} of it in the framework's allocator"),
            false => String::new(),
        };
        match self.verdict {
            Verdict::Fits => format!("{part}, which fits in {there}"),
            Verdict::Tight => format!("{part}, which just fits in {there} if all goes as expected"),
            Verdict::DoesNotFit if need > self.there() => format!("{part}, more than {there}"),
            Verdict::DoesNotFit => format!("{part}, and what is free of {there} is in pieces too small"),
        }
    }

    /// Whether so much on the device, context included, is more than there was.
    pub(super) fn is_less_than(&self, device: Bytes) -> bool {
        let need = if self.is_limited { device.saturating_sub(self.device - self.reserved) } else { device };
        need > self.there()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(device: u64, usable: u64, verdict: Verdict) -> Room {
        let [device, usable] = [device, usable].map(Bytes::mib);
        Room {
            device,
            reserved: device - Bytes::mib(1024),
            usable,
            verdict,
            is_limited: false,
            others: Bytes::ZERO,
        }
    }

    #[test]
    fn a_limit_is_compared_with_what_the_allocator_has_and_a_card_with_all() {
        let card = room(9216, 7168, Verdict::DoesNotFit);
        assert_eq!(card.verdict_in_words(), ", more than the 8.00 GiB there were");
        let beside = Room { others: Bytes::mib(2048), ..card };
        assert_eq!(
            beside.verdict_in_words(),
            ", more than the 8.00 GiB that others left, which hold 2.00 GiB"
        );
        let limited = Room { is_limited: true, ..card };
        assert_eq!(
            limited.verdict_in_words(),
            ", 8.00 GiB of it in the framework's allocator, more than the 7.00 GiB that it may take"
        );
        assert!(limited.is_less_than(Bytes::mib(8200)) && !card.is_less_than(Bytes::mib(8192)));
    }

    #[test]
    fn the_replay_inside_of_the_card_decides() {
        let tight = room(8192, 7168, Verdict::Tight).verdict_in_words();
        assert_eq!(tight, ", which just fits in the 8.00 GiB there were if all goes as expected");
        let pieces = room(8000, 7168, Verdict::DoesNotFit).verdict_in_words();
        assert!(!pieces.contains("more than"), "{pieces}");
    }
}
