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
    failure: Option<String>,
}

impl<R: Runtime> Pools<R> {
    pub(crate) fn new(client: ComputeClient<R>, device: Option<fn() -> Option<Bytes>>) -> Pools<R> {
        Pools { client, device, failure: None }
    }
}

impl<R: Runtime> Meter for Pools<R> {
    fn usage(&mut self) -> Usage {
        match self.client.memory_usage() {
            Ok(m) => Usage { in_use: Bytes(m.bytes_in_use), reserved: Bytes(m.bytes_reserved) },
            Err(error) => {
                // Traces of the stack follow what it says.
                let text = error.to_string();
                let said = text.split("backtrace").next().unwrap_or_default();
                self.failure.get_or_insert_with(|| said.trim_end_matches([' ', ',', '{']).to_owned());
                Usage::default()
            }
        }
    }

    fn failure(&mut self) -> Option<String> {
        self.failure.clone()
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
