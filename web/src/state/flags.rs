//! What is either on or off: how a link, the command line and a plan in JSON say it, and when it means anything.

use super::State;
use super::places::{Place, When};

/// Something that is either on or off, and off at first.
pub(crate) struct Flag {
    /// In links.
    pub(crate) word: &'static str,
    pub(crate) label: &'static str,
    /// On the command line; nothing where [`State::conf`] says it.
    pub(super) typed: &'static str,
    /// In a plan, with its value in JSON.
    pub(super) key: &'static str,
    pub(super) value: &'static str,
    pub(crate) place: Place,
    pub(crate) when: When,
}

const fn flag(
    word: &'static str,
    label: &'static str,
    typed: &'static str,
    (key, value): (&'static str, &'static str),
    place: Place,
    when: When,
) -> Flag {
    Flag { word, label, typed, key, value, place, when }
}

/// All of them, in the order in which they are shown.
#[rustfmt::skip]
pub(crate) const FLAGS: [Flag; 18] = [
    flag("display", "It drives a display", "--display", ("display", "true"), Place::Card, When::Always),
    flag("expandable", "Expandable segments", "", ("", ""), Place::Allocator, When::Pytorch),
    flag("growth", "Memory growth", "--memory-growth", ("memory_growth", "true"), Place::Allocator, When::Tensorflow),
    flag("async-pool", "CUDA’s own pool (cudaMallocAsync)", "--cuda-malloc-async", ("cuda_malloc_async", "true"), Place::Allocator, When::Always),
    flag("weight-decay", "Weight decay", "--weight-decay 0.01", ("weight_decay", "true"), Place::Step, When::Training),
    flag("clip-norm", "Gradients clipped by their global norm", "--global-clipnorm 1", ("global_clipnorm", "true"), Place::Step, When::TensorflowTraining),
    flag("keep-gradients", "Gradients stay between steps", "--keep-gradients", ("keep_gradients", "true"), Place::Step, When::PytorchTraining),
    flag("ema", "Averaged weights (EMA)", "--ema", ("ema", "true"), Place::Step, When::Training),
    flag("master-weights", "Float32 master weights", "--master-weights", ("master_weights", "true"), Place::Step, When::PytorchTraining),
    flag("composed-attention", "Attention without a fused kernel", "--composed-attention", ("composed_attention", "true"), Place::Step, When::Pytorch),
    flag("cudnn-benchmark", "cuDNN benchmark", "--cudnn-benchmark", ("cudnn_benchmark", "true"), Place::Step, When::Pytorch),
    flag("channels-last", "Channels last", "--channels-last", ("channels_last", "true"), Place::Step, When::Pytorch),
    flag("autocast-backward", "Backward inside of autocast", "--autocast-backward", ("autocast_backward", "true"), Place::Step, When::PytorchTraining),
    flag("no-xla", "Without XLA", "--no-xla", ("xla", "false"), Place::Step, When::Tensorflow),
    flag("run-eagerly", "Run eagerly, without a graph", "--run-eagerly", ("run_eagerly", "true"), Place::Step, When::Tensorflow),
    flag("no-loss-scale", "Without loss scaling", "--no-loss-scale", ("loss_scale", "false"), Place::Step, When::TensorflowTraining),
    flag("assume-batchnorm", "Put folded batch norms back", "--assume-batchnorm", ("assume_batchnorm", "true"), Place::Export, When::Always),
    flag("assume-dropout", "Put dropout back", "--assume-dropout", ("assume_dropout", "true"), Place::Export, When::Always),
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

    /// What `PYTORCH_ALLOC_CONF` holds.
    pub(super) fn allocator_conf(&self) -> String {
        let expandable = self.has("expandable").then_some("expandable_segments:True");
        let typed = Some(&*self.conf).filter(|conf| !conf.is_empty());
        expandable.into_iter().chain(typed).collect::<Vec<_>>().join(",")
    }
}
