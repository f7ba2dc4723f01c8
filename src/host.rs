//! The GPU of this host, as nvidia-smi shows it: its name, its memory and what other processes hold of it.

use crate::failure::Failure;
use memfit_engine::devices::{Card, Device, Generation, find};
use memfit_graph::Bytes;
use std::io::ErrorKind;
use std::process::Command;

const QUERY: &str = "--query-gpu=name,memory.total,memory.used,compute_cap";

/// The first GPU of this host that `CUDA_VISIBLE_DEVICES` leaves.
pub(crate) fn card() -> Result<Card, Failure> {
    let failure = |message: String| {
        Failure::new("--gpu auto", message).hint("name the card: --gpu rtx-3090, or its memory: --gpu 24GiB")
    };
    let asked = Command::new("nvidia-smi").args([QUERY, "--format=csv,noheader,nounits"]).output();
    let output = asked.map_err(|error| match error.kind() {
        ErrorKind::NotFound => failure("this host has no NVIDIA driver (nvidia-smi was not found)".into()),
        _ => failure(format!("nvidia-smi cannot be run: {error}")),
    })?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let said = text.lines().chain(std::str::from_utf8(&output.stderr).unwrap_or_default().lines());
        let said = said.map(str::trim).find(|line| !line.is_empty()).unwrap_or("no reason given").to_owned();
        return Err(failure(format!("nvidia-smi failed: {said}")));
    }
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    let index = visible.as_deref().and_then(|v| v.split(',').next()?.trim().parse().ok()).unwrap_or(0);
    let line = text.lines().nth(index).ok_or_else(|| failure(format!("nvidia-smi lists no GPU {index}")))?;
    read(line).ok_or_else(|| failure(format!("nvidia-smi wrote `{line}`, which is not understood")))
}

/// `NVIDIA GeForce RTX 3090, 24576, 312, 8.6`
fn read(line: &str) -> Option<Card> {
    let mut fields = line.split(',').map(str::trim);
    let name = fields.next().filter(|name| !name.is_empty())?;
    let total = Bytes::mib(fields.next()?.parse().ok()?);
    let used = Bytes::mib(fields.next()?.parse().unwrap_or(0));
    let capability = fields.next().and_then(|version| {
        let (major, minor) = version.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    });
    let device = find(name).cloned().unwrap_or_else(|_| Device {
        id: name.into(),
        name: name.into(),
        generation: generation(capability),
        visible: None,
        ..Device::of_size(name, total)
    });
    // The card's own figure, not the catalogue's, unless this is a whole other size of it.
    let visible = device.visible.clone().filter(|visible| visible.0 <= total);
    let reported = Some((total, "nvidia-smi on this host".to_owned()));
    let device =
        Device { reported, visible, compute_capability: capability.or(device.compute_capability), ..device };
    Some(Card { other_processes: used, ..Card::alone(device) })
}

/// The family of a card that the catalogue does not have.
fn generation(capability: Option<(u32, u32)>) -> Generation {
    match capability {
        Some((6, _)) => Generation::Pascal,
        Some((7, 0 | 2)) => Generation::Volta,
        Some((7, _)) => Generation::Turing,
        Some((8, 9)) => Generation::Ada,
        Some((8, _)) => Generation::Ampere,
        Some((9, _)) => Generation::Hopper,
        Some((10.., _)) => Generation::Blackwell,
        _ => Generation::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_nvidia_smi_is_a_card() {
        let card = read("NVIDIA GeForce RTX 3090, 24576, 312, 8.6").unwrap();
        assert_eq!((&*card.device.id, card.other_processes), ("rtx-3090", Bytes::mib(312)));
        assert_eq!(card.device.total(), Bytes::mib(24_576));
        let card = read("NVIDIA Prototype 9, 30000, [N/A], 12.3").unwrap();
        assert_eq!(card.device.generation, Generation::Blackwell);
        assert!(card.device.usable() < card.device.total() && card.other_processes == Bytes::ZERO);
        assert!(read("No devices were found").is_none() && read("").is_none());
    }
}
