//! The table of what is supported, for people: made from the operators themselves, so it cannot drift.

use super::all;
use crate::{Attribute, Attributes, DType, Lowering, OpSpec, OutState, TensorAttribute, TensorState, Value};
use std::fmt::Write;

/// Every operator in Markdown: its domain, the opset versions that changed it, and whether PyTorch's memory has a rule
/// for it or only a bound.
pub fn support_table() -> String {
    let mut specs: Vec<&OpSpec> = all().collect();
    specs.sort_by_key(|s| (s.domain, s.name));
    let ruled: Vec<bool> = specs.iter().map(|s| has_rule(s)).collect();
    let bounds = ruled.iter().filter(|r| !**r).count();
    let mut out = format!(
        "# Operators\n\n\
         memfit knows {} operators. Shapes, dtypes and small constants are inferred for each of them. *Rule* means that what\n\
         PyTorch allocates and keeps for the operator is written down call by call; *bound* means that it is taken to keep\n\
         every input and output, and an estimate that contains it says so ({bounds} operators).\n\n\
         | operator | domain | opset versions | shapes | PyTorch |\n\
         | --- | --- | --- | --- | --- |\n",
        specs.len()
    );
    for (spec, ruled) in specs.iter().zip(ruled) {
        let domain = if spec.domain.is_empty() { "ai.onnx" } else { spec.domain };
        let versions: Vec<String> = spec.since.iter().map(i64::to_string).collect();
        let rule = if ruled { "rule" } else { "bound" };
        // Writing to a string cannot fail.
        let _ = writeln!(out, "| {} | {domain} | {} | yes | {rule} |", spec.name, versions.join(", "));
    }
    out
}

/// Whether the operator writes its own calls for some ordinary shapes.
fn has_rule(spec: &OpSpec) -> bool {
    let version = spec.since.last().copied().unwrap_or(1);
    let Ok(op) = spec.build(ordinary_attributes(), version) else { return false };
    let shapes: [&[u64]; 4] = [&[2, 4], &[2, 4, 4], &[2, 4, 4, 4], &[4]];
    shapes.iter().any(|shape| {
        let state = TensorState { shape, dtype: DType::Float32, requires_grad: true, is_initializer: false };
        (1..=8).any(|inputs| {
            let inputs = vec![Some(state); inputs];
            let outputs = [Some(OutState { shape, dtype: DType::Float32 })];
            let mut lowering = Lowering::new(&inputs, &outputs, None, true);
            op.pytorch(&mut lowering);
            lowering.into_parts().2
        })
    })
}

/// Values for the attributes that some operator cannot do without.
fn ordinary_attributes() -> Attributes {
    let tensor = TensorAttribute {
        dtype: DType::Float32,
        shape: Vec::new(),
        value: Some(Value::scalar(DType::Float32, 1.0)),
    };
    let body = || Attribute::Graph(Box::default());
    Attributes::from([
        ("K", Attribute::Int(4)),
        ("N", Attribute::Int(4)),
        ("axis", Attribute::Int(0)),
        ("blocksize", Attribute::Int(2)),
        ("body", body()),
        ("else_branch", body()),
        ("equation", Attribute::Text("ij,jk->ik".into())),
        ("hidden_size", Attribute::Int(4)),
        ("k", Attribute::Int(1)),
        ("kernel_shape", Attribute::Ints(vec![1, 1])),
        ("kv_num_heads", Attribute::Int(2)),
        ("ngram_indexes", Attribute::Ints(vec![0])),
        ("num_groups", Attribute::Int(2)),
        ("num_heads", Attribute::Int(2)),
        ("num_scan_inputs", Attribute::Int(1)),
        ("output_height", Attribute::Int(1)),
        ("output_width", Attribute::Int(1)),
        ("pads", Attribute::Ints(vec![0, 0, 0, 0])),
        ("pooled_shape", Attribute::Ints(vec![1, 1])),
        ("q_num_heads", Attribute::Int(2)),
        ("scales", Attribute::Floats(vec![1.0, 1.0, 1.0, 1.0])),
        ("shape", Attribute::Ints(vec![2, 4])),
        ("size", Attribute::Int(3)),
        ("then_branch", body()),
        ("to", Attribute::Int(1)),
        ("value", Attribute::Tensor(tensor)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `MEMFIT_UPDATE=1` writes the file anew.
    #[test]
    fn the_checked_in_table_is_this_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operators.md");
        let table = support_table();
        if std::env::var_os("MEMFIT_UPDATE").is_some() {
            std::fs::write(path, &table).unwrap();
        }
        let there = std::fs::read_to_string(path).unwrap_or_default();
        assert!(there == table, "docs/operators.md is out of date: run this test with MEMFIT_UPDATE=1");
    }

    #[test]
    fn ordinary_attributes_build_every_operator() {
        for spec in all() {
            let version = spec.since.last().copied().unwrap();
            if let Err(error) = spec.build(ordinary_attributes(), version) {
                panic!("{}: {error}", spec.name);
            }
        }
    }
}
