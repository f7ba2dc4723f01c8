//! The words that formats share: how a plan, a phase or a category is called.

use memfit_engine::parallel::Parallel;
use memfit_engine::{Breakdown, Category, Checkpoint, Estimate, Framework, Loss, Mode, Phase, Verdict, Word};
use memfit_graph::Bytes;

/// What an estimate is that does not know all of some operators ([`Estimate::unknown`]).
pub const NOT_EXACT: &str = "Not exact";

/// Which operators these are, and what is counted of them.
pub const NOT_KNOWN: &str = "operators without a rule, or whose results have no known size. They keep all inputs and outputs that have a size; what else they need is missing.";

/// The same where the operators are not at hand.
pub(crate) const PARTIAL: &str =
    "Not exact: what some operators need is not known, so nothing is safe; `memfit estimate` names them.";

/// Why a step is tight.
pub fn tight(is_partial: bool) -> &'static str {
    match is_partial {
        true => "what some operators need is not known, so that nothing is sure to fit",
        false => "the high end of the range does not fit",
    }
}

/// As a key: `optimizer_step`.
pub(crate) fn phase(p: Phase) -> &'static str {
    match p {
        Phase::Setup => "setup",
        Phase::Forward => "forward",
        Phase::Backward => "backward",
        Phase::OptimizerStep => "optimizer_step",
    }
}

/// How GPUs share the work: `zero3, tensor 2, pipeline 4`.
fn sharing(p: Parallel) -> String {
    let mut parts = Vec::new();
    if p.replicas() > 1 {
        parts.push(p.sharding.name().to_owned());
    }
    if p.tensor > 1 {
        parts.push(format!("tensor {}", p.tensor));
    }
    if p.pipeline > 1 {
        parts.push(format!("pipeline {}", p.pipeline));
    }
    parts.join(", ")
}

pub(crate) fn verdict(v: Verdict) -> &'static str {
    match v {
        Verdict::Fits => "fits",
        Verdict::Tight => "tight",
        Verdict::DoesNotFit => "does-not-fit",
    }
}

/// In a sentence: `does not fit`.
pub(crate) fn verdict_in_words(v: Verdict) -> &'static str {
    match v {
        Verdict::DoesNotFit => "does not fit",
        fits => verdict(fits),
    }
}

pub(crate) const fn category(c: Category) -> &'static str {
    match c {
        Category::Parameter => "parameters",
        Category::Buffer => "buffers",
        Category::Gradient => "gradients",
        Category::OptimizerState => "optimizer state",
        Category::Activation => "activations",
        Category::ActivationGradient => "activation gradients",
        Category::Workspace => "workspace",
        Category::Input => "inputs",
        Category::Transient => "transients",
    }
}

/// As in the keys of a breakdown: `activation_gradients`.
pub(crate) fn category_key(c: Category) -> &'static str {
    match c {
        Category::OptimizerState => "optimizer",
        Category::ActivationGradient => "activation_gradients",
        other => category(other),
    }
}

/// What the parts of a peak are called, in the order in which they are shown: the categories of
/// [`Breakdown::categories`], then what the process holds beyond its tensors.
pub const PARTS: [&str; 11] = [
    category(Category::Parameter),
    category(Category::Buffer),
    category(Category::Gradient),
    category(Category::OptimizerState),
    category(Category::Activation),
    category(Category::ActivationGradient),
    category(Category::Workspace),
    category(Category::Input),
    category(Category::Transient),
    ALLOCATOR,
    CONTEXT,
];

/// What the framework's allocator holds beyond its tensors.
pub(crate) const ALLOCATOR: &str = "held by the allocator";

/// What of the process is outside of the framework's allocator.
pub(crate) const CONTEXT: &str = "context and libraries";

/// All parts of a peak with their names; they re-add to device bytes.
pub(crate) fn parts(b: &Breakdown) -> Vec<(&'static str, Bytes)> {
    let categories = b.categories().map(|(_, bytes)| bytes);
    PARTS.into_iter().zip(categories.into_iter().chain([b.allocator, b.context])).collect()
}

/// The plan in one line: `train · pytorch · fp32 · adam (foreach) · batch 32`, then whatever differs from the default.
pub(crate) fn plan(e: &Estimate) -> Vec<String> {
    let plan = &e.plan;
    let mut parts =
        [plan.mode.name(), plan.framework.name(), plan.precision.name()].map(str::to_owned).to_vec();
    if plan.mode == Mode::Train {
        // The others have one way each.
        let how = Some(plan.optimizer_impl.name()).filter(|_| plan.framework == Framework::Pytorch);
        parts.push(how.map_or_else(|| plan.optimizer.clone(), |how| format!("{} ({how})", plan.optimizer)));
    }
    parts.extend(e.batch_size.map(|n| format!("batch {n}")));
    parts.extend(plan.parallel.map(|p| format!("one of {} GPUs ({})", p.gpus, sharing(p))));
    let mut rest = |differs: bool, text: String| {
        if differs {
            parts.push(text);
        }
    };
    rest(plan.accumulate > 1, format!("{} micro-batches a step", plan.accumulate));
    rest(plan.checkpoint != Checkpoint::None, format!("checkpoint {}", plan.checkpoint.name()));
    rest(!plan.freeze.is_empty(), format!("frozen {}", plan.freeze.join(" ")));
    rest(plan.weight_decay, "weight decay".into());
    rest(plan.clip_norm, "gradients clipped".into());
    rest(plan.keep_gradients, "gradients kept".into());
    rest(plan.loss != Loss::Auto, format!("loss {}", plan.loss.name()));
    rest(plan.ema, "averaged weights".into());
    rest(plan.master_weights, "master weights".into());
    rest(plan.cudnn_benchmark, "cuDNN benchmark".into());
    rest(plan.channels_last, "channels last".into());
    rest(plan.autocast_backward, "backward in autocast".into());
    rest(plan.composed_attention, "attention composed".into());
    rest(plan.assume_batchnorm, "batch norms assumed".into());
    rest(plan.assume_dropout, "dropout assumed".into());
    rest(plan.tied_embeddings == Some(true), "embeddings tied".into());
    rest(plan.tied_embeddings == Some(false), "embeddings apart".into());
    let a = &plan.allocator;
    rest(a.pytorch.expandable_segments, "expandable segments".into());
    rest(a.cuda_malloc_async, "cudaMallocAsync".into());
    rest(a.memory_growth, "memory growth".into());
    parts.extend(a.pytorch.max_split_size.map(|b| format!("blocks of {b} not split")));
    parts.extend(
        a.memory_fraction.map(|n| format!("at most {} % of the card", crate::amounts::tenths(n.into()))),
    );
    parts.extend(a.memory_limit.map(|b| format!("at most {b}")));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_in_the_order_of_the_categories() {
        let names = Breakdown::default().categories().map(|(c, _)| category(c));
        assert_eq!(PARTS[..names.len()], names);
    }
}
