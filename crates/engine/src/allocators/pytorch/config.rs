//! Settings of PyTorch's caching allocator, as `PYTORCH_ALLOC_CONF` (before 2.9 `PYTORCH_CUDA_ALLOC_CONF`) sets them.
//!
//! Source: `c10/core/AllocatorConfig.{h,cpp}` and `c10/cuda/CUDAAllocatorConfig.cpp`, PyTorch 2.15.

use memfit_graph::Bytes;
use std::fmt;

/// `kMinBlockSize`: sizes are multiples of it.
pub(super) const MIN_BLOCK: u64 = 512;
/// `kSmallSize`: the largest request of the small pool.
pub(super) const SMALL_SIZE: u64 = Bytes::MIB;
/// `kSmallBuffer`: a segment of the small pool.
pub(super) const SMALL_SEGMENT: u64 = 2 * Bytes::MIB;
/// `kLargeBuffer`: a segment of the large pool that several requests share.
pub(super) const LARGE_SEGMENT: u64 = 20 * Bytes::MIB;
/// `kMinLargeAlloc`: from here on a request gets a segment of its own size.
pub(super) const MIN_LARGE_REQUEST: u64 = 10 * Bytes::MIB;
/// `kRoundLarge`: those are multiples of it.
pub(super) const LARGE_ROUNDING: u64 = 2 * Bytes::MIB;
/// Intervals of `roundup_power2_divisions`: 1 MiB to 64 GiB.
const INTERVALS: usize = 16;

/// Settings of PyTorch's caching allocator; the default is PyTorch's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PytorchAllocatorConfig {
    /// Blocks of this size and more are not split, and serve only requests of this size and more. None: no such size.
    pub max_split_size: Option<Bytes>,
    /// By how much a block above `max_split_size` may be larger than its request. None: by a `large_segment`.
    pub max_non_split_rounding: Option<Bytes>,
    /// The segment that requests between 1 and 10 MiB share.
    pub large_segment: Bytes,
    /// Whether one growing segment a pool takes the place of many.
    pub expandable_segments: bool,
    /// Above this share of `allowed` (in millionths; zero: never) old cached blocks are given back before a new segment is
    /// taken.
    pub garbage_collection_threshold: u32,
    /// Into how many steps a power of two is divided when sizes are rounded up, by the size's power of two from
    /// 1 MiB on; 0 and 1: not at all. None: none is.
    pub roundup_power2_divisions: Option<[u64; INTERVALS]>,
    /// What the device can give to the allocator. None: no end.
    pub limit: Option<Bytes>,
    /// What `set_per_process_memory_fraction` allows. None: not set; then there is no garbage collection either.
    pub allowed: Option<Bytes>,
}

impl Default for PytorchAllocatorConfig {
    fn default() -> PytorchAllocatorConfig {
        PytorchAllocatorConfig {
            max_split_size: None,
            max_non_split_rounding: None,
            large_segment: Bytes(LARGE_SEGMENT),
            expandable_segments: false,
            garbage_collection_threshold: 0,
            roundup_power2_divisions: None,
            limit: None,
            allowed: None,
        }
    }
}

/// What is wrong with a settings string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError(String);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}

fn wrong<T>(key: &str, value: &str, expected: &str) -> Result<T, ConfigError> {
    Err(ConfigError(format!("{key}:{value}: expected {expected}")))
}

fn at_least<T>(key: &str, value: &str, mib: u64) -> Result<T, ConfigError> {
    wrong(key, value, &format!("a number of at least {mib} MiB"))
}

fn mib(bytes: Bytes) -> String {
    (bytes.0 / Bytes::MIB).to_string()
}

impl PytorchAllocatorConfig {
    /// The default inside a limit.
    pub fn within(limit: Bytes) -> PytorchAllocatorConfig {
        PytorchAllocatorConfig { limit: Some(limit), ..PytorchAllocatorConfig::default() }
    }

    /// Reads `key:value,key:value` over the present settings. Settings that change no byte on the device are
    /// accepted and left alone.
    ///
    /// # Errors
    /// On unknown keys and on values that PyTorch refuses.
    pub fn apply(mut self, text: &str) -> Result<PytorchAllocatorConfig, ConfigError> {
        let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let Some((key, after)) = rest.split_once(':') else {
                return Err(ConfigError(format!("{rest}: expected key:value")));
            };
            let end = match after.strip_prefix('[') {
                Some(list) => list.find(']').map_or(after.len(), |i| i + 2),
                None => after.find(',').unwrap_or(after.len()),
            };
            let (value, after) = after.split_at(end);
            self.set(key, value)?;
            rest = match after.strip_prefix(',') {
                Some(next) => next,
                None if after.is_empty() => "",
                None => return wrong(key, value, "a comma behind it"),
            };
        }
        self.check()?;
        Ok(self)
    }

    /// The settings as [`PytorchAllocatorConfig::apply`] and PyTorch read them; none where they are PyTorch's own. Limits are set elsewhere.
    pub fn text(&self) -> Option<String> {
        let own = PytorchAllocatorConfig::default();
        let share = |millionths: u32| format!("0.{millionths:06}").trim_end_matches('0').to_owned();
        let segment = Some(self.large_segment).filter(|size| *size != own.large_segment);
        let settings = [
            ("expandable_segments", self.expandable_segments.then(|| "True".to_owned())),
            ("max_split_size_mb", self.max_split_size.map(mib)),
            ("max_non_split_rounding_mb", self.max_non_split_rounding.map(mib)),
            ("large_segment_size_mb", segment.map(mib)),
            (
                "garbage_collection_threshold",
                Some(self.garbage_collection_threshold).filter(|n| *n > 0).map(share),
            ),
            ("roundup_power2_divisions", self.roundup_power2_divisions.as_ref().map(divisions)),
        ];
        let set: Vec<String> =
            settings.into_iter().filter_map(|(key, value)| Some(format!("{key}:{}", value?))).collect();
        (!set.is_empty()).then(|| set.join(","))
    }

    /// What PyTorch refuses of settings that may each be right by themselves.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let sizes = [
            ("max_split_size_mb", self.max_split_size),
            ("max_non_split_rounding_mb", self.max_non_split_rounding),
        ];
        let least = self.large_segment;
        match sizes.into_iter().find(|(_, size)| size.is_some_and(|b| b < least)) {
            Some((key, Some(size))) => at_least(key, &mib(size), least.0 / Bytes::MIB),
            _ => Ok(()),
        }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), ConfigError> {
        let mib = |least: u64| match value.parse::<u64>() {
            Ok(n) if n >= least && n < 1 << 40 => Ok(Bytes::mib(n)),
            _ => at_least(key, value, least),
        };
        match key {
            "max_split_size_mb" => self.max_split_size = Some(mib(0)?),
            "max_non_split_rounding_mb" => self.max_non_split_rounding = Some(mib(0)?),
            "large_segment_size_mb" => self.large_segment = mib(MIN_LARGE_REQUEST / Bytes::MIB + 1)?,
            "expandable_segments" => {
                self.expandable_segments = match value {
                    "True" => true,
                    "False" => false,
                    _ => return wrong(key, value, "True or False"),
                };
            }
            "garbage_collection_threshold" => self.garbage_collection_threshold = fraction(key, value)?,
            "roundup_power2_divisions" => self.set_divisions(key, value)?,
            "backend" if value == "native" => {}
            "backend" => return wrong(key, value, "native; cudaMallocAsync is a pool of its own"),
            "release_lock_on_cudamalloc"
            | "release_lock_on_hipmalloc"
            | "pinned_use_cuda_host_register"
            | "pinned_use_hip_host_register"
            | "pinned_num_register_threads"
            | "pinned_use_background_threads"
            | "pinned_reserve_segment_size_mb"
            | "pinned_max_round_threshold_mb"
            | "pinned_max_cached_size_mb"
            | "pinned_free_catch_all"
            | "throw_on_cudamalloc_oom"
            | "expandable_segments_reserve"
            | "expandable_segments_reserve_by_class"
            | "graph_capture_record_stream_reuse" => {}
            "per_process_memory_fraction" => {
                return wrong(key, value, "it as --memory-fraction, which has a card's total");
            }
            _ => return Err(ConfigError(format!("{key}: no such setting of PyTorch's allocator"))),
        }
        Ok(())
    }

    /// `4`, or `[256:1,512:2,>:4]` with bounds in MiB: sizes of a bound's own power of two and those below get its divisor.
    fn set_divisions(&mut self, key: &str, value: &str) -> Result<(), ConfigError> {
        let divisor = |text: &str| match text.parse::<u64>() {
            Ok(n) if n == 0 || n.is_power_of_two() => Ok(n),
            _ => wrong(key, value, "powers of two"),
        };
        let Some(list) = value.strip_prefix('[') else {
            if value == "0" {
                return wrong(key, value, "a power of two");
            }
            self.roundup_power2_divisions = Some([divisor(value)?; INTERVALS]);
            return Ok(());
        };
        let Some(list) = list.strip_suffix(']') else { return wrong(key, value, "a closing bracket") };
        let divisions = self.roundup_power2_divisions.get_or_insert_default();
        let mut from = 0;
        for (i, pair) in list.split(',').enumerate() {
            let Some((bound, steps)) = pair.split_once(':') else { return wrong(key, value, "pairs") };
            let steps = divisor(steps)?;
            if bound == ">" {
                divisions[from..].fill(steps);
                continue;
            }
            let at = match bound.parse::<u64>() {
                Ok(n) if n.is_power_of_two() => (n.trailing_zeros() as usize).min(INTERVALS - 1),
                _ => return wrong(key, value, "bounds that are powers of two"),
            };
            // PyTorch fills from the front for the first pair only and sets single intervals after it.
            let begin = if i == 0 { 0 } else { at };
            divisions[begin..=at].fill(steps);
            from = at + 1;
        }
        Ok(())
    }

    /// `round_size`: the size of the block for a request. The request is below 2^62.
    pub(super) fn round(&self, request: u64) -> u64 {
        let request = request.max(1);
        if let Some(by_interval) = &self.roundup_power2_divisions {
            let power = request.ilog2();
            let interval = (power.saturating_sub(Bytes::MIB.ilog2()) as usize).min(INTERVALS - 1);
            let divisions = by_interval[interval];
            if divisions > 1 && request > MIN_BLOCK.saturating_mul(divisions) {
                return request.next_multiple_of((1 << power) >> divisions.ilog2());
            }
        }
        request.next_multiple_of(MIN_BLOCK)
    }

    /// Blocks of this size and more are not split.
    pub(super) fn max_split(&self) -> u64 {
        self.max_split_size.map_or(u64::MAX, |b| b.0)
    }

    /// Whether a free block may serve a request: those of `max_split_size` and more are kept for requests of such a size.
    pub(super) fn suits(&self, block: u64, size: u64) -> bool {
        match self.max_split_size {
            None => true,
            Some(most) if size < most.0 => block < most.0,
            Some(_) => {
                let rounding = self.max_non_split_rounding.unwrap_or(self.large_segment);
                block < size.saturating_add(rounding.0)
            }
        }
    }

    /// `should_split`: whether a block gives a smaller request what it needs, and keeps the rest.
    pub(super) fn should_split(&self, is_small: bool, block: u64, size: u64) -> bool {
        let rest = block - size;
        if is_small || self.expandable_segments {
            rest >= MIN_BLOCK
        } else {
            size < self.max_split() && rest > SMALL_SIZE
        }
    }

    /// `get_allocation_size`: the segment for a block that has to be made.
    pub(super) fn segment_size(&self, size: u64) -> u64 {
        match size {
            0..=SMALL_SIZE => SMALL_SEGMENT,
            _ if size < MIN_LARGE_REQUEST => self.large_segment.0,
            _ => size.next_multiple_of(LARGE_ROUNDING),
        }
    }
}

/// One number where it is the same for all, else one for each power of two.
fn divisions(by_interval: &[u64; INTERVALS]) -> String {
    if by_interval.iter().all(|n| *n == by_interval[0]) {
        return by_interval[0].to_string();
    }
    let pairs: Vec<String> =
        by_interval.iter().enumerate().map(|(i, n)| format!("{}:{n}", 1_u64 << i)).collect();
    format!("[{}]", pairs.join(","))
}

/// A decimal fraction between 0 and 1, in millionths.
fn fraction(key: &str, value: &str) -> Result<u32, ConfigError> {
    let digits = match value.split_once('.') {
        Some(("" | "0", digits)) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => {
            digits
        }
        _ => return wrong(key, value, "a fraction between 0 and 1"),
    };
    let millionths =
        digits.bytes().chain(std::iter::repeat(b'0')).take(6).fold(0, |n, b| n * 10 + u32::from(b - b'0'));
    if millionths == 0 { wrong(key, value, "a fraction above 0") } else { Ok(millionths) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_written_as_they_are_read() {
        let read = |text: &str| PytorchAllocatorConfig::default().apply(text).unwrap();
        assert_eq!(PytorchAllocatorConfig::default().text(), None);
        assert_eq!(
            read("backend:native,pinned_num_register_threads:8,expandable_segments:False").text(),
            None
        );
        let plain = "expandable_segments:True,max_split_size_mb:128,garbage_collection_threshold:0.8";
        assert_eq!(read(plain).text().as_deref(), Some(plain));
        for text in [
            plain,
            "max_non_split_rounding_mb:40,large_segment_size_mb:31,garbage_collection_threshold:0.000001",
            "roundup_power2_divisions:4",
            "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
        ] {
            let settings = read(text);
            assert_eq!(read(&settings.text().unwrap()), settings, "{text}");
        }
    }

    #[test]
    fn reads_the_environment_variable() {
        let text = "max_split_size_mb:128, garbage_collection_threshold:0.85,expandable_segments:True,\
                    roundup_power2_divisions:[64:8,128:2,256:4,512:2,1024:4,>:1],backend:native";
        let c = PytorchAllocatorConfig::default().apply(text).unwrap();
        assert_eq!(c.max_split_size, Some(Bytes::mib(128)));
        assert_eq!(c.garbage_collection_threshold, 850_000);
        assert!(c.expandable_segments);
        // The values that PyTorch's own test of this string expects at 32, 64, 128, 256, 512, 1024 and 2048 MiB.
        assert_eq!(c.roundup_power2_divisions.unwrap()[5..12], [8, 8, 2, 4, 2, 4, 1]);
        for (bad, says) in [
            ("max_split_size_mb:19", "at least 20"),
            ("max_split_size_mb:25,large_segment_size_mb:32", "at least 32"),
            ("large_segment_size_mb:10", "at least 11"),
            ("expandable_segments:true", "True or False"),
            ("max_split_sise_mb:200", "no such setting"),
            ("garbage_collection_threshold:1.5", "between 0 and 1"),
            ("roundup_power2_divisions:3", "powers of two"),
            ("roundup_power2_divisions:[64:8", "closing bracket"),
            ("expandable_segments", "key:value"),
            ("backend:cudaMallocAsync", "native"),
        ] {
            let error = PytorchAllocatorConfig::default().apply(bad).unwrap_err().to_string();
            assert!(error.contains(says), "{bad}: {error}");
        }
    }

    #[test]
    fn sizes_are_rounded_as_pytorch_does() {
        let c = PytorchAllocatorConfig::default();
        for (request, block, segment) in [
            (1, 512, 2 << 20),
            (1 << 20, 1 << 20, 2 << 20),
            ((1 << 20) + 1, (1 << 20) + 512, 20 << 20),
            (8_519_680, 8_519_680, 20 << 20),
            (10 << 20, 10 << 20, 10 << 20),
            ((10 << 20) + 1, (10 << 20) + 512, 12 << 20),
        ] {
            assert_eq!((c.round(request), c.segment_size(c.round(request))), (block, segment), "{request}");
        }
        // 1200 with 4 divisions is 1280 where sizes are small enough for neither rule to be the other's.
        let c = c.apply("roundup_power2_divisions:4").unwrap();
        assert_eq!(c.round(1200), 1536);
        assert_eq!(c.round(1200 << 20), 1280 << 20);
        assert_eq!(c.round(1024 << 20), 1024 << 20);
    }
}
