//! What a host's own records say of a card, in the place of figures that others have published: the context, scratch memory that the
//! rules lack, and how far segments lie from a replay's. `memfit calibrate` writes it.

use super::context::{ContextItem, DRIVER};
use crate::Framework;
use crate::range::Slack;
use memfit_graph::Bytes;

const SOURCE: &str = "records of this host (memfit calibrate)";

/// What was measured on a card under one framework.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Whose steps were measured; those of another framework are estimated as ever.
    pub framework: Framework,
    /// What the driver shows beyond the allocator's segments: the least, what is expected, the most.
    pub context: [Bytes; 3],
    /// What the allocator holds beyond what is predicted, whatever the model.
    pub workspace: [Bytes; 3],
    /// How far segments lie from a replay's.
    pub slack: Slack,
}

impl Profile {
    /// The items of a process.
    pub(super) fn context(&self) -> Vec<ContextItem> {
        let item = |name, [low, expected, high]: [Bytes; 3]| ContextItem {
            name,
            low,
            expected,
            high,
            source: SOURCE,
        };
        let mut items = vec![item(DRIVER, self.context)];
        if self.workspace[2] > Bytes::ZERO {
            items.push(item("scratch memory of libraries", self.workspace));
        }
        items
    }
}
