//! The GPU of this host, as nvidia-smi shows it: its name, its memory and what other processes hold of it.

use crate::failure::Failure;
use memfit_engine::devices::{Card, Device, Generation, find};
use memfit_graph::Bytes;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

const QUERY: &str = "--query-gpu=name,memory.total,memory.used,compute_cap";

/// The first GPU of this host that `CUDA_VISIBLE_DEVICES` leaves.
pub(crate) fn card() -> Result<Card, Failure> {
    let failure = |message: String| Failure::new("--gpu auto", message).hint(NAME_IT);
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    let which = first(visible.as_deref()).map_err(failure)?;
    let is_by_bus = std::env::var("CUDA_DEVICE_ORDER").is_ok_and(|order| order == "PCI_BUS_ID");
    let is_same = is_by_bus || which.is_some_and(|which| which.starts_with("GPU-"));
    let mut asked = Command::new("nvidia-smi");
    asked.args([QUERY, "--format=csv,noheader,nounits"]);
    if is_same {
        asked.args(which.iter().flat_map(|which| ["-i", which]));
    }
    let output = asked.output().map_err(|error| match error.kind() {
        ErrorKind::NotFound if Path::new(TEGRA).exists() => {
            failure("a Jetson has no nvidia-smi that tells its memory".into())
                .hint("name it: memfit gpus jetson")
        }
        ErrorKind::NotFound => failure("this host has no NVIDIA driver (nvidia-smi was not found)".into()),
        _ => failure(format!("nvidia-smi cannot be run: {error}")),
    })?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let said = text.lines().chain(std::str::from_utf8(&output.stderr).unwrap_or_default().lines());
        let said = said.map(str::trim).find(|line| !line.is_empty()).unwrap_or("no reason given").to_owned();
        return Err(failure(format!("nvidia-smi failed: {said}")));
    }
    let lines: Vec<&str> = text.lines().collect();
    if !is_same && lines.iter().any(|line| model(line) != model(lines[0])) {
        return Err(failure(
            "this host has GPUs of several kinds, and CUDA counts the fastest first, nvidia-smi by their place on the bus".into(),
        ));
    }
    let at = which.and_then(|which| which.parse().ok()).filter(|_| !is_same).unwrap_or(0);
    let line =
        *lines.get(at).ok_or_else(|| failure(format!("nvidia-smi lists no GPU of the number {at}")))?;
    read(line).ok_or_else(|| match line.contains("[N/A]") {
        true => {
            failure(format!("nvidia-smi does not tell the memory of `{line}`, which may share the host's"))
        }
        false => failure(format!("nvidia-smi wrote `{line}`, which is not understood")),
    })
}

const NAME_IT: &str = "name the card: --gpu rtx-3090, or its memory: --gpu 24GiB";

/// A file that a Jetson has.
const TEGRA: &str = "/etc/nv_tegra_release";

/// What kind of GPU a line is of: its name and its memory.
fn model(line: &str) -> Vec<&str> {
    line.split(',').take(2).collect()
}

/// The first GPU that a value of `CUDA_VISIBLE_DEVICES` leaves, by index or UUID. CUDA counts the fastest first unless
/// `CUDA_DEVICE_ORDER=PCI_BUS_ID` has it count as nvidia-smi does (CUDA C++ programming guide, environment variables). Values behind one
/// that names no GPU do not count, so an empty value or -1 hides all.
fn first(visible: Option<&str>) -> Result<Option<&str>, String> {
    let Some(first) = visible.and_then(|visible| visible.split(',').next()).map(str::trim) else {
        return Ok(None);
    };
    if first.starts_with("MIG-") {
        return Err(format!(
            "CUDA_VISIBLE_DEVICES names a MIG slice, {first}: give its profile, as in a100-40gb:3g.20gb"
        ));
    }
    if first.starts_with("GPU-") || first.parse::<u32>().is_ok() {
        return Ok(Some(first));
    }
    Err(format!("CUDA_VISIBLE_DEVICES is `{}`, which hides all GPUs", visible.unwrap_or_default()))
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
    fn the_first_visible_gpu_is_asked_for() {
        assert_eq!((first(None), first(Some("2,0"))), (Ok(None), Ok(Some("2"))));
        assert_eq!(first(Some("GPU-8932f937,1")), Ok(Some("GPU-8932f937")));
        assert!(
            first(Some("")).is_err() && first(Some("-1,0")).is_err() && first(Some("NoDevFiles")).is_err()
        );
        assert!(first(Some("MIG-8d2f")).unwrap_err().contains("profile"));
    }

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
