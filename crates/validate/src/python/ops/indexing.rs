//! Picking by index: Gather, GatherElements, GatherND, Slice, Split, ScatterND, ScatterElements, TopK, OneHot, Trilu.

use super::Family;
use crate::python::line::{At, Refusal, torch_dtype, truth, tuple};
use memfit_graph::ops::gather::Gather;
use memfit_graph::ops::gather_elements::{GatherElements, GatherNd};
use memfit_graph::ops::scatter::{Places, Scatter};
use memfit_graph::ops::slice::Slice;
use memfit_graph::ops::split::Split;
use memfit_graph::ops::top_k::TopK;
use memfit_graph::ops::trilu::Trilu;

pub(super) const FAMILIES: &[Family] = &[
    Family { names: &["Gather"], rule: gather },
    Family { names: &["GatherElements"], rule: gather_elements },
    Family { names: &["GatherND"], rule: gather_nd },
    Family { names: &["Slice"], rule: slice },
    Family { names: &["Split"], rule: split },
    Family { names: &["ScatterElements", "ScatterND"], rule: scatter },
    Family { names: &["TopK"], rule: top_k },
    Family { names: &["Trilu"], rule: trilu },
    Family { names: &["Range", "ConstantOfShape"], rule: made },
];

fn gather(at: &mut At<'_>) -> Result<(), Refusal> {
    let rank = at.rank(0)?;
    let axis = at.axis(at.node.op.downcast::<Gather>().map_or(0, |op| op.axis), rank)?;
    let x = at.on_device(0)?;
    let by = at.shape(1)?;
    if let (Some(index), true) = (at.number(1), by.len() <= 1) {
        let index = index as i64;
        let picked = if by.is_empty() {
            format!("{x}.select({axis}, {index})")
        } else {
            format!("{x}.narrow({axis}, {index}, 1)")
        };
        at.set(picked);
        return Ok(());
    }
    let indices = at.on_device(1)?;
    let output = at.output_shape(0)?;
    at.set(if axis == 0 && rank == 2 {
        format!("F.embedding({indices}, {x})")
    } else {
        format!("torch.index_select({x}, {axis}, {indices}.reshape(-1)).reshape({})", tuple(&output))
    });
    Ok(())
}

fn gather_elements(at: &mut At<'_>) -> Result<(), Refusal> {
    let axis = at.node.op.downcast::<GatherElements>().map_or(0, |op| op.axis);
    let (x, indices) = (at.on_device(0)?, at.on_device(1)?);
    at.set(format!("torch.gather({x}, {axis}, {indices})"));
    Ok(())
}

fn gather_nd(at: &mut At<'_>) -> Result<(), Refusal> {
    if at.node.op.downcast::<GatherNd>().is_some_and(|op| op.batch_dims > 0) {
        return Err("batches of tuples of indices".into());
    }
    let (x, indices) = (at.on_device(0)?, at.on_device(1)?);
    at.set(format!("{x}[{indices}.unbind(-1)]"));
    Ok(())
}

fn slice(at: &mut At<'_>) -> Result<(), Refusal> {
    let op = at.op::<Slice>()?;
    let rank = at.rank(0)?;
    let unknown = "a range that is not known";
    let starts = op.starts.clone().or_else(|| at.ints(1)).ok_or(unknown)?;
    let ends = op.ends.clone().or_else(|| at.ints(2)).ok_or(unknown)?;
    let axes = op.axes.clone().or_else(|| at.ints(3)).unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = at.ints(4).unwrap_or_else(|| vec![1; starts.len()]);
    let mut ranges = vec![":".to_owned(); rank];
    let mut turned = Vec::new();
    for (((start, end), axis), step) in starts.iter().zip(&ends).zip(&axes).zip(&steps) {
        let axis = at.axis(*axis, rank)?;
        if *step < 0 {
            if (*start, *step) != (-1, -1) || *end > -i64::from(i32::MAX) {
                return Err("a part of a range that runs backward".into());
            }
            turned.push(axis);
            continue;
        }
        let end = if *end >= i64::from(i32::MAX) { String::new() } else { end.to_string() };
        let step = if *step == 1 { String::new() } else { format!(":{step}") };
        ranges[axis] = format!("{start}:{end}{step}");
    }
    let x = at.on_device(0)?;
    let x = if turned.is_empty() { x } else { format!("{x}.flip({})", tuple(&turned)) };
    while ranges.len() > 1 && ranges.last().is_some_and(|r| r == ":") {
        ranges.pop();
    }
    at.set(if ranges.iter().all(|r| r == ":") { x } else { format!("{x}[{}]", ranges.join(", ")) });
    Ok(())
}

fn split(at: &mut At<'_>) -> Result<(), Refusal> {
    let axis = at.axis(at.node.op.downcast::<Split>().map_or(0, |op| op.axis), at.rank(0)?)?;
    let sizes = (0..at.node.outputs.len())
        .map(|j| at.output_shape(j)?.get(axis).copied().ok_or_else(|| "a part without that axis".to_owned()))
        .collect::<Result<Vec<u64>, _>>()?;
    let x = at.on_device(0)?;
    at.set_all(format!("torch.split({x}, {}, {axis})", tuple(&sizes)));
    Ok(())
}

fn scatter(at: &mut At<'_>) -> Result<(), Refusal> {
    let op = at.op::<Scatter>()?;
    let (x, indices, updates) = (at.on_device(0)?, at.on_device(1)?, at.on_device(2)?);
    let written = match (op.places, &*op.reduction) {
        (Places::Elements(axis), "none") => format!("torch.scatter({x}, {axis}, {indices}, {updates})"),
        (Places::Elements(axis), "add") => format!("torch.scatter_add({x}, {axis}, {indices}, {updates})"),
        (Places::Tuples, "none") => format!("torch.index_put({x}, {indices}.unbind(-1), {updates})"),
        (Places::Tuples, "add") => format!("torch.index_put({x}, {indices}.unbind(-1), {updates}, True)"),
        (_, reduction) => return Err(format!("updates with the reduction `{reduction}`")),
    };
    at.set(written);
    Ok(())
}

fn top_k(at: &mut At<'_>) -> Result<(), Refusal> {
    let op = at.op::<TopK>()?;
    let k = op.k.or_else(|| at.number(1).map(|k| k as i64)).ok_or("a count that is not known")?;
    let x = at.on_device(0)?;
    let largest = truth(op.largest);
    at.set_all(format!("torch.topk({x}, {k}, {}, {largest})", op.axis));
    Ok(())
}

fn trilu(at: &mut At<'_>) -> Result<(), Refusal> {
    let upper = at.node.op.downcast::<Trilu>().is_some_and(|op| op.upper);
    let k = if at.id(1).is_some() { at.number(1).ok_or("a diagonal that is not known")? as i64 } else { 0 };
    let x = at.on_device(0)?;
    at.set(format!("torch.{}({x}, {k})", if upper { "triu" } else { "tril" }));
    Ok(())
}

/// What is made of sizes alone and too large to be folded.
fn made(at: &mut At<'_>) -> Result<(), Refusal> {
    let dtype = torch_dtype(at.output(0).map(|id| at.dtype(id)).ok_or("no output")?)?;
    if at.node.op.name() == "Range" {
        let bound = |i: usize| at.number(i).ok_or("a bound that is not known");
        let (start, end, step) = (bound(0)?, bound(1)?, bound(2)?);
        at.set(format!("torch.arange({start}, {end}, {step}, device=DEVICE).to({dtype})"));
    } else {
        use memfit_graph::ops::constant_of_shape::ConstantOfShape;
        let op = at.node.op.downcast::<ConstantOfShape>();
        let fill = op.and_then(|op| op.fill.as_f64()).unwrap_or(0.0);
        let shape = tuple(&at.output_shape(0)?);
        at.set(format!("torch.full({shape}, {fill}, dtype={dtype}, device=DEVICE)"));
    }
    Ok(())
}
