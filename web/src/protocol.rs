//! What page and worker say to each other: JSON, with a file beside it where one is opened.

mod advice;

pub(crate) use advice::{Advice, Change, Outcome, Set};

use memfit_report::amounts::grouped;
use serde::{Deserialize, Serialize};

/// A question with the state of the page that it is about.
#[derive(Serialize, Deserialize)]
pub(crate) struct Question {
    /// Counts up with each change of the page's state; an answer to an older one may be dropped.
    pub(crate) generation: u64,
    pub(crate) ask: Ask,
}

/// What is asked. Plans are as the JavaScript API takes them.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// Read the file that comes beside this; `told` is what a Keras file does not say.
    Open { file: String, told: String },
    /// What one step holds.
    Estimate { plan: String },
    /// The layers and the timeline of such a step.
    Details { plan: String },
    /// The largest batch that fits on the plan's card.
    Largest { plan: String },
    /// The largest batches with one precision on these cards.
    Row { plan: String, precision: String, gpus: Vec<String> },
    /// The peaks at these batch sizes.
    Curve { plan: String, batches: Vec<u64> },
    /// What to change so that it fits.
    Advise { plan: String },
    /// The structure of the open model, by itself.
    Compact,
    /// Why the run of a log died.
    Explain { log: String, plan: String },
    /// The result in one of the command line's formats.
    Export { plan: String, format: Format },
}

/// A format to export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Format {
    Json,
    Markdown,
    Html,
    Svg,
    /// Drawn by the page from the SVG.
    Png,
}

impl Format {
    pub(crate) const ALL: [Format; 5] =
        [Format::Json, Format::Markdown, Format::Html, Format::Svg, Format::Png];

    /// What it is called.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Format::Json => "JSON",
            Format::Markdown => "Markdown",
            Format::Html => "HTML",
            Format::Svg => "SVG",
            Format::Png => "PNG",
        }
    }

    /// The ending of a file and its type.
    pub(crate) fn file(self) -> (&'static str, &'static str) {
        match self {
            Format::Json => ("json", "application/json"),
            Format::Markdown => ("md", "text/markdown"),
            Format::Html => ("html", "text/html"),
            Format::Svg => ("svg", "image/svg+xml"),
            Format::Png => ("png", "image/png"),
        }
    }
}

/// What comes back.
#[derive(Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) generation: u64,
    /// Milliseconds that it took.
    pub(crate) took: f64,
    pub(crate) said: Said,
}

/// The answers, in the order of the questions.
#[derive(Serialize, Deserialize)]
pub(crate) enum Said {
    /// The worker has started.
    Ready,
    /// How much of a file has been passed, in per cent. The answer itself is still to come.
    Reading(u8),
    Opened(Facts),
    Estimated(Box<Head>),
    Detailed(Details),
    /// None where the model has no batch.
    Largest(Option<Sizes>),
    Row {
        precision: String,
        sizes: Vec<Sizes>,
    },
    Curve(Vec<(u64, u64)>),
    Advised(Advice),
    /// The bytes come beside it.
    Compacted,
    Explained(String),
    Exported {
        format: Format,
        text: String,
    },
    /// Why a question has no answer; the number is its kind.
    Failed(u8, Vec<Problem>),
}

/// The largest batch on a card; nought where not even one sample fits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sizes {
    /// If all goes as expected.
    pub(crate) largest: u64,
    /// At the high end of the range too.
    pub(crate) safe: u64,
}

impl Sizes {
    /// The one to take: the safe one, where there is one.
    pub(crate) fn advised(self) -> u64 {
        if self.safe > 0 { self.safe } else { self.largest }
    }
}

/// A problem as the core words it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Problem {
    pub(crate) place: String,
    pub(crate) op: String,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

/// What a file says by itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Facts {
    pub(crate) name: String,
    pub(crate) format: String,
    pub(crate) producer: String,
    pub(crate) operators: u64,
    pub(crate) inputs: Vec<Input>,
    /// Named sizes that are not the batch.
    pub(crate) symbols: Vec<String>,
    /// Whether folded batch norms can be put back.
    pub(crate) folded: bool,
    /// Whether an inference export has untied the output layer from the embedding.
    pub(crate) untied: bool,
}

impl Facts {
    /// `onnx · 1,234 operators`.
    pub(crate) fn what(&self) -> String {
        format!("{} · {} operators", self.format, grouped(self.operators))
    }
}

/// An input as the file declares it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Input {
    pub(crate) name: String,
    pub(crate) dtype: String,
    /// Numbers and names; none where the rank is not known.
    pub(crate) dims: Option<Vec<String>>,
    /// The axis of the batch.
    pub(crate) batch: Option<usize>,
}

/// The answer to an estimate, without its long parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Head {
    pub(crate) batch: Option<u64>,
    pub(crate) parameters: u64,
    pub(crate) frozen: u64,
    pub(crate) buffers: u64,
    pub(crate) allocated: u64,
    pub(crate) reserved: u64,
    pub(crate) device: u64,
    pub(crate) device_low: u64,
    pub(crate) device_high: u64,
    pub(crate) phase: u8,
    pub(crate) layer: String,
    /// By category, in their order.
    pub(crate) parts: Vec<u64>,
    pub(crate) saved: u64,
    pub(crate) fit: Option<Fit>,
    pub(crate) optimizer_impl: String,
    /// The parts of the process beside the step, with what live tensors hold in each, where they were asked for.
    pub(crate) stretches: Vec<(String, u64)>,
    pub(crate) unknown: Vec<String>,
    pub(crate) assumptions: Vec<String>,
    pub(crate) warnings: Vec<String>,
}

impl Head {
    /// Whether the step fits for sure, or no card was named.
    pub(crate) fn fits(&self) -> bool {
        self.fit.as_ref().is_none_or(|fit| fit.verdict == Verdict::Fits)
    }
}

/// How the step gets on inside of the card.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Fit {
    pub(crate) verdict: Verdict,
    /// What the framework's allocator can have.
    pub(crate) usable: u64,
    /// What is left of it, or missing.
    pub(crate) headroom: i64,
    /// How often cached segments are given back to go on.
    pub(crate) retries: u32,
    /// The request at which it ends, in words.
    pub(crate) shortage: Option<String>,
    /// What the framework takes at its start.
    pub(crate) preallocated: Option<u64>,
    /// What other processes and a display hold.
    pub(crate) others: u64,
}

/// Whether it fits; in JSON as the command line writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    DoesNotFit,
    Tight,
    Fits,
}

/// The long parts of an estimate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Details {
    pub(crate) layers: Vec<Layer>,
    pub(crate) largest: Vec<Tensor>,
    pub(crate) step: Step,
}

/// One layer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Layer {
    pub(crate) name: String,
    pub(crate) op: String,
    pub(crate) shape: String,
    pub(crate) parameters: u64,
    pub(crate) saved: u64,
    /// At the peak, by category.
    pub(crate) parts: Vec<u64>,
}

/// A tensor alive at the peak.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) layer: String,
    pub(crate) category: u8,
    pub(crate) bytes: u64,
}

/// The timeline, as columns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Step {
    pub(crate) layers: Vec<String>,
    pub(crate) labels: Vec<String>,
    /// By storage: size in the allocator's blocks, category, layer, label.
    pub(crate) bytes: Vec<u64>,
    pub(crate) category: Vec<u8>,
    pub(crate) layer: Vec<u32>,
    pub(crate) label: Vec<u32>,
    /// By event: twice the storage, one more where it is freed.
    pub(crate) events: Vec<u32>,
    /// By event: its layer.
    pub(crate) event_layer: Vec<u32>,
    /// The first event of each phase: set-up, forward, backward, optimizer step.
    pub(crate) phases: [u32; 4],
}
