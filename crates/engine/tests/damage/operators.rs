//! Graphs of one operator each, with inputs and attributes that nobody would write.

use super::SIZES;
use memfit_graph::{Attribute, Attributes, DType, Graph, OpSpec, Role, Shape, TensorId, Type, Value};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use std::sync::Arc;

/// What is drawn for one operator.
#[derive(Clone, Debug)]
pub(super) struct Drawn {
    /// For each input its dims, its dtype and whether it is stored; none where it is left out.
    inputs: Vec<Option<(Vec<u64>, DType, bool)>>,
    attributes: Vec<(&'static str, Attribute)>,
    outputs: usize,
}

/// Attributes that decide sizes, as operators call them.
const INTS: &[&str] = &[
    "axis",
    "group",
    "num_groups",
    "hidden_size",
    "num_heads",
    "kv_num_heads",
    "q_num_heads",
    "keepdims",
    "blocksize",
    "transA",
    "transB",
    "noop_with_empty_axes",
    "largest",
    "exclusive",
    "batch_dims",
    "ceil_mode",
    "linear_before_reset",
    "is_causal",
    "num_outputs",
    "p",
    "to",
    "sampling_ratio",
    "output_height",
    "output_width",
    "k",
    "training_mode",
    "channels_last",
];
const LISTS: &[&str] = &[
    "axes",
    "perm",
    "kernel_shape",
    "strides",
    "pads",
    "dilations",
    "output_shape",
    "output_padding",
    "split",
    "shape",
    "size",
];
const TEXTS: &[(&str, &[&str])] = &[
    ("auto_pad", &["SAME_UPPER", "SAME_LOWER", "VALID"]),
    ("direction", &["forward", "reverse", "bidirectional"]),
    ("mode", &["nearest", "linear", "cubic", "constant", "reflect", "avg", "max"]),
    ("equation", &["ij,jk->ik", "bij,bjk", "...i,...i->...", "ii", "bhqd,bhkd->bhqk"]),
    ("reduction", &["none", "mean", "sum", "add", "max"]),
];

fn small() -> impl Strategy<Value = i64> {
    select(&[-2_i64, -1, 0, 1, 1, 2, 3, 1 << 20, 1 << 40][..])
}

fn attributes() -> impl Strategy<Value = Vec<(&'static str, Attribute)>> {
    let int = (select(INTS), small()).prop_map(|(name, n)| (name, Attribute::Int(n)));
    let list = (select(LISTS), prop::collection::vec(small(), 0..5))
        .prop_map(|(name, list)| (name, Attribute::Ints(list)));
    let text = (select(TEXTS), any::<Index>())
        .prop_map(|((name, texts), which)| (name, Attribute::Text((*which.get(texts)).to_owned())));
    prop::collection::vec(prop_oneof![int, list, text], 0..8)
}

pub(super) fn drawn() -> impl Strategy<Value = Drawn> {
    // Few sizes a case, so that they go together now and then.
    let palette = prop::collection::vec(select(SIZES), 1..4);
    let like = prop::collection::vec(any::<Index>(), 0..5);
    let dtype = select(
        &[DType::Float32, DType::Float32, DType::Float32, DType::Float16, DType::Int64, DType::Bool][..],
    );
    let other = prop::option::weighted(0.5, prop::collection::vec(any::<Index>(), 0..5));
    let input = prop::option::weighted(0.95, (other, dtype, any::<bool>()));
    (palette, like, prop::collection::vec(input, 1..7), attributes(), 1_usize..4).prop_map(
        |(palette, like, inputs, attributes, outputs)| {
            let dims = |dims: &[Index]| dims.iter().map(|at| *at.get(&palette)).collect::<Vec<u64>>();
            let input = |(other, dtype, stored): (Option<Vec<Index>>, DType, bool)| {
                (dims(other.as_ref().unwrap_or(&like)), dtype, stored)
            };
            Drawn { inputs: inputs.into_iter().map(|i| i.map(input)).collect(), attributes, outputs }
        },
    )
}

/// The operator with what was drawn for it, between a product with weights and what a model ends in; `None` where it can't be built so.
pub(super) fn one_operator(spec: &OpSpec, drawn: &Drawn) -> Option<Graph> {
    let mut g = Graph::default();
    let mut attributes: Attributes = Attributes::default();
    attributes.0.extend(drawn.attributes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    let op =
        spec.build(attributes, i64::MAX).or_else(|_| spec.build(Attributes::default(), i64::MAX)).ok()?;
    let inputs = drawn.inputs.iter().enumerate().map(|(i, input)| {
        let (dims, dtype, stored) = input.as_ref()?;
        let role = if *stored { Role::Initializer } else { Role::Input };
        let ty = Type::tensor(*dtype, Shape::from(&dims[..]));
        let id = g.add_tensor(format!("x{i}"), ty, role);
        // A short list of integers is one that the file holds: a shape, axes.
        let few = if dims.len() <= 1 { dims.first().map_or(1, |n| (*n).min(4)) } else { 4 };
        if *dtype == DType::Int64 && *stored && few < 4 {
            let elements = (0..few).map(|k| [1_i64 << 20, 0, -1, 2][(k as usize + i) % 4]);
            let vector = Value::vector(DType::Int64, elements);
            let value = Value { shape: dims.clone(), ..vector };
            g.tensors[id.index()].value = Some(Arc::new(value));
        }
        if !stored {
            g.inputs.push(id);
        }
        Some(id)
    });
    let inputs: Vec<Option<TensorId>> = inputs.collect();
    let outputs: Vec<Option<TensorId>> = (0..drawn.outputs)
        .map(|j| Some(g.add_tensor(format!("y{j}"), Type::Unknown, Role::Intermediate)))
        .collect();
    g.add_node("node", op, inputs, outputs.clone());
    let scale = g.add_tensor("scale", Type::tensor(DType::Float32, Shape::from([1])), Role::Initializer);
    let last = g.push("Mul", Attributes::default(), &[outputs[0]?, scale], "last").ok()?;
    g.outputs = vec![last];
    Some(g)
}
