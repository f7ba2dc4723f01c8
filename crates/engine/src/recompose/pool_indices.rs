//! `max_pool2d(…, return_indices=True)`, whose indices count within a plane in PyTorch and within the whole tensor in ONNX.
//!
//! Exporters pool a second time, with windows of one element, and take the first index of each plane away (torch/onnx,
//! symbolic_opset9.py `_max_pool`; onnxscript, `_aten_max_pool_with_indices_onnx`). The framework runs one kernel.

use super::Pass;
use super::rewriter::{Rewriter, build};
use memfit_graph::NodeId;

pub(super) const PASS: Pass = Pass { name: "pooling with indices", run };

fn run(rw: &mut Rewriter<'_>, id: NodeId) -> bool {
    let pooled = |t| rw.made_by(t, "MaxPool").and_then(|pool| rw.input(pool, 0));
    let indices = || {
        let indices = rw.input(id, 0).filter(|_| rw.is(id, "Sub"))?;
        let first = rw.input(rw.made_by(rw.input(id, 1)?, "Slice")?, 0)?;
        (pooled(indices)? == pooled(first)?).then_some(indices)
    };
    let (Some(indices), Some(identity)) = (indices(), build("Identity", [])) else { return false };
    rw.rewrite(id, identity, vec![Some(indices)]);
    true
}

#[cfg(test)]
mod tests {
    use crate::recompose::testing::Sketch;
    use memfit_graph::{Attribute, Type};

    #[test]
    fn one_pooling_is_left() {
        for (same, count) in [(true, 1), (false, 2)] {
            let mut s = Sketch::default();
            let (x, z) = (s.input("x", &[2, 4, 8, 8]), s.input("z", &[2, 4, 8, 8]));
            let ([start, end], axes) = ([[0, 0], [1, 1]].map(|ends| s.ints(&ends)), s.ints(&[2, 3]));
            let mut indices = |x, kernel: i64, stride: i64| {
                let ints = |n| Attribute::Ints(vec![n, n]);
                let of = [("kernel_shape", ints(kernel)), ("strides", ints(stride))].into();
                let values = s.push_with("MaxPool", of, &[x]);
                let indices = s.graph.add_tensor(
                    format!("indices{kernel}"),
                    Type::Unknown,
                    memfit_graph::Role::Intermediate,
                );
                s.graph.nodes.last_mut().unwrap().outputs = vec![Some(values), Some(indices)];
                indices
            };
            let own = indices(x, 2, 2);
            let all = indices(if same { x } else { z }, 1, 1);
            let first = s.push("Slice", &[all, start, end, axes]);
            let y = s.push("Sub", &[own, first]);
            let y = s.cast(y);
            assert_eq!(s.recompose(y).iter().filter(|op| **op == "MaxPool").count(), count);
        }
    }
}
