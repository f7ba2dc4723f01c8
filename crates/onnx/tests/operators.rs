//! The ONNX package's own operator tests: each output's shape and dtype against what the reference computed.
//!
//! `OPERATOR=Conv cargo test -p memfit-onnx --test operators -- --nocapture` prints what is wrong with one operator;
//! `OPERATORS=FOLDER` reads other cases.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod common;

use memfit_graph::{Binding, DType, Inferred, Num, Shape, TensorId, Type, Value, infer};
use serde_json::Value as Json;
use std::collections::BTreeMap;

/// Operators with a case whose output shape depends on data that memfit does not follow (pixels, words, overlaps of
/// boxes) or that the corpus does not hold (bfloat16 limits).
const DEPENDS_ON_DATA: &[&str] =
    &["Cast", "ImageDecoder", "NonMaxSuppression", "Range", "StringNormalizer", "StringSplit", "Unique"];

/// How one case went.
enum Outcome {
    Agrees,
    /// An operator of the case is not written.
    NotWritten(String),
    /// A shape or dtype could not be said.
    Unknown(String),
    /// Something else was said, or the case was refused.
    Wrong(String),
}

#[test]
fn the_operators_of_onnx_are_inferred_as_the_reference_computes_them() {
    let other = std::env::var_os("OPERATORS").map(std::path::PathBuf::from);
    let Some(dir) = other.or_else(|| common::shared("corpus/operators")) else { return };
    let index: Json =
        serde_json::from_str(&std::fs::read_to_string(dir.join("index.json")).unwrap()).unwrap();
    let only = std::env::var("OPERATOR").ok();
    let mut table: BTreeMap<String, [u32; 4]> = BTreeMap::new();
    for case in index["cases"].as_array().unwrap() {
        let op = case["ops"].as_array().unwrap().first().map_or("none", |op| op.as_str().unwrap());
        let bytes = std::fs::read(dir.join(case["file"].as_str().unwrap())).unwrap();
        let row = table.entry(op.to_owned()).or_default();
        let (column, said) = match run(&bytes, case) {
            Outcome::Agrees => (0, String::new()),
            Outcome::NotWritten(what) => (1, what),
            Outcome::Unknown(what) => (2, what),
            Outcome::Wrong(what) => (3, what),
        };
        row[column] += 1;
        if column == 3 || only.as_deref() == Some(op) && column > 0 {
            println!("{}: {said}", case["name"].as_str().unwrap());
        }
    }
    println!("{:32} {:>7} {:>11} {:>7} {:>5}", "operator", "agrees", "not written", "unknown", "wrong");
    for (op, [agrees, not_written, unknown, wrong]) in &table {
        if not_written + unknown + wrong > 0 {
            println!("{op:32} {agrees:7} {not_written:11} {unknown:7} {wrong:5}");
        }
    }
    let total = table.values().fold([0; 4], |acc, row| std::array::from_fn(|i| acc[i] + row[i]));
    println!("total: {} agree, {} not written, {} unknown, {} wrong", total[0], total[1], total[2], total[3]);
    let unknown = table.iter().filter(|(_, row)| row[2] > 0).map(|(op, _)| op.as_str());
    assert_eq!(unknown.filter(|op| !DEPENDS_ON_DATA.contains(op)).collect::<Vec<_>>(), [""; 0]);
    assert_eq!((total[1], total[3]), (0, 0), "not written, wrong");
}

fn run(bytes: &[u8], case: &Json) -> Outcome {
    let mut model = match memfit_onnx::import(bytes) {
        Ok(model) => model,
        Err(problems) => return Outcome::Wrong(problems[0].to_string()),
    };
    common::forget_declared(&mut model.graph);
    let graph = &model.graph;
    let unknown = |n: &&memfit_graph::Node| format!("{:?}", n.op).starts_with("UnknownOp");
    let not_written = graph.nodes.iter().find(unknown).map(|n| n.op.name().to_owned());
    let mut binding = Binding::default();
    for id in &graph.inputs {
        let tensor = graph.tensor(*id);
        let given = &case["inputs"][&*tensor.name];
        let declared = &tensor.declared;
        if given.is_null() {
            return Outcome::Wrong(format!("the case has no input {}", tensor.name));
        }
        let mut ty = type_of(given);
        if let (Type::Optional { element, .. }, false) = (declared, matches!(ty, Type::Optional { .. })) {
            ty = Type::Optional { element: Box::new(join_element(ty, element)), present: Some(true) };
        }
        let Type::Tensor(_) = &ty else {
            binding.types.insert(tensor.name.to_string(), ty);
            continue;
        };
        let shape = sizes(&given["shape"]);
        binding.shapes.insert(tensor.name.to_string(), shape.clone());
        if let Some(value) = value_of(&given["value"], dtype_of(given), shape) {
            binding.values.insert(tensor.name.to_string(), value);
        }
    }
    let inferred = match infer(graph, &binding) {
        Ok(inferred) => inferred,
        Err(problems) => return Outcome::Wrong(problems[0].to_string()),
    };
    let mut outcome = Outcome::Agrees;
    for id in &graph.outputs {
        let expected = &case["outputs"][&*graph.tensor(*id).name];
        match compare(&inferred, *id, expected) {
            Outcome::Agrees => {}
            Outcome::Wrong(what) => return Outcome::Wrong(what),
            other => outcome = other,
        }
    }
    match (outcome, not_written) {
        (Outcome::Unknown(_), Some(op)) => Outcome::NotWritten(op),
        (outcome, _) => outcome,
    }
}

fn join_element(ty: Type, declared: &Type) -> Type {
    if let (Type::Unknown, declared) = (&ty, declared) { declared.clone() } else { ty }
}

fn sizes(shape: &Json) -> Vec<u64> {
    shape.as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect()
}

fn dtype_of(tensor: &Json) -> DType {
    common::dtype(tensor["dtype"].as_str().unwrap())
}

fn type_of(given: &Json) -> Type {
    if let Some(items) = given["sequence"].as_array() {
        return Type::sequence(items.iter().map(type_of).collect());
    }
    match given.get("optional") {
        Some(Json::Null) => Type::Optional { element: Box::default(), present: Some(false) },
        Some(inner) => Type::Optional { element: Box::new(type_of(inner)), present: Some(true) },
        None => Type::tensor(dtype_of(given), Shape::from(&sizes(&given["shape"])[..])),
    }
}

fn value_of(value: &Json, dtype: DType, shape: Vec<u64>) -> Option<Value> {
    fn flatten(value: &Json, out: &mut Vec<Num>) -> Option<()> {
        let n = match value {
            Json::Array(items) => return items.iter().try_for_each(|v| flatten(v, out)),
            Json::Bool(b) => Num::Int(i64::from(*b)),
            Json::Number(n) => n.as_i64().map(Num::Int).or(n.as_f64().map(Num::Float))?,
            _ => return None,
        };
        out.push(n);
        Some(())
    }
    let mut data = Vec::new();
    flatten(value, &mut data)?;
    if dtype.is_float() {
        data = data.iter().map(|n| n.as_f64().map_or(Num::Unknown, Num::Float)).collect();
    }
    (data.len() as u64 == shape.iter().product::<u64>()).then_some(Value { dtype, shape, data })
}

fn compare(inferred: &Inferred, id: TensorId, expected: &Json) -> Outcome {
    compare_types(&inferred.types[id.index()], expected)
}

fn compare_types(found: &Type, expected: &Json) -> Outcome {
    let found = match found {
        Type::Optional { element, .. } if expected.get("optional").is_none() => element,
        found => found,
    };
    if let Some(items) = expected["sequence"].as_array() {
        let Type::Sequence { items: Some(found), .. } = found else {
            return Outcome::Unknown(format!("expected {} items, found {found:?}", items.len()));
        };
        if found.len() != items.len() {
            return Outcome::Wrong(format!("expected {} items, found {}", items.len(), found.len()));
        }
        let compared = found.iter().zip(items).map(|(f, e)| compare_types(f, e));
        return compared.fold(Outcome::Agrees, |acc, next| match (acc, next) {
            (Outcome::Wrong(w), _) | (_, Outcome::Wrong(w)) => Outcome::Wrong(w),
            (Outcome::Agrees, other) => other,
            (acc, _) => acc,
        });
    }
    let want = format!("{} {}", dtype_of(expected), Shape::from(&sizes(&expected["shape"])[..]));
    let (dtype, shape) = (found.dtype().unwrap_or(DType::Undefined), found.shape());
    let have = format!("{dtype} {}", shape.map_or("?".to_owned(), Shape::to_string));
    if want == have {
        return Outcome::Agrees;
    }
    let said = format!("expected {want}, found {have}");
    let sizes = sizes(&expected["shape"]);
    let differs = dtype != DType::Undefined && dtype != dtype_of(expected)
        || shape.is_some_and(|s| {
            s.rank() != sizes.len()
                || s.dims().iter().zip(&sizes).any(|(d, n)| d.known().is_some_and(|k| k != *n))
                || s.dims().iter().zip(&sizes).any(|(d, n)| d.upper().is_some_and(|upper| upper < *n))
        });
    if differs { Outcome::Wrong(said) } else { Outcome::Unknown(said) }
}
