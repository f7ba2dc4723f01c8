//! No operator panics, whatever a file says: every operator in every opset version without attributes, then random and
//! absurd attributes, shapes, dtypes and constants through inference and lowering.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod nodes;

use memfit_graph::{
    Attributes, Binding, Call, DType, Graph, Lowering, Node, Op, Operand, OutDtype, OutState, Place, Role,
    Saved, TensorId, TensorState, Type, Value, infer, ops,
};
use nodes::{Given, node};
use proptest::prelude::*;
use std::sync::Arc;

#[test]
fn every_version_builds_or_says_which_attribute_is_missing() {
    for spec in ops::all() {
        for version in spec.since.iter().copied().chain([0, 1, i64::MAX]) {
            if let Err(error) = spec.build(Attributes::default(), version) {
                assert!(error.to_string().contains('`'), "{} at {version}: {error}", spec.name);
            }
        }
    }
}

/// Everything that a list refers to is there, and comes before.
fn assert_well_formed(op: &str, calls: &[Call], bound: &[(usize, Operand)], node: &Node) {
    let exists = |operand: &Operand, before: usize| match operand {
        Operand::Input(i) => node.inputs.get(*i).is_some_and(Option::is_some),
        Operand::Result { call, output } => *call < before && *output < calls[*call].outputs.len(),
    };
    for (k, call) in calls.iter().enumerate() {
        let name = format!("{op}: {}", call.function);
        assert!(call.inputs.iter().all(|i| exists(i, k)), "{name} reads what is not there");
        let (inputs, outputs) = (call.inputs.len(), call.outputs.len());
        assert_eq!(call.grads.len(), inputs, "{name}");
        for saved in &call.saved {
            let there = match saved {
                Saved::Input(i) => *i < inputs,
                Saved::InputFor { input, needed_by } => *input < inputs && *needed_by < inputs,
                Saved::Output(j) => *j < outputs,
            };
            assert!(there, "{name} keeps what it does not have");
        }
        for output in &call.outputs {
            assert!(!matches!(output.place, Place::View(i, _) | Place::InPlace(i) if i >= inputs), "{name}");
            assert!(!matches!(output.dtype, OutDtype::Like(i) if i >= inputs), "{name}");
        }
    }
    for (j, operand) in bound {
        assert!(*j < node.outputs.len().max(1), "{op} gives an output that the node does not have");
        assert!(exists(operand, calls.len()), "{op} gives what is not there");
    }
}

/// Lowers with these types, unknown sizes at their bound or small; `inferred` says whether they are what inference gave.
fn lower(op: &dyn Op, g: &Graph, types: &[Type], values: &[Option<&Value>], inferred: bool) {
    let shapes: Vec<Vec<u64>> = types
        .iter()
        .map(|t| {
            t.shape().map_or_else(Vec::new, |s| s.dims().iter().map(|d| d.upper().unwrap_or(3)).collect())
        })
        .collect();
    let dtype = |id: TensorId| types[id.index()].dtype().unwrap_or(DType::Float32);
    let state = |id: &Option<TensorId>| {
        id.map(|id| TensorState {
            shape: &shapes[id.index()],
            dtype: dtype(id),
            requires_grad: dtype(id).is_float(),
            is_initializer: g.tensor(id).role == Role::Initializer,
        })
    };
    let node = &g.nodes[0];
    let inputs: Vec<_> = node.inputs.iter().map(state).collect();
    let outputs: Vec<_> = node
        .outputs
        .iter()
        .map(|id| id.map(|id| OutState { shape: &shapes[id.index()], dtype: dtype(id) }))
        .collect();
    for autocast in [None, Some(DType::Float16)] {
        let mut lowering = Lowering::new(&inputs, &outputs, autocast, autocast.is_none()).with_values(values);
        op.pytorch(&mut lowering);
        let (calls, bound, _) = lowering.into_parts();
        if inferred {
            assert_well_formed(op.name(), &calls, &bound, node);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases * 8, ..ProptestConfig::default() })]

    #[test]
    fn nothing_panics((spec, version, attributes, given, outputs) in node()) {
        let spec = ops::all().nth(spec).unwrap();
        let Ok(op) = spec.build(attributes, version) else { return Ok(()) };
        let mut g = Graph::default();
        let inputs: Vec<Option<TensorId>> = given
            .iter()
            .enumerate()
            .map(|(i, given)| match given {
                Given::Absent => None,
                Given::Typed(ty) => {
                    let id = g.add_tensor(format!("x{i}"), ty.clone(), Role::Input);
                    g.inputs.push(id);
                    Some(id)
                }
                Given::Constant(value) => Some(g.add_constant(format!("c{i}"), value.clone())),
            })
            .collect();
        g.outputs = (0..=outputs)
            .map(|j| g.add_tensor(format!("y{j}"), Type::Unknown, Role::Intermediate))
            .collect();
        let ids = g.outputs.iter().copied().map(Some).collect();
        g.add_node("node", Arc::clone(&op), inputs.clone(), ids);
        for batch in [None, Some(5)] {
            let binding = Binding { batch, ..Binding::default() };
            let Ok(inferred) = infer(&g, &binding) else { continue };
            let values: Vec<Option<&Value>> =
                inputs.iter().map(|id| id.and_then(|id| inferred.value(id))).collect();
            for (id, ty) in (0..).zip(&inferred.types) {
                if let (Some(value), Some(shape)) = (inferred.value(TensorId(id)), ty.shape()) {
                    let elements: u64 = value.shape.iter().product();
                    assert_eq!(elements, value.data.len() as u64, "{}: {value:?} of shape {shape}", spec.name);
                }
            }
            lower(&*op, &g, &inferred.types, &values, true);
        }
        // Whatever inference says: an engine may ask with other shapes.
        let declared: Vec<Type> = g.tensors.iter().map(|t| t.declared.clone()).collect();
        lower(&*op, &g, &declared, &[], false);
    }
}
