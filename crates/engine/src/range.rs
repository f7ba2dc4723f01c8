//! How far a measurement may lie from what is expected: the ends of an estimate's range.
//!
//! What the driver shows is the allocator's segments and the context. The context is a range of its own
//! ([`crate::devices::context`]); segments differ by what decides the choice of a kernel and its scratch memory.

use crate::devices::context::ContextItem;
use crate::{Framework, Plan};
use memfit_graph::Bytes;

/// By how much, in thousandths, segments may be less and more than those of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Slack {
    pub less: u64,
    pub more: u64,
}

impl Slack {
    /// Nine in ten of the published peaks of convolutional models on an A100 (1,108 rows of GPUMemNet's measurements) lie within
    /// this of a replay. `cargo xtask accuracy --measured` prints how far measurements lie from replays now, by halves of the
    /// models, so that a change is chosen on one half and checked on the other.
    const USUAL: Slack = Slack { less: 58, more: 58 };

    /// Nine in ten of the steps that XLA compiled for an A100 lie within this of an estimate (docs/accuracy.md, "Keras models under
    /// XLA").
    const XLA: Slack = Slack { less: 120, more: 120 };

    /// TensorFlow's executor runs what is ready, in an order that differs from session to session, and its peaks with it. So that a
    /// verdict is safe, the upper end is where every published cell that ran out of memory is out of reach: the two that come
    /// nearest are estimated at 88 and 90 % of what there was (docs/accuracy.md, "TensorFlow").
    const EXECUTOR: Slack = Slack { less: 58, more: 170 };

    /// How far what was measured lies from replays of such steps.
    pub(crate) fn of(plan: &Plan) -> Slack {
        match plan.framework {
            Framework::Tensorflow if plan.xla => Slack::XLA,
            Framework::Tensorflow => Slack::EXECUTOR,
            _ => Slack::USUAL,
        }
    }

    /// The most that segments are expected to come to where a replay says `reserved`.
    pub(crate) fn high(self, reserved: Bytes) -> Bytes {
        reserved + thousandths(reserved, self.more)
    }

    /// The same where another order of a step's kernels may hold so many thousandths more.
    pub(crate) fn with(self, spread: u64) -> Slack {
        Slack { more: self.more.max(spread), ..self }
    }
}

/// The ends of a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) low: Bytes,
    pub(crate) high: Bytes,
}

/// The range of what the driver shows: `reserved` bytes of segments, of which `allocated` are tensors at the peak, and the
/// context. `search` is the most that segments and a kernel on trial hold at one time, where plans are compared.
pub(crate) fn device(
    allocated: Bytes,
    reserved: Bytes,
    search: Bytes,
    context: &ContextItem,
    slack: Slack,
) -> Ends {
    let low = reserved.saturating_sub(thousandths(reserved, slack.less)).max(allocated);
    let high = slack.high(reserved).max(search);
    Ends { low: low + context.low, high: high + context.high }
}

/// The limit inside which a replay must run so that a step is sure to fit where the allocator can have `limit`.
pub(crate) fn cautious(limit: Bytes, slack: Slack) -> Bytes {
    let bytes = u128::from(limit.0) * 1000 / (1000 + u128::from(slack.more));
    Bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
}

fn thousandths(bytes: Bytes, n: u64) -> Bytes {
    Bytes(u64::try_from(u128::from(bytes.0) * u128::from(n) / 1000).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::{Device, context};

    #[test]
    fn a_range_holds_what_is_expected() {
        for framework in [Framework::Pytorch, Framework::Tensorflow, Framework::Burn] {
            let context = context::total(&context::context(&Device::unknown(), framework));
            let slack = Slack::of(&Plan { framework, ..Plan::default() });
            for mib in [0, 1, 1_000, 100_000] {
                let (reserved, allocated) = (Bytes::mib(mib), Bytes::mib(mib / 10 * 9));
                let ends = device(allocated, reserved, Bytes::ZERO, &context, slack);
                assert!(ends.low <= reserved + context.expected && reserved + context.expected <= ends.high);
                assert!(ends.low >= allocated);
                // What is at the high end of a cautious limit is inside of the limit itself.
                assert!(slack.high(cautious(reserved, slack)) <= reserved);
            }
        }
    }
}
