//! Random nodes: ordinary and absurd attributes, input types and constants for any operator.

use memfit_graph::{
    Attribute, Attributes, DType, Dim, Graph, Num, Role, Shape, TensorAttribute, TensorType, Type, Value, ops,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// Attributes of integers, with their usual range being small.
const INTS: &[&str] = &[
    "axis",
    "keepdims",
    "noop_with_empty_axes",
    "select_last_index",
    "group",
    "to",
    "k",
    "largest",
    "sorted",
    "blocksize",
    "size",
    "num_groups",
    "hidden_size",
    "ceil_mode",
    "transA",
    "transB",
    "batch_axis",
    "time_axis",
    "exclusive",
    "reverse",
    "upper",
    "dtype",
    "num_outputs",
    "allowzero",
    "start",
    "end",
    "onesided",
    "inverse",
    "count_include_pad",
    "storage_order",
    "linear_before_reset",
    "layout",
    "num_scan_inputs",
    "new_axis",
    "output_height",
    "output_width",
    "align_corners",
    "p",
    "fmod",
    "saturate",
    "sample_size",
    "batch_dims",
    "is_causal",
    "q_num_heads",
    "kv_num_heads",
    "num_heads",
    "rotary_embedding_dim",
    "interleaved",
    "maxsplit",
    "n_targets",
    "targets",
    "max_map",
    "deformable",
    "offset_group",
    "training_mode",
    "spatial",
    "broadcast",
    "softmax_precision",
    "qk_matmul_output_mode",
    "stash_type",
    "block_size",
    "unidirectional",
    "do_rotary",
    "local_window_size",
    "transBatchA",
    "transBatchB",
    "output_datatype",
    "is_test",
    "input_as_shape",
    "keep_aspect_ratio_policy",
    "exclude_outside",
    "antialias",
    "center_point_box",
    "value_int",
    "bits",
    "K",
    "N",
    "past_present_share_buffer",
    "sequence_type",
    "kernel_size",
    "chunk_size",
    "num_input_outputs",
    "causal",
    "channels_last",
    "output_dtype",
    "groups",
];

/// Attributes of integer lists.
const LISTS: &[&str] = &[
    "axes",
    "kernel_shape",
    "strides",
    "dilations",
    "pads",
    "shape",
    "perm",
    "split",
    "starts",
    "ends",
    "output_padding",
    "output_shape",
    "pooled_shape",
    "paddings",
    "scan_input_axes",
    "scan_output_axes",
    "scan_input_directions",
    "value_ints",
    "ngram_indexes",
    "directions",
    "inputdimensions",
    "cats_int64s",
    "classlabels_ints",
    "classlabels_int64s",
    "vectors_per_class",
    "int64_vocabulary",
    "axis_sizes",
    "keys_int64s",
    "qkv_hidden_sizes",
];

const FLOATS: &[&str] =
    &["alpha", "beta", "height_scale", "max", "min", "softcap", "value_float", "width_scale"];
const FLOAT_LISTS: &[&str] = &["intercepts", "prob_a", "scales", "value_floats"];
const TEXT_LISTS: &[&str] =
    &["cats_strings", "classlabels_strings", "stopwords", "string_vocabulary", "value_strings"];

/// Attributes of texts, with values that mean something and one that does not.
const TEXTS: &[(&str, &[&str])] = &[
    ("auto_pad", &["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"]),
    ("mode", &["constant", "reflect", "edge", "linear", "nearest", "cubic", "bilinear", "DCR", "CRD"]),
    (
        "equation",
        &["ij,jk->ik", "bij,bjk", "...i,...i->...", "i->ii", "ii->i", "->", "a,b,c->abc", "i,,", "é"],
    ),
    ("direction", &["forward", "reverse", "bidirectional", "LEFT"]),
    ("reduction", &["none", "mean", "sum", "add", "max"]),
    ("coordinate_transformation_mode", &["align_corners", "tf_crop_and_resize", "asymmetric"]),
    ("keep_aspect_ratio_policy", &["stretch", "not_larger", "not_smaller"]),
    ("pixel_format", &["RGB", "Grayscale"]),
    ("map_form", &["DENSE", "SPARSE"]),
    ("approximate", &["none", "tanh"]),
    ("update_rule", &["linear", "gated", "delta", "gated_delta"]),
    ("activation", &["none", "silu", "swish"]),
    ("activation_type", &["relu", "gelu", "silu", "swiglu", "identity"]),
    ("cast_to", &["TO_FLOAT", "TO_STRING", "TO_INT64"]),
];

/// Sizes from the ordinary to the absurd.
fn size() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => 0..=8_u64,
        2 => prop::sample::select(vec![12, 16, 49, 64, 224, 768]),
        1 => prop::sample::select(vec![1 << 31, 1 << 40, i64::MAX as u64, u64::MAX]),
    ]
}

fn integer() -> impl Strategy<Value = i64> {
    prop_oneof![
        12 => -3..=9_i64,
        1 => prop::sample::select(vec![64, 1 << 31, -(1 << 31), i64::MAX, i64::MIN, i64::MAX - 1]),
    ]
}

fn dtype() -> impl Strategy<Value = DType> {
    prop_oneof![
        4 => Just(DType::Float32),
        2 => Just(DType::Int64),
        1 => prop::sample::select(DType::ALL.to_vec()),
    ]
}

fn dim() -> impl Strategy<Value = Dim> {
    prop_oneof![
        6 => size().prop_map(Dim::Known),
        1 => Just(Dim::symbol("batch")),
        1 => size().prop_map(|n| Dim::unknown("count", Some(n))),
    ]
}

fn tensor_type() -> impl Strategy<Value = Type> {
    let shape = prop_oneof![
        8 => vec(dim(), 0..=5).prop_map(|d| Some(d.into_iter().collect::<Shape>())),
        1 => Just(None),
    ];
    (dtype(), shape).prop_map(|(dtype, shape)| Type::Tensor(TensorType { dtype, shape }))
}

fn ty() -> impl Strategy<Value = Type> {
    prop_oneof![
        10 => tensor_type(),
        1 => vec(tensor_type(), 0..3).prop_map(Type::sequence),
        1 => tensor_type().prop_map(|t| Type::Sequence { element: Box::new(t), items: None }),
        1 => (tensor_type(), any::<Option<bool>>())
            .prop_map(|(t, present)| Type::Optional { element: Box::new(t), present }),
        1 => tensor_type().prop_map(|t| Type::Map(Box::new(t))),
        1 => Just(Type::Unknown),
    ]
}

fn number() -> impl Strategy<Value = Num> {
    prop_oneof![
        8 => integer().prop_map(Num::Int),
        2 => prop::sample::select(vec![0.0, 0.5, -1.0, 2.0, 1e30, f64::NAN, f64::INFINITY]).prop_map(Num::Float),
        1 => Just(Num::Dim(Dim::symbol("batch"))),
        1 => Just(Num::Unknown),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let vector = (dtype(), vec(number(), 0..=6)).prop_map(|(dtype, data)| Value::vector(dtype, data));
    let scalar = (dtype(), number()).prop_map(|(dtype, n)| Value::scalar(dtype, n));
    let matrix = (dtype(), vec(number(), 6))
        .prop_map(|(dtype, data)| Value { shape: vec![2, 3], ..Value::vector(dtype, data) });
    let empty = (dtype(), vec(size(), 0..=2)).prop_map(|(dtype, mut shape)| {
        shape.insert(0, 0);
        Value { dtype, shape, data: Vec::new() }
    });
    prop_oneof![4 => vector, 3 => scalar, 1 => matrix, 1 => empty]
}

/// What stands at an input of the node.
#[derive(Clone, Debug)]
pub(crate) enum Given {
    Absent,
    Typed(Type),
    Constant(Value),
}

fn given() -> impl Strategy<Value = Given> {
    prop_oneof![
        1 => Just(Given::Absent),
        6 => ty().prop_map(Given::Typed),
        3 => value().prop_map(Given::Constant),
    ]
}

/// A body with some inputs, of which it gives some back.
fn body() -> impl Strategy<Value = Graph> {
    (vec(tensor_type(), 0..4), vec(0..4_usize, 0..4)).prop_map(|(inputs, outputs)| {
        let mut g = Graph::default();
        for (i, ty) in inputs.into_iter().enumerate() {
            let id = g.add_tensor(format!("b{i}"), ty, Role::Input);
            g.inputs.push(id);
        }
        let truth = g.add_constant("truth", Value::scalar(DType::Bool, 1));
        g.outputs = outputs.iter().map(|k| g.inputs.get(*k).copied().unwrap_or(truth)).collect();
        g
    })
}

fn attribute() -> impl Strategy<Value = (String, Attribute)> {
    let name = |names: &'static [&'static str]| prop::sample::select(names).prop_map(str::to_owned);
    let text = prop::sample::select(TEXTS).prop_flat_map(|(name, values)| {
        let values: Vec<String> = values.iter().map(|v| (*v).to_owned()).chain(["?".into()]).collect();
        (Just((*name).to_owned()), prop::sample::select(values).prop_map(Attribute::Text))
    });
    let tensor = (dtype(), vec(size(), 0..=3), prop::option::of(value()))
        .prop_map(|(dtype, shape, value)| Attribute::Tensor(TensorAttribute { dtype, shape, value }));
    let bodies = prop::sample::select(vec!["body", "then_branch", "else_branch", "score_mod", "prob_mod"]);
    prop_oneof![
        8 => (name(INTS), integer().prop_map(Attribute::Int)),
        6 => (name(LISTS), vec(integer(), 0..=6).prop_map(Attribute::Ints)),
        3 => text,
        1 => (name(&["value", "values_tensor"]), tensor),
        2 => (bodies.prop_map(str::to_owned), body().prop_map(|g| Attribute::Graph(Box::new(g)))),
        1 => (name(FLOAT_LISTS), vec(-2.0..9.0_f64, 0..5).prop_map(Attribute::Floats)),
        1 => (name(FLOATS), (-2.0..9.0_f64).prop_map(Attribute::Float)),
        1 => (name(TEXT_LISTS), vec(Just("a".to_owned()), 0..4).prop_map(Attribute::Texts)),
        1 => (name(INTS), Just(Attribute::Other)),
    ]
}

/// Attributes that operators cannot do without, so that most nodes are built.
fn required() -> impl Strategy<Value = Vec<(String, Attribute)>> {
    let int = |name: &'static str, range: std::ops::Range<i64>| {
        range.prop_map(move |n| (name.to_owned(), Attribute::Int(n))).boxed()
    };
    let graph = |name: &'static str| {
        body().prop_map(move |g| (name.to_owned(), Attribute::Graph(Box::new(g)))).boxed()
    };
    let list = |name: &'static str| {
        vec(1..4_i64, 1..=3).prop_map(move |v| (name.to_owned(), Attribute::Ints(v))).boxed()
    };
    vec![
        int("axis", -2..3),
        int("blocksize", 1..4),
        int("hidden_size", 1..5),
        int("K", 1..9),
        int("kv_num_heads", 1..3),
        int("N", 1..5),
        int("num_groups", 1..4),
        int("num_heads", 1..4),
        int("num_scan_inputs", 0..3),
        int("q_num_heads", 1..5),
        int("size", 1..4),
        int("to", 0..27),
        list("kernel_shape"),
        list("ngram_indexes"),
        list("shape"),
        graph("body"),
        graph("then_branch"),
        graph("else_branch"),
    ]
}

/// Inputs that may go together: one dtype, one rank, ordinary sizes, then small constants.
fn coherent() -> impl Strategy<Value = Vec<Given>> {
    let dims =
        (1..=5_usize).prop_flat_map(|rank| vec(vec(prop::sample::select(vec![1, 2, 3, 4, 8]), rank), 1..6));
    let small = vec(
        prop_oneof![
            vec(0..4_i64, 1..=4).prop_map(|v| Value::vector(DType::Int64, v)),
            (-1..4_i64).prop_map(|n| Value::scalar(DType::Int64, n)),
            vec(0..4_i64, 1..=2).prop_map(|v| Value::vector(DType::Float32, v.iter().map(|n| *n as f64))),
        ],
        0..3,
    );
    let constants = small.prop_map(|v| v.into_iter().map(Given::Constant).collect::<Vec<_>>());
    (dims, dtype(), constants, 0..3_usize).prop_map(|(dims, dtype, constants, absent)| {
        let typed = dims.iter().map(|d| Given::Typed(Type::tensor(dtype, Shape::from(&d[..]))));
        let mut all: Vec<Given> = typed.chain(constants).collect();
        if absent > 0 && absent < all.len() {
            all[absent] = Given::Absent;
        }
        all
    })
}

pub(crate) fn node() -> impl Strategy<Value = (usize, i64, Attributes, Vec<Given>, usize)> {
    let spec = 0..ops::all().count();
    let attributes = (required(), vec(attribute(), 0..4))
        .prop_map(|(required, more)| Attributes(required.into_iter().chain(more).collect()));
    let version = prop_oneof![1 => 1..28_i64, 1 => Just(i64::MAX)];
    let inputs = prop_oneof![vec(given(), 0..8), coherent()];
    (spec, version, attributes, inputs, 0..4_usize)
}
