//! `max_pool2d(…, return_indices=True)`, whose indices count within a plane in PyTorch and within the whole tensor in ONNX.
//!
//! Exporters pool a second time, with windows of one element, and take the first index of each plane away (torch/onnx,
//! symbolic_opset9.py `_max_pool`; onnxscript, `_aten_max_pool_with_indices_onnx`). The framework runs one kernel. So it does for
//! `max_unpool2d`, of which the dynamo exporter makes an assignment at positions that are counted through all planes
//! (torch/_decomp/decompositions.py, `_max_unpoolnd`: `output.reshape(-1).index_put([indices_flat], self.reshape(-1))`).

use super::Pass;
use super::rewriter::{Rewriter, build};
use memfit_graph::ops::max_unpool::MaxUnpool;
use memfit_graph::{NodeId, TensorId};
use std::sync::Arc;

pub(super) const PASS: Pass = Pass { name: "pooling with indices", run };

fn run(rw: &mut Rewriter<'_>, id: NodeId) -> bool {
    if let Some(inputs) = unpooled(rw, id) {
        rw.rewrite(id, Arc::new(MaxUnpool::default()), inputs.map(Some).into());
        return true;
    }
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

/// The values, the indices and the shape of what a Reshape makes of values that were put where a pooling found them.
fn unpooled(rw: &Rewriter<'_>, id: NodeId) -> Option<[TensorId; 3]> {
    let behind = |t, op| rw.made_by(t, op).and_then(|n| rw.input(n, 0));
    let put = rw.made_by(rw.input(id, 0).filter(|_| rw.is(id, "Reshape"))?, "ScatterND")?;
    let [zeros, at, values] = [0, 1, 2].map(|i| rw.input(put, i));
    let shape = behind(behind(zeros?, "Reshape")?, "ConstantOfShape")?;
    let counted = rw.made_by(behind(behind(at?, "Unsqueeze")?, "Reshape")?, "Add")?;
    let pooled = |t| behind(t, "Identity").filter(|t| rw.made_by(*t, "MaxPool").is_some());
    let (indices, _) = rw.operands(counted, pooled)?;
    Some([behind(values?, "Reshape")?, indices, shape])
}

#[cfg(test)]
mod tests {
    use crate::recompose::testing::Sketch;
    use memfit_graph::{Attribute, TensorId, Type};

    /// The values and the indices of a pooling, and the indices as PyTorch counts them, of the same tensor or of another.
    fn pooled(s: &mut Sketch, same: bool) -> [TensorId; 2] {
        let (x, z) = (s.input("x", &[2, 4, 8, 8]), s.input("z", &[2, 4, 8, 8]));
        let ([start, end], axes) = ([[0, 0], [1, 1]].map(|ends| s.ints(&ends)), s.ints(&[2, 3]));
        let mut pool = |x, size: i64| {
            let ints = |n| Attribute::Ints(vec![n, n]);
            let values =
                s.push_with("MaxPool", [("kernel_shape", ints(size)), ("strides", ints(size))].into(), &[x]);
            let name = format!("indices{size}");
            let indices = s.graph.add_tensor(name, Type::Unknown, memfit_graph::Role::Intermediate);
            s.graph.nodes.last_mut().unwrap().outputs = vec![Some(values), Some(indices)];
            [values, indices]
        };
        let [values, own] = pool(x, 2);
        let [_, all] = pool(if same { x } else { z }, 1);
        let first = s.push("Slice", &[all, start, end, axes]);
        [values, s.push("Sub", &[own, first])]
    }

    #[test]
    fn one_pooling_is_left() {
        for (same, count) in [(true, 1), (false, 2)] {
            let mut s = Sketch::default();
            let [_, y] = pooled(&mut s, same);
            let y = s.cast(y);
            assert_eq!(s.recompose(y).iter().filter(|op| **op == "MaxPool").count(), count);
        }
    }

    #[test]
    fn an_assignment_where_a_pooling_found_its_maxima_undoes_it() {
        let mut s = Sketch::default();
        let [values, indices] = pooled(&mut s, true);
        let [flat, shape] = [&[-1][..], &[2, 4, 8, 8]].map(|sizes| s.ints(sizes));
        let last = s.ints(&[-1]);
        let planes = s.whole(0);
        let at = s.push("Add", &[indices, planes]);
        let at = s.push("Reshape", &[at, flat]);
        let at = s.push("Unsqueeze", &[at, last]);
        let zeros = s.push("ConstantOfShape", &[shape]);
        let (zeros, values) = (s.push("Reshape", &[zeros, flat]), s.push("Reshape", &[values, flat]));
        let put = s.push("ScatterND", &[zeros, at, values]);
        let y = s.push("Reshape", &[put, shape]);
        assert_eq!(s.recompose(y), ["MaxPool", "MaxUnpool"]);
    }
}
