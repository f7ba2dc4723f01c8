//! One message of a log that speaks of memory, with the numbers it gives.

use memfit_graph::Bytes;

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// An allocator of a framework could not give device memory.
    DeviceAllocation,
    /// The driver refused memory, and nothing says for what.
    Driver,
    /// A context or a library's handle could not be made, for want of memory or for what often is want of memory.
    Start,
    /// Memory of the host could not be had.
    HostAllocation,
    /// The host's operating system, or whoever watches over it, ended the process.
    HostKill,
    /// Shared memory of data loaders ran out.
    SharedMemory,
    /// An allocator asked, was refused, and tried less: not a failure by itself.
    Retry,
    /// A framework says how much it took or found at its start.
    Taken,
    /// Something else is wrong, after which libraries fail in the words of want of memory.
    OtherFault,
}

impl Kind {
    /// Whether it says that something failed.
    pub fn is_failure(self) -> bool {
        !matches!(self, Kind::Retry | Kind::Taken | Kind::OtherFault)
    }

    /// As JSON writes it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::DeviceAllocation => "device-allocation",
            Kind::Driver => "driver",
            Kind::Start => "start",
            Kind::HostAllocation => "host-allocation",
            Kind::HostKill => "host-kill",
            Kind::SharedMemory => "shared-memory",
            Kind::Retry => "retry",
            Kind::Taken => "taken",
            Kind::OtherFault => "other-fault",
        }
    }
}

/// The detail of a driver's refusal that an allocator of a framework passed on.
pub(crate) const ALLOCATOR: &str = "the allocator";

/// The detail of what TensorFlow finds of a card when it starts.
pub(crate) const FOUND: &str = "found at the start";

/// The details of what vLLM says where the cache of attention does not fit beside the weights.
pub(crate) const NO_ROOM: &str = "vLLM: the weights leave no room for the cache";
pub(crate) const ONE_REQUEST: &str = "vLLM: one request's cache does not fit beside the weights";

/// The details of what cuDNN says where nothing that it tried ran.
pub(crate) const NO_ENGINE: &str = "no engine could run";
pub(crate) const NO_ALGORITHM: &str = "no algorithm could run";

/// The detail of a worker of a data loader that a bus error ended, and of a process that one ended.
pub(crate) const WORKERS_BUS_ERROR: &str = "bus error of a worker";
pub(crate) const BUS_ERROR: &str = "signal 7";

/// Another process on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: u64,
    /// What it holds.
    pub bytes: Bytes,
}

/// A message, with the numbers it gives; what it does not say is `None`.
#[derive(Clone, Debug)]
pub struct Message {
    /// What wrote it: `pytorch`, `tensorflow`, `jax`…
    pub family: &'static str,
    /// What it says.
    pub kind: Kind,
    /// Its line, from 1.
    pub line: u64,
    /// The line without colours, shortened.
    pub text: String,
    /// How often the log says the same.
    pub count: u64,
    /// What was asked for.
    pub requested: Option<Bytes>,
    /// What the device has in all.
    pub capacity: Option<Bytes>,
    /// What the framework's tensors hold.
    pub allocated: Option<Bytes>,
    /// What its allocator holds.
    pub reserved: Option<Bytes>,
    /// What the driver has left.
    pub free: Option<Bytes>,
    /// What this process holds in all.
    pub in_use: Option<Bytes>,
    /// The most that the framework may take, where that is less than the device has.
    pub limit: Option<Bytes>,
    /// The largest run that the allocator has free.
    pub largest_free: Option<Bytes>,
    /// Other processes on the device.
    pub others: Vec<Process>,
    /// The tensor's dims.
    pub shape: Option<Vec<u64>>,
    /// Its element type, in the framework's word.
    pub dtype: Option<String>,
    /// The device, in the framework's words.
    pub device: Option<String>,
    /// The operator that asked.
    pub node: Option<String>,
    /// The library's status, or who was killed.
    pub detail: Option<String>,
}

impl Message {
    /// A message that gives no numbers yet.
    pub(crate) fn new(family: &'static str, kind: Kind) -> Message {
        Message {
            family,
            kind,
            line: 0,
            text: String::new(),
            count: 1,
            requested: None,
            capacity: None,
            allocated: None,
            reserved: None,
            free: None,
            in_use: None,
            limit: None,
            largest_free: None,
            others: Vec::new(),
            shape: None,
            dtype: None,
            device: None,
            node: None,
            detail: None,
        }
    }

    /// What the allocator holds without using it.
    pub fn unused(&self) -> Option<Bytes> {
        Some(self.reserved?.saturating_sub(self.allocated?))
    }

    /// Counts the same message again and takes over what is new in it.
    pub(crate) fn absorb(&mut self, other: Message) {
        self.count += 1;
        self.fill(other);
    }

    /// Takes over what only the other one says.
    pub(crate) fn fill(&mut self, other: Message) {
        let take = |mine: &mut Option<Bytes>, other: Option<Bytes>| *mine = mine.or(other);
        take(&mut self.requested, other.requested);
        take(&mut self.capacity, other.capacity);
        take(&mut self.allocated, other.allocated);
        take(&mut self.reserved, other.reserved);
        take(&mut self.free, other.free);
        take(&mut self.in_use, other.in_use);
        take(&mut self.limit, other.limit);
        take(&mut self.largest_free, other.largest_free);
        if self.others.is_empty() {
            self.others = other.others;
        }
        self.shape = self.shape.take().or(other.shape);
        self.dtype = self.dtype.take().or(other.dtype);
        self.device = self.device.take().or(other.device);
        self.node = self.node.take().or(other.node);
    }

    /// Whether the other says the same again, as ranks and retries do.
    pub(crate) fn repeats(&self, other: &Message) -> bool {
        // What tells most apart comes first: a log may have many.
        self.kind == other.kind
            && (self.requested.is_none() || other.requested.is_none() || self.requested == other.requested)
            && (self.shape.is_none() || other.shape.is_none() || self.shape == other.shape)
            && self.family == other.family
            && self.detail == other.detail
    }
}
