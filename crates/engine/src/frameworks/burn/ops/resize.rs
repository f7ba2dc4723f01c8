//! Resize and Upsample. What `ModuleOps::interpolate` computes is one call of it: planes, nearest by the floor, linear from half a pixel
//! or corner to corner. Every other way to sample is an axis at a time: elements picked, or a product with a table of weights. So is what
//! trains through a linear one: Burn 0.21 does not differentiate it (`interpolate_backward` of burn-cubecl and burn-ndarray).

use super::Family;
use crate::frameworks::burn::builder::Refusal;
use crate::frameworks::burn::lower::Lower;
use crate::frameworks::burn::program::{Kind, Prim, Slot};
use memfit_graph::Value;
use memfit_graph::ops::resize::{Policy, Resize, Sampling};

/// Axes of more elements are refused: what is picked of each is found one by one.
const LONGEST: usize = 1 << 24;

pub(super) const FAMILIES: &[Family] = &[Family { names: &["Resize", "Upsample"], rule: resize }];

/// One axis that is sampled.
#[derive(Clone, Copy, Debug)]
struct Axis {
    at: usize,
    from: usize,
    to: usize,
    /// The factor that the file gives, else the sizes' ratio.
    scale: f64,
}

fn resize(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let op = l.node.op.downcast::<Resize>().cloned().ok_or("an unknown form")?;
    let mut x = l.input(0)?;
    let (shape, output) = (l.shape(x), l.output_shape(0)?);
    let axes = axes(l, &op, &shape, &output)?;
    let how = &op.sampling;
    let planes = shape.len() == 4 && axes.iter().all(|axis| axis.at > 1);
    let own =
        |corners: bool, bilinear: bool| Prim::Interpolate { size: [output[2], output[3]], bilinear, corners };
    match &*op.mode {
        "nearest" => {
            axes.iter().try_for_each(|axis| nearest(how, axis, 0).map(drop))?;
            let floor =
                |axis: &Axis| (0..axis.to).all(|i| nearest(how, axis, i) == Ok(i * axis.from / axis.to));
            if planes && axes.iter().all(floor) {
                x = l.call(own(false, false), &[x], Kind::FLOAT, output);
            } else {
                for axis in &axes {
                    let (how, own) = (how.clone(), *axis);
                    let elements =
                        move || (0..own.to).map(|i| nearest(&how, &own, i).unwrap_or(0) as f64).collect();
                    let by =
                        l.table(&format!("elements of axis {}", axis.at), Kind::Int, vec![axis.to], elements);
                    let mut shape = l.shape(x);
                    shape[axis.at] = axis.to;
                    x = l.call(Prim::Select(axis.at), &[x, by], Kind::FLOAT, shape);
                }
            }
        }
        "linear" if planes && !l.model.training && how.coordinates == "align_corners" => {
            x = l.call(own(true, true), &[x], Kind::FLOAT, output);
        }
        "linear" if planes && !l.model.training && axes.iter().all(|axis| from_half_pixel(how, axis)) => {
            x = l.call(own(false, true), &[x], Kind::FLOAT, output);
        }
        "linear" | "cubic" => {
            for axis in &axes {
                x = weighed(l, x, axis, how, op.mode == "cubic")?;
            }
        }
        mode => return Err(format!("{mode} interpolation")),
    }
    l.set(0, x);
    Ok(())
}

/// The axes that change.
fn axes(l: &Lower<'_, '_>, op: &Resize, shape: &[usize], output: &[usize]) -> Result<Vec<Axis>, Refusal> {
    if shape.len() != output.len() {
        return Err("other axes than those of the input".into());
    }
    let at = match &op.axes {
        None => (0..shape.len()).collect(),
        Some(axes) => axes.iter().map(|axis| l.axis(*axis, shape.len())).collect::<Result<Vec<_>, _>>()?,
    };
    let numbers = |i: usize| l.value(i).and_then(Value::floats).filter(|list| list.len() == at.len());
    let factors = op.factors.clone().or_else(|| numbers(op.factors_at));
    let is_given =
        l.id(op.factors_at).is_some() && l.input_shape(op.factors_at)?.iter().product::<usize>() > 0;
    if factors.is_none() && is_given && op.factors.is_none() {
        return Err("factors that are not known".into());
    }
    let sizes = l.ints(3).filter(|list| list.len() == at.len());
    let ratios = sizes.iter().flatten().zip(&at).map(|(size, at)| *size as f64 / shape[*at] as f64);
    let ratio = match op.policy {
        Policy::Stretch => None,
        Policy::NotLarger => ratios.reduce(f64::min),
        Policy::NotSmaller => ratios.reduce(f64::max),
    };
    let axis = |(k, at): (usize, &usize)| {
        let (from, to) = (shape[*at], output[*at]);
        let given = factors.as_ref().and_then(|list| list.get(k).copied()).or(ratio);
        Axis { at: *at, from, to, scale: given.unwrap_or(to as f64 / from as f64) }
    };
    let axes: Vec<Axis> = at.iter().enumerate().map(axis).collect();
    if axes.iter().any(|axis| axis.from == 0 || axis.to == 0 || axis.scale.is_nan() || axis.scale <= 0.0) {
        return Err("an axis without elements".into());
    }
    if let Some(long) = axes.iter().map(|axis| axis.from.max(axis.to)).find(|size| *size > LONGEST) {
        return Err(format!("an axis of {long} elements, more than {LONGEST}"));
    }
    Ok(axes.into_iter().filter(|axis| axis.from != axis.to || axis.scale != 1.0).collect())
}

/// Where element `i` of the output lies in the input.
fn coordinate(how: &Sampling, axis: &Axis, i: usize) -> Result<f64, Refusal> {
    let (i, from, to) = (i as f64, axis.from as f64, axis.to as f64);
    let half = (i + 0.5) / axis.scale - 0.5;
    Ok(match &*how.coordinates {
        "half_pixel" => half,
        "pytorch_half_pixel" if axis.to > 1 => half,
        "pytorch_half_pixel" => 0.0,
        "half_pixel_symmetric" => from / 2.0 * (1.0 - to / (axis.scale * from)) + half,
        "align_corners" if axis.to > 1 => i * (from - 1.0) / (to - 1.0),
        "align_corners" => 0.0,
        "asymmetric" => i / axis.scale,
        "tf_half_pixel_for_nn" => (i + 0.5) / axis.scale,
        other => return Err(format!("{other} coordinates")),
    })
}

/// Which element of the input is element `i` of the output.
fn nearest(how: &Sampling, axis: &Axis, i: usize) -> Result<usize, Refusal> {
    let at = coordinate(how, axis, i)?;
    let whole = match &*how.rounding {
        "floor" => at.floor(),
        "ceil" => at.ceil(),
        "round_prefer_ceil" => (at + 0.5).floor(),
        "round_prefer_floor" => (at - 0.5).ceil(),
        other => return Err(format!("{other} rounding")),
    };
    Ok(whole.clamp(0.0, axis.from as f64 - 1.0) as usize)
}

/// Whether Burn's linear interpolation without aligned corners is what is asked for.
fn from_half_pixel(how: &Sampling, axis: &Axis) -> bool {
    let symmetric = axis.scale * axis.from as f64 == axis.to as f64;
    let half = match &*how.coordinates {
        "half_pixel" => symmetric,
        "pytorch_half_pixel" => symmetric && axis.to > 1,
        "half_pixel_symmetric" => symmetric,
        _ => false,
    };
    half && !how.excludes_outside && (!how.antialias || axis.to >= axis.from)
}

/// One axis as a product with the weight that each element has in each of the output.
fn weighed(
    l: &mut Lower<'_, '_>,
    x: Slot,
    axis: &Axis,
    how: &Sampling,
    cubic: bool,
) -> Result<Slot, Refusal> {
    coordinate(how, axis, 0)?;
    let (how, own) = (how.clone(), *axis);
    let table = move || weights(&how, &own, cubic);
    let table =
        l.table(&format!("weights of axis {}", axis.at), Kind::FLOAT, vec![axis.from, axis.to], table);
    let end = l.rank(x).saturating_sub(1);
    let turned = if axis.at == end { x } else { l.swap(x, axis.at, end) };
    let flat = l.unsqueeze_to(turned, 2);
    let y = l.linear(flat, table, None);
    Ok(if axis.at == end { y } else { l.swap(y, axis.at, end) })
}

/// The weight of each element of the input, in rows, in each of the output's.
fn weights(how: &Sampling, axis: &Axis, cubic: bool) -> Vec<f64> {
    let mut table = vec![0.0; axis.from * axis.to];
    let stretch = if how.antialias { axis.scale.recip().max(1.0) } else { 1.0 };
    let reach = if cubic { 2.0 * stretch } else { stretch };
    let a = how.cubic;
    let kernel = |t: f64| match t.abs() {
        t if !cubic => (1.0 - t).max(0.0),
        t if t <= 1.0 => ((a + 2.0) * t - (a + 3.0)) * t * t + 1.0,
        t if t < 2.0 => (((t - 5.0) * t + 8.0) * t - 4.0) * a,
        _ => 0.0,
    };
    let last = axis.from as f64 - 1.0;
    for i in 0..axis.to {
        let at = coordinate(how, axis, i).unwrap_or(0.0);
        let (mut j, end) = ((at - reach).ceil(), (at + reach).floor());
        let mut whole = 0.0;
        while j <= end {
            let weight = kernel((j - at) / stretch);
            if !how.excludes_outside || (0.0..=last).contains(&j) {
                table[j.clamp(0.0, last) as usize * axis.to + i] += weight;
                whole += weight;
            }
            j += 1.0;
        }
        for weight in table.iter_mut().skip(i).step_by(axis.to) {
            *weight /= whole;
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn how(coordinates: &str, rounding: &str) -> Sampling {
        Sampling { coordinates: coordinates.into(), rounding: rounding.into(), ..Sampling::default() }
    }

    #[test]
    fn elements_are_picked_as_onnx_defines_them() {
        // The operator's own examples: four elements to eight, and eight to three.
        let axis = |from, to| Axis { at: 0, from, to, scale: to as f64 / from as f64 };
        let picked = |coordinates, rounding, from, to| -> Vec<usize> {
            let (how, axis) = (how(coordinates, rounding), axis(from, to));
            (0..to).map(|i| nearest(&how, &axis, i).unwrap()).collect()
        };
        assert_eq!(picked("asymmetric", "floor", 4, 8), [0, 0, 1, 1, 2, 2, 3, 3]);
        assert_eq!(picked("half_pixel", "round_prefer_floor", 4, 8), [0, 0, 1, 1, 2, 2, 3, 3]);
        assert_eq!(picked("half_pixel", "ceil", 4, 8), [0, 1, 1, 2, 2, 3, 3, 3]);
        assert_eq!(picked("align_corners", "floor", 4, 8), [0, 0, 0, 1, 1, 2, 2, 3]);
        assert_eq!(picked("tf_half_pixel_for_nn", "floor", 8, 3), [1, 4, 6]);
        assert!(nearest(&how("tf_crop_and_resize", "floor"), &axis(4, 8), 0).is_err());
    }

    #[test]
    fn burn_itself_samples_from_half_a_pixel() {
        let even = Axis { at: 2, from: 4, to: 8, scale: 2.0 };
        let odd = Axis { at: 2, from: 4, to: 6, scale: 1.6 };
        let plain = how("half_pixel", "floor");
        assert!(from_half_pixel(&plain, &even) && !from_half_pixel(&plain, &odd));
        assert!(!from_half_pixel(&how("asymmetric", "floor"), &even));
        let down = Axis { at: 2, from: 8, to: 4, scale: 0.5 };
        assert!(!from_half_pixel(&Sampling { antialias: true, ..plain }, &down));
    }
}
