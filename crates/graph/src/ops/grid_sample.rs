//! GridSample (ONNX 16, 20, 22) and AffineGrid (20): `F.grid_sample`, `F.affine_grid`.
//!
//! `grid_sampler` keeps its input and the grid and is on autocast's promote list; `affine_grid_generator` keeps nothing
//! and makes a base grid of homogeneous coordinates, forward and backward (derivatives.yaml;
//! aten/src/ATen/native/AffineGridGenerator.cpp).

use crate::{
    Autocast, Call, DType, Grad, Infer, Lowering, Op, OpError, OpSpec, Operand, OutDtype, Place, Saved, Shape,
};
use std::sync::Arc;

/// Reads an image at the points of a grid.
#[derive(Clone, Copy, Debug)]
pub struct GridSample;

/// Makes a grid of points from affine matrices.
#[derive(Clone, Copy, Debug)]
pub struct AffineGrid;

/// How they are found.
pub const SPECS: &[OpSpec] = &[
    OpSpec { domain: "", name: "GridSample", since: &[16, 20, 22], build: |_, _| Ok(Arc::new(GridSample)) },
    OpSpec { domain: "", name: "AffineGrid", since: &[20], build: |_, _| Ok(Arc::new(AffineGrid)) },
];

impl Op for GridSample {
    fn name(&self) -> &str {
        "GridSample"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        cx.require(1)?;
        let shape = match (cx.shape(0), cx.shape(1)) {
            (Some(x), Some(grid)) => {
                if x.rank() < 3 || grid.rank() != x.rank() {
                    return Err(OpError::input(
                        1,
                        format!("a grid of rank {}", x.rank()),
                        format!("shape {grid}"),
                    ));
                }
                let points = grid.dims()[1..grid.rank() - 1].iter();
                Some(x.dims()[..2].iter().chain(points).cloned().collect())
            }
            _ => None,
        };
        cx.set(0, cx.dtype(0), shape);
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let call = Call::new("grid_sampler_2d")
            .autocast(Autocast::Promote)
            .input(Operand::Input(0), Grad::New)
            .input(Operand::Input(1), Grad::New)
            .saves([Saved::Input(0), Saved::Input(1)]);
        l.finish(call.output(l.out_shape(0), OutDtype::Promoted, Place::New));
    }
}

impl Op for AffineGrid {
    fn name(&self) -> &str {
        "AffineGrid"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        cx.require(0)?;
        cx.require(1)?;
        let axes = cx.shape(1).filter(|s| s.rank() == 1).and_then(|s| s[0].known());
        let shape: Option<Shape> = match (cx.value(1), axes) {
            (Some(size), _) if matches!(size.data.len(), 4 | 5) => {
                let spatial = &size.data[2..];
                let dims = size.data[..1].iter().chain(spatial).enumerate();
                let dims =
                    dims.map(|(k, n)| n.as_dim().unwrap_or_else(|| cx.fresh_dim(&format!("dim{k}"), None)));
                let mut shape: Shape = dims.collect();
                if let Some((_, new)) = cx.batch().filter(|(old, _)| shape[0].known() == Some(*old))
                    && cx.value_before(1) == cx.value(1)
                {
                    shape.dims_mut()[0] = new.into();
                }
                shape.push(spatial.len() as u64);
                Some(shape)
            }
            (Some(size), _) => {
                return Err(OpError::input(1, "four or five sizes", size.data.len()));
            }
            (None, Some(n @ (4 | 5))) => {
                let mut shape: Shape = (0..n - 1).map(|k| cx.fresh_dim(&format!("dim{k}"), None)).collect();
                shape.push(n - 2);
                Some(shape)
            }
            _ => None,
        };
        cx.set(0, cx.dtype(0), shape);
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let mut base = l.out_shape(0).to_vec();
        if let Some(last) = base.last_mut() {
            *last += 1;
        }
        let call = Call::new("affine_grid_generator")
            .input(Operand::Input(0), Grad::New)
            .output(l.out_shape(0), OutDtype::Like(0), Place::New)
            .scratch(&base, DType::Float32)
            .backward_scratch(&base, OutDtype::Like(0));
        l.finish(call);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{self, float, ints, symbolic};
    use crate::Attributes;

    #[test]
    fn points_of_the_grid_become_pixels() {
        let inputs = [symbolic(&["b", "3", "32", "32"]), symbolic(&["b", "7", "9", "2"])];
        assert_eq!(testing::shape("GridSample", 20, Attributes::default(), &inputs).unwrap(), "bx3x7x9");
        let flat = [float(&[1, 3, 32, 32]), float(&[1, 7, 2])];
        assert!(testing::shape("GridSample", 20, Attributes::default(), &flat).is_err());
    }

    #[test]
    fn a_size_becomes_a_grid() {
        let grid = |sizes: &[i64]| {
            let inputs = [float(&[2, 3, 4]), ints(sizes)];
            testing::shape("AffineGrid", 20, Attributes::default(), &inputs)
        };
        assert_eq!(grid(&[2, 3, 5, 6]).unwrap(), "2x5x6x2");
        assert_eq!(grid(&[2, 3, 4, 5, 6]).unwrap(), "2x4x5x6x3");
        assert!(grid(&[2, 3]).is_err());
    }
}
