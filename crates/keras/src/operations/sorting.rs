//! The TensorFlow kernels of what sorts: `Sort`, `TopK`, `Median`, `Quantile` and the activation sparsemax.
//!
//! tensorflow/python/ops/sort_ops.py: descending order is `TopKV2` over the whole last axis, ascending order the negative of that of the
//! negative; other axes are turned there and back. Its gradient scatters into zeros by flat indices (nn_grad.py, `_TopKGrad`).
//! keras/src/backend/tensorflow/numpy.py (3.15, `_quantile`) sorts the reduced axes as one, gathers two neighbours, and asks each
//! element whether it is NaN; nn.py, `sparsemax`.

use super::Operation;
use crate::run::Run;
use memfit_graph::DType;
use memfit_graph::kernels::{Flow, Kernel, Made, Place, Wire};

fn top_gradient(flow: &mut Flow, kernel: &Kernel, y: Wire, grads: &[Option<Wire>]) -> Vec<Option<Wire>> {
    let (Some(Some(dy)), Some(x)) = (grads.first().copied(), kernel.inputs.first()) else {
        return vec![None];
    };
    let (shape, dtype) = (flow.shape(*x).to_vec(), flow.dtype(*x));
    let (places, made) = (flow.output(y, 1), flow.shape(y).to_vec());
    // No input of it is the gradient, so that it runs as soon as it can.
    let flat = flow.reuse("AddV2", &[places], &made, DType::Int32, None);
    vec![Some(flow.make("ScatterNd", &[flat, dy], &shape, dtype, None))]
}

/// The largest of the last axis, which becomes that of `shape`, and where they were.
fn top(flow: &mut Flow, x: Wire, shape: &[u64]) -> Wire {
    let made = |dtype| Made { shape: shape.to_vec(), dtype, place: Place::New };
    let made = vec![made(flow.dtype(x)), made(DType::Int32)];
    flow.push("TopKV2", &[x], made, Some(top_gradient))
}

/// The last axis in ascending order.
fn ascending(flow: &mut Flow, x: Wire) -> Wire {
    let shape = flow.shape(x).to_vec();
    let negative = flow.unary("Neg", x);
    let sorted = top(flow, negative, &shape);
    flow.unary("Neg", sorted)
}

/// `max(x - τ, 0)`, where the threshold τ is found in what is sorted and summed up.
pub(crate) fn sparsemax(flow: &mut Flow, x: Wire) -> Wire {
    let (shape, dtype) = (flow.shape(x).to_vec(), flow.dtype(x));
    let mut rows = shape.clone();
    rows.last_mut().into_iter().for_each(|d| *d = 1);
    let sorted = top(flow, x, &shape);
    let sums = flow.moved("Cumsum", sorted, &shape);
    let shifted = flow.shifted("Sub", sums);
    let share = flow.scaled("RealDiv", shifted);
    let above = flow.binary("Sub", sorted, share);
    let support = flow.test("Greater", above);
    let chosen = flow.select(support, sums);
    let counted = flow.cast(support, dtype);
    let count = flow.reduce("Sum", counted, &rows);
    let sum = flow.reduce("Sum", chosen, &rows);
    let sum = flow.shifted("Sub", sum);
    let threshold = flow.binary("RealDiv", sum, count);
    let difference = flow.binary("Sub", x, threshold);
    flow.clip_side("Maximum", difference)
}

impl Operation {
    /// The result for the first operand `x`, of an operation that sorts; `None` for others.
    pub(super) fn sorting(&self, run: &mut Run<'_, '_>, x: Wire) -> Option<Wire> {
        let shape = run.out_shape(0).to_vec();
        match self.class.as_str() {
            "TopK" => {
                let values = top(run, x, &shape);
                let places = run.output(values, 1);
                run.bind(1, places);
                Some(values)
            }
            "Sort" if shape == run.shape(x) => {
                let axis = self.integer(run.call, 1, &["axis"]).unwrap_or(-1);
                let rank = shape.len();
                let at = usize::try_from(axis)
                    .ok()
                    .or_else(|| rank.checked_add_signed(isize::try_from(axis).ok()?));
                let at = at.filter(|at| *at < rank)?;
                let mut turned = shape.clone();
                turned.swap(at, rank - 1);
                let x = if at + 1 == rank { x } else { run.moved("Transpose", x, &turned) };
                let y = ascending(run, x);
                Some(if at + 1 == rank { y } else { run.moved("Transpose", y, &shape) })
            }
            // Of one of them, not of a list.
            "Median" | "Quantile" if run.tensors() == 1 => self.quantile(run, x, &shape),
            _ => None,
        }
    }

    fn quantile(&self, run: &mut Run<'_, '_>, x: Wire, shape: &[u64]) -> Option<Wire> {
        let position = if self.class == "Median" { 1 } else { 2 };
        let axes = self.integers(run.call, position, &["axis"]);
        let (of, rows) = (run.shape(x).to_vec(), self.rows_at(run, x, position));
        let is_reduced = |i: usize| axes.is_none() || rows.get(i) != of.get(i);
        let others: Vec<u64> =
            (0..of.len()).filter(|i| !is_reduced(*i)).filter_map(|i| of.get(i).copied()).collect();
        if memfit_graph::elements(&others) != memfit_graph::elements(shape) {
            return None;
        }
        let reduced = memfit_graph::elements(&of).checked_div(memfit_graph::elements(&others))?;
        // Reduced axes go to the end, unless they are there.
        let is_turned = (1..of.len()).any(|i| is_reduced(i - 1) && !is_reduced(i));
        let turned = if is_turned { run.moved("Transpose", x, &of) } else { x };
        let flat = run.view("Reshape", turned, &[&others[..], &[reduced]].concat());
        let sorted = ascending(run, flat);
        let method = self.parameter(run.call, 3, &["method"]);
        let neighbours = match method.as_ref().and_then(|m| m.as_str()) {
            Some("lower" | "higher" | "nearest") => 1,
            _ => 2,
        };
        let mut parts = (0..neighbours).map(|_| {
            let gathered = run.gathered(sorted, &others);
            if neighbours == 1 { gathered } else { run.scaled("Mul", gathered) }
        });
        let (one, other) = (parts.next()?, parts.next());
        let mut y = other.map_or(one, |other| run.binary("AddV2", one, other));
        let each = run.test("IsNan", x);
        let any = run.make("Any", &[each], &others, DType::Bool, None);
        y = run.select(any, y);
        Some(run.view("Reshape", y, shape))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sorted_scatters_its_gradient() {
        let mut flow = Flow::default();
        let x = flow.make("X", &[], &[4, 9], DType::Float32, None);
        let y = top(&mut flow, x, &[4, 3]);
        let dy = flow.make("Dy", &[], &[4, 3], DType::Float32, None);
        let kernel = flow.kernel(y).clone();
        let given = top_gradient(&mut flow, &kernel, y, &[Some(dy), None]);
        let dx = given.first().copied().flatten().unwrap();
        assert_eq!((flow.kernel(dx).name, flow.shape(dx)), ("ScatterNd", &[4, 9][..]));
        // The places of those three alone, in their own buffer.
        let flat = flow.kernel(dx).inputs[0];
        assert_eq!(flow.kernel(flat).inputs, [flow.output(y, 1)]);
        assert_eq!((flow.shape(flat), flow.made(flat).place), (&[4, 3][..], Place::Reuse));
    }

    #[test]
    fn sparsemax_sorts_once_and_keeps_its_shape() {
        let mut flow = Flow::default();
        let x = flow.make("X", &[], &[4, 9], DType::Float16, None);
        let y = sparsemax(&mut flow, x);
        assert_eq!((flow.shape(y), flow.dtype(y)), (&[4, 9][..], DType::Float16));
        assert_eq!(flow.kernels.iter().filter(|kernel| kernel.name == "TopKV2").count(), 1);
    }
}
