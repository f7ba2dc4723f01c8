//! What a host's own records say of a card, in the place of figures that others have published: the context, scratch memory that the
//! rules lack, and how far segments lie from a replay's. `memfit calibrate` writes it.

use super::context::{ContextItem, DRIVER, total};
use crate::Framework;
use crate::range::Slack;
use memfit_graph::Bytes;

const SOURCE: &str = "records of this host (memfit calibrate)";
const FEW: &str = "records of this host (memfit calibrate), too few to narrow the usual range";

/// So many records show where nine in ten lie, which is what [`Slack`] says of published figures: with 46 of them, all but one time in
/// twenty nine tenths of all runs lie between the least and the most (Wilks, 1941: the confidence is 1 - n p^(n-1) + (n-1) p^n). How close
/// together fewer of them lie is luck, and a single one leaves no range at all, under which every step would be safe.
pub const ENOUGH: u64 = 46;

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
    /// How many records it stands on.
    pub records: u64,
}

impl Profile {
    fn is_enough(&self) -> bool {
        self.records >= ENOUGH
    }

    /// The items of a process, for those that are published of one. Of few records what is expected is theirs, and the range around it no
    /// narrower than the usual one. How much of the context is the driver's alone, which TensorFlow's limit follows from, no
    /// record says.
    pub(super) fn context(&self, published: &[ContextItem]) -> Vec<ContextItem> {
        let (mut context, mut workspace) = (self.context, self.workspace);
        let usual = total(published);
        if !self.is_enough() {
            let [low, expected, high] = &mut context;
            *low = (*low).min(expected.saturating_sub(usual.expected.saturating_sub(usual.low)));
            *high = (*high).max(*expected + usual.high.saturating_sub(usual.expected));
            // What all of a few models took need not be what every model takes.
            workspace[0] = Bytes::ZERO;
        }
        let source = if self.is_enough() { SOURCE } else { FEW };
        let item =
            |name, [low, expected, high]: [Bytes; 3]| ContextItem { name, low, expected, high, source };
        let driver = published.iter().find(|item| item.name == DRIVER);
        let driver = driver.map_or(context, |item| [item.low, item.expected, item.high]);
        let driver = [0, 1, 2].map(|i| driver[i].min(context[i]));
        let mut items = vec![
            item(DRIVER, driver),
            item("kernels and libraries", [0, 1, 2].map(|i| context[i].saturating_sub(driver[i]))),
        ];
        if workspace[2] > Bytes::ZERO {
            items.push(item("scratch memory of libraries", workspace));
        }
        items
    }

    /// How far segments may lie from a replay's, beside what is usual.
    pub(super) fn slack(&self, usual: Slack) -> Slack {
        if self.is_enough() {
            return self.slack;
        }
        Slack { less: self.slack.less.max(usual.less), more: self.slack.more.max(usual.more) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_records_show_nine_in_ten_and_one_fewer_does_not() {
        let confidence = |n: i32| {
            let p = 0.9_f64;
            1.0 - f64::from(n) * p.powi(n - 1) + f64::from(n - 1) * p.powi(n)
        };
        let enough = i32::try_from(ENOUGH).unwrap();
        assert!(confidence(enough) >= 0.95 && confidence(enough - 1) < 0.95);
    }

    #[test]
    fn few_records_do_not_narrow_the_usual_range() {
        let mib = |low, expected, high| [low, expected, high].map(Bytes::mib);
        let usual = Slack { less: 58, more: 58 };
        let [low, expected, high] = mib(300, 500, 900);
        let published = [ContextItem { name: "context", low, expected, high, source: "" }];
        let profile = |records, slack| Profile {
            framework: Framework::Pytorch,
            context: mib(600, 600, 600),
            workspace: mib(20, 20, 20),
            slack,
            records,
        };
        let ends = |profile: Profile| {
            let total = super::super::context::total(&profile.context(&published));
            [total.low, total.expected, total.high]
        };
        let exact = Slack { less: 0, more: 0 };
        assert_eq!(profile(1, exact).slack(usual), usual);
        assert_eq!(ends(profile(1, exact)), mib(400, 620, 1020));
        assert_eq!(profile(ENOUGH, exact).slack(usual), exact);
        assert_eq!(ends(profile(ENOUGH, exact)), mib(620, 620, 620));
        let [low, expected, high] = mib(200, 250, 300);
        let driver = ContextItem { name: DRIVER, low, expected, high, source: "" };
        let items = profile(ENOUGH, exact).context(&[driver]);
        assert_eq!(items.iter().map(|item| item.expected).collect::<Vec<_>>(), mib(250, 350, 20));
        // What they do show stands: one that was far off is no reason to be narrower.
        assert_eq!(profile(3, Slack { less: 0, more: 200 }).slack(usual), Slack { less: 58, more: 200 });
    }
}
