//! How the framework's allocator is set up, as JSON: a plan shows it so, and a plan that is read says it so.

use memfit_engine::allocators::AllocatorSettings;
use memfit_graph::Bytes;
use serde::{Deserialize, Serialize};

/// What a plan in JSON says of the framework's allocator; what is not said is the framework's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Allocator {
    /// PyTorch: `expandable_segments`.
    pub expandable_segments: bool,
    /// PyTorch: `max_split_size_mb`, in bytes.
    pub max_split_size_bytes: Option<u64>,
    /// CUDA's own pool in the framework's place.
    pub cuda_malloc_async: bool,
    /// TensorFlow: `set_memory_growth`.
    pub memory_growth: bool,
    /// What part of the card the framework may have, in thousandths.
    pub memory_fraction_thousandths: Option<u32>,
    /// TensorFlow: the limit of a logical device.
    pub memory_limit_bytes: Option<u64>,
}

impl From<&AllocatorSettings> for Allocator {
    fn from(settings: &AllocatorSettings) -> Allocator {
        Allocator {
            expandable_segments: settings.pytorch.expandable_segments,
            max_split_size_bytes: settings.pytorch.max_split_size.map(|b| b.0),
            cuda_malloc_async: settings.cuda_malloc_async,
            memory_growth: settings.memory_growth,
            memory_fraction_thousandths: settings.memory_fraction,
            memory_limit_bytes: settings.memory_limit.map(|b| b.0),
        }
    }
}

impl From<Allocator> for AllocatorSettings {
    fn from(said: Allocator) -> AllocatorSettings {
        let mut settings = AllocatorSettings {
            cuda_malloc_async: said.cuda_malloc_async,
            memory_growth: said.memory_growth,
            memory_fraction: said.memory_fraction_thousandths,
            memory_limit: said.memory_limit_bytes.map(Bytes),
            ..AllocatorSettings::default()
        };
        settings.pytorch.expandable_segments = said.expandable_segments;
        settings.pytorch.max_split_size = said.max_split_size_bytes.map(Bytes);
        settings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_what_is_shown() {
        let said = Allocator {
            expandable_segments: true,
            max_split_size_bytes: Some(128 << 20),
            cuda_malloc_async: true,
            memory_growth: true,
            memory_fraction_thousandths: Some(800),
            memory_limit_bytes: Some(4 << 30),
        };
        assert_eq!(Allocator::from(&AllocatorSettings::from(said)), said);
        let text = serde_json::to_string(&said).unwrap();
        assert_eq!(serde_json::from_str::<Allocator>(&text).unwrap(), said);
        assert_eq!(AllocatorSettings::from(Allocator::default()), AllocatorSettings::default());
        assert!(serde_json::from_str::<Allocator>(r#"{"expandable": true}"#).is_err());
    }
}
