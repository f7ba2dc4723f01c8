//! Finds a card by whatever a user writes: `RTX 3090`, `rtx3090`, `NVIDIA GeForce RTX 3090`, `3090`, `a100 80gb`, or a size.
//!
//! Memory may stand in a name that has none (`3060 12GB`), and may lack its unit (`a100 80`), or itself where one card alone is called so
//! (`jetson orin nano`).

use super::{Device, catalogue};
use memfit_graph::Bytes;
use memfit_graph::order::sorted_by_key;
use std::fmt;

/// Why no card was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LookupError {
    /// No card is called so.
    Unknown {
        /// What was asked for.
        text: String,
        /// Ids of cards with similar names.
        nearest: Vec<String>,
    },
    /// Several cards are called so.
    Ambiguous {
        /// What was asked for.
        text: String,
        /// Their ids.
        ids: Vec<String>,
    },
    /// A card has no such slice.
    Slice {
        /// What was asked for.
        text: String,
        /// Those that it has.
        slices: Vec<String>,
    },
    /// No card has so much memory, or so little.
    Size {
        /// What was asked for.
        text: String,
    },
}

impl fmt::Display for LookupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LookupError::Unknown { text, nearest } if nearest.is_empty() => {
                write!(f, "no GPU is called {text:?}; give its memory instead, for example 24GiB")
            }
            LookupError::Unknown { text, nearest } => {
                let nearest = nearest.join(", ");
                write!(f, "no GPU is called {text:?}; the nearest are {nearest}; or give its memory: 24GiB")
            }
            LookupError::Ambiguous { text, ids } => {
                write!(f, "{text:?} can be several GPUs: {}", ids.join(", "))
            }
            LookupError::Slice { text, slices } if slices.is_empty() => {
                write!(f, "{text:?}: that GPU has no slices; one that has is a100-40gb:3g.20gb")
            }
            LookupError::Slice { text, slices } => {
                write!(f, "{text:?} is no slice of that GPU; it has {}", slices.join(", "))
            }
            LookupError::Size { text } => {
                write!(
                    f,
                    "{text:?} is no memory of a GPU: expected more than nothing, and no more than 1,024 TiB"
                )
            }
        }
    }
}

impl std::error::Error for LookupError {}

/// Words that tell no two cards apart.
const NOISE: [&str; 11] = [
    "nvidia",
    "geforce",
    "tesla",
    "quadro",
    "amd",
    "radeon",
    "instinct",
    "apple",
    "jetson",
    "generation",
    "gpu",
];

/// Letters and digits in lower case, without the words above.
fn key(text: &str) -> String {
    let mut key: String =
        text.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    for word in NOISE {
        key = key.replace(word, "");
    }
    key.replace("mobile", "laptop")
}

fn names(card: &Device) -> impl Iterator<Item = &String> {
    [&card.id, &card.name].into_iter().chain(&card.aliases)
}

fn keys(card: &Device) -> impl Iterator<Item = String> {
    names(card).map(|name| key(name))
}

/// Series that people leave out: `5090 laptop`.
const SERIES: [&str; 3] = ["rtx", "gtx", "rx"];

/// A name without its series and without its memory, and the memory in GiB where it ends with one: `a100 80`, `RTX 3060 12GB`.
fn apart(name: &str) -> (String, Option<u64>) {
    let name = name.trim().to_ascii_lowercase();
    let (rest, last) = name.rsplit_once(|c: char| !c.is_ascii_alphanumeric()).unwrap_or((&name, ""));
    let digits = ["gib", "gb", "g"].iter().find_map(|unit| last.strip_suffix(unit)).unwrap_or(last);
    // Four digits are a card's.
    let memory = digits.parse().ok().filter(|gib| *gib < 1000);
    let whole = key(if memory.is_some() { rest } else { &name });
    let base = SERIES.iter().find_map(|series| whole.strip_prefix(series)).unwrap_or(&whole);
    (base.to_owned(), memory)
}

/// The cards that are called so but for their series, and have the memory that is said, if any is.
fn called(text: &str) -> Vec<&'static Device> {
    let (wanted, memory) = apart(text);
    let fits = |card: &Device| memory.is_none_or(|gib| card.memory == Bytes(gib * Bytes::GIB));
    let is_called = |card: &Device| names(card).any(|name| apart(name).0 == wanted) && fits(card);
    catalogue().iter().filter(|card| !wanted.is_empty() && is_called(card)).collect()
}

/// A card of the catalogue.
///
/// # Errors
/// When no card, or more than one, is called so; the error names the nearest.
pub fn find(text: &str) -> Result<&'static Device, LookupError> {
    // An id as it stands needs no other name of the whole catalogue to be read.
    if let Some(card) = catalogue().iter().find(|card| card.id == text) {
        return Ok(card);
    }
    let wanted = key(text);
    if !wanted.is_empty() {
        if let Some(card) = catalogue().iter().find(|card| keys(card).any(|k| k == wanted)) {
            return Ok(card);
        }
        match &called(text)[..] {
            [] => {}
            [card] => return Ok(card),
            several => {
                let ids = several.iter().map(|card| card.id.clone()).collect();
                return Err(LookupError::Ambiguous { text: text.into(), ids });
            }
        }
        let begins: Vec<String> = catalogue()
            .iter()
            .filter(|card| keys(card).any(|k| k.starts_with(&wanted)))
            .map(|card| card.id.clone())
            .collect();
        if (2..=8).contains(&begins.len()) {
            return Err(LookupError::Ambiguous { text: text.into(), ids: begins });
        }
    }
    Err(LookupError::Unknown { text: text.into(), nearest: nearest(&wanted) })
}

/// A card of the catalogue, or one that a size stands for (`24GiB`).
///
/// # Errors
/// As [`find`].
pub fn resolve(text: &str) -> Result<Device, LookupError> {
    match written_size(text) {
        Some(_) => match parse_size(text) {
            Some(size) => Ok(Device::of_size(text.trim(), size)),
            None => Err(LookupError::Size { text: text.into() }),
        },
        None => find(text).cloned(),
    }
}

/// The three cards whose names take the fewest edits, if that is not more than half of the name.
fn nearest(wanted: &str) -> Vec<String> {
    let distance = |card: &Device| keys(card).map(|k| edits(wanted, &k)).min().unwrap_or(usize::MAX);
    let near: Vec<(usize, &Device)> = catalogue().iter().map(|card| (distance(card), card)).collect();
    let near = sorted_by_key(near, |(distance, _)| *distance as u64).into_iter();
    near.take_while(|(distance, _)| *distance <= wanted.len() / 2)
        .take(3)
        .map(|(_, c)| c.id.clone())
        .collect()
}

/// Levenshtein distance; both are ASCII.
fn edits(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, y) in row.iter_mut().skip(1).zip(b.bytes()) {
            let substituted = diagonal + usize::from(x != y);
            diagonal = *cell;
            left = substituted.min(diagonal + 1).min(left + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

/// A size with its unit: `24GiB`, `24 GB`, `24576MiB`, `11.5g`. Graphics memory comes in powers of two, so that GB means
/// GiB here. None where it is no such thing: a bare number is a card's.
pub fn parse_size(text: &str) -> Option<Bytes> {
    // A pebibyte: larger sizes are mistakes.
    let bytes = written_size(text)?;
    u64::try_from(bytes).ok().filter(|b| *b > 0 && *b <= 1 << 50).map(Bytes)
}

/// A number with a unit, however large; of what is too large to be read the largest.
fn written_size(text: &str) -> Option<u128> {
    let text = text.trim().to_ascii_lowercase();
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(unit_at);
    let unit = match unit {
        "b" => 1,
        "k" | "kb" | "kib" => Bytes::KIB,
        "m" | "mb" | "mib" => Bytes::MIB,
        "g" | "gb" | "gib" => Bytes::GIB,
        "t" | "tb" | "tib" => Bytes::GIB << 10,
        _ => return None,
    };
    let (whole, part) = number.trim().split_once('.').unwrap_or((number.trim(), ""));
    if whole.is_empty() || part.len() > 9 || !(whole.bytes().chain(part.bytes())).all(|b| b.is_ascii_digit())
    {
        return None;
    }
    let scale = 10_u128.pow(u32::try_from(part.len()).ok()?);
    let digits: u128 = format!("{whole}{part}").parse().unwrap_or(u128::MAX);
    Some(digits.saturating_mul(unit.into()) / scale)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn every_name_finds_its_card_and_no_other() {
        let mut owner: BTreeMap<String, &str> = BTreeMap::new();
        for card in catalogue() {
            for name in [&card.id, &card.name].into_iter().chain(&card.aliases) {
                assert_eq!(find(name).unwrap().id, card.id, "{name}");
                let other = owner.insert(key(name), &card.id);
                assert!(other.is_none_or(|id| id == card.id), "{name}: {} and {other:?}", card.id);
            }
        }
    }

    #[test]
    fn what_people_write_is_understood() {
        for (text, id) in [
            ("RTX 3090", "rtx-3090"),
            ("rtx3090", "rtx-3090"),
            ("NVIDIA GeForce RTX 3090", "rtx-3090"),
            ("3090", "rtx-3090"),
            ("3090ti", "rtx-3090-ti"),
            ("a100 80gb", "a100-80gb"),
            ("A100-SXM4-40GB", "a100-40gb"),
            ("NVIDIA A100 80GB PCIe", "a100-80gb"),
            ("Tesla V100-PCIE-32GB", "v100-32gb"),
            ("H100", "h100-80gb"),
            ("nvidia t4", "t4"),
            ("RTX 6000 Ada", "rtx-6000-ada"),
            ("Quadro RTX 6000", "quadro-rtx-6000"),
            ("RTX 4090 Laptop", "rtx-4090-laptop"),
            ("m3 max 64gb", "apple-m3-max-64gb"),
            ("MI300X", "mi300x"),
            ("a100 80", "a100-80gb"),
            ("v100 32", "v100-32gb"),
            ("RTX 3080 10G", "rtx-3080"),
            ("3080 12", "rtx-3080-12gb"),
            ("5090 laptop", "rtx-5090-laptop"),
            ("M3 Max 128", "apple-m3-max-128gb"),
            ("3060 12GB", "rtx-3060"),
            ("rtx 3060 8gb", "rtx-3060-8gb"),
            ("jetson orin nano", "jetson-orin-nano-8gb"),
            ("AGX Orin 64GB", "jetson-agx-orin-64gb"),
            ("6000 Ada", "rtx-6000-ada"),
            ("RTX 4070 Mobile", "rtx-4070-laptop"),
        ] {
            assert_eq!(find(text).unwrap().id, id, "{text}");
        }
    }

    #[test]
    fn errors_name_the_nearest() {
        let error = find("A100").unwrap_err().to_string();
        assert_eq!(error, "\"A100\" can be several GPUs: a100-40gb, a100-80gb");
        assert!(matches!(find("m3"), Err(LookupError::Ambiguous { ids, .. }) if ids.len() == 3));
        assert!(matches!(find("RTX 4060 Ti"), Err(LookupError::Ambiguous { ids, .. }) if ids.len() == 2));
        for (text, near) in [("rtx-3091", "rtx-3090"), ("GTX 1080 It", "gtx-1080-ti"), ("l40x", "l40s")] {
            let Err(LookupError::Unknown { nearest, .. }) = find(text) else { panic!("{text} was found") };
            assert!(nearest.iter().any(|id| id == near), "{text}: {nearest:?}");
        }
        for text in ["", "nvidia", "voodoo banshee", "½", "rtx", "gtx 780", "a100 24", "rtx 8gb"] {
            let error = find(text).unwrap_err().to_string();
            assert!(error.contains("24GiB"), "{error}");
        }
    }

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in [
            ("24GiB", Some(24 << 30)),
            ("24GB", Some(24 << 30)),
            (" 24 gb", Some(24 << 30)),
            ("24576MiB", Some(24 << 30)),
            ("11.5g", Some(23 << 29)),
            ("3090", None),
            ("24", None),
            ("t4", None),
            ("0GiB", None),
            ("1e9GiB", None),
            ("999999999999999999999GiB", None),
            ("1.5.5GiB", None),
            ("-1GiB", None),
        ] {
            assert_eq!(parse_size(text), bytes.map(Bytes), "{text}");
        }
        for text in ["0GiB", "2000TiB", "999999999999999999999GiB"] {
            assert!(matches!(resolve(text), Err(LookupError::Size { .. })), "{text}");
        }
        let card = resolve("24GiB").unwrap();
        assert_eq!((card.total(), card.usable()), (Bytes(24 << 30), Bytes(24 << 30)));
        assert_eq!(resolve("rtx 3090").unwrap().usable(), Bytes::mib(24_121));
    }
}
