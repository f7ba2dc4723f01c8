//! The names that kernels have in the graph, as far as an order depends on them.
//!
//! Grappler sorts the inputs of kernels that commute by name (grappler/utils.cc, `CanonicalizeNode`, which
//! common_subgraph_elimination.cc calls), so names decide which of a sum's terms the next walk meets first. Sums of gradients are called
//! `AddN`, forward's kernels `functional_1/LAYER_1/SCOPE/mul_1`, backward's `gradient_tape/functional_1/LAYER_1/SCOPE/mul_1/Sum`.
//! What a function of Keras or TensorFlow calls its kernels is only known as far as [`called`] goes: most are called what
//! they are, and those that Python's operators make begin with a small letter.

use super::Flow;
use memfit_graph::kernels::{Kernel, Stage};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Kernels that commute (`SetIsCommutative` in core/ops/math_ops.cc).
pub(super) const COMMUTATIVE: &[&str] = &[
    "AddN",
    "AddV2",
    "BitwiseAnd",
    "Equal",
    "LogicalAnd",
    "LogicalOr",
    "Mul",
    "NotEqual",
    "SquaredDifference",
];

/// Names of a graph's kernels.
pub(super) struct Names<'a> {
    flow: &'a Flow,
    layers: &'a [Arc<str>],
    /// By kernel, how many of its name stand before it in its scope.
    earlier: Vec<u32>,
}

impl<'a> Names<'a> {
    /// The names of this graph's kernels, which belong to these layers.
    pub(super) fn of(flow: &'a Flow, layers: &'a [Arc<str>]) -> Names<'a> {
        let mut counts: BTreeMap<_, u32> = BTreeMap::new();
        let mut earlier = Vec::with_capacity(flow.kernels.len());
        for kernel in &flow.kernels {
            let count = counts
                .entry((kernel.layer, kernel.scope, kernel.gradient_of, kernel.stage, called(kernel)))
                .or_default();
            earlier.push(*count);
            *count += 1;
        }
        Names { flow, layers, earlier }
    }

    /// Which of two kernels has the name that comes first in the alphabet.
    pub(super) fn compare(&self, a: u32, b: u32) -> Ordering {
        let kernels = [a, b].map(|at| &self.flow.kernels[at as usize]);
        let [stage_a, stage_b] = kernels.map(|kernel| (kernel.name != "AddN", kernel.stage));
        let layer = |kernel: &Kernel| self.layers.get(kernel.layer as usize).map_or("", |name| &**name);
        let [in_a, in_b] = kernels.map(|kernel| scoped(layer(kernel)).chain(scoped(kernel.scope)));
        stage_a.cmp(&stage_b).then_with(|| in_a.cmp(in_b)).then_with(|| self.inner(a).cmp(&self.inner(b)))
    }

    /// What comes after the scope.
    fn inner(&self, at: u32) -> String {
        let kernel = &self.flow.kernels[at as usize];
        let own = match self.earlier[at as usize] {
            0 => called(kernel).to_owned(),
            n => format!("{}_{n}", called(kernel)),
        };
        match kernel.gradient_of.filter(|_| kernel.stage == Stage::Backward) {
            Some(of) => format!("{}/{own}", self.inner(of)),
            None => own,
        }
    }
}

/// The name of a layer in a path: layers are called a second time when the step is traced.
fn scoped(name: &str) -> impl Iterator<Item = u8> + '_ {
    let ending: &[u8] = if name.is_empty() { b"" } else { b"_1/" };
    name.bytes().chain(ending.iter().copied())
}

/// What Python calls a kernel.
fn called(kernel: &Kernel) -> &'static str {
    match kernel.name {
        "AddV2" => "add",
        "BatchMatMulV2" => "MatMul",
        "BiasAddGrad" => "BiasAddGrad",
        "ConcatV2" => "concat",
        "Mul" => "mul",
        "RealDiv" => "truediv",
        "StridedSlice" => "strided_slice",
        "Sub" => "sub",
        "Transpose" => "transpose",
        name => name,
    }
}
