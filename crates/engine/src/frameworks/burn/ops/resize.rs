//! Resize and Upsample of planes, nearest or bilinear: `ModuleOps::interpolate`.

use super::Family;
use crate::frameworks::burn::builder::Refusal;
use crate::frameworks::burn::lower::Lower;
use crate::frameworks::burn::program::{Kind, Prim};
use memfit_graph::ops::resize::Resize;

pub(super) const FAMILIES: &[Family] = &[Family { names: &["Resize", "Upsample"], rule: resize }];

fn resize(l: &mut Lower<'_, '_>) -> Result<(), Refusal> {
    let op = l.node.op.downcast::<Resize>().cloned().ok_or("an unknown form")?;
    let x = l.input(0)?;
    let (shape, output) = (l.shape(x), l.output_shape(0)?);
    let bilinear = match &*op.mode {
        "nearest" => false,
        "linear" => true,
        mode => return Err(format!("{mode} interpolation")),
    };
    if shape.len() != 4 || shape[..2] != output[..2] {
        return Err("other axes than those of a plane".into());
    }
    let prim = Prim::Interpolate { size: [output[2], output[3]], bilinear, corners: op.corners };
    let y = l.call(prim, &[x], Kind::Float, output);
    l.set(0, y);
    Ok(())
}
