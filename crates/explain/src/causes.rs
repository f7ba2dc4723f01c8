//! From messages to causes: one rule each, in an ordered list. A rule names the lines that prove it and how sure it is.

mod rules;

pub(crate) use rules::elsewhere;

use crate::Log;

/// Why memory ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Cause {
    ContextStart,
    LibraryHandle,
    Preallocation,
    OtherProcess,
    SingleTensor,
    Fragmentation,
    ValidationBatch,
    PredictionBatch,
    CheckpointLoad,
    Weights,
    OptimizerState,
    Leak,
    StepTooBig,
    HostMemory,
    SharedMemory,
    Refused,
    Unknown,
}

/// How sure a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    /// The log's own numbers leave nothing else.
    Certain,
    /// The numbers fit, and so might something else.
    Likely,
    /// One sign among others.
    Possible,
}

impl Confidence {
    /// As JSON writes it.
    pub fn name(self) -> &'static str {
        match self {
            Confidence::Certain => "certain",
            Confidence::Likely => "likely",
            Confidence::Possible => "possible",
        }
    }
}

/// A cause with its proof.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Why.
    pub cause: Cause,
    /// How sure.
    pub confidence: Confidence,
    /// What the numbers say, in a sentence or two.
    pub explanation: String,
    /// The lines that prove it.
    pub lines: Vec<u64>,
}

impl Cause {
    /// As JSON writes it.
    pub fn name(self) -> &'static str {
        self.words().0
    }

    /// As a heading.
    pub fn title(self) -> &'static str {
        self.words().1
    }

    /// What to do.
    pub fn advice(self) -> &'static [&'static str] {
        self.words().2
    }

    fn words(self) -> (&'static str, &'static str, &'static [&'static str]) {
        match self {
            Cause::ContextStart => (
                "context-could-not-start",
                "The device had no room for a context",
                &[
                    "see who holds the card: nvidia-smi",
                    "end that process, or take another card: CUDA_VISIBLE_DEVICES=1",
                ],
            ),
            Cause::LibraryHandle => (
                "library-handle",
                "A library could not get its memory",
                &[
                    "leave it some: a smaller batch, or torch.cuda.set_per_process_memory_fraction(0.9)",
                    "in TensorFlow: tf.config.experimental.set_memory_growth(gpu, True) before the first operation",
                ],
            ),
            Cause::Preallocation => (
                "preallocation",
                "TensorFlow or JAX takes nearly the whole card when it starts",
                &[
                    "tf.config.experimental.set_memory_growth(gpu, True), or TF_FORCE_GPU_ALLOW_GROWTH=true",
                    "in JAX: XLA_PYTHON_CLIENT_PREALLOCATE=false",
                    "end the other process, often a notebook's kernel",
                ],
            ),
            Cause::OtherProcess => (
                "other-process",
                "Another process holds a part of the card",
                &["see who: nvidia-smi", "end it, or count it in: memfit fit --other-processes SIZE"],
            ),
            Cause::SingleTensor => (
                "single-tensor",
                "One tensor is larger than the card can hold beside the model",
                &[
                    "look at what makes it: an outer product, a one-hot of a large vocabulary, attention over a long sequence",
                    "make it in parts",
                ],
            ),
            Cause::Fragmentation => (
                "fragmentation",
                "There was enough memory, in pieces too small",
                &[
                    "PYTORCH_ALLOC_CONF=expandable_segments:True (PYTORCH_CUDA_ALLOC_CONF before 2.9)",
                    "in TensorFlow: TF_GPU_ALLOCATOR=cuda_malloc_async",
                    "keep input sizes the same from step to step",
                ],
            ),
            Cause::ValidationBatch => (
                "validation-batch",
                "Validation ran out, not training",
                &[
                    "a smaller validation batch",
                    "with torch.no_grad() around it",
                    "do not keep the outputs on the device: .cpu()",
                ],
            ),
            Cause::PredictionBatch => (
                "prediction-batch",
                "Prediction ran out, not training",
                &[
                    "a smaller batch: model.predict(x, batch_size=…)",
                    "with torch.no_grad() around it",
                    "take outputs off the device as they come",
                    "in a server of language models: fewer requests at once and a shorter context (max_num_seqs, max_model_len)",
                ],
            ),
            Cause::CheckpointLoad => (
                "checkpoint-load",
                "Reading weights ran out",
                &[
                    "torch.load(path, map_location=\"cpu\"), then load_state_dict",
                    "delete the checkpoint before training starts",
                ],
            ),
            Cause::Weights => (
                "weights-too-big",
                "The weights do not fit the card",
                &[
                    "weights in fewer bits: quantised, or in half precision",
                    "over several cards: tensor_parallel_size=…, device_map=\"auto\", FSDP",
                    "memfit fit MODEL shows which cards hold it",
                ],
            ),
            Cause::OptimizerState => (
                "optimizer-state",
                "The optimizer's first step ran out",
                &[
                    "an optimizer with less state: SGD, 8-bit Adam, Adafactor",
                    "fused=True saves its temporaries",
                ],
            ),
            Cause::Leak => (
                "leak",
                "Memory grew from step to step",
                &[
                    "add loss.item(), not loss, to a running total",
                    "do not keep outputs or hidden states in a list: .detach().cpu()",
                    "in Keras: tf.keras.backend.clear_session() between models",
                ],
            ),
            Cause::StepTooBig => (
                "step-too-big",
                "The step is too big for the card",
                &[
                    "a smaller batch with gradient accumulation",
                    "mixed precision",
                    "memfit advise MODEL --gpu … -b … ranks what helps this model",
                ],
            ),
            Cause::HostMemory => (
                "host-memory",
                "The host's memory ran out, not the card's",
                &[
                    "fewer data loader workers, a smaller prefetch or shuffle buffer",
                    "read the data as it is needed, not as a whole",
                    "ask the batch system or the container for more memory",
                ],
            ),
            Cause::SharedMemory => (
                "shared-memory",
                "Data loaders ran out of shared memory",
                &["docker run --shm-size=8g, or --ipc=host", "fewer workers: num_workers=…"],
            ),
            Cause::Refused => (
                "refused-with-memory-free",
                "The driver refused although the card had memory free",
                &[
                    "on Windows a larger paging file: what a process holds on the card counts there too",
                    "look for a limit on the process: ulimit -v, the memory of its container, the part of a card that it was given",
                    "start workers one after the other: another process may have given its memory back since",
                ],
            ),
            Cause::Unknown => (
                "unknown",
                "The log does not say why",
                &[
                    "run again with the framework's own message in the log, or compare with memfit estimate MODEL --gpu …",
                ],
            ),
        }
    }
}

/// The causes that a log proves, the surest first, in the order of the rules where equally sure.
pub(crate) fn find(log: &Log) -> Vec<Finding> {
    let mut findings: Vec<Finding> = rules::RULES.iter().filter_map(|rule| rule(log)).collect();
    findings.sort_by_key(|f| f.confidence);
    if findings.is_empty()
        && let Some(failure) = log.failure()
    {
        findings.push(rules::unknown(failure));
    }
    findings
}
