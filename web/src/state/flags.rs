//! What is either on or off: how a link, the command line and a plan in JSON say it, and when it means anything.

use super::State;

/// When a flag means anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    Any,
    /// It is about the card.
    Card,
    Training,
    Pytorch,
    PytorchTraining,
    Tensorflow,
    TensorflowTraining,
    /// It is about the process around the step.
    Process,
    /// It is about several GPUs.
    Parallel,
    /// Where an inference export has folded batch norms.
    Folded,
}

/// Something that is either on or off, and off at first.
pub(crate) struct Flag {
    /// In links.
    pub(crate) word: &'static str,
    pub(crate) label: &'static str,
    /// On the command line.
    pub(crate) typed: &'static str,
    /// In a plan, with its value in JSON.
    pub(crate) key: &'static str,
    pub(crate) value: &'static str,
    pub(crate) means: Where,
}

const fn flag(
    word: &'static str,
    label: &'static str,
    typed: &'static str,
    key: &'static str,
    value: &'static str,
    means: Where,
) -> Flag {
    Flag { word, label, typed, key, value, means }
}

/// All of them, in the order in which they are shown.
#[rustfmt::skip]
pub(crate) const FLAGS: [Flag; 14] = [
    flag("display", "It drives a display", "--display", "display", "true", Where::Card),
    flag("expandable", "Expandable segments", "--allocator-conf expandable_segments:True", "allocator_conf", "\"expandable_segments:True\"", Where::Pytorch),
    flag("growth", "Memory growth", "--memory-growth", "memory_growth", "true", Where::Tensorflow),
    flag("async-pool", "CUDA’s own pool (cudaMallocAsync)", "--cuda-malloc-async", "cuda_malloc_async", "true", Where::Any),
    flag("weight-decay", "Weight decay", "--weight-decay 0.01", "weight_decay", "true", Where::Training),
    flag("keep-gradients", "Gradients stay between steps", "--keep-gradients", "keep_gradients", "true", Where::PytorchTraining),
    flag("ema", "Averaged weights (EMA)", "--ema", "ema", "true", Where::Training),
    flag("master-weights", "Float32 master weights", "--master-weights", "master_weights", "true", Where::PytorchTraining),
    flag("composed-attention", "Attention without a fused kernel", "--composed-attention", "composed_attention", "true", Where::Pytorch),
    flag("cudnn-benchmark", "cuDNN benchmark", "--cudnn-benchmark", "cudnn_benchmark", "true", Where::Pytorch),
    flag("channels-last", "Channels last", "--channels-last", "channels_last", "true", Where::Pytorch),
    flag("autocast-backward", "Backward inside of autocast", "--autocast-backward", "autocast_backward", "true", Where::PytorchTraining),
    flag("no-xla", "Without XLA", "--no-xla", "xla", "false", Where::Tensorflow),
    flag("assume-batchnorm", "Put folded batch norms back", "--assume-batchnorm", "assume_batchnorm", "true", Where::Folded),
];

impl State {
    /// Whether a flag is on, by its word.
    pub(crate) fn has(&self, word: &str) -> bool {
        self.flags.iter().any(|on| *on == word)
    }

    /// Turns a flag on or off, by its word; an unknown word is ignored.
    pub(crate) fn turn(&mut self, word: &str, on: bool) {
        if let Some(flag) = FLAGS.iter().find(|flag| flag.word == word) {
            if on {
                self.flags.insert(flag.word);
            } else {
                self.flags.remove(flag.word);
            }
        }
    }

    /// The flags that are on.
    pub(super) fn flags(&self) -> impl Iterator<Item = &'static Flag> {
        FLAGS.iter().filter(|flag| self.has(flag.word))
    }
}
