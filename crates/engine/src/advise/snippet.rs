//! The lines of code that a change asks for. They are files of Python; names between double underscores stand for what depends
//! on the situation. Some have another file for releases that lack a function.
//!
//! Sources of the releases: PyTorch's release notes and documentation (`torch.amp.GradScaler` 2.3, `use_reentrant` and `interpolate(antialias=…)` 1.11,
//! `torch.OutOfMemoryError` 2.5, `torch.cuda.OutOfMemoryError` 1.13, `PYTORCH_ALLOC_CONF` 2.9, `expandable_segments` 2.1); TensorFlow's (logical
//! devices and `mixed_precision` 2.4, `experimental.set_policy` 2.1, `cuda_malloc_async` 2.5, `layers.Resizing` 2.6, Keras 3 as `keras` 2.16), Keras' (`gradient_accumulation_steps` 3.1).

use super::{Code, Situation, constructor, loops};
use crate::devices::Vendor;
use crate::parallel::Sharding;
use crate::{Framework, OptimizerImpl, Plan, Precision};

/// A release: major and minor.
pub type Release = (u32, u32);

/// The release with which TensorFlow's Keras is Keras 3.
pub(super) const KERAS_3: Release = (2, 16);

/// What the code of a model calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// PyTorch, in a loop of one's own.
    Pytorch,
    /// Keras on TensorFlow.
    Tensorflow,
    /// Keras 3 on its PyTorch backend.
    KerasOnPytorch,
}

impl Api {
    /// What is called where a framework runs the model.
    pub(super) fn of(framework: Framework, is_keras: bool) -> Option<Api> {
        match framework {
            Framework::Pytorch if is_keras => Some(Api::KerasOnPytorch),
            Framework::Pytorch => Some(Api::Pytorch),
            Framework::Tensorflow => Some(Api::Tensorflow),
            Framework::Burn => None,
        }
    }
}

/// One file.
struct Snippet {
    api: Api,
    name: &'static str,
    /// The release from which on it is taken, over those before it in the list.
    since: Release,
    text: &'static str,
}

macro_rules! files {
    ($($api:ident: $($name:literal $file:literal $since:expr;)+)+) => {
        &[$($(Snippet {
            api: Api::$api,
            name: $name,
            since: $since,
            text: include_str!(concat!("snippets/", $file, ".py")),
        }),+),+]
    };
}

/// All files, by name; of one name the older release first.
#[rustfmt::skip]
static FILES: &[Snippet] = files! {
    Pytorch:
        "accumulate" "pytorch/accumulate" (0, 0);
        "accumulate-parts" "pytorch/accumulate_parts" (0, 0);
        "allocator" "pytorch/allocator" (0, 0);
        "channels-last" "pytorch/channels_last" (0, 0);
        "checkpoint" "pytorch/checkpoint" (0, 0);
        "close-others" "pytorch/close" (0, 0);
        "close-others-of-amd" "pytorch/close_of_rocm" (0, 0);
        "close-others-of-apple" "pytorch/close_of_macos" (0, 0);
        "drop-gradients" "pytorch/gradients" (0, 0);
        "fewer-models" "pytorch/stale" (0, 0);
        "freeze" "pytorch/freeze" (0, 0);
        "fused-optimizer" "pytorch/fused" (0, 0);
        "half-precision" "pytorch/half" (0, 0);
        "lighter-optimizer" "pytorch/optimizer" (0, 0);
        "mixed-precision" "pytorch/loop" (1, 6);
        "pipeline" "pytorch/pipeline" (2, 5);
        "prefetch" "pytorch/loop" (0, 0);
        "retry" "pytorch/retry" (0, 0);
        "shorter-sequences" "pytorch/shorten" (0, 0);
        "smaller-images" "pytorch/shrink" (0, 0);
        "smaller-volumes" "pytorch/shrink_volumes" (0, 0);
        "validation-batch" "pytorch/validation" (0, 0);
        "zero-1" "pytorch/zero_1" (1, 8);
        "zero-2" "pytorch/zero_3_composable" (2, 4);
        "zero-2" "pytorch/zero_3" (2, 6);
        "zero-3" "pytorch/zero_3_composable" (2, 4);
        "zero-3" "pytorch/zero_3" (2, 6);
    Tensorflow:
        "accumulate" "keras/accumulate_by_hand" (2, 0);
        "accumulate" "keras/accumulate" KERAS_3;
        "allocator" "keras/allocator" (0, 0);
        "close-others" "pytorch/close" (0, 0);
        "close-others-of-amd" "pytorch/close_of_rocm" (0, 0);
        "close-others-of-apple" "pytorch/close_of_macos" (0, 0);
        "fewer-models" "keras/stale" (0, 0);
        "freeze" "keras/freeze" (0, 0);
        "lighter-optimizer" "keras/optimizer" (0, 0);
        "logical-limit" "keras/limit_of_a_virtual_device" (0, 0);
        "logical-limit" "keras/limit" (2, 4);
        "memory-growth" "keras/growth_of_a_session" (0, 0);
        "memory-growth" "keras/growth" (2, 0);
        "mixed-precision" "keras/mixed_experimental" (2, 1);
        "mixed-precision" "keras/mixed" (2, 4);
        "prefetch" "keras/prefetch" (0, 0);
        "retry" "keras/retry" KERAS_3;
        "shorter-sequences" "keras/shorten" (0, 0);
        "smaller-images" "keras/shrink_by_function" (0, 0);
        "smaller-images" "keras/shrink" (2, 6);
        "smaller-volumes" "keras/shrink_volumes" (2, 6);
        "validation-batch" "keras/validation" (0, 0);
    KerasOnPytorch:
        "accumulate" "keras/accumulate" (0, 0);
        "allocator" "pytorch/allocator" (0, 0);
        "close-others" "pytorch/close" (0, 0);
        "close-others-of-amd" "pytorch/close_of_rocm" (0, 0);
        "close-others-of-apple" "pytorch/close_of_macos" (0, 0);
        "fewer-models" "keras_on_pytorch/stale" (0, 0);
        "freeze" "keras/freeze" (0, 0);
        "lighter-optimizer" "keras/optimizer" (0, 0);
        "mixed-precision" "keras/mixed" (0, 0);
        "prefetch" "keras_on_pytorch/prefetch" (0, 0);
        "retry" "keras/retry" (0, 0);
        "shorter-sequences" "keras_on_pytorch/shorten" (0, 0);
        "smaller-images" "keras/shrink" (0, 0);
        "smaller-volumes" "keras/shrink_volumes" (0, 0);
        "validation-batch" "keras/validation" (0, 0);
};

/// Values that stand in for a situation's where every snippet is tried.
#[rustfmt::skip]
const SAMPLES: &[(&str, &str)] = &[
    ("BATCH", "8"), ("DTYPE", "bfloat16"), ("FORMAT", "channels_last"), ("HEAD", "head"), ("K", "2"), ("LENGTH", "12"),
    ("LIMIT", "4096"), ("LISTS", "[model.blocks]"), ("MICRO", "4"), ("PIECES", "1"), ("SIDE", "24"),
];

impl Code {
    /// The same for a file by who wrote it (`keras 2.15.0`): what Keras 2 wrote runs on Keras 2, which no later release of TensorFlow than
    /// 2.15 has as its Keras; the numbers of both are alike from 2.4 on.
    #[must_use]
    pub fn of_file(self, framework: Framework, producer: &str) -> Code {
        let mut version = producer.strip_prefix("keras ").unwrap_or_default().split('.');
        let mut number = || version.next().and_then(|n| n.parse::<u32>().ok());
        let (Framework::Tensorflow, Some(major @ ..=2)) = (framework, number()) else { return self };
        let of_file = (major, number().unwrap_or(u32::MAX)).min((2, KERAS_3.1 - 1));
        // Where a release is named, it stands, unless it has another Keras.
        let release = self.release.filter(|release| *release < KERAS_3).unwrap_or(of_file);
        Code { release: Some(release), ..self }
    }
}

/// The lines for a change in a situation, where its release has what they need; none at all of them for Burn, whose loop is a program of
/// one's own.
pub(super) fn lines(now: &Situation, name: &str, values: &[(&str, String)]) -> Option<String> {
    let Some(api) = now.api else { return Some(String::new()) };
    let batch = now.batch.unwrap_or(1);
    let of_loop = [("K", loops::micro_batches(&now.plan).to_string()), ("MICRO", batch.to_string())];
    let mut values: Vec<_> = values.iter().cloned().chain(of_loop).collect();
    let replicas = now.plan.parallel.filter(|_| api == Api::Tensorflow).map_or(1, |p| p.replicas());
    for (_, size) in values.iter_mut().filter(|(name, _)| BATCHES.contains(name)) {
        let all = size.parse::<u64>().map(|n| n.saturating_mul(replicas.into()));
        *size = all.map_or_else(|_| size.clone(), |n| n.to_string());
    }
    let text = written(api, now.card.device.vendor, &now.plan, name, &now.code, &values)?;
    let sizes = ["batch_size=", ".batch("].iter().any(|word| text.contains(word));
    Some(if replicas > 1 && sizes {
        format!("# A batch is that of all {replicas} GPUs.\n{text}")
    } else {
        text
    })
}

/// Values that are sizes of a batch. Those of one GPU are given; a distribution strategy of TensorFlow deals out the batch of `fit` and of
/// a data set to its replicas (keras/src/backend/tensorflow/trainer.py, 3.15: `distribute_strategy.experimental_distribute_dataset`).
const BATCHES: [&str; 2] = ["BATCH", "MICRO"];

/// The same for a plan.
fn written(
    api: Api,
    vendor: Vendor,
    plan: &Plan,
    name: &str,
    code: &Code,
    values: &[(&str, String)],
) -> Option<String> {
    let release = code.release;
    let sharded = plan.parallel.is_some_and(|p| p.sharding == Sharding::Zero1 && p.deepspeed.is_none());
    let file = match (name, vendor) {
        ("close-others", Vendor::Amd) => "close-others-of-amd",
        ("close-others", Vendor::Apple) => "close-others-of-apple",
        ("fused-optimizer" | "lighter-optimizer", _) if api == Api::Pytorch && sharded => "zero-1",
        _ if api == Api::Pytorch => loops::file(name, plan),
        _ => name,
    };
    let mut of_name = FILES.iter().filter(|known| known.api == api && known.name == file);
    let file = of_name.rfind(|file| release.is_none_or(|release| release >= file.since))?;
    let mut text = file.text.trim_end().to_owned();
    if api == Api::Pytorch {
        text = loops::adapted(text, name, plan, code)?;
    }
    let fused = plan.optimizer_impl == OptimizerImpl::Fused;
    let rate = if ["sgd", "momentum", "nesterov"].contains(&&*plan.optimizer) { "0.1" } else { "1e-3" };
    let fixed = by_release(api, vendor, release.unwrap_or((u32::MAX, 0)));
    let keeps = if file.name == "zero-2" { ", reshard_after_forward=False" } else { "" };
    let fused = if fused { ", fused=True" } else { "" };
    let fixed = fixed.into_iter().chain([("RATE", rate), ("FUSED", fused), ("KEEPS", keeps)]);
    let optimizer = constructor::values(api, plan, name, code);
    let fixed = fixed.map(|(name, value)| (name, value.to_owned()));
    for (name, value) in values.iter().cloned().chain(fixed).chain(optimizer) {
        text = text.replace(&format!("__{name}__"), &value);
    }
    // An optimizer without flags leaves its commas.
    text = text.replace("(, ", "(").replace(", ,", ",").replace(", )", ")");
    if vendor == Vendor::Apple {
        text = text.replace("torch.cuda.empty_cache", "torch.mps.empty_cache");
    }
    if api == Api::Tensorflow && release.is_some_and(|release| release < KERAS_3) {
        text = text.replace("tf.keras.", "keras.").replace("keras.", "tf.keras.");
    }
    Some(text)
}

/// Where running out of memory is no error of its own, its words tell it.
const ANY_ERROR: &str = "RuntimeError as error:
            if \"out of memory\" not in str(error):
                raise";

/// What goes by another name in some releases of PyTorch, and in TensorFlow.
fn by_release(api: Api, vendor: Vendor, release: Release) -> [(&'static str, &'static str); 4] {
    let out_of_memory = match release {
        _ if api == Api::Tensorflow => "tf.errors.ResourceExhaustedError:",
        // aten/src/ATen/mps/MPSAllocator.mm: "MPS backend out of memory" is a plain error.
        _ if vendor == Vendor::Apple => ANY_ERROR,
        (2, 5..) | (3.., _) => "torch.OutOfMemoryError:",
        (1, 13..) | (2, _) => "torch.cuda.OutOfMemoryError:",
        _ => ANY_ERROR,
    };
    let variable = if release >= (2, 9) { "PYTORCH_ALLOC_CONF" } else { "PYTORCH_CUDA_ALLOC_CONF" };
    let reentrant = if release >= (1, 11) { ", use_reentrant=False" } else { "" };
    let antialias = if release >= (1, 11) { ", antialias=True" } else { "" };
    [
        ("OUT_OF_MEMORY", out_of_memory),
        ("VARIABLE", variable),
        ("REENTRANT", reentrant),
        ("ANTIALIAS", antialias),
    ]
}

/// Every snippet as it is written for a release of a framework, with sample values: its name and the lines. Loops are written with and
/// without a gradient scaler.
pub fn examples(api: Api, release: Option<Release>) -> Vec<(&'static str, String)> {
    let values: Vec<(&str, String)> = SAMPLES.iter().map(|(name, value)| (*name, (*value).into())).collect();
    let mut names: Vec<&str> = FILES.iter().filter(|f| f.api == api).map(|f| f.name).collect();
    names.dedup();
    let code = Code { release, ..Code::default() };
    let mut all = Vec::new();
    for precision in [Precision::Fp32, Precision::MixedBf16, Precision::MixedFp16] {
        let accumulate = if precision == Precision::MixedBf16 { 1 } else { 2 };
        let plan =
            Plan { optimizer: "amsgrad".into(), clip_norm: true, accumulate, precision, ..Plan::default() };
        for name in &names {
            let text = written(api, Vendor::default(), &plan, name, &code, &values);
            let new = text.filter(|text| !all.iter().any(|(_, known)| known == text));
            all.extend(new.map(|text| (*name, text)));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_the_release() {
        let plan = Plan::default();
        let of = |release| Code { release, ..Code::default() };
        let lines =
            |api, name, release| written(api, Vendor::Nvidia, &plan, name, &of(release), &[]).unwrap();
        let retry = |release| lines(Api::Pytorch, "retry", Some(release));
        assert!(retry((1, 9)).contains("except RuntimeError") && retry((2, 5)).contains("except torch.Out"));
        let apple = written(Api::Pytorch, Vendor::Apple, &plan, "retry", &of(None), &[]).unwrap();
        assert!(
            apple.contains("not in str(error):\n                raise\n            failed = True"),
            "{apple}"
        );
        assert!(apple.contains("torch.mps.empty_cache()") && !apple.contains("cuda"));
        let close = |vendor| written(Api::Pytorch, vendor, &plan, "close-others", &of(None), &[]).unwrap();
        assert!(close(Vendor::Amd).contains("rocm-smi") && !close(Vendor::Apple).contains("smi"));
        let retry = |api| lines(api, "retry", None);
        assert!(retry(Api::KerasOnPytorch).contains("except torch.OutOf"));
        assert!(retry(Api::Tensorflow).contains("except tf.errors.ResourceEx"));
        let stale = |release| lines(Api::Tensorflow, "fewer-models", release);
        assert!(
            stale(Some((2, 10))).contains("\ntf.keras.backend") && stale(None).contains("\nkeras.backend")
        );
        assert!(written(Api::Tensorflow, Vendor::Nvidia, &plan, "retry", &of(Some((2, 10))), &[]).is_none());
        let smaller = |api, release| lines(api, "smaller-images", Some(release));
        assert!(!smaller(Api::Pytorch, (1, 10)).contains("antialias"));
        assert!(smaller(Api::Pytorch, (1, 11)).contains("antialias=True"));
        assert!(smaller(Api::Tensorflow, (2, 5)).contains("tf.image.resize("));
        assert!(smaller(Api::Tensorflow, (2, 6)).contains("tf.keras.layers.Resizing("));
    }

    #[test]
    fn what_keras_2_wrote_gets_code_for_keras_2() {
        let of = |release, producer| {
            Code { release, ..Code::default() }.of_file(Framework::Tensorflow, producer).release
        };
        assert_eq!(of(None, "keras 2.21.0"), Some((2, 15)));
        assert_eq!((of(None, "keras 2.4.0"), of(None, "keras 2")), (Some((2, 4)), Some((2, 15))));
        assert_eq!(of(Some((2, 10)), "keras 2.12.0"), Some((2, 10)));
        assert_eq!(of(Some((2, 21)), "keras 2.12.0"), Some((2, 12)));
        for other in ["keras 3.1.0", "", "pytorch 2.1"] {
            assert_eq!((of(None, other), of(Some((2, 21)), other)), (None, Some((2, 21))));
        }
        let torch = Code::default().of_file(Framework::Pytorch, "keras 2.12.0");
        assert_eq!(torch.release, None);
    }

    #[test]
    fn every_file_is_listed_and_every_name_filled_in() {
        let dir = format!("{}/src/advise/snippets", env!("CARGO_MANIFEST_DIR"));
        let folders = std::fs::read_dir(dir).unwrap().map(|folder| folder.unwrap().path());
        let files: usize = folders.map(|folder| std::fs::read_dir(folder).unwrap().count()).sum();
        let texts: std::collections::BTreeSet<&str> = FILES.iter().map(|file| file.text).collect();
        assert_eq!(texts.len(), files);
        for api in [Api::Pytorch, Api::Tensorflow, Api::KerasOnPytorch] {
            let listed: Vec<&Snippet> = FILES.iter().filter(|file| file.api == api).collect();
            // A newer file stands behind the older one of its name.
            for pair in listed.windows(2) {
                assert!((pair[0].name, pair[0].since) < (pair[1].name, pair[1].since), "{}", pair[1].name);
            }
            for release in [None, Some((1, 8)), Some((2, 0)), Some((2, 10))] {
                for (name, text) in examples(api, release) {
                    assert!(
                        !text.contains("__") || text.replace("__init__", "").find("__").is_none(),
                        "{name}: {text}"
                    );
                }
            }
        }
    }
}
