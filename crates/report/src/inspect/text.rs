//! An inspection as text: every tensor in the graph's order, with what makes it; a dim that is not a number shows its name.

use super::Inspection;
use crate::amounts::{counted, grouped};
use crate::text::style::{HEAD, NOTE, WARN};
use crate::text::table::{Column, Table, printable};
use crate::text::{flow, list};
use memfit_graph::order::largest_first;
use memfit_graph::{DType, Role, Type};

/// The whole inspection, at most `width` columns wide where names allow it.
pub fn inspection(i: &Inspection<'_>, width: usize) -> String {
    let mut facts = vec![i.format.to_owned()];
    facts.extend(i.opset.map(|n| format!("opset {n}")));
    facts.extend((!i.producer.is_empty()).then(|| i.producer.to_owned()));
    facts.push(counted(i.operators, "operator"));
    let mut out = format!("{HEAD}{}{HEAD:#}\n", printable(i.name));
    flow(&mut out, &facts, width);
    tensors(&mut out, i, width);
    operators(&mut out, i);
    list(&mut out, "Warnings", WARN, i.warnings, width);
    out
}

fn tensors(out: &mut String, i: &Inspection<'_>, width: usize) {
    let producers = i.graph.producers();
    let mut table = Table::new(&[
        Column::text("tensor", 16),
        Column::text("dtype", 7),
        Column::text("shape", 12),
        Column::text("made by", 7),
    ]);
    for (at, (tensor, ty)) in i.graph.tensors.iter().zip(&i.inferred.types).enumerate() {
        let (dtype, shape) = describe(ty);
        let producer = producers.get(at).copied().flatten().and_then(|id| i.graph.nodes.get(id.index()));
        let maker = match (tensor.role, producer) {
            (_, Some(node)) => node.op.name(),
            (Role::Input, None) => "input",
            (Role::Initializer, None) => "stored in the file",
            (Role::Constant, None) => "constant",
            (Role::Intermediate, None) => "",
        };
        table.row(vec![tensor.name.to_string(), dtype, shape, maker.to_owned()]);
    }
    let mut unknown = 0;
    for ty in &i.inferred.types {
        unknown += u64::from(ty.shape().and_then(memfit_graph::Shape::known).is_none());
    }
    let count = grouped(i.graph.tensors.len() as u64);
    let open = if unknown == 0 { String::new() } else { format!(", {} not fully known", grouped(unknown)) };
    out.push_str(&format!("\n{HEAD}Tensors{HEAD:#}  {NOTE}{count}{open}{NOTE:#}\n"));
    table.write(out, width, NOTE);
}

/// The dtype and the shape of a type, as words.
fn describe(ty: &Type) -> (String, String) {
    match ty {
        Type::Unknown => ("?".into(), "?".into()),
        Type::Tensor(t) | Type::Sparse(t) => {
            let dtype = if t.dtype == DType::Undefined { "?" } else { t.dtype.name() };
            let shape = t.shape.as_ref().map_or("?".into(), ToString::to_string);
            (dtype.into(), shape)
        }
        Type::Sequence { items: Some(items), .. } => {
            let shapes: Vec<String> = items.iter().map(|t| describe(t).1).collect();
            ("sequence".into(), format!("[{}]", shapes.join(", ")))
        }
        Type::Sequence { element, items: None } => {
            ("sequence".into(), format!("[{}, …]", describe(element).1))
        }
        Type::Optional { present: Some(false), .. } => ("optional".into(), "absent".into()),
        Type::Optional { element, .. } => ("optional".into(), describe(element).1),
        Type::Map(values) => ("map".into(), describe(values).1),
    }
}

fn operators(out: &mut String, i: &Inspection<'_>) {
    let unknown = i.unknown();
    let histogram = largest_first(i.histogram().into_iter().collect(), |(_, count)| *count);
    let mut table = Table::new(&[Column::text("", 12), Column::number(""), Column::text("", 10)]);
    for (name, count) in &histogram {
        let note = if unknown.contains(name) { "no rule: its outputs stay unknown" } else { "" };
        table.row(vec![(*name).to_owned(), grouped(*count), note.into()]);
    }
    out.push_str(&format!("\n{HEAD}Operators{HEAD:#}\n"));
    table.write(out, usize::MAX, NOTE);
    if !unknown.is_empty() {
        out.push_str(&format!("\n{WARN}{} unknown operator type(s){WARN:#}\n", unknown.len()));
    }
}
