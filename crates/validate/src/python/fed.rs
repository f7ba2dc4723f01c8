//! What a written module is given: the tensors that it stores, a batch of random elements, what the output is compared with, and the loss.

use super::line::{Refusal, literal, torch_dtype, tuple};
use super::quoted;
use memfit_engine::{Loss, Mode, Plan, Setting, Stored, Target};
use memfit_graph::{DType, TensorId, Value};
use std::collections::BTreeSet;
use std::fmt::Write;

/// How a stored tensor is made.
pub(super) fn source(setting: &Setting<'_>, id: TensorId) -> Result<String, Refusal> {
    let (tensor, dtype) = (setting.graph.tensor(id), setting.inferred.dtype(id));
    let key = quoted(&format!("t{}", id.0));
    let kind = setting.stored[id.index()];
    let value = setting.inferred.value(id).filter(|v| v.is_known());
    let shape = setting.inferred.shape(id).and_then(|s| s.known());
    let shape = tuple(&shape.ok_or_else(|| format!("the size of {} is not known", tensor.name))?);
    if let (Some(value), false) = (value, matches!(kind, Some(Stored::Parameter | Stored::Frozen))) {
        let elements = elements(value, dtype);
        let elements = elements.ok_or_else(|| format!("an element of {} is not known", tensor.name))?;
        let dtype = torch_dtype(dtype)?;
        return Ok(format!("self.constant({key}, [{elements}], {shape}, {dtype})"));
    }
    let name = quoted(&tensor.name);
    let table = if setting.tables[id.index()] { ", table=True" } else { "" };
    Ok(match kind {
        Some(Stored::Parameter) if dtype.is_float() => {
            format!("self.parameter({key}, {name}, {shape}{table})")
        }
        Some(Stored::Frozen) if dtype.is_float() => format!("self.parameter({key}, {name}, {shape}, False)"),
        _ => format!("self.buffer({key}, {shape}, {})", torch_dtype(dtype)?),
    })
}

/// The elements of a list of Python, where all are known.
fn elements(value: &Value, dtype: DType) -> Option<String> {
    let elements: Option<Vec<String>> = value.data.iter().map(|n| literal(n, dtype)).collect();
    elements.map(|elements| elements.join(", "))
}

/// Inputs, the target and the loss as functions.
pub(super) fn fed(
    out: &mut String,
    setting: &Setting<'_>,
    plan: &Plan,
    outputs: &[TensorId],
) -> Result<(), Refusal> {
    let graph = &*setting.graph;
    let mut inputs = Vec::new();
    for id in &graph.inputs {
        let shape = setting.inferred.shape(*id).and_then(|s| s.known());
        let input = &graph.tensor(*id).name;
        let shape = tuple(&shape.ok_or_else(|| format!("the size of {input} is not known"))?);
        let dtype = setting.inferred.dtype(*id);
        inputs.push(match setting.inferred.value(*id).filter(|v| v.is_known()) {
            Some(value) => {
                let elements = elements(value, dtype).unwrap_or_default();
                format!("given([{elements}], {shape}, {})", torch_dtype(dtype)?)
            }
            None => format!("random({shape}, {}, {})", torch_dtype(dtype)?, below(setting, *id)),
        });
    }
    let _ = writeln!(out, "def make_inputs():\n    return {}\n\n", tuple(&inputs));
    let first = setting.compared.first();
    let target = match &setting.target {
        Target::None => "None".to_owned(),
        Target::Input(id) => {
            let at = graph.inputs.iter().position(|input| input == id).unwrap_or(0);
            format!("inputs[{at}]")
        }
        Target::New(shape, dtype) => {
            let classes = first.and_then(|id| setting.inferred.shape(*id)?.known());
            let classes = classes.and_then(|s| s.get(setting.class_axis).copied());
            format!("random({}, {}, {})", tuple(shape), torch_dtype(*dtype)?, classes.unwrap_or(1))
        }
    };
    let _ = writeln!(out, "def make_target(inputs):\n    return {target}\n\n");
    let _ = writeln!(out, "def compute_loss(outputs, target):");
    if plan.mode == Mode::Infer || first.is_none() {
        let _ = writeln!(out, "    return outputs[0].float().mean()\n\n");
        return Ok(());
    }
    let mut terms = Vec::new();
    for id in &setting.compared {
        let at = outputs.iter().position(|o| o == id).unwrap_or(0);
        let up = if setting.upcast { ".float()" } else { "" };
        let rank = setting.inferred.shape(*id).map_or(0, memfit_graph::Shape::rank);
        terms.push(match setting.loss {
            Loss::CrossEntropy if rank == 3 && setting.class_axis == 2 => {
                format!("F.cross_entropy(outputs[{at}]{up}.flatten(0, 1), target.flatten())")
            }
            Loss::CrossEntropy => format!("F.cross_entropy(outputs[{at}]{up}, target)"),
            Loss::Mse => format!("F.mse_loss(outputs[{at}], target)"),
            Loss::Bce => format!("F.binary_cross_entropy_with_logits(outputs[{at}], target)"),
            Loss::Auto | Loss::None => format!("outputs[{at}].mean()"),
        });
    }
    let _ = writeln!(out, "    return {}\n\n", terms.join(" + "));
    Ok(())
}

/// Integers of an input stay below the rows of the table that they pick from.
fn below(setting: &Setting<'_>, id: TensorId) -> u64 {
    // Through what changes their shape alone.
    let mut same = BTreeSet::from([id]);
    for node in &setting.graph.nodes {
        let input = |i: usize| node.inputs.get(i).copied().flatten();
        match node.op.name() {
            "Gather" if input(1).is_some_and(|id| same.contains(&id)) => {
                let axis = node.op.downcast::<memfit_graph::ops::gather::Gather>().map_or(0, |op| op.axis);
                let shape = input(0).and_then(|table| setting.inferred.shape(table)?.known());
                let at = usize::try_from(axis).unwrap_or(0);
                if let Some(rows) = shape.and_then(|s| s.get(at).copied()) {
                    return rows.max(1);
                }
            }
            "Cast" | "Reshape" | "Squeeze" | "Unsqueeze" | "Identity" | "Flatten"
                if input(0).is_some_and(|id| same.contains(&id)) =>
            {
                same.extend(node.outputs.iter().flatten());
            }
            _ => {}
        }
    }
    2
}
