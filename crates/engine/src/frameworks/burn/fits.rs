//! Whether tensors go into a call of Burn, which panics where they do not. Files decide ranks and sizes, and a file may be broken: it is
//! refused here, in one place, before anything is run.

use super::program::{Prim, SlotType, Window};
use crate::sizes::LARGEST_TENSOR;

/// Why a call cannot be, where it cannot.
pub(super) fn misfit(prim: &Prim, inputs: &[&SlotType], output: &[usize]) -> Option<String> {
    let ranks: Vec<usize> = inputs.iter().map(|ty| ty.shape.len()).collect();
    let is_alike = || ranks.windows(2).all(|pair| pair[0] == pair[1]);
    let (rank, second) = (ranks.first().copied().unwrap_or(0), ranks.get(1).copied());
    let size = |i: usize, axis: usize| inputs.get(i).and_then(|ty| ty.shape.get(axis)).copied();
    let fits = match prim {
        Prim::Binary(_) | Prim::Compare(_) | Prim::MaskWhere | Prim::MaskFill(_) => is_alike(),
        Prim::MatMul => is_alike() && rank >= 2,
        Prim::Linear => {
            rank >= 2 && second == Some(2) && ranks.get(2).is_none_or(|bias| (1..=rank).contains(bias))
        }
        Prim::Conv { window, groups } | Prim::ConvTranspose { window, groups, .. } => {
            rank >= 3
                && second == Some(rank)
                && output.len() == rank
                && is_of(window, rank - 2)
                && *groups > 0
        }
        Prim::MaxPool2d(window) | Prim::AvgPool2d(window, _) => {
            rank == 4 && output.len() == 4 && is_of(window, 2)
        }
        Prim::AdaptiveAvgPool2d(_) | Prim::Interpolate { .. } => rank == 4 && output.len() == 4,
        Prim::SumDim(axis)
        | Prim::MeanDim(axis)
        | Prim::MaxDim(axis)
        | Prim::MinDim(axis)
        | Prim::ArgMax(axis)
        | Prim::ArgMin(axis)
        | Prim::CumSum(axis)
        | Prim::ArgSort { axis, .. } => *axis < rank,
        Prim::Select(axis) | Prim::SelectAdd(axis) => *axis < rank && output.len() == rank,
        Prim::Gather(axis) | Prim::ScatterAdd(axis) => *axis < rank && is_alike(),
        Prim::Cat(axis) => {
            let others = |ty: &&SlotType| {
                let both = ty.shape.iter().zip(output).enumerate();
                both.filter(|(i, _)| i != axis).all(|(_, (part, whole))| part == whole)
            };
            rank > *axis && output.len() == rank && is_alike() && inputs.iter().all(others)
        }
        Prim::Embedding => rank == 2 && second == Some(2),
        Prim::Permute(axes) => {
            let mut sorted = axes.clone();
            sorted.sort_unstable();
            sorted.into_iter().eq(0..rank)
        }
        Prim::Expand => rank <= output.len(),
        Prim::Slice(ranges) => {
            let is_inside = |(axis, range): (usize, &super::program::Range)| {
                range.step != 0 && range.start <= range.end && Some(range.end) <= size(0, axis)
            };
            ranges.len() == rank && ranges.iter().enumerate().all(is_inside)
        }
        _ => true,
    };
    let shapes = || inputs.iter().map(|ty| format!("{:?}", ty.shape)).collect::<Vec<_>>().join(", ");
    let name = || format!("{prim:?}").split(['(', ' ', '{']).next().unwrap_or_default().to_owned();
    (!fits).then(|| format!("Burn's {} does not take {}", name(), shapes()))
}

/// Why a tensor cannot be, where it is larger than any of the graph's own may be: a rule makes some that the graph does not show. An axis
/// of no elements counts as one, as it does there.
pub(super) fn too_large(shape: &[usize]) -> Option<String> {
    let bytes = shape.iter().fold(4, |all: u64, dim| all.saturating_mul((*dim).max(1) as u64));
    (bytes > LARGEST_TENSOR.0).then(|| format!("expected at most 1 PiB, found a tensor of {shape:?}"))
}

/// Whether a window is one over so many axes, and moves.
fn is_of(window: &Window, axes: usize) -> bool {
    let lists = [&window.kernel, &window.stride, &window.padding, &window.dilation];
    lists.iter().all(|list| list.len() == axes) && !window.stride.contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frameworks::burn::program::{Binary, Kind, Range};

    #[test]
    fn what_burn_would_panic_on_is_refused() {
        let ty = |shape: &[usize]| SlotType { kind: Kind::FLOAT, shape: shape.to_vec() };
        let fits = |prim: Prim, inputs: &[SlotType], output: &[usize]| {
            misfit(&prim, &inputs.iter().collect::<Vec<_>>(), output).is_none()
        };
        let range = |start, end| Prim::Slice(vec![Range { start, end, step: 1 }]);
        assert!(fits(range(1, 4), &[ty(&[4])], &[3]));
        assert!(!fits(range(1, 5), &[ty(&[4])], &[4]) && !fits(range(0, 1), &[ty(&[4, 4])], &[1]));
        assert!(fits(Prim::Cat(0), &[ty(&[4, 2]), ty(&[3, 2])], &[7, 2]));
        assert!(!fits(Prim::Cat(0), &[], &[]) && !fits(Prim::Cat(1), &[ty(&[4])], &[4]));
        assert!(fits(Prim::Permute(vec![1, 0]), &[ty(&[4, 2])], &[2, 4]));
        assert!(!fits(Prim::Permute(vec![0, 0]), &[ty(&[4, 2])], &[4, 4]));
        assert!(!fits(Prim::Binary(Binary::Add), &[ty(&[4]), ty(&[4, 1])], &[4, 1]));
        assert!(too_large(&[1 << 24, 1 << 24]).is_none() && too_large(&[1 << 24, 1 << 25]).is_some());
        assert!(too_large(&[1 << 40, 1 << 40, 0]).is_some());
        assert!(!fits(Prim::Linear, &[ty(&[4, 2]), ty(&[2])], &[4, 2]));
    }
}
