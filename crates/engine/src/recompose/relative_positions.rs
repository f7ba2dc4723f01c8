//! Relative position bias of windowed attention, where an inference export folded it.
//!
//! Swin and MaxViT learn one number a head for each distance in a window of `w * w` tokens and look them up for every
//! pair (torchvision 0.29, swin_transformer.py `_get_relative_position_bias`, maxvit.py `get_relative_positional_bias`):
//! `table[index].view(n, n, heads).permute(2, 0, 1).unsqueeze(0)`. Neither input of the model has a part in it, so
//! exporters fold it to `[1, heads, n, n]`, which shows neither the `(2w - 1)^2` trained rows nor the stored index.

use super::Pass;
use super::rewriter::{Rewriter, build};
use memfit_graph::{Attribute, DType, NodeId, Role, Shape, TensorId, Type, Value, is_exporter_name};

pub(super) const PASS: Pass = Pass { name: "relative position bias", run };

fn run(rw: &mut Rewriter<'_>, id: NodeId) -> bool {
    let (folded, rebuilt) = match (added(rw, id), looked_up(rw, id)) {
        (Some((bias, window)), _) => (bias, put_back(rw, id, &window)),
        (None, Some((rows, window))) => (rows, look_up(rw, id, &window)),
        (None, None) => return false,
    };
    let Some(rebuilt) = rebuilt else { return false };
    rw.reread(id, folded, rebuilt);
    true
}

/// The windows of an attention.
struct Window {
    heads: u64,
    /// Tokens in a window.
    tokens: u64,
    /// Pairs of tokens.
    pairs: u64,
    /// Distances that a pair can have.
    distances: u64,
}

impl Window {
    /// Square windows of this many tokens.
    fn of(heads: u64, tokens: u64) -> Option<Window> {
        let side = tokens.isqrt();
        let distances = (2 * side).checked_sub(1)?.checked_mul(2 * side - 1)?;
        let pairs = tokens.checked_mul(tokens)?;
        (side > 1 && side * side == tokens).then_some(Window { heads, tokens, pairs, distances })
    }
}

/// A stored tensor that an exporter made and that is read once: a table that several layers share is of another kind (T5).
fn folded(rw: &Rewriter<'_>, t: TensorId) -> Option<(TensorId, Vec<u64>)> {
    let tensor = rw.graph.tensor(t);
    let made_up = is_exporter_name(&tensor.name) || tensor.name.starts_with("onnx::Add_");
    let dims = rw.shape(t)?.dims().iter().map(|d| d.known()).collect::<Option<_>>()?;
    let fits = tensor.role == Role::Initializer && made_up && rw.use_count(t) == 1 && rw.dtype(t).is_float();
    fits.then_some((t, dims))
}

/// The whole bias that a node adds to scores.
fn added(rw: &Rewriter<'_>, add: NodeId) -> Option<(TensorId, Window)> {
    if !rw.is(add, "Add") {
        return None;
    }
    let ((bias, dims), scores) = rw.operands(add, |t| folded(rw, t))?;
    let [1, heads, tokens, keys] = dims[..] else { return None };
    let product = rw.made_by(scores, "MatMul").or_else(|| rw.made_by(scores, "Einsum"));
    product.filter(|_| tokens == keys)?;
    Some((bias, Window::of(heads, tokens)?))
}

/// The rows that were looked up, which a node gives their shape; what is larger than an exporter likes to fold ends there.
fn looked_up(rw: &Rewriter<'_>, reshape: NodeId) -> Option<(TensorId, Window)> {
    if !rw.is(reshape, "Reshape") {
        return None;
    }
    let (rows, dims) = folded(rw, rw.input(reshape, 0)?)?;
    let [pairs, heads] = dims[..] else { return None };
    let window = Window::of(heads, pairs.isqrt()).filter(|w| w.pairs == pairs)?;
    let wanted = Shape::from([window.tokens, window.tokens, heads]);
    (rw.shape(rw.output(reshape)?) == Some(&wanted)).then_some((rows, window))
}

fn float(dims: &[u64]) -> Type {
    Type::tensor(DType::Float32, Shape::from(dims))
}

/// The trained table and the stored index, and what is looked up, right before a node.
fn look_up(rw: &mut Rewriter<'_>, before: NodeId, window: &Window) -> Option<TensorId> {
    let path = rw.node(before).path().clone();
    let rows = float(&[window.distances, window.heads]);
    let table = rw.add_stored(format!("{path}.relative_position_bias_table"), rows, Role::Initializer);
    let index = Type::tensor(DType::Int64, Shape::from([window.pairs]));
    let index = rw.add_stored(format!("{path}.relative_position_index"), index, Role::Initializer);
    let looked_up = float(&[window.pairs, window.heads]);
    Some(rw.insert_before(before, build("Gather", [])?, vec![Some(table), Some(index)], looked_up))
}

/// The nodes that make the bias.
fn put_back(rw: &mut Rewriter<'_>, add: NodeId, window: &Window) -> Option<TensorId> {
    let (tokens, heads) = (window.tokens, window.heads);
    let sizes = [tokens, tokens, heads].map(|n| i64::try_from(n).unwrap_or(i64::MAX));
    let target = rw.add_value(Value::vector(DType::Int64, sizes));
    let front = rw.add_value(Value::vector(DType::Int64, [0_i64]));
    let order = build("Transpose", [("perm", Attribute::Ints(vec![2, 0, 1]))])?;
    let (reshape, unsqueeze) = (build("Reshape", [])?, build("Unsqueeze", [])?);
    let t = look_up(rw, add, window)?;
    let t = rw.insert_before(add, reshape, vec![Some(t), Some(target)], float(&[tokens, tokens, heads]));
    let t = rw.insert_before(add, order, vec![Some(t)], float(&[heads, tokens, tokens]));
    Some(rw.insert_before(add, unsqueeze, vec![Some(t), Some(front)], float(&[1, heads, tokens, tokens])))
}

#[cfg(test)]
mod tests {
    use crate::recompose::testing::Sketch;
    use memfit_graph::{Attribute, Attributes};

    fn recomposed(name: &str, tokens: u64) -> (Sketch, usize) {
        let mut s = Sketch::default();
        let (q, k) = (s.input("q", &[2, 3, tokens, 8]), s.input("k", &[2, 3, 8, tokens]));
        let scores = s.push("MatMul", &[q, k]);
        let bias = s.weight(name, &[1, 3, tokens, tokens]);
        let y = s.push("Add", &[scores, bias]);
        let nodes = s.recompose(y).len();
        (s, nodes)
    }

    #[test]
    fn a_folded_bias_is_looked_up_again() {
        for name in ["unsqueeze_1", "onnx::Add_77"] {
            let (s, nodes) = recomposed(name, 49);
            assert_eq!(nodes, 6);
            let table =
                s.graph.tensors.iter().find(|t| t.name.ends_with("relative_position_bias_table")).unwrap();
            assert_eq!(table.declared.shape().unwrap().known().unwrap(), [169, 3]);
        }
    }

    #[test]
    fn rows_that_were_looked_up_are_again() {
        for (pairs, nodes) in [(49 * 49, 4), (50 * 50, 3)] {
            let mut s = Sketch::default();
            let side = u64::isqrt(pairs);
            let x = s.input("x", &[2, 3, side, side]);
            let rows = s.weight("index_3", &[pairs, 3]);
            let sides = i64::try_from(side).unwrap();
            let (whole, order) = (s.ints(&[sides, sides, 3]), Attribute::Ints(vec![2, 0, 1]));
            let bias = s.push("Reshape", &[rows, whole]);
            let bias = s.push_with("Transpose", Attributes::from([("perm", order)]), &[bias]);
            let y = s.push("Add", &[x, bias]);
            assert_eq!(s.recompose(y).len(), nodes);
        }
    }

    #[test]
    fn no_window_and_a_parameter_of_its_own_stay() {
        assert_eq!(recomposed("unsqueeze_1", 50).1, 2);
        assert_eq!(recomposed("attn.bias", 49).1, 2);
    }
}
