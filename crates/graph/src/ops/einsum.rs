//! Einsum. ONNX 12, 28; Keras `EinsumDense`.
//!
//! `at::einsum` (aten/src/ATen/native/Linear.cpp) contracts from left to right: two operands are permuted and reshaped to
//! three axes and multiplied by `bmm`, or by `mul` where nothing is summed. Both factors are kept as `bmm` sees them, so
//! an operand whose permuted axes cannot be seen as three is copied first. On autocast's lower-precision list.

use super::calls::Traced;
use super::matmul::matmul_as_is;
use crate::{
    Autocast, Call, Dim, Grad, Infer, Lowering, Op, OpError, OpSpec, OutDtype, Place, Shape, elements, order,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A label of the equation; `...` stands for as many axes as are left, numbered from the right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    Rest(usize),
    Letter(char),
}

/// A term of the equation.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    before: Vec<char>,
    rest: bool,
    after: Vec<char>,
}

/// A sum of products over named axes.
#[derive(Clone, Debug)]
pub struct Einsum {
    inputs: Vec<Term>,
    output: Option<Term>,
}

/// How Einsum is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "Einsum",
    since: &[12, 28],
    build: |a, _| {
        let equation = a.text("equation")?.ok_or_else(|| OpError::missing_attribute("equation"))?;
        Ok(Arc::new(Einsum::parse(&equation)?))
    },
}];

impl Term {
    fn parse(text: &str) -> Option<Term> {
        let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let (before, after) = match text.split_once("...") {
            Some((before, after)) => (before, Some(after)),
            None => (&*text, None),
        };
        let letters = |s: &str| s.chars().map(|c| c.is_alphabetic().then_some(c)).collect::<Option<Vec<_>>>();
        Some(Term { before: letters(before)?, rest: after.is_some(), after: letters(after.unwrap_or(""))? })
    }

    /// A label for each axis of an operand whose `...` stands for `rest` axes.
    fn labels(&self, rest: usize) -> Vec<Label> {
        let rest = (0..if self.rest { rest } else { 0 }).rev().map(Label::Rest);
        let letters = |s: &[char]| s.iter().copied().map(Label::Letter).collect::<Vec<_>>();
        letters(&self.before).into_iter().chain(rest).chain(letters(&self.after)).collect()
    }

    fn text(&self) -> String {
        let letters = |all: &[char]| all.iter().collect::<String>();
        let rest = if self.rest { "..." } else { "" };
        format!("{}{rest}{}", letters(&self.before), letters(&self.after))
    }

    fn named(&self) -> usize {
        self.before.len() + self.after.len()
    }
}

impl Einsum {
    /// The equation, without spaces.
    pub fn equation(&self) -> String {
        let inputs: Vec<String> = self.inputs.iter().map(Term::text).collect();
        let output = self.output.as_ref().map_or_else(String::new, |term| format!("->{}", term.text()));
        format!("{}{output}", inputs.join(","))
    }

    fn parse(equation: &str) -> Result<Einsum, OpError> {
        let wrong = || OpError::attribute("equation", "terms of letters such as `bij,bjk->bik`", equation);
        let (left, right) = match equation.split_once("->") {
            Some((left, right)) => (left, Some(right)),
            None => (equation, None),
        };
        let inputs = left.split(',').map(Term::parse).collect::<Option<Vec<_>>>().ok_or_else(wrong)?;
        let output = right.map(|term| Term::parse(term).ok_or_else(wrong)).transpose()?;
        Ok(Einsum { inputs, output })
    }

    /// The labels of each operand and of the output, given the operands' ranks.
    fn labels(&self, ranks: &[usize]) -> Result<(Vec<Vec<Label>>, Vec<Label>), OpError> {
        if ranks.len() != self.inputs.len() {
            return Err(OpError::mismatch(format!("{} inputs", self.inputs.len()), ranks.len()));
        }
        let mut inputs = Vec::new();
        let mut widest = 0;
        for (i, (term, rank)) in self.inputs.iter().zip(ranks).enumerate() {
            let rest = rank.checked_sub(term.named()).filter(|rest| term.rest || *rest == 0);
            let rest = rest.ok_or_else(|| {
                OpError::input(
                    i,
                    format!("the {} axes of the equation", term.named()),
                    format!("rank {rank}"),
                )
            })?;
            widest = widest.max(rest);
            inputs.push(term.labels(rest));
        }
        let output = match &self.output {
            Some(term) => term.labels(widest),
            None => {
                let mut counts: BTreeMap<Label, usize> = BTreeMap::new();
                inputs.iter().flatten().for_each(|l| *counts.entry(*l).or_default() += 1);
                let once = counts.iter().filter(|(l, n)| matches!(l, Label::Letter(_)) && **n == 1);
                (0..widest).rev().map(Label::Rest).chain(once.map(|(l, _)| *l)).collect()
            }
        };
        Ok((inputs, output))
    }

    /// A number for the label of each axis, of every operand and of the output.
    ///
    /// # Errors
    /// Where the operands are not as many, or not of the ranks, that the equation asks for.
    pub fn axes(&self, ranks: &[usize]) -> Result<(Vec<Vec<usize>>, Vec<usize>), OpError> {
        let (inputs, output) = self.labels(ranks)?;
        let known = order::set(inputs.iter().flatten().copied());
        let number = |label: &Label| known.iter().position(|other| other == label).unwrap_or(known.len());
        let numbers = |labels: &[Label]| labels.iter().map(number).collect::<Vec<_>>();
        Ok((inputs.iter().map(|labels| numbers(labels)).collect(), numbers(&output)))
    }

    fn shape(&self, shapes: &[&Shape]) -> Result<Shape, OpError> {
        let ranks: Vec<usize> = shapes.iter().map(|s| s.rank()).collect();
        let (inputs, output) = self.labels(&ranks)?;
        let mut sizes: BTreeMap<Label, Shape> = BTreeMap::new();
        for (i, (labels, shape)) in inputs.iter().zip(shapes).enumerate() {
            for (label, dim) in labels.iter().zip(shape.dims()) {
                let dim: Shape = [dim.clone()].into_iter().collect();
                let size = match sizes.get(label) {
                    Some(have) => have.broadcast(&dim).ok_or_else(|| {
                        OpError::input(
                            i,
                            format!("the size {have} of a shared axis"),
                            format!("shape {shape}"),
                        )
                    })?,
                    None => dim,
                };
                sizes.insert(*label, size);
            }
        }
        let size = |label: &Label| sizes.get(label).map(|s| s[0].clone());
        let missing = || OpError::attribute("equation", "output labels that an input has", "another label");
        output
            .iter()
            .map(|label| size(label).ok_or_else(missing))
            .collect::<Result<Vec<Dim>, _>>()
            .map(|dims| dims.into_iter().collect())
    }
}

/// A value whose axes are labelled.
#[derive(Clone)]
struct Labelled {
    value: Traced,
    labels: Vec<Label>,
}

impl Labelled {
    fn size(&self, label: Label) -> u64 {
        let at = self.labels.iter().position(|l| *l == label);
        at.and_then(|i| self.value.shape.get(i)).copied().unwrap_or(1)
    }

    /// With its axes in this order; labels that it lacks are axes of one.
    fn ordered(&self, l: &mut Lowering<'_>, order: &[Label]) -> Labelled {
        let perm: Vec<usize> =
            order.iter().filter_map(|label| self.labels.iter().position(|l| l == label)).collect();
        let turned = self.value.permute(l, &perm);
        let shape: Vec<u64> = order.iter().map(|label| self.size(*label)).collect();
        Labelled { value: turned.reshape(l, &shape), labels: order.to_vec() }
    }

    /// Summed over labels that nobody needs any more.
    fn summed(self, l: &mut Lowering<'_>, needed: &[Label]) -> Labelled {
        let kept: Vec<Label> = self.labels.iter().copied().filter(|label| needed.contains(label)).collect();
        if kept.len() == self.labels.len() {
            return self;
        }
        let shape: Vec<u64> = kept.iter().map(|label| self.size(*label)).collect();
        let call = Call::new("sum").input(self.value.operand, Grad::Expand);
        let call = call.output(&shape, OutDtype::Like(0), Place::New);
        Labelled { value: Traced::of(l, call, &shape, &[&self.value]), labels: kept }
    }
}

/// `sumproduct_pair`: the product of two values, summed over what is not needed any more.
fn contract(l: &mut Lowering<'_>, a: Labelled, b: Labelled, needed: &[Label]) -> Labelled {
    let in_both: Vec<Label> = a.labels.iter().copied().filter(|label| b.labels.contains(label)).collect();
    let wanted: Vec<Label> = needed.iter().chain(&in_both).copied().collect();
    let (a, b) = (a.summed(l, &wanted), b.summed(l, &wanted));
    let (batch, inner): (Vec<Label>, Vec<Label>) =
        in_both.into_iter().partition(|label| needed.contains(label));
    let outer = |x: &Labelled, other: &Labelled| -> Vec<Label> {
        x.labels.iter().copied().filter(|label| !other.labels.contains(label)).collect()
    };
    let (left, right) = (outer(&a, &b), outer(&b, &a));
    let labels: Vec<Label> = [&batch[..], &left, &right].concat();
    let dims = |labels: &[Label]| -> Vec<u64> { labels.iter().map(|k| a.size(*k).max(b.size(*k))).collect() };
    let shape = dims(&labels);
    if inner.is_empty() {
        let (x, y) = (a.ordered(l, &labels), b.ordered(l, &labels));
        return Labelled { value: x.value.mul(l, &y.value, &shape), labels };
    }
    let flat = |parts: [&[Label]; 3]| parts.map(|part| elements(&dims(part)));
    let x = a.ordered(l, &[&batch[..], &left, &inner].concat());
    let y = b.ordered(l, &[&batch[..], &inner, &right].concat());
    let x = x.value.reshape(l, &flat([&batch, &left, &inner]));
    let y = y.value.reshape(l, &flat([&batch, &inner, &right]));
    Labelled { value: matmul_as_is(l, &x, &y).reshape(l, &shape), labels }
}

impl Op for Einsum {
    fn name(&self) -> &str {
        "Einsum"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        let shapes: Option<Vec<&Shape>> = (0..cx.input_count()).map(|i| cx.shape(i)).collect();
        let shape = shapes.map(|shapes| self.shape(&shapes)).transpose()?;
        cx.set(0, cx.dtype(0), shape);
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let operands: Vec<Traced> = (0..l.input_count()).map(|i| Traced::input(l, i)).collect();
        let ranks: Vec<usize> = operands.iter().map(Traced::rank).collect();
        let Ok((labels, output)) = self.labels(&ranks) else { return };
        let repeated = |labels: &[Label]| labels.iter().enumerate().any(|(i, k)| labels[..i].contains(k));
        if labels.iter().any(|labels| repeated(labels)) {
            // A diagonal is a view that this vocabulary has no word for.
            return l.not_modelled();
        }
        let mut terms = operands
            .into_iter()
            .zip(labels)
            .map(|(value, labels)| Labelled { value: value.autocast(l, Autocast::Lower), labels })
            .collect::<Vec<_>>()
            .into_iter();
        let Some(mut result) = terms.next() else { return };
        while let Some(next) = terms.next() {
            let later = terms.as_slice().iter().flat_map(|t| t.labels.iter().copied());
            let needed: Vec<Label> = later.chain(output.iter().copied()).collect();
            result = contract(l, result, next, &needed);
        }
        result.summed(l, &output).ordered(l, &output).value.bind(l, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{self, float, symbolic};
    use crate::{Attribute, Attributes};

    fn equation(text: &str) -> Attributes {
        Attributes::from([("equation", Attribute::Text(text.into()))])
    }

    fn shape(text: &str, inputs: &[&[&str]]) -> Result<String, String> {
        let inputs: Vec<_> = inputs.iter().map(|dims| symbolic(dims)).collect();
        testing::shape("Einsum", 12, equation(text), &inputs)
    }

    #[test]
    fn shapes_follow_the_equation() {
        assert_eq!(shape("bij, bjk -> bik", &[&["b", "2", "3"], &["b", "3", "4"]]).unwrap(), "bx2x4");
        assert_eq!(shape("...ii->...i", &[&["b", "5", "3", "3"]]).unwrap(), "bx5x3");
        assert_eq!(shape("...ij,jk", &[&["b", "2", "3"], &["3", "4"]]).unwrap(), "bx2x4");
        assert_eq!(shape("i->", &[&["3"]]).unwrap(), "scalar");
        assert!(shape("ij,jk->ik", &[&["2", "3"], &["4", "5"]]).is_err());
        assert!(shape("ij->ik", &[&["2", "3"]]).is_err());
        assert!(shape("ij,jk->ik", &[&["2", "3"]]).is_err());
        assert!(shape("i1->i", &[&["2", "3"]]).is_err());
    }

    #[test]
    fn a_pair_is_one_batched_product() {
        let calls = |text, a: &[u64], b: &[u64]| -> Vec<(&'static str, Vec<u64>)> {
            let calls = testing::calls("Einsum", 12, equation(text), &[float(a), float(b)], 1);
            calls.iter().map(|c| (c.function, c.outputs[0].shape.to_vec())).collect()
        };
        // As attention scores are written: the second operand is turned by a view and nothing is copied before.
        let scores = calls("bhid,bhjd->bhij", &[2, 3, 5, 8], &[2, 3, 7, 8]);
        assert!(scores.contains(&("bmm", vec![6, 5, 7])), "{scores:?}");
        // A channel projection turns the input first, so its reshape copies.
        let projection = calls("bchw,cd->bdhw", &[2, 3, 5, 8], &[3, 9]);
        assert_eq!(projection[0], ("permute", vec![2, 5, 8, 3]));
        assert!(projection.contains(&("bmm", vec![1, 80, 9])), "{projection:?}");
        assert_eq!(projection.last().unwrap(), &("permute", vec![2, 9, 5, 8]));
        assert_eq!(calls("i,j->ij", &[2], &[3]).last().unwrap(), &("mul", vec![2, 3]));
    }
}
