//! From a [`Graph`](memfit_graph::Graph) and a [`Plan`] to what one training step holds on the GPU.
//!
//! The step is written out as allocate and free events in the framework's own order ([`Timeline`]), replayed, and
//! read off at its highest point ([`Estimate`]). Nothing here knows a model by name: every byte follows from an
//! operator's rule, the framework's rules ([`frameworks`]) or an optimizer's ([`optimizers`]).

pub mod advise;
pub mod allocators;
mod blocks;
pub mod compare;
pub mod devices;
pub mod diff;
mod estimate;
pub mod fit;
pub mod frameworks;
mod frozen_norms;
mod host;
mod losses;
mod model;
pub mod optimizers;
pub mod parallel;
mod parameters;
mod placement;
mod plan;
mod prepared;
mod range;
pub mod recompose;
mod replay;
mod said;
pub mod scenario;
mod setting;
mod sizes;
mod step;
mod structure;
mod tables;
mod timeline;
mod usual;
mod word;

use structure::Structure;

pub use estimate::{Breakdown, Estimate, LayerRow, LiveTensor, ModelSummary, Peak};
pub use model::{Model, SavedBy, block};
pub use parameters::{Stored, matches as glob_matches};
pub use placement::{Fit, Shortage, Verdict};
pub use plan::{Checkpoint, Framework, Loss, Mode, OptimizerImpl, Plan, Precision};
pub use said::{Aside, Said};
pub use scenario::{Companion, Life, Scenario, Stretch};
pub use setting::{Setting, Target};
pub use timeline::{Category, Event, EventKind, Phase, Search, Storage, StorageId, Timeline};
pub use usual::{Compiled, Usual};
pub use word::Word;
