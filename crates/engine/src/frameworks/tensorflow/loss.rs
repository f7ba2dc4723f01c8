//! The loss: what Keras computes from the model's outputs.
//!
//! The file does not say it, so it is chosen from the outputs' shapes and named among the assumptions. Sparse categorical
//! cross-entropy is one fused kernel that makes the gradient of the logits in forward; a mean squared error is `Sub`,
//! `Square`, `Mean`. Outputs of half precision are cast up first (keras/src/losses/loss.py).

use super::{Builder, Source, Wire};
use crate::Loss;
use crate::losses::target;
use memfit_graph::{DType, Penalty};

/// What an output of this shape is compared with, and why.
fn choose(shape: &[u64], reads_tokens: bool) -> (Loss, &'static str) {
    match shape {
        [_, 1] => (Loss::Bce, "binary cross-entropy (one number for each example)"),
        [_, _] => {
            (Loss::CrossEntropy, "sparse categorical cross-entropy (one row of classes for each example)")
        }
        [_, _, _] if reads_tokens => {
            (Loss::CrossEntropy, "sparse categorical cross-entropy (one row of classes for each token)")
        }
        _ => (Loss::Mse, "mean squared error (the output is no row of classes)"),
    }
}

impl Builder<'_> {
    /// The loss over all outputs that a gradient flows through; the sum where there are several.
    pub(super) fn losses(&mut self) -> Option<Wire> {
        let reads_tokens = self.graph.inputs.iter().all(|id| !self.inferred.dtype(*id).is_float());
        let outputs: Vec<Wire> = self
            .graph
            .outputs
            .iter()
            .filter_map(|id| match self.sources[id.index()] {
                Some(Source::Wire(wire)) if self.flow.dtype(wire).is_float() => Some(wire),
                _ => None,
            })
            .collect();
        let mut total: Option<Wire> = None;
        for (i, output) in outputs.into_iter().enumerate() {
            let shape = self.flow.shape(output).to_vec();
            let (loss, why) = match self.plan.loss {
                Loss::Auto => choose(&shape, reads_tokens),
                given => (given, ""),
            };
            if self.plan.loss == Loss::Auto && i == 0 {
                self.assumptions.push(format!("loss: {why}; --loss names another"));
            }
            let layer = self.layer("(loss)");
            // Classes are last whatever the rank (backend/tensorflow/nn.py, `sparse_categorical_crossentropy`).
            let labels = target(loss, &shape, shape.len().saturating_sub(1)).map(|(shape, dtype)| {
                let name = "(target)".into();
                let inputs = self.layer("(inputs)");
                self.feed(&shape, dtype, &name, inputs)
            });
            self.flow.layer = layer;
            self.flow.scope = "";
            let one = self.loss(loss, output, labels);
            total = Some(match total {
                Some(sum) => self.flow.binary("AddV2", sum, one),
                None => one,
            });
        }
        let mut terms = std::mem::take(&mut self.flow.penalties);
        self.flow.layer = self.layer("(loss)");
        for (tensor, source) in self.graph.tensors.iter().zip(&self.sources) {
            // A layer adds those of variables that train alone (keras/src/layers/layer.py, `_get_regularization_losses`).
            let Some(Source::Variable(variable)) = *source else { continue };
            if tensor.penalty != Penalty::default() && self.flow.variables[variable as usize].trainable {
                let read = self.flow.read(variable);
                terms.extend(self.flow.penalty(read, tensor.penalty));
            }
        }
        let sum =
            |total: Wire| terms.iter().fold(total, |total, term| self.flow.binary("AddV2", total, *term));
        total.map(sum)
    }

    fn loss(&mut self, loss: Loss, output: Wire, labels: Option<Wire>) -> Wire {
        let flow = &mut self.flow;
        // The logits of an activation that gave the output, unless a cast lies in between (backend/tensorflow/nn.py, `_get_logits`).
        let activation = match loss {
            Loss::CrossEntropy => "Softmax",
            Loss::Bce => "Sigmoid",
            _ => "",
        };
        let made = flow.kernel(output);
        let logits = made.inputs.first().copied().filter(|_| made.name == activation);
        let is_half = flow.dtype(output).is_half();
        let mut output = match logits {
            Some(logits) if !is_half => logits,
            _ => flow.cast(output, DType::Float32),
        };
        if logits.is_some() && is_half && loss == Loss::CrossEntropy {
            let clipped = flow.clipped(output);
            output = flow.unary("Log", clipped);
        }
        let shape = flow.shape(output).to_vec();
        match (loss, labels) {
            (Loss::CrossEntropy, Some(labels)) => {
                let name = "SparseSoftmaxCrossEntropyWithLogits";
                let classes = shape.last().copied().unwrap_or(1);
                let rows = flow.made(output).elements().checked_div(classes).unwrap_or(0);
                let flat =
                    if shape.len() == 2 { output } else { flow.view("Reshape", output, &[rows, classes]) };
                let each = flow.softmax_loss(name, flat, Some(labels));
                flow.reduce("Mean", each, &[])
            }
            (Loss::Bce, Some(labels)) => {
                // sigmoid_cross_entropy_with_logits: relu(x) - x * z + log1p(exp(-abs(x)))
                let zeros = flow.test("GreaterEqual", output);
                let positive = flow.select(zeros, output);
                let negative = flow.unary("Neg", output);
                let absolute = flow.choose(zeros, negative, output);
                let product = flow.binary("Mul", output, labels);
                let difference = flow.binary("Sub", positive, product);
                let exp = flow.unary("Exp", absolute);
                let log = flow.unary("Log1p", exp);
                let each = flow.binary("AddV2", difference, log);
                flow.reduce("Mean", each, &[])
            }
            (Loss::Mse, Some(labels)) => {
                let difference = flow.binary("Sub", output, labels);
                let square = flow.unary("Square", difference);
                flow.reduce("Mean", square, &[])
            }
            _ => flow.reduce("Mean", output, &[]),
        }
    }
}
