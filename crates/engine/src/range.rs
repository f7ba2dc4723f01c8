//! How far a measurement may lie from what is expected: the ends of an estimate's range.
//!
//! What the driver shows is the allocator's segments and the context. The context is a range of its own
//! ([`crate::devices::context`]); segments differ by what decides the choice of a kernel and its scratch memory.

use crate::devices::context::ContextItem;
use memfit_graph::Bytes;

/// By how much, in thousandths, segments may be more than those of a replay: nine in ten of the published peaks of
/// convolutional models on an A100 (1,108 rows of GPUMemNet's measurements) lie within this of such a replay. `cargo xtask accuracy
/// --measured` prints how far measurements lie from replays now, by halves of the models, so that a change is chosen on one half and
/// checked on the other.
const SEGMENTS_MORE: u64 = 58;
/// The same downward.
const SEGMENTS_LESS: u64 = 58;

/// By how much, in thousandths, segments may be less and more than those of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Slack {
    pub less: u64,
    pub more: u64,
}

impl Slack {
    /// The same where another order of a step's kernels may hold so many thousandths more.
    pub(crate) fn with(self, spread: u64) -> Slack {
        Slack { more: self.more.max(spread), ..self }
    }
}

impl Default for Slack {
    fn default() -> Slack {
        Slack { less: SEGMENTS_LESS, more: SEGMENTS_MORE }
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
    let high = (reserved + thousandths(reserved, slack.more)).max(search);
    Ends { low: low + context.low, high: high + context.high }
}

/// The most that segments are expected to come to where a replay says `reserved`.
pub(crate) fn high(reserved: Bytes) -> Bytes {
    reserved + thousandths(reserved, SEGMENTS_MORE)
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
    use crate::Framework;
    use crate::devices::{Device, context};

    #[test]
    fn a_range_holds_what_is_expected() {
        let context = context::total(&context::context(&Device::unknown(), Framework::Pytorch));
        for mib in [0, 1, 1_000, 100_000] {
            let (reserved, allocated) = (Bytes::mib(mib), Bytes::mib(mib / 10 * 9));
            let ends = device(allocated, reserved, Bytes::ZERO, &context, Slack::default());
            assert!(ends.low <= reserved + context.expected && reserved + context.expected <= ends.high);
            assert!(ends.low >= allocated);
            assert!(cautious(reserved, Slack::default()) <= reserved);
        }
    }
}
