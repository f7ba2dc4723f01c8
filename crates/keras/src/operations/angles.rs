//! The TensorFlow kernels of `Hypot` and `Arctan2`, and of what a spectrogram makes of real and imaginary parts.
//!
//! keras/src/backend/tensorflow/numpy.py (3.15), `hypot`: the larger side times the root of one and the squared ratio; `Atan2` has a
//! kernel of its own, whose gradient divides by the sum of both squares (tensorflow/python/ops/math_grad.py, `_Atan2Grad`).

use memfit_graph::kernels::{Flow, Kernel, Wire};

fn gradient(flow: &mut Flow, kernel: &Kernel, _: Wire, grads: &[Option<Wire>]) -> Vec<Option<Wire>> {
    let (Some(Some(dy)), [y, x]) = (grads.first().copied(), &kernel.inputs[..]) else {
        return vec![None, None];
    };
    let squares = [*y, *x].map(|side| {
        let square = flow.unary("Square", side);
        flow.wait(square, dy);
        square
    });
    let sum = flow.binary("AddV2", squares[0], squares[1]);
    let inverse = flow.binary("RealDiv", dy, sum);
    let of_y = flow.binary("Mul", *x, inverse);
    let negative = flow.unary("Neg", *y);
    flow.wait(negative, dy);
    let of_x = flow.binary("Mul", negative, inverse);
    let mut reduced = |gradient: Wire, like: Wire| {
        let shape = flow.shape(like).to_vec();
        Some(flow.unbroadcast(gradient, &shape))
    };
    vec![reduced(of_y, *y), reduced(of_x, *x)]
}

/// The angle of each pair of coordinates, which have one shape.
pub(crate) fn arctan2(flow: &mut Flow, y: Wire, x: Wire) -> Wire {
    let (shape, dtype) = (flow.shape(y).to_vec(), flow.dtype(y));
    flow.reuse("Atan2", &[y, x], &shape, dtype, Some(gradient))
}

/// The length of each pair of coordinates.
pub(crate) fn hypot(flow: &mut Flow, a: Wire, b: Wire) -> Wire {
    let [a, b] = [a, b].map(|side| flow.unary("Abs", side));
    let (most, least) = (flow.binary("Maximum", a, b), flow.binary("Minimum", a, b));
    let ratio = flow.binary("DivNoNan", least, most);
    let square = flow.unary("Square", ratio);
    let shifted = flow.shifted("AddV2", square);
    let root = flow.unary("Sqrt", shifted);
    flow.binary("Mul", most, root)
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_graph::DType;

    #[test]
    fn each_coordinate_has_a_gradient_of_its_shape() {
        let mut flow = Flow::default();
        let [y, x, dy] = [0; 3].map(|_| flow.make("X", &[], &[4, 9], DType::Float32, None));
        let angle = arctan2(&mut flow, y, x);
        let kernel = flow.kernel(angle).clone();
        let given = gradient(&mut flow, &kernel, angle, &[Some(dy)]);
        let shapes: Vec<&[u64]> = given.iter().flatten().map(|wire| flow.shape(*wire)).collect();
        assert_eq!(shapes, [&[4, 9], &[4, 9]]);
        // Neither square is made before the gradient is there.
        let waits =
            flow.kernels.iter().filter(|kernel| kernel.name == "Square" && kernel.after == [dy.kernel]);
        assert_eq!(waits.count(), 2);
    }
}
