//! Graphics cards: how much memory each has, and how much of it a process can get.
//!
//! Three numbers differ: what the box says, what nvidia-smi shows as the total, and what CUDA sees of it, since the
//! driver keeps a part. The catalogue (`catalogue.toml`) names the source of each figure.

mod card;
pub mod context;
mod lookup;
mod profile;

pub use crate::range::Slack;
pub use card::Card;
pub use lookup::{LookupError, find, parse_size, resolve};
pub use profile::{ENOUGH, Profile};

use memfit_graph::Bytes;
use serde::Deserialize;
use std::sync::LazyLock;

/// Who makes a card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Vendor {
    #[default]
    Nvidia,
    Amd,
    Apple,
}

/// A family of chips, oldest first within a vendor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Generation {
    /// Not known: a size that stands for a card.
    Unknown,
    Pascal,
    Volta,
    Turing,
    Ampere,
    Ada,
    Hopper,
    Blackwell,
    Cdna,
    Cdna2,
    Cdna3,
    Rdna2,
    Rdna3,
    Rdna4,
    M1,
    M2,
    M3,
    M4,
}

/// A card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// What a user writes: `rtx-3090`.
    pub id: String,
    /// As the driver calls it.
    pub name: String,
    /// Other names of it.
    pub aliases: Vec<String>,
    /// Who makes it.
    pub vendor: Vendor,
    /// Its family of chips.
    pub generation: Generation,
    /// Major and minor; NVIDIA's only.
    pub compute_capability: Option<(u32, u32)>,
    /// Whether the processor shares the memory.
    pub unified: bool,
    /// The size on the box.
    pub memory: Bytes,
    /// What nvidia-smi shows, with the source of the figure.
    pub reported: Option<(Bytes, String)>,
    /// What a framework sees, with the source of the figure.
    pub visible: Option<(Bytes, String)>,
}

impl Device {
    /// A card of which nothing is known.
    pub fn unknown() -> Device {
        Device::of_size("", Bytes::ZERO)
    }

    /// A card of which only the size is known, all of it free to use.
    pub fn of_size(text: &str, size: Bytes) -> Device {
        Device {
            id: text.into(),
            name: format!("a card of {size}"),
            aliases: Vec::new(),
            vendor: Vendor::default(),
            generation: Generation::Unknown,
            compute_capability: None,
            unified: false,
            memory: size,
            reported: Some((size, "given".into())),
            visible: Some((size, "given".into())),
        }
    }

    /// The total that the driver shows; the size on the box where that was not seen.
    pub fn total(&self) -> Bytes {
        self.reported.as_ref().map_or(self.memory, |r| r.0)
    }

    /// What a framework can see of it, before any process has a context.
    pub fn usable(&self) -> Bytes {
        self.visible.as_ref().map_or_else(|| self.total().saturating_sub(self.estimated_reserve()), |v| v.0)
    }

    /// Whether [`Device::usable`] is a figure from a log and not an estimate.
    pub fn is_measured(&self) -> bool {
        self.visible.is_some()
    }

    /// What the driver keeps of a card nobody's log was found for: the most that was seen on a card like it. On Pascal that
    /// is up to 106 MiB, on Volta 274; from Turing on up to 432 below 8 GiB (GTX 1650), 486 below 32 GiB
    /// (RTX 5060 Ti), 876 above (A100 80 GB).
    ///
    /// Shared memory: a Jetson AGX Orin of 32 GiB shows 30,622 MiB (6.6 % less, taken as an eighth), and Metal recommends a
    /// working set of two thirds below 36 GiB, of three quarters from there on (28,991 MB of 36 GiB, in llama.cpp's logs).
    fn estimated_reserve(&self) -> Bytes {
        let total = self.total();
        match (self.vendor, self.unified) {
            (Vendor::Apple, _) if total < Bytes(36 * Bytes::GIB) => Bytes(total.0 / 3),
            (Vendor::Apple, _) => Bytes(total.0 / 4),
            (_, true) => Bytes(total.0 / 8),
            (Vendor::Amd, _) => Bytes::mib(64),
            (Vendor::Nvidia, _) => Bytes::mib(match self.generation {
                Generation::Pascal => 110,
                Generation::Volta => 280,
                _ if total < Bytes(8 * Bytes::GIB) => 440,
                _ if total < Bytes(32 * Bytes::GIB) => 490,
                _ => 880,
            }),
        }
    }
}

/// A card as the file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    id: String,
    name: String,
    #[serde(default)]
    aliases: Vec<String>,
    #[serde(default)]
    vendor: Vendor,
    #[serde(default)]
    unified: bool,
    memory_gib: u64,
    total_mib: Option<u64>,
    total_source: Option<String>,
    cuda_mib: Option<u64>,
    cuda_source: Option<String>,
    compute_capability: Option<String>,
    generation: Generation,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    card: Vec<Row>,
}

impl From<Row> for Device {
    fn from(card: Row) -> Device {
        let version = |text: String| {
            let (major, minor) = text.split_once('.')?;
            Some((major.parse().ok()?, minor.parse().ok()?))
        };
        Device {
            id: card.id,
            name: card.name,
            aliases: card.aliases,
            vendor: card.vendor,
            generation: card.generation,
            compute_capability: card.compute_capability.and_then(version),
            unified: card.unified,
            memory: Bytes(card.memory_gib.saturating_mul(Bytes::GIB)),
            reported: card.total_mib.map(Bytes::mib).zip(card.total_source),
            visible: card.cuda_mib.map(Bytes::mib).zip(card.cuda_source),
        }
    }
}

fn read(text: &str) -> serde_json::Result<Vec<Device>> {
    serde_json::from_str::<File>(text).map(|file| file.card.into_iter().map(Device::from).collect())
}

/// `catalogue.toml` as JSON: a reader of TOML would be a twentieth of what a browser downloads, and to build one for a build
/// script a twentieth of what all crates wait for.
const TEXT: &str = include_str!("catalogue.json");

/// All cards, in the catalogue's order.
pub fn catalogue() -> &'static [Device] {
    // A test reads the text, so that it can't be wrong here.
    static CATALOGUE: LazyLock<Vec<Device>> = LazyLock::new(|| read(TEXT).unwrap_or_default());
    &CATALOGUE
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// `MEMFIT_UPDATE=1` writes the file anew.
    #[test]
    fn the_json_is_what_the_toml_says() {
        let table: toml::Table = include_str!("catalogue.toml").parse().unwrap();
        let json = serde_json::to_string(&table).unwrap().replace("},{", "},\n{") + "\n";
        if std::env::var_os("MEMFIT_UPDATE").is_some() {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/devices/catalogue.json");
            std::fs::write(path, &json).unwrap();
        }
        let of = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert!(of(TEXT) == of(&json), "catalogue.json is out of date: run this test with MEMFIT_UPDATE=1");
    }

    #[test]
    fn the_catalogue_is_whole() {
        let cards = read(TEXT).unwrap();
        assert!(cards.len() >= 90, "{}", cards.len());
        let ids: BTreeSet<&str> = cards.iter().map(|c| &*c.id).collect();
        assert_eq!(ids.len(), cards.len());
        assert!(cards.iter().filter(|c| c.reported.is_some()).count() >= 60);
    }

    #[test]
    fn figures_are_plausible() {
        for card in catalogue() {
            let id = &card.id;
            assert!(id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'), "{id}");
            // Error correction takes a sixteenth of what is on the box, decimal gigabytes seven per cent.
            let (box_size, total, usable) = (card.memory.0, card.total().0, card.usable().0);
            assert!(total <= box_size + box_size / 50 && total >= box_size / 100 * 92, "{id}: {total}");
            let most = if card.unified { total / 3 + 1 } else { total / 8 };
            assert!(usable < total && total - usable <= most, "{id}: {usable} of {total}");
            assert_eq!(card.compute_capability.is_some(), card.vendor == Vendor::Nvidia, "{id}");
            if let Some(capability) = card.compute_capability {
                let expected: &[(u32, u32)] = match card.generation {
                    Generation::Pascal => &[(6, 0), (6, 1)],
                    Generation::Volta => &[(7, 0)],
                    Generation::Turing => &[(7, 5)],
                    Generation::Ampere => &[(8, 0), (8, 6), (8, 7)],
                    Generation::Ada => &[(8, 9)],
                    Generation::Hopper => &[(9, 0)],
                    _ => &[(10, 0), (10, 3), (12, 0), (12, 1)],
                };
                assert!(expected.contains(&capability), "{id}: {capability:?}");
            }
        }
    }

    #[test]
    fn estimates_do_not_exceed_what_was_measured() {
        // Where a log gives the figure, the estimate would have been no larger, or larger by less than 1 %.
        for card in catalogue().iter().filter(|c| c.is_measured() && c.reported.is_some()) {
            let estimate = Device { visible: None, ..card.clone() }.usable().0;
            let measured = card.usable().0;
            assert!(estimate <= measured + measured / 100, "{}: {estimate} for {measured}", card.id);
        }
    }
}
