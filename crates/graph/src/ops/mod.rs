//! One file per operator, or per family of operators that differ in name only.
//!
//! A file opens with what the operator is (ONNX and Keras name, opset history) and why these tensors are kept for
//! backward, with the source of that rule. Then come the struct with its configuration, `SPECS` that read it from
//! attributes, shape inference, the ATen calls, and tests. Adding an operator is its file, a `mod` line and one
//! line in [`ALL`]; a test keeps the three and the generated support table in step.

use crate::{Attributes, Call, DType, Infer, Lowering, OpError, OpSpec, Operand, OutDtype, Place};

pub use support::support_table;

pub mod activation;
pub mod arg_reduce;
pub mod arithmetic;
pub mod attention;
pub mod batch_norm;
pub mod bilinear;
pub mod cast;
pub mod center_crop_pad;
pub mod clip;
pub mod col2im;
pub mod comparison;
pub mod composed_rms_norm;
pub mod concat;
pub mod constant;
pub mod constant_of_shape;
pub mod contrib;
pub mod conv;
pub mod conv_transpose;
pub mod cross_entropy;
pub mod cumulative;
pub mod deform_conv;
pub mod depth_space;
pub mod det;
pub mod dft;
pub mod dropout;
pub mod einsum;
pub mod embed_layer_norm;
pub mod embedding_bag;
pub mod expand;
pub mod extremum;
pub mod eye_like;
pub mod fake_quantize;
pub mod flatten;
pub mod float_island;
pub mod fused_bias;
pub mod fused_conv;
pub mod fused_gelu;
pub mod gather;
pub mod gather_elements;
pub mod gemm;
pub mod global_pool;
pub mod glu;
pub mod grid_sample;
pub mod group_norm;
pub mod hard_sigmoid;
pub mod hardmax;
pub mod identity;
pub mod if_;
pub mod image_decoder;
pub mod index_add;
pub mod is_inf;
pub mod layer_norm;
pub mod linear;
pub mod log_sigmoid;
pub mod loop_;
pub mod lp_norm;
pub mod matmul;
pub mod max_unpool;
pub mod mel_weight_matrix;
pub mod microsoft;
pub mod mixture_of_experts;
pub mod ml_features;
pub mod ml_labels;
pub mod ml_models;
pub mod modulo;
pub mod multi_head_attention;
pub mod non_max_suppression;
pub mod nonzero;
pub mod one_hot;
pub mod optional;
pub mod pad;
pub mod pool;
pub mod pow;
pub mod prelu;
pub mod projected_attention;
pub mod quantize;
pub mod quantized_pointwise;
pub mod quantized_product;
pub mod random;
pub mod range;
pub mod reduce;
pub mod relative_position_bias;
pub mod relu;
pub mod reshape;
pub mod resize;
pub mod reverse_sequence;
pub mod rnn;
pub mod rnn_cell;
pub mod roi;
pub mod rotary_embedding;
pub mod scaled_dot_product;
pub mod scan;
pub mod scatter;
pub mod sequence;
pub mod sequence_map;
pub mod sequence_split;
pub mod shape;
pub mod slice;
pub mod softmax;
pub mod softsign;
pub mod split;
pub mod squeeze;
pub mod state_space;
pub mod stft;
pub mod strings;
pub mod sum;
pub mod swiglu;
pub mod swish;
pub mod tfidf_vectorizer;
pub mod tile;
pub mod top_k;
pub mod training_step;
pub mod transpose;
pub mod trilu;
pub mod unary;
pub mod unique;
pub mod weight_norm;
pub mod where_;
pub mod window;

mod bodies;
mod calls;
mod fold;
mod legacy;
mod rebatch;
mod reduction;
mod sdpa;
pub mod spatial;
mod support;
#[cfg(test)]
mod testing;

pub use calls::Traced;
pub use sdpa::{Sdpa, attention as scaled_dot_product_attention};

/// Every operator, family by family, in alphabetical order of the files.
pub static ALL: &[&[OpSpec]] = &[
    activation::SPECS,
    arg_reduce::SPECS,
    arithmetic::SPECS,
    attention::SPECS,
    batch_norm::SPECS,
    bilinear::SPECS,
    cast::SPECS,
    center_crop_pad::SPECS,
    clip::SPECS,
    col2im::SPECS,
    comparison::SPECS,
    composed_rms_norm::SPECS,
    concat::SPECS,
    constant::SPECS,
    constant_of_shape::SPECS,
    contrib::SPECS,
    conv::SPECS,
    conv_transpose::SPECS,
    cross_entropy::SPECS,
    cumulative::SPECS,
    deform_conv::SPECS,
    depth_space::SPECS,
    det::SPECS,
    dft::SPECS,
    dropout::SPECS,
    einsum::SPECS,
    embed_layer_norm::SPECS,
    embedding_bag::SPECS,
    expand::SPECS,
    extremum::SPECS,
    eye_like::SPECS,
    fake_quantize::SPECS,
    flatten::SPECS,
    float_island::SPECS,
    fused_bias::SPECS,
    fused_conv::SPECS,
    fused_gelu::SPECS,
    gather::SPECS,
    gather_elements::SPECS,
    gemm::SPECS,
    global_pool::SPECS,
    glu::SPECS,
    grid_sample::SPECS,
    group_norm::SPECS,
    hard_sigmoid::SPECS,
    hardmax::SPECS,
    identity::SPECS,
    if_::SPECS,
    image_decoder::SPECS,
    index_add::SPECS,
    is_inf::SPECS,
    layer_norm::SPECS,
    linear::SPECS,
    log_sigmoid::SPECS,
    loop_::SPECS,
    lp_norm::SPECS,
    matmul::SPECS,
    max_unpool::SPECS,
    mel_weight_matrix::SPECS,
    microsoft::SPECS,
    mixture_of_experts::SPECS,
    ml_features::SPECS,
    ml_labels::SPECS,
    ml_models::SPECS,
    modulo::SPECS,
    multi_head_attention::SPECS,
    non_max_suppression::SPECS,
    nonzero::SPECS,
    one_hot::SPECS,
    optional::SPECS,
    pad::SPECS,
    pool::SPECS,
    pow::SPECS,
    prelu::SPECS,
    projected_attention::SPECS,
    quantize::SPECS,
    quantized_pointwise::SPECS,
    quantized_product::SPECS,
    random::SPECS,
    range::SPECS,
    reduce::SPECS,
    relative_position_bias::SPECS,
    relu::SPECS,
    reshape::SPECS,
    resize::SPECS,
    reverse_sequence::SPECS,
    rnn::SPECS,
    rnn_cell::SPECS,
    roi::SPECS,
    rotary_embedding::SPECS,
    scaled_dot_product::SPECS,
    scan::SPECS,
    scatter::SPECS,
    sequence::SPECS,
    sequence_map::SPECS,
    sequence_split::SPECS,
    shape::SPECS,
    slice::SPECS,
    softmax::SPECS,
    softsign::SPECS,
    split::SPECS,
    squeeze::SPECS,
    state_space::SPECS,
    stft::SPECS,
    strings::SPECS,
    sum::SPECS,
    swiglu::SPECS,
    swish::SPECS,
    tfidf_vectorizer::SPECS,
    tile::SPECS,
    top_k::SPECS,
    training_step::SPECS,
    transpose::SPECS,
    trilu::SPECS,
    unary::SPECS,
    unique::SPECS,
    weight_norm::SPECS,
    where_::SPECS,
    window::SPECS,
];

/// The element type that an attribute names by its number in `TensorProto.DataType`.
fn dtype_attribute(a: &Attributes, name: &str) -> Result<Option<DType>, OpError> {
    let Some(n) = a.int(name)? else { return Ok(None) };
    let dtype = i32::try_from(n).ok().and_then(DType::from_onnx).filter(|d| *d != DType::Undefined);
    dtype.map(Some).ok_or_else(|| OpError::attribute(name, "the number of an element type", n.to_string()))
}

/// Gives output 0 the broadcast shape of inputs 0 and 1, and the dtype of input 0 unless another is given.
fn infer_broadcast(cx: &mut Infer<'_>, dtype: Option<DType>) -> Result<(), OpError> {
    cx.require(0)?;
    cx.require(1)?;
    let shape = match (cx.shape(0), cx.shape(1)) {
        (Some(a), Some(b)) => Some(
            rebatch::broadcast(cx, a, b)
                .ok_or_else(|| OpError::mismatch("shapes that broadcast together", format!("{a} and {b}")))?,
        ),
        _ => None,
    };
    cx.set(0, dtype.unwrap_or(cx.dtype(0)), shape);
    Ok(())
}

/// New outputs of the types that inference gave them; nothing is kept and no gradient flows.
fn allocate(l: &mut Lowering<'_>, name: &'static str) {
    let mut call = Call::new(name);
    let used: Vec<usize> = (0..l.output_count()).filter(|j| l.wants(*j)).collect();
    for j in &used {
        call = call.output(l.out_shape(*j), OutDtype::Is(l.out_dtype(*j)), Place::New);
    }
    let Operand::Result { call, .. } = l.call(call) else { return };
    used.into_iter().enumerate().for_each(|(output, j)| l.bind(j, Operand::Result { call, output }));
}

/// Adds a call whose outputs are the node's, in order; those that the node does not use are made all the same.
fn bind_used(l: &mut Lowering<'_>, call: Call) {
    let count = call.outputs.len();
    let Operand::Result { call, .. } = l.call(call) else { return };
    (0..count).filter(|j| l.wants(*j)).collect::<Vec<_>>().into_iter().for_each(|j| {
        l.bind(j, Operand::Result { call, output: j });
    });
}

/// Every operator.
pub fn all() -> impl Iterator<Item = &'static OpSpec> {
    ALL.iter().copied().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn list_and_files_are_in_step() {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/src/ops");
        let helpers = [
            "bodies",
            "calls",
            "fold",
            "legacy",
            "mod",
            "rebatch",
            "reduction",
            "sdpa",
            "spatial",
            "support",
            "testing",
        ];
        let files: BTreeSet<String> = std::fs::read_dir(dir)
            .unwrap()
            .filter_map(|f| Some(f.unwrap().file_name().to_str()?.strip_suffix(".rs")?.to_owned()))
            .filter(|f| !helpers.contains(&f.as_str()))
            .collect();
        let text = std::fs::read_to_string(format!("{dir}/mod.rs")).unwrap();
        let (_, list) = text.split_once("static ALL").unwrap();
        let (list, _) = list.split_once("];").unwrap();
        let listed: Vec<String> = list
            .split("::SPECS")
            .filter_map(|part| part.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next())
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect();
        assert_eq!(listed.iter().cloned().collect::<BTreeSet<_>>(), files);
        assert!(listed.is_sorted(), "keep the list in alphabetical order");
    }

    #[test]
    fn names_are_unique_and_versions_ascend() {
        let mut seen = BTreeSet::new();
        for spec in all() {
            assert!(seen.insert((spec.domain, spec.name)), "{} is there twice", spec.name);
            assert!(!spec.since.is_empty() && spec.since.is_sorted(), "{}", spec.name);
        }
    }
}
