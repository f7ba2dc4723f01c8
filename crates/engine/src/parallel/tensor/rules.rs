//! What each operator does with a split axis: keeps it, moves it, ends it, or needs the whole.

use super::Axes;
use memfit_graph::ops::{
    conv::Conv, gather::Gather, gemm::Gemm, layer_norm::LayerNormalization, linear::Linear, softmax::Softmax,
    transpose::Transpose,
};
use memfit_graph::{Node, Shape, TensorId};

/// Operators that work on each value alone, where shapes broadcast.
#[rustfmt::skip]
const POINTWISE: &[&str] = &[
    "Abs", "Add", "Cast", "Celu", "Clip", "Cos", "Div", "Dropout", "Elu", "Erf", "Exp", "Expand", "Gelu",
    "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Log", "Log1p", "Max", "Min", "Mish", "Mul", "Neg",
    "PRelu", "Pow", "Reciprocal", "Relu", "Selu", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Sqrt", "Sub", "Sum",
    "Swish", "Tanh", "ThresholdedRelu", "Where",
];

/// Operators that leave the axis of channels alone.
#[rustfmt::skip]
const PER_CHANNEL: &[&str] = &[
    "AveragePool", "BatchNormalization", "GlobalAveragePool", "GlobalMaxPool", "InstanceNormalization",
    "MaxPool", "Pad", "Resize", "Upsample",
];

/// Operators that give the same values another shape.
pub(in crate::parallel) const RESHAPES: &[&str] = &["Flatten", "Reshape", "Squeeze", "Unsqueeze"];

/// What becomes of the outputs of a node.
pub(super) enum Output {
    /// Each GPU has them whole.
    Whole,
    /// Each has a part of this axis.
    Split(usize),
    /// They are whole, and so must be what the node reads.
    NeedsWhole,
}

impl Axes<'_> {
    /// What becomes of a node's outputs; its weights are split as that asks.
    pub(super) fn outputs(&mut self, node: &Node) -> Output {
        if matches!(node.op.name(), "Linear" | "MatMul" | "Gemm" | "Conv" | "ConvTranspose")
            && let Some(output) = self.product(node)
        {
            return output;
        }
        // What it gives is a number of sizes, whoever has the values.
        if node.op.name() == "Shape" {
            return Output::Whole;
        }
        let cut = |axes: &Self| node.outputs.first().copied().flatten().and_then(|id| axes.cut[id.index()]);
        if let Some(axis) = cut(self) {
            return Output::Split(axis);
        }
        let inputs = node.inputs.iter().flatten();
        let split = inputs.filter(|id| !self.is_weight(**id)).find_map(|id| Some((*id, self.of(*id)?)));
        match split {
            None => {
                self.embed(node);
                Output::Whole
            }
            Some((input, axis)) => {
                if let Some(axis) = self.follow(node, input, axis) {
                    return Output::Split(axis);
                }
                // What is cut out of the whole is split in this pass already: those who read it see it beside their queries.
                cut(self).map_or(Output::NeedsWhole, |axis| {
                    self.need(node);
                    Output::Split(axis)
                })
            }
        }
    }

    /// The axis along which the outputs of a node are split whose first split input is `input`, along `axis`; nothing where it
    /// needs the whole.
    fn follow(&mut self, node: &Node, input: TensorId, axis: usize) -> Option<usize> {
        let name = node.op.name();
        let output = node.outputs.first().copied().flatten()?;
        let rank = self.shape(input)?.rank();
        let keeps_rank = self.shape(output)?.rank() == rank;
        let positive =
            |at: i64| usize::try_from(if at < 0 { at + i64::try_from(rank).ok()? } else { at }).ok();
        match name {
            _ if POINTWISE.contains(&name) => self.pointwise(node, output).inspect(|at| {
                let copies =
                    self.dim(output, *at).filter(|_| self.shares(output, *at)).map(|n| self.ways / n);
                let is_repeated =
                    copies.is_some_and(|n| self.dim(output, at + 1).is_some_and(|d| d.is_multiple_of(n)));
                self.copies[output.index()] = copies.filter(|_| name == "Expand" && is_repeated);
            }),
            _ if RESHAPES.contains(&name) => self.reshape(input, axis, output),
            _ if PER_CHANNEL.contains(&name) => {
                let channels = self.dim(input, 1);
                let weights = node.inputs.iter().skip(1).flatten().copied();
                let mut weights: Vec<TensorId> = weights.filter(|id| self.dim(*id, 0) == channels).collect();
                weights.retain(|id| !self.split_weight(*id, 0));
                (axis == 1 && keeps_rank && weights.is_empty()).then_some(1)
            }
            "Transpose" => {
                let order = node.op.downcast::<Transpose>()?.permutation(rank).ok()?;
                order.iter().position(|from| *from == axis)
            }
            "Softmax" | "LogSoftmax" => {
                let softmax = node.op.downcast::<Softmax>()?;
                (!softmax.flattens && positive(softmax.axis)? != axis).then_some(axis)
            }
            // Parts of a fused projection: each GPU has a part of every part.
            "Split" => node.outputs.iter().flatten().all(|id| self.divides(*id, axis)).then_some(axis),
            "Slice" => {
                let has_parts = self.divides(output, axis) || self.shares(output, axis);
                (keeps_rank && has_parts).then_some(axis)
            }
            "Gather" => {
                let at = positive(node.op.downcast::<Gather>()?.axis)?;
                let indices = self.shape(self.input(node, 1)?)?.rank();
                let moved = if at < axis { (axis + indices).checked_sub(1)? } else { axis };
                (at != axis && self.input(node, 0) == Some(input)).then_some(moved)
            }
            "Concat" => node.inputs.iter().flatten().all(|id| self.of(*id) == Some(axis)).then_some(axis),
            "MatMul" => {
                let both = node.inputs.iter().flatten().all(|id| self.of(*id) == Some(axis));
                (both && axis + 2 < rank && keeps_rank && self.divides(input, axis)).then_some(axis)
            }
            "ScaledDotProductAttention" => {
                let operands = (0..3).all(|i| self.input(node, i).is_some_and(|id| self.of(id) == Some(1)));
                // A head of queries is on one GPU.
                let operands = operands && self.divides(input, 1);
                let broadcasts = self.input(node, 3).is_none_or(|mask| {
                    let rank = self.shape(mask).map_or(0, Shape::rank);
                    rank < 3 || self.of(mask) == Some(1) || self.dim(mask, rank - 3) == Some(1)
                });
                (operands && axis == 1 && rank == 4 && broadcasts).then_some(1)
            }
            _ => {
                let norm = node.op.downcast::<LayerNormalization>()?;
                (positive(norm.axis)? > axis).then_some(axis)
            }
        }
    }

    /// A product with a stored weight; nothing where it is one of activations.
    fn product(&mut self, node: &Node) -> Option<Output> {
        let (x, weight) = (self.input(node, 0)?, self.input(node, 1)?);
        if !self.is_weight(weight) || self.shape(weight)?.rank() < 2 {
            return None;
        }
        let last = self.shape(x)?.rank().checked_sub(1)?;
        let groups = node.op.downcast::<Conv>().map_or(1, |conv| conv.groups);
        // Where the weight has outputs and inputs, and where activations have their features.
        let (columns, rows, features) = match node.op.name() {
            "Linear" if node.op.downcast::<Linear>()?.out_first => (0, 1, last),
            "Gemm" if node.op.downcast::<Gemm>()?.trans_b => (0, 1, last),
            "Conv" => (0, 1, 1),
            "ConvTranspose" => (1, 0, 1),
            _ => (1, 0, last),
        };
        let is_split = match self.of(x) {
            Some(axis) if axis != features => return Some(Output::NeedsWhole),
            axis => axis.is_some(),
        };
        if groups > 1 {
            // Groups stay where their channels are.
            let moves = !is_split || !groups.is_multiple_of(self.ways) || !self.split_weight(weight, columns);
            return Some(match (is_split, moves) {
                (false, _) => Output::Whole,
                (true, true) => Output::NeedsWhole,
                (true, false) => Output::Split(features),
            });
        }
        if is_split {
            return Some(if self.split_weight(weight, rows) { Output::Whole } else { Output::NeedsWhole });
        }
        if !self.split_weight(weight, columns) {
            return Some(Output::Whole);
        }
        if let Some(bias) = self.input(node, 2) {
            self.split_weight(bias, 0);
        }
        // Where its output has to be whole it is gathered; the weight stays split.
        let gathers = |id: &TensorId| self.whole[id.index()] || self.pads(*id, features);
        let gathers = node.outputs.iter().flatten().any(gathers);
        Some(if gathers { Output::Whole } else { Output::Split(features) })
    }

    /// A table of embeddings is split by its rows; what is looked up is summed over the GPUs, so it is whole.
    fn embed(&mut self, node: &Node) {
        let Some(table) = self.input(node, 0) else { return };
        let by_row = node.op.downcast::<Gather>().is_some_and(|gather| gather.axis == 0);
        if by_row && self.shape(table).is_some_and(|shape| shape.rank() == 2) {
            self.split_weight(table, 0);
        }
    }

    /// Where all that is not one value wide agrees; weights are split along.
    fn pointwise(&mut self, node: &Node, output: TensorId) -> Option<usize> {
        let rank = self.shape(output)?.rank();
        let inputs: Vec<TensorId> = node.inputs.iter().flatten().copied().collect();
        let offset = |axes: &Self, id: TensorId| rank.checked_sub(axes.shape(id)?.rank());
        let mut meet = None;
        for id in inputs.iter().filter(|id| !self.is_weight(**id)) {
            if let Some(axis) = self.of(*id) {
                let at = axis + offset(self, *id)?;
                if meet.is_some_and(|m| m != at) {
                    return None;
                }
                meet = Some(at);
            }
        }
        let at = meet?;
        // The second input of an Expand is a shape.
        let values = if node.op.name() == "Expand" { 1 } else { inputs.len() };
        for id in inputs.into_iter().take(values) {
            let Some(own) = at.checked_sub(offset(self, id)?) else { continue };
            let agrees =
                self.of(id) == Some(own) || self.dim(id, own) == Some(1) || self.split_weight(id, own);
            if !agrees {
                return None;
            }
        }
        Some(at)
    }

    /// The axis before which there are as many values as before; where it is one of parts that a fused projection makes
    /// (queries, keys, values), the next: the columns of its weight can be in any order. The innermost of several is a head's own.
    fn reshape(&mut self, input: TensorId, axis: usize, output: TensorId) -> Option<usize> {
        let values = |id: TensorId, axes: std::ops::Range<usize>| {
            let dims = self.shape(id)?.dims().get(axes)?;
            dims.iter().try_fold(1_u64, |n, d| n.checked_mul(d.known()?))
        };
        let (before, whole) = (values(input, 0..axis)?, self.dim(input, axis)?);
        let rank = self.shape(output)?.rank();
        let first = (0..rank)
            .rev()
            .find(|k| values(output, 0..*k) == Some(before) && self.dim(output, *k) != Some(1))?;
        let inside = |k: &usize| values(output, first..*k + 1).is_some_and(|n| whole.is_multiple_of(n));
        let merges = self.dim(output, first)?.is_multiple_of(whole).then_some(first);
        let parts = (first..rank).take_while(inside).count();
        let heads = first..first + if parts > 1 { parts - 1 } else { parts };
        let found = heads.clone().find(|k| self.divides(output, *k)).or(merges);
        let last = heads.last().filter(|k| parts > 1 && self.shares(output, *k));
        if found.is_none() && last.is_some() {
            self.cut[output.index()] = last;
        }
        found
    }
}
