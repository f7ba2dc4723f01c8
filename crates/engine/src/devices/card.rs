//! A card as a process finds it: what it is, which part of it, and what else is on it.

use super::context::{ContextItem, context_of};
use super::{Device, LookupError, Profile, Slack, resolve};
use crate::Plan;
use memfit_graph::Bytes;

/// What a card's owner says of it besides its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// The card, or the slice of it.
    pub device: Device,
    /// What other processes hold.
    pub other_processes: Bytes,
    /// Whether it drives a display.
    pub display: bool,
    /// Whether the framework's libraries load all their kernels at once: PyTorch before 1.13, or `CUDA_MODULE_LOADING=EAGER`.
    pub eager_loading: bool,
    /// What was measured on it.
    pub profile: Option<Profile>,
}

/// What that costs: 666,632,192 bytes in the place of 287,047,680 (PyTorch's change 86509).
const EAGER: ContextItem = ContextItem {
    name: "kernels loaded at once",
    low: Bytes(300 << 20),
    expected: Bytes(379_584_512),
    high: Bytes(700 << 20),
    source: "PyTorch 1.13 with and without lazy loading (PR 86509): 666,632,192 and 287,047,680 bytes",
};

/// What a desktop holds on the card that shows it.
const DISPLAY: ContextItem = ContextItem {
    name: "display",
    low: Bytes::mib(100),
    expected: Bytes::mib(400),
    high: Bytes::mib(1000),
    source: "an X server, a compositor and a browser in users' tables of nvidia-smi: some 100 MiB to 1 GiB",
};

/// An eighth of the memory is the smallest slice; each slice lacks this part of one eighth.
///
/// The tables of NVIDIA's MIG guide: of an A100 with 39.5 GiB one eighth is 4.75 GiB, two 9.75, four 19.62; of one with
/// 80 GB one is 9.5.
const SLICE_OVERHEAD: u64 = 23;

impl Card {
    /// A card to itself.
    pub fn alone(device: Device) -> Card {
        Card { device, other_processes: Bytes::ZERO, display: false, eager_loading: false, profile: None }
    }

    /// A card of the catalogue (`rtx-3090`), a size (`24GiB`), or a MIG slice of a card (`a100-40gb:3g.20gb`).
    ///
    /// # Errors
    /// When no card is called so, or it has no such slice.
    pub fn find(text: &str) -> Result<Card, LookupError> {
        let Some((name, profile)) = text.split_once(':') else {
            return resolve(text).map(Card::alone);
        };
        let device = resolve(name)?;
        let eighths = eighths(profile, &device).ok_or_else(|| LookupError::Slice { text: text.into() })?;
        let part = |(bytes, source): &(Bytes, String)| {
            let bytes = Bytes(bytes.0 / 8 * eighths - bytes.0 / 8 / SLICE_OVERHEAD);
            (bytes, format!("{eighths}/8 of {source}"))
        };
        // A slice shows what CUDA can see of it as its total.
        let whole = (device.usable(), "the card's".to_owned());
        let visible = Some(part(&whole));
        let id = format!("{}:{}", device.id, profile.trim().to_ascii_lowercase());
        let name = format!("{} MIG {}", device.name, profile.trim());
        let memory = Bytes(device.memory.0 / 8 * eighths);
        Ok(Card::alone(Device { id, name, memory, reported: visible.clone(), visible, ..device }))
    }

    /// What a process of the framework holds before its allocator has anything.
    pub fn context(&self, plan: &Plan) -> Vec<ContextItem> {
        if let Some(profile) = self.measured(plan) {
            return profile.context();
        }
        let mut items = context_of(&self.device, plan);
        if self.eager_loading {
            items.push(EAGER);
        }
        items
    }

    /// How far segments may lie from a replay's.
    pub fn slack(&self, plan: &Plan) -> Slack {
        self.measured(plan).map_or(Slack::default(), |profile| profile.slack)
    }

    /// What was measured of the plan's framework.
    fn measured(&self, plan: &Plan) -> Option<&Profile> {
        self.profile.as_ref().filter(|profile| profile.framework == plan.framework)
    }

    /// What others hold of it.
    pub fn others(&self) -> Vec<ContextItem> {
        let mut others = Vec::new();
        if self.other_processes > Bytes::ZERO {
            let given = self.other_processes;
            let (low, expected, high) = (given, given, given);
            others.push(ContextItem { name: "other processes", low, expected, high, source: "given" });
        }
        if self.display {
            others.push(DISPLAY);
        }
        others
    }
}

/// How many eighths of the memory a profile such as `3g.20gb` has.
fn eighths(profile: &str, device: &Device) -> Option<u64> {
    let profile = profile.trim().to_ascii_lowercase();
    let (compute, memory) = profile.strip_prefix("mig-").unwrap_or(&profile).split_once("g.")?;
    let compute: u64 = compute.parse().ok()?;
    let memory: u64 = memory.split('+').next()?.strip_suffix("gb")?.parse().ok()?;
    let gib = device.memory.0 / Bytes::GIB;
    let major = device.compute_capability?.0;
    // Rounded to the nearest: profiles are named by whole gigabytes.
    let eighths = memory.checked_mul(16)?.checked_add(gib)?.checked_div(gib * 2)?;
    let slices = (1..=7).contains(&compute) && matches!(eighths, 1 | 2 | 4 | 8);
    // The compute capability of A100, A30, H100 and B200; no card for games or workstations below 24 GiB has slices.
    (slices && matches!(device.compute_capability, Some((8, 0))) | (slices && major >= 9)).then_some(eighths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_those_of_the_guide() {
        for (text, mib) in [
            ("a100-40gb:1g.5gb", 4_864),
            ("A100 40GB:2g.10gb", 9_984),
            ("a100-40gb:3g.20gb", 20_091),
            ("a100-80gb:1g.10gb+me", 9_728),
        ] {
            let usable = Card::find(text).unwrap().device.usable();
            let guide = Bytes::mib(mib);
            // No more than the guide says, and at most 3 % less.
            assert!(usable.0 <= guide.0 && guide.0 - usable.0 < guide.0 / 33, "{text}: {usable} for {guide}");
        }
        for text in
            ["a100-40gb:5g.20gb", "a100-40gb:3g.25gb", "rtx-3090:1g.5gb", "24GiB:1g.5gb", "a100-40gb:"]
        {
            let error = Card::find(text);
            assert!(error.is_err() || text.contains("5g."), "{text}: {error:?}");
        }
    }

    #[test]
    fn what_was_measured_stands_in_the_place_of_published_figures() {
        use crate::Framework;
        let mut card = Card::find("rtx-3090").unwrap();
        let published = card.context(&Plan::default());
        let mib = |low, expected, high| [low, expected, high].map(Bytes::mib);
        card.profile = Some(Profile {
            framework: Framework::Pytorch,
            context: mib(400, 410, 420),
            workspace: mib(0, 8, 16),
            slack: Slack { less: 10, more: 20 },
        });
        let total = super::super::context::total(&card.context(&Plan::default()));
        assert_eq!([total.low, total.expected, total.high], mib(400, 418, 436));
        assert_eq!(card.slack(&Plan::default()).more, 20);
        let other = Plan { framework: Framework::Burn, ..Plan::default() };
        assert_eq!(card.slack(&other), Slack::default());
        card.profile = None;
        assert_eq!(card.context(&Plan::default()), published);
    }

    #[test]
    fn what_others_hold_is_itemised() {
        let mut card = Card::find("rtx-3090").unwrap();
        assert!(card.others().is_empty());
        (card.other_processes, card.display) = (Bytes::mib(1500), true);
        let names: Vec<&str> = card.others().iter().map(|item| item.name).collect();
        assert_eq!(names, ["other processes", "display"]);
    }
}
