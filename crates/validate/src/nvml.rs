//! NVML, the driver's library of figures: what each process holds on each card, in far less time than nvidia-smi takes, which asks it
//! too. It is loaded when it is asked for.

use memfit_graph::Bytes;
use nvml_wrapper::Nvml;
use nvml_wrapper::enums::device::UsedGpuMemory;

/// The library, where the host has it and its driver runs.
pub(crate) fn open() -> Option<Nvml> {
    Nvml::init().ok()
}

/// What a process holds on all cards; nothing where NVML does not know it.
pub(crate) fn of_process(nvml: &Nvml, process: u32) -> Option<Bytes> {
    let cards = (0..nvml.device_count().ok()?).filter_map(|i| nvml.device_by_index(i).ok());
    let processes = cards.filter_map(|card| card.running_compute_processes().ok()).flatten();
    let held = processes.filter(|p| p.pid == process).filter_map(|p| match p.used_gpu_memory {
        UsedGpuMemory::Used(bytes) => Some(Bytes(bytes)),
        UsedGpuMemory::Unavailable => None,
    });
    held.reduce(|a, b| a + b)
}

/// What all processes hold of the first card.
pub(crate) fn used(nvml: &Nvml) -> Option<Bytes> {
    Some(Bytes(nvml.device_by_index(0).ok()?.memory_info().ok()?.used))
}
