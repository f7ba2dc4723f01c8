//! A card as a process finds it: what it is, which part of it, and what else is on it.

use super::context::{ContextItem, context_of};
use super::{Device, LookupError, Profile, Slack, Vendor, resolve};
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

/// What runs on a board whose processor shares the memory.
const HOST: ContextItem = ContextItem {
    name: "the host's own",
    low: Bytes::mib(500),
    expected: Bytes::mib(1500),
    high: Bytes::mib(2900),
    source: "tegrastats of an idle Jetson Orin with a desktop: 2,847 of 7,772 MB are used; less is taken to be without one",
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
        let Some((name, profile)) = parted(text) else {
            return resolve(text).map(Card::alone);
        };
        // Of several cards so called one may have such a slice.
        let device = resolve(name).or_else(|error| match &error {
            LookupError::Ambiguous { ids, .. } => {
                let cards = ids.iter().filter_map(|id| resolve(id).ok());
                let has = |card: &Device| slices(card).iter().any(|(name, _)| *name == asked(profile));
                let mut having = cards.filter(has);
                having.next().filter(|_| having.next().is_none()).ok_or(error)
            }
            _ => Err(error),
        })?;
        let slices = slices(&device);
        let Some((_, eighths)) = slices.iter().find(|(name, _)| *name == asked(profile)) else {
            let names = slices.into_iter().map(|(name, _)| name).collect();
            return Err(LookupError::Slice { text: text.into(), slices: names });
        };
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
        let mut items = context_of(&self.device, plan);
        if self.eager_loading {
            items.push(EAGER);
        }
        match self.measured(plan) {
            Some(profile) => profile.context(&items),
            None => items,
        }
    }

    /// How far segments may lie from a replay's.
    pub fn slack(&self, plan: &Plan) -> Slack {
        let usual = Slack::of(plan);
        self.measured(plan).map_or(usual, |profile| profile.slack(usual))
    }

    /// What was measured of the plan's framework.
    fn measured(&self, plan: &Plan) -> Option<&Profile> {
        self.profile.as_ref().filter(|profile| profile.framework == plan.framework)
    }

    /// What every figure of it rests on, where that is less than for others.
    pub fn caveat(&self) -> Option<&'static str> {
        let stands_in = "the rules of CUDA's kernels and allocator stand in for those of Apple's Metal (MPS)";
        (self.device.vendor == Vendor::Apple).then_some(stands_in)
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
        // Where it is said what others hold, the host is one of them. What Metal recommends leaves it out.
        let shares = self.device.unified && self.device.vendor == Vendor::Nvidia;
        if shares && self.other_processes == Bytes::ZERO {
            others.push(HOST);
        }
        others
    }
}

/// Slices as parts of the processors and eighths of the memory, where there are seven of the former, four and two
/// (docs.nvidia.com/datacenter/tesla/mig-user-guide, "Supported MIG Profiles").
const SEVENTHS: &[(u64, u64)] = &[(1, 1), (1, 2), (2, 2), (3, 4), (4, 4), (7, 8)];
const FOURTHS: &[(u64, u64)] = &[(1, 2), (2, 4), (4, 8)];
const HALVES: &[(u64, u64)] = &[(1, 4), (2, 8)];

/// The slices that a card can be cut into, by the names of their profiles, with how many eighths of the memory each has.
fn slices(device: &Device) -> Vec<(String, u64)> {
    let small = device.memory <= Bytes::mib(24 << 10);
    let kinds = match device.compute_capability {
        // A30; A100; H100 and B200; RTX PRO 5000 and 6000. No card for games has any.
        Some((8, 0)) if small => FOURTHS,
        Some((8, 0) | (9 | 10, _)) => SEVENTHS,
        Some((12, 0)) if device.memory >= Bytes::mib(96 << 10) => FOURTHS,
        Some((12, 0)) if device.memory >= Bytes::mib(48 << 10) => HALVES,
        _ => &[],
    };
    // Profiles are named by whole gigabytes of what there is.
    let gib = device.memory.min(device.total()).0.div_ceil(Bytes::GIB);
    kinds.iter().map(|(g, eighths)| (format!("{g}g.{}gb", (gib * eighths + 4) / 8), *eighths)).collect()
}

/// A card and a slice of it: `a100-40gb:3g.20gb`, or as nvidia-smi writes it, `NVIDIA A100-SXM4-40GB MIG 3g.20gb`.
fn parted(text: &str) -> Option<(&str, &str)> {
    let at = text.to_ascii_lowercase().find(" mig ");
    text.split_once(':').or_else(|| at.map(|at| (&text[..at], &text[at + " mig ".len()..])))
}

/// The profile that is asked for, as it is named: without what it has beside processors and memory (`+me`).
fn asked(profile: &str) -> String {
    let profile = profile.trim().to_ascii_lowercase();
    let name = profile.strip_prefix("mig-").unwrap_or(&profile);
    name.split('+').next().unwrap_or_default().trim().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_found_as_people_and_tools_write_it() {
        for (text, id) in [
            ("a100:1g.5gb", "a100-40gb:1g.5gb"),
            ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "a100-40gb:1g.5gb"),
            ("A100 80 MIG 3g.40gb", "a100-80gb:3g.40gb"),
        ] {
            assert_eq!(Card::find(text).unwrap().device.id, id, "{text}");
        }
        assert!(matches!(Card::find("a100:9g.90gb"), Err(LookupError::Ambiguous { .. })));
    }

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
        let wrong = [
            "a100-40gb:5g.20gb",
            "a100-40gb:3g.25gb",
            "a100-40gb:2g.40gb",
            "a100-80gb:2g.30gb",
            "a100-40gb:",
        ];
        for text in wrong.into_iter().chain(["rtx-3090:1g.5gb", "rtx-5090:1g.4gb", "24GiB:1g.5gb"]) {
            assert!(Card::find(text).is_err(), "{text}");
        }
        let said = |text: &str| Card::find(text).unwrap_err().to_string();
        assert_eq!(
            said("a100-40gb:2g.30gb"),
            "\"a100-40gb:2g.30gb\" is no slice of that GPU; it has 1g.5gb, 1g.10gb, 2g.10gb, 3g.20gb, 4g.20gb, 7g.40gb"
        );
        assert!(said("rtx-3090:1g.5gb").contains("has no slices"));
    }

    #[test]
    fn slices_have_the_guides_names() {
        let names = |id: &str| {
            let slices = slices(&resolve(id).unwrap());
            slices.into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(" ")
        };
        for (id, guide) in [
            ("a30", "1g.6gb 2g.12gb 4g.24gb"),
            ("h100-nvl", "1g.12gb 1g.24gb 2g.24gb 3g.47gb 4g.47gb 7g.94gb"),
            ("h200", "1g.18gb 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb"),
            ("b200", "1g.23gb 1g.45gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb"),
            ("rtx-pro-6000-blackwell", "1g.24gb 2g.48gb 4g.96gb"),
            ("rtx-5090", ""),
        ] {
            assert_eq!(names(id), guide, "{id}");
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
            records: super::super::ENOUGH,
        });
        let total = super::super::context::total(&card.context(&Plan::default()));
        assert_eq!([total.low, total.expected, total.high], mib(400, 418, 436));
        assert_eq!(card.slack(&Plan::default()).more, 20);
        let other = Plan { framework: Framework::Burn, ..Plan::default() };
        assert_eq!(card.slack(&other), Slack::of(&other));
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
        // The processor's part of shared memory, unless it is said.
        let mut board = Card::find("jetson-agx-orin-32gb").unwrap();
        assert_eq!(board.others(), [HOST]);
        board.other_processes = Bytes::mib(700);
        assert_eq!(board.others()[0].expected, Bytes::mib(700));
        assert!(Card::find("apple-m3-max-64gb").unwrap().others().is_empty());
    }
}
