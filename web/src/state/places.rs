//! Where a choice stands among the controls, and when it means anything.

use super::{AMOUNTS, State};

/// The part of the controls in which a choice stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Among those that are always shown.
    Plan,
    /// How the step is run.
    Step,
    Allocator,
    /// Several GPUs.
    Parallel,
    /// What the process does around the step.
    Process,
    /// What else is on the card.
    Card,
    /// What an inference export has lost.
    Export,
}

/// When a choice means anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    Always,
    Training,
    Pytorch,
    PytorchTraining,
    Tensorflow,
    TensorflowTraining,
}

/// Whose rules apply to a model of this format where nobody says it.
pub(crate) fn usual_framework(format: &str) -> &'static str {
    if format == "keras" { "tensorflow" } else { "pytorch" }
}

impl State {
    /// Whose rules apply to a model of this format.
    pub(crate) fn framework_of(&self, format: &str) -> &str {
        if self.framework.is_empty() { usual_framework(format) } else { &self.framework }
    }

    /// Whether something of this part is not at its default.
    pub(crate) fn says(&self, place: Place) -> bool {
        let here = |other: Place| other == place || other == Place::Export && place == Place::Step;
        let chosen = match place {
            Place::Step => self.loss != "auto" || !self.optimizer_impl.is_empty() || !self.tied.is_empty(),
            Place::Allocator => !self.conf.is_empty(),
            Place::Parallel => !self.sharing.is_empty(),
            Place::Card => self.others > 0,
            Place::Plan | Place::Process | Place::Export => false,
        };
        chosen
            || self.flags().any(|flag| here(flag.place))
            || AMOUNTS.iter().any(|amount| here(amount.place) && self.amount(amount.word).is_some())
    }

    /// Whether a choice means anything for a model of this format.
    pub(crate) fn means(&self, when: When, format: &str) -> bool {
        let (framework, train) = (self.framework_of(format), self.mode == "train");
        match when {
            When::Always => true,
            When::Training => train,
            When::Pytorch => framework == "pytorch",
            When::PytorchTraining => framework == "pytorch" && train,
            When::Tensorflow => framework == "tensorflow",
            When::TensorflowTraining => framework == "tensorflow" && train,
        }
    }
}
