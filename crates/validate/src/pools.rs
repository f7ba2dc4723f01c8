//! cubecl's own count of its pools.

use crate::measure::Meter;
use crate::measurement::Usage;
use cubecl::Runtime;
use cubecl::client::ComputeClient;
use memfit_engine::allocators::CubeclConfig;
use memfit_graph::Bytes;

/// Asks a client.
pub(crate) struct Pools<R: Runtime> {
    pub(crate) client: ComputeClient<R>,
    /// Asks the driver what the whole device holds, where it says that.
    pub(crate) device: Option<fn() -> Option<Bytes>>,
}

impl<R: Runtime> Meter for Pools<R> {
    fn usage(&mut self) -> Usage {
        self.client.memory_usage().map_or(Usage::default(), |m| Usage {
            in_use: Bytes(m.bytes_in_use),
            reserved: Bytes(m.bytes_reserved),
        })
    }

    fn device(&mut self) -> Option<Bytes> {
        self.device.and_then(|ask| ask())
    }
}

/// What the pools follow from on a device.
pub(crate) fn config<R: Runtime>(client: &ComputeClient<R>) -> CubeclConfig {
    let memory = &client.properties().memory;
    CubeclConfig { max_page: Bytes(memory.max_page_size), alignment: memory.alignment, limit: None }
}
