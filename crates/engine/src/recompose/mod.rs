//! Puts back together what exporters broke into pieces. One file per pattern, in one ordered list.
//!
//! A framework trains whole operators; a file often holds their decomposition (GELU as Div, Erf, Add, Mul, Mul), which
//! would save many times as much for backward. A pass looks for one decomposition, and only for what the framework
//! itself runs as one kernel: what a model's own Python code composes stays in pieces, because it is run that way.
//! Every pass is linear in the number of nodes: from an anchor it looks at a bounded neighbourhood.

mod aliases;
mod batch_statistics;
mod batchnorm;
mod bilinear;
mod contiguous;
mod deduplicated;
mod dropout;
mod embedding_bag;
mod fake_quantize;
mod full_like;
mod gated;
mod gelu;
mod glu;
mod group_norm;
mod in_place;
mod index_add;
mod islands;
mod layer_norm;
mod linear;
mod mask;
mod max_positions;
mod merged;
mod parameters;
mod pool_indices;
mod recurrent;
mod relative_positions;
mod rewriter;
mod rms_norm;
mod rnn_cell;
mod sdpa;
mod softmax_dtype;
mod softplus;
mod split;
mod straight_through;
#[cfg(test)]
mod testing;
mod tied;
mod trainable;
mod variance;
mod weight_norm;
mod written_out;

use crate::Plan;
use memfit_graph::{Graph, Inferred};
use rewriter::Rewriter;

/// What the caller wants put back beyond what the file shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Put a BatchNormalization after each convolution that an inference export folded one into.
    pub assume_batchnorm: bool,
    /// Put dropout where training code has it.
    pub assume_dropout: bool,
    /// Leave attention as the products and the softmax that the file has.
    pub composed_attention: bool,
    /// Whether the output layer's matrix is the embedding's where an export untied them; `None` to decide by the model.
    pub tied_embeddings: Option<bool>,
}

/// What was done and what was found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The patterns that were put back together, in the order of the passes; those without a match are left out.
    pub applied: Vec<Applied>,
    /// What the file lost on its way from the training framework.
    pub findings: Vec<Finding>,
}

/// One pattern that occurred.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// What was put back: `linear`, `scaled_dot_product_attention`.
    pub pattern: &'static str,
    /// How many times.
    pub count: usize,
    /// How many nodes fewer the graph has for it.
    pub nodes: usize,
}

/// One thing that training has and the file does not show.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// What it is: `folded-batchnorm`, `no-dropout`, `untied-embeddings`, `quantised-weights`, `nothing-trains`.
    pub kind: &'static str,
    /// What training would add, for the user to read.
    pub message: String,
    /// The layers it concerns.
    pub layers: Vec<String>,
}

/// A pass: looks at one node and rewrites the pattern that ends there, if there is one.
struct Pass {
    name: &'static str,
    run: fn(&mut Rewriter<'_>, memfit_graph::NodeId) -> bool,
}

/// Loops that stand for one kernel each. They are put back before loops are written out turn by turn.
static LOOPS: &[Pass] = &[embedding_bag::PASS];

/// Every other pattern, in the order in which one prepares for the next.
static PASSES: &[Pass] = &[
    rms_norm::PASS,
    islands::PASS,
    pool_indices::PASS,
    index_add::PASS,
    aliases::PASS,
    fake_quantize::PASS,
    split::PASS,
    batch_statistics::PASS,
    weight_norm::PASS,
    contiguous::PASS,
    bilinear::PASS,
    linear::PASS,
    softplus::PASS,
    written_out::PASS,
    gelu::PASS,
    gated::PASS,
    glu::PASS,
    layer_norm::PASS,
    group_norm::PASS,
    variance::PASS,
    recurrent::PASS,
    rnn_cell::PASS,
    relative_positions::PASS,
    sdpa::PASS,
    softmax_dtype::PASS,
    max_positions::PASS,
    full_like::PASS,
    merged::PASS,
    straight_through::PASS,
    deduplicated::PASS,
];

/// Puts kernels back that the file has as loops.
pub(crate) fn loops(graph: &mut Graph, inferred: &Inferred) {
    let mut rewriter = Rewriter::new(graph, inferred);
    for pass in LOOPS {
        rewriter.node_ids().into_iter().for_each(|id| {
            (pass.run)(&mut rewriter, id);
        });
    }
    rewriter.finish();
}

/// The finding of an output layer's matrix that an export untied from an embedding.
const UNTIED: &str = "untied-embeddings";

/// Flags about what an export breaks up, where nothing in the file is that: `usual` was found without the plan's options, `own` with them.
pub(crate) fn idle(plan: &Plan, usual: &Report, own: &Report) -> impl Iterator<Item = String> + use<> {
    let attends = usual.applied.iter().any(|found| found.pattern == sdpa::PASS.name);
    let untied = own.findings.iter().any(|found| found.kind == UNTIED);
    let composed = plan.composed_attention && !attends;
    let tied = plan.tied_embeddings.is_some() && !untied;
    [
        (composed, "--composed-attention does nothing: no attention in this file would run as one kernel"),
        (tied, "--tied-embeddings does nothing: no output layer in this file was untied from an embedding by its export"),
    ]
    .into_iter()
    .filter(|(idle, _)| *idle)
    .map(|(_, what)| what.to_owned())
}

/// Rewrites `graph` in place. `inferred` is the result of [`memfit_graph::infer`] with nothing bound.
pub fn recompose(graph: &mut Graph, inferred: &Inferred, options: &Options) -> Report {
    let mut report = Report::default();
    let mut rewriter = Rewriter::new(graph, inferred);
    rewriter.prune();
    let kept = |pass: &&Pass| options.composed_attention && pass.name == sdpa::PASS.name;
    for pass in LOOPS.iter().chain(PASSES).filter(|pass| !kept(pass)) {
        let before = rewriter.living();
        let count = rewriter
            .node_ids()
            .into_iter()
            .filter(|id| !rewriter.is_dead(*id) && (pass.run)(&mut rewriter, *id))
            .count();
        if count > 0 {
            let nodes = before.saturating_sub(rewriter.living());
            report.applied.push(Applied { pattern: pass.name, count, nodes });
        }
    }
    let no_dropout = dropout::restore(&mut rewriter, options);
    in_place::mark(&mut rewriter);
    in_place::mark_sums(&mut rewriter);
    report.findings.extend(batchnorm::restore(&mut rewriter, options));
    report.findings.extend(tied::tie(&mut rewriter, options));
    report.findings.extend(no_dropout);
    report.findings.extend(trainable::find(&rewriter));
    parameters::name(&mut rewriter);
    rewriter.finish();
    report
}
