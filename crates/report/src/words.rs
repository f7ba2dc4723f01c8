//! The words that formats share: how a plan, a phase or a category is called.

use memfit_engine::allocators::AllocatorSettings;
use memfit_engine::parallel::{DeepSpeed, Parallel};
use memfit_engine::{
    Breakdown, Category, Checkpoint, Estimate, Framework, Loss, Mode, Phase, Plan, Precision, Verdict, Word,
};
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
    parts.extend(p.deepspeed.map(|options| match options == DeepSpeed::default() {
        true => "DeepSpeed".to_owned(),
        false => "DeepSpeed with options of its own".to_owned(),
    }));
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

/// The plan in one line: `train · pytorch · fp32 · adam (foreach) · batch 32`, then whatever differs from the default. A field that is
/// added to a plan does not compile until it is shown.
pub(crate) fn plan(e: &Estimate) -> Vec<String> {
    let Plan {
        framework,
        precision,
        mode,
        optimizer,
        optimizer_impl,
        weight_decay,
        accumulate,
        checkpoint,
        freeze,
        keep_gradients,
        loss,
        ema,
        master_weights,
        parallel,
        allocator,
        cudnn_benchmark,
        channels_last,
        // The card's.
        compute_capability: _,
        amd: _,
        autocast_backward,
        composed_attention,
        // How comparisons with traces are made, not how anyone trains.
        as_fake_tensors: _,
        grappler: _,
        clip_norm,
        xla,
        eager,
        loss_scale,
        assume_batchnorm,
        assume_dropout,
        tied_embeddings,
    } = &e.plan;
    let AllocatorSettings { pytorch, cuda_malloc_async, memory_growth, memory_fraction, memory_limit } =
        allocator;
    let trains = *mode == Mode::Train;
    let mut parts = [mode.name(), framework.name(), precision.name()].map(str::to_owned).to_vec();
    if trains {
        // The others have one way each.
        let how = Some(optimizer_impl.name()).filter(|_| *framework == Framework::Pytorch);
        parts.push(how.map_or_else(|| optimizer.clone(), |how| format!("{optimizer} ({how})")));
    }
    parts.extend(e.batch_size.map(|n| format!("batch {n}")));
    parts.extend(parallel.map(|p| format!("one of {} GPUs ({})", p.gpus, sharing(p))));
    let mut rest = |differs: bool, text: &str| {
        if differs {
            parts.push(text.to_owned());
        }
    };
    rest(*accumulate > 1, &format!("{accumulate} micro-batches a step"));
    rest(*checkpoint != Checkpoint::None, &format!("checkpoint {}", checkpoint.name()));
    rest(!freeze.is_empty(), &format!("frozen {}", freeze.join(" ")));
    rest(*weight_decay, "weight decay");
    rest(*clip_norm, "gradients clipped");
    rest(*keep_gradients, "gradients kept");
    rest(*loss != Loss::Auto, &format!("loss {}", loss.name()));
    rest(*ema, "averaged weights");
    rest(*master_weights, "master weights");
    rest(*xla, "XLA");
    rest(*eager, "eagerly");
    rest(!*loss_scale && trains && *precision == Precision::MixedFp16, "loss not scaled");
    rest(*cudnn_benchmark, "cuDNN benchmark");
    rest(*channels_last, "channels last");
    rest(*autocast_backward, "backward in autocast");
    rest(*composed_attention, "attention composed");
    rest(*assume_batchnorm, "batch norms assumed");
    rest(*assume_dropout, "dropout assumed");
    rest(*tied_embeddings == Some(true), "embeddings tied");
    rest(*tied_embeddings == Some(false), "embeddings apart");
    rest(*cuda_malloc_async, "cudaMallocAsync");
    rest(*memory_growth, "memory growth");
    parts.extend(pytorch.text());
    parts.extend(
        memory_fraction.map(|n| format!("at most {} % of the card", crate::amounts::tenths(n.into()))),
    );
    parts.extend(memory_limit.map(|b| format!("at most {b}")));
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
