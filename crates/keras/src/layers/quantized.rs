//! The variables of a product whose matrix may be quantised or corrected by LoRA: Dense, EinsumDense, Embedding.
//!
//! keras/src/layers/core/dense.py (3.15), `_int8_build`, `_int4_build`, `_gptq_build`, `_awq_build`, `_float8_build`, `enable_lora`;
//! einsum_dense.py has the same with the matrix flattened to rows and columns.

use crate::layer::{Call, Weight};
use crate::policy::Quantization;
use crate::run::Run;
use memfit_graph::kernels::Wire;
use memfit_graph::{DType, OpError, Variable};

/// The length of float8's histories (dtype_policy.py, `default_amax_history_length`).
const AMAX_HISTORY: u64 = 1024;

/// The matrix as a product reads it: with LoRA, the product of the last two variables is added to it (`kernel` of dense.py,
/// einsum_dense.py and base_conv.py, `embeddings` of embedding.py). The factor of a default `lora_alpha` is one, which grappler drops.
pub(super) fn corrected(run: &mut Run<'_, '_>, kernel: Wire, lora_rank: Option<u64>) -> Wire {
    let (Some(_), Some(first)) = (lora_rank, run.weights().checked_sub(2)) else { return kernel };
    let (a, b) = (run.weight(first), run.weight(first + 1));
    let full = run.shape(kernel).to_vec();
    let name = if run.shape(a).len() > 2 { "BatchMatMulV2" } else { "MatMul" };
    let correction = run.matmul(name, a, b, &full);
    run.binary("AddV2", kernel, correction)
}

/// A matrix with what belongs to it.
pub(super) struct Projection {
    /// Elements that are summed over.
    pub(super) rows: u64,
    /// Elements for each of them.
    pub(super) columns: u64,
    /// The shape of the matrix when it is not quantised.
    pub(super) kernel: Vec<u64>,
    /// The shape of 8-bit scales.
    pub(super) scale: Vec<u64>,
    /// The bias.
    pub(super) bias: Option<Vec<u64>>,
    /// The shapes of the trained correction.
    pub(super) lora: Option<[Vec<u64>; 2]>,
}

/// The variables in the order in which Keras makes them.
pub(super) fn weights(call: &Call<'_>, p: &Projection) -> Result<Vec<Weight>, OpError> {
    let of = |name: &str, shape: Vec<u64>, dtype: DType| Weight { dtype, ..call.state(name, shape) };
    let groups = |size: &Option<u64>| size.map_or(1, |size| p.rows.div_ceil(size));
    let packed = |bits: u64| if bits == 4 { p.columns.div_ceil(2) } else { p.columns };
    let mut weights = match &call.facts.policy.quantization {
        None => vec![call.weight("kernel", p.kernel.clone())],
        Some(Quantization::Int8) => {
            vec![of("kernel", p.kernel.clone(), DType::Int8), call.state("kernel_scale", p.scale.clone())]
        }
        Some(Quantization::Int4 { block }) => {
            let kernel = of("kernel", vec![p.rows, p.columns.div_ceil(2)], DType::Int8);
            match block {
                None => vec![kernel, call.state("kernel_scale", [p.columns])],
                Some(_) => {
                    let shape = vec![groups(block), p.columns];
                    vec![
                        kernel,
                        call.state("kernel_scale", shape.clone()),
                        of("kernel_zero", shape, DType::Int8),
                        of("g_idx", vec![p.rows], DType::Float32),
                    ]
                }
            }
        }
        Some(Quantization::Float8) => {
            let mut made = Vec::new();
            for name in ["inputs", "kernel", "outputs_grad"] {
                let trained = |w: Weight| Weight { variable: Variable::Trainable, ..w };
                made.push(trained(of(&format!("{name}_scale"), Vec::new(), DType::Float32)));
                made.push(trained(of(&format!("{name}_amax_history"), vec![AMAX_HISTORY], DType::Float32)));
            }
            made.push(call.weight("kernel", p.kernel.clone()));
            made
        }
        Some(Quantization::Gptq { bits, group }) => {
            let scale = vec![p.columns, groups(group)];
            vec![
                of("kernel", vec![packed(*bits), p.rows], DType::Uint8),
                call.state("kernel_scale", scale.clone()),
                of("kernel_zero", scale, DType::Uint8),
                of("g_idx", vec![p.rows], DType::Float32),
            ]
        }
        Some(Quantization::Awq { group, .. }) => {
            let scale = vec![p.columns, groups(group)];
            vec![
                of("kernel", vec![p.columns.div_ceil(2), p.rows], DType::Uint8),
                call.state("kernel_scale", scale.clone()),
                of("kernel_zero", scale, DType::Uint8),
                call.state("awq_scales", [p.rows]),
                of("g_idx", vec![p.rows], DType::Float32),
            ]
        }
    };
    if let Some(bias) = &p.bias {
        weights.push(call.weight("bias", bias.clone()));
    }
    if let Some([a, b]) = &p.lora {
        for kernel in weights.iter_mut().filter(|w| w.name == "kernel" && w.variable == Variable::Trainable) {
            kernel.variable = Variable::Frozen;
        }
        // Kept in float32 whatever the policy says.
        let narrow =
            |name, shape: &Vec<u64>| Weight { dtype: DType::Float32, ..call.weight(name, shape.clone()) };
        weights.push(narrow("lora_kernel_a", a));
        weights.push(narrow("lora_kernel_b", b));
    }
    Ok(weights)
}
