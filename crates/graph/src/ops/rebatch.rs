//! Which axis of a baked `Reshape` target holds the samples, while a fixed batch is being replaced by another.

use crate::{Dim, Infer, Num, OpError, Shape, is_exporter_name};

/// The target that was baked for the exported batch, with its batch axis carrying the new one.
pub(super) fn reshaped(cx: &Infer<'_>) -> Option<Shape> {
    let (old_in, old_out) = cx.before(0, 0)?;
    let new_in = cx.shape(0)?;
    let baked = cx.value(1).is_none() || cx.value(1) == cx.value_before(1);
    if !baked || old_in.rank() != new_in.rank() || old_in == new_in {
        return None;
    }
    let (batch, _) = cx.batch()?;
    let (old_in, new_in, mut shape) = (old_in.known()?, new_in.known()?, old_out.known()?);
    let axis = (0..old_in.len()).find(|k| old_in[*k] != new_in[*k])?;
    let before = product(&old_in[..axis])?;
    let samples = if old_in[axis] == batch {
        Samples { earliest: before, latest: before }
    } else {
        let folded = folded_at(cx, &old_in[..=axis], batch);
        let all = old_in[axis].checked_div(batch).filter(|n| *n > 0 && old_in[axis] % batch == 0)?;
        let anywhere = || Some(Samples { earliest: before, latest: before.checked_mul(all)? });
        folded.map(|at| Samples { earliest: at, latest: at }).or_else(anywhere)?
    };
    let place = batch_axis(samples, &old_in, axis, &shape, batch)?;
    let (old, new) = (product(&old_in)?, product(&new_in)?);
    let size = shape[place].checked_mul(new).filter(|n| old > 0 && n % old == 0)? / old;
    shape[place] = size;
    Some(Shape::from(&shape[..]))
}

/// The shape of a gather that only rearranged its input, by indices that were baked for the exported batch: it follows
/// the new batch as a reshape would. `shape` is what the indices alone say.
pub(super) fn rearranged(cx: &Infer<'_>, shape: &Shape) -> Option<Shape> {
    let (old_in, old_out) = cx.before(0, 0)?;
    let whole = old_in.elements()? == old_out.elements()?;
    (whole && shape == old_out && cx.shape(0) != Some(old_in)).then(|| reshaped(cx))?
}

/// The broadcast of two shapes. While a fixed batch is being replaced, what hangs on constants alone still has the
/// exported batch; beside the new one it counts as that.
pub(super) fn broadcast(cx: &Infer<'_>, a: &Shape, b: &Shape) -> Option<Shape> {
    let (mut a, mut b) = (a.clone(), b.clone());
    meet(cx, a.dims_mut(), b.dims_mut());
    a.broadcast(&b).filter(|all| !stretches_parameter(cx, all))
}

/// Whether a parameter would be longer than the file stores it. Other constants (masks, angles) are made anew for any length.
fn stretches_parameter(cx: &Infer<'_>, all: &Shape) -> bool {
    let is_longer = |i: usize| {
        let Some(tensor) = cx.stored(i).filter(|t| !is_exporter_name(&t.name)) else { return false };
        let (Some(shape), true) = (cx.shape(i), cx.dtype(i).is_float() && !tensor.name.contains("::")) else {
            return false;
        };
        let pairs = shape.dims().iter().rev().zip(all.dims().iter().rev());
        pairs
            .filter_map(|(own, all)| Some((own.known()?, all.known()?)))
            .any(|(own, all)| own != 1 && own != all)
    };
    cx.length().is_some() && (0..cx.input_count()).any(is_longer)
}

/// How long the range `start..end` of a stored table is, where it was cut at the exported length: as long as the new one, which the
/// table must have. A weight may be cut at the same number by chance; where it is too short for more, it stays.
pub(super) fn cut(
    cx: &Infer<'_>,
    size: &Dim,
    start: &Num,
    end: &Num,
    step: &Num,
) -> Result<Option<Dim>, OpError> {
    let (Some((old, new)), Some(size)) = (cx.length(), size.known()) else { return Ok(None) };
    let is = |n: &Num, of: u64| n.as_i64() == i64::try_from(of).ok();
    let is_cut = is(start, 0) && is(end, old) && is(step, 1) && size > old;
    let stays = (0..cx.input_count()).all(|i| cx.stays(i));
    if !is_cut || !stays || cx.stored(0).is_none() && cx.value(0).is_none() {
        return Ok(None);
    }
    if size < new && !cx.dtype(0).is_float() {
        return Err(OpError::input(0, format!("a table of at least {new}"), size));
    }
    Ok((size >= new).then_some(Dim::Known(new)))
}

/// Indices that count the exported length, as a constant, count the new one: the shape of what they take from a stored table.
pub(super) fn counted(cx: &Infer<'_>, rows: Option<u64>) -> Result<Option<Shape>, OpError> {
    let (Some((old, new)), Some(value), Some(shape)) = (cx.length(), cx.value(1), cx.shape(1)) else {
        return Ok(None);
    };
    let is_count = |(i, n): (usize, &Num)| n.as_i64() == i64::try_from(i).ok();
    let last = shape.rank().checked_sub(1).filter(|last| shape[*last].known() == Some(old));
    let counts = value.data.len() as u64 == old && value.data.iter().enumerate().all(is_count);
    let (Some(last), true, true, true) = (last, counts, cx.stays(0) && cx.stays(1), cx.stored(0).is_some())
    else {
        return Ok(None);
    };
    if rows.is_some_and(|rows| rows < new) {
        return Err(OpError::input(0, format!("at least {new} rows"), rows.unwrap_or(0)));
    }
    let mut shape = shape.clone();
    shape.dims_mut()[last] = Dim::Known(new);
    Ok(Some(shape))
}

/// Gives dims that conflict the new batch where one of them still has the exported one, or the same multiple of it (samples
/// and heads on one axis). Both are aligned from the right.
pub(super) fn meet(cx: &Infer<'_>, a: &mut [Dim], b: &mut [Dim]) {
    let Some((old, new)) = cx.batch() else { return };
    for (a, b) in a.iter_mut().rev().zip(b.iter_mut().rev()) {
        let (Some(x), Some(y)) = (a.known(), b.known()) else { continue };
        let follows = |x: u64, y: u64| x.checked_mul(new).is_some_and(|n| Some(n) == y.checked_mul(old));
        match (x, y) {
            (x, y) if x == y || x == 1 || y == 1 => {}
            (x, y) if follows(x, y) => a.clone_from(b),
            (x, y) if follows(y, x) => b.clone_from(a),
            _ => {}
        }
    }
}

/// The new batch for the leading dim of a shape that was baked for the exported one. A vector is left alone: as long as the
/// batch is large, it may be as long as a rank is high. So is a batch of one, which says nothing.
pub(super) fn leading_size(cx: &Infer<'_>, dim: &Dim, rank: usize) -> Option<Dim> {
    let (old, new) = cx.batch().filter(|(old, _)| *old > 1 && rank > 1)?;
    (dim.known() == Some(old)).then_some(Dim::Known(new))
}

/// Puts the new batch in place of the exported one as the leading dim of a baked shape.
pub(super) fn leading(cx: &Infer<'_>, shape: &mut Shape) {
    let rank = shape.rank();
    if let Some(first) = shape.dims_mut().first_mut()
        && let Some(new) = leading_size(cx, first, rank)
    {
        *first = new;
    }
}

fn product(dims: &[u64]) -> Option<u64> {
    dims.iter().try_fold(1, |acc: u64, d| acc.checked_mul(*d))
}

/// How many elements come before the samples' own place, at least and at most: an axis that counts samples and tokens may
/// have either outside.
#[derive(Clone, Copy)]
struct Samples {
    earliest: u64,
    latest: u64,
}

/// How many elements came before the samples when a `Reshape` before this one folded them into the last of the axes `leading`;
/// the operators between the two leave these axes as they are (a matrix product, a sum).
fn folded_at(cx: &Infer<'_>, leading: &[u64], batch: u64) -> Option<u64> {
    const STEPS: usize = 16;
    for step in cx.history(0).take(STEPS) {
        let (old_out, new_out) = (step.old_output?.known()?, step.new_output?.known()?);
        if old_out.get(..leading.len()) != Some(leading) || changed(&old_out, &new_out)? + 1 != leading.len()
        {
            return None;
        }
        let (old_in, new_in) = (step.old_input?.known()?, step.new_input?.known()?);
        let axis = changed(&old_in, &new_in)?;
        if step.op == "Reshape" && old_in[axis] == batch {
            return product(&old_in[..axis]);
        }
    }
    None
}

/// The first axis whose size differs.
fn changed(old: &[u64], new: &[u64]) -> Option<usize> {
    (0..old.len()).find(|k| new.get(*k) != old.get(*k))
}

/// Puts the new batch where constant indices into the samples' axis have as many entries as the exported batch: one of each
/// sample, as `x[arange(batch), lengths]`. `consumed` are the axes that are indexed, `at` is where the indices' first axis goes.
pub(super) fn indexed(cx: &Infer<'_>, consumed: std::ops::Range<usize>, at: usize, shape: &mut Shape) {
    let place = || {
        let ((old_in, _), (old_indices, _), (batch, new)) = (cx.before(0, 0)?, cx.before(1, 0)?, cx.batch()?);
        let axis = changed(&old_in.known()?, &cx.shape(0)?.known()?)?;
        let each = cx.shape(1)? == old_indices && old_indices.dims().first()?.known() == Some(batch);
        (each && consumed.contains(&axis)).then_some(Dim::Known(new))
    };
    if let (Some(new), Some(dim)) = (place(), shape.dims_mut().get_mut(at)) {
        *dim = new;
    }
}

/// The axis of `target` that holds the samples which `axis` of `input` counts, two shapes of as many elements; `batch` is
/// how many samples there are.
///
/// A batch of one lies on the border of two axes and could belong to either: an axis of its own comes first, then the axis that
/// is the same in both shapes, then one that begins there (heads folded into the batch), then one that ends there. The
/// innermost axis is the last choice: a matrix product reads that one as features.
fn batch_axis(samples: Samples, input: &[u64], axis: usize, target: &[u64], batch: u64) -> Option<usize> {
    let Samples { earliest, latest } = samples;
    let size = *input.get(axis)?;
    let divides = |a: u64, b: u64| a > 0 && b.is_multiple_of(a);
    let mut start = 1_u64;
    let mut best: Option<(u8, usize)> = None;
    for (j, dim) in target.iter().enumerate() {
        let begins = divides(earliest, start) && divides(start, latest);
        // How many elements of axis `j` itself come before the samples.
        let ahead =
            if begins { Some(1) } else { earliest.checked_div(start).filter(|_| divides(start, earliest)) };
        let fits = |ahead: u64| *dim > 0 && divides(ahead, *dim) && divides(batch, dim / ahead);
        if ahead.is_some_and(fits) {
            let rank = match (begins, j + 1 == target.len()) {
                (true, _) if *dim == batch && j == axis && size == batch => 0,
                (true, _) if *dim == batch => 1,
                (true, _) if start == earliest && *dim == size => 2,
                (true, false) => 3,
                (false, false) => 4,
                (_, true) => 5,
            };
            best = best.filter(|(held, _)| *held <= rank).or(Some((rank, j)));
        }
        start = start.checked_mul(*dim)?;
    }
    best.map(|(_, j)| j)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{float, ints, rebatched};
    use super::*;
    use crate::{Attributes, Binding, DType, Graph, Role, Type, Value, infer};

    fn place(input: &[u64], axis: usize, target: &[u64], batch: u64) -> Option<usize> {
        let earliest = product(&input[..axis])?;
        let latest = earliest * (input[axis] / batch);
        batch_axis(Samples { earliest, latest }, input, axis, target, batch)
    }

    #[test]
    fn a_batch_of_one_is_found_on_the_border_of_axes() {
        assert_eq!(place(&[197, 1, 768], 1, &[197, 12, 64], 1), Some(1));
        assert_eq!(place(&[197, 1, 12, 64], 1, &[197, 768], 1), Some(0));
        assert_eq!(place(&[197, 768], 0, &[197, 1, 768], 1), Some(1));
        assert_eq!(place(&[197, 768], 0, &[197, 12, 64], 1), Some(0));
        assert_eq!(place(&[128, 2304], 0, &[1, 128, 2304], 1), Some(0));
        assert_eq!(place(&[1, 12, 197, 64], 0, &[12, 197, 64], 1), Some(0));
        assert_eq!(place(&[1, 24], 0, &[24], 1), Some(0));
        assert_eq!(place(&[1, 1, 8], 1, &[1, 1, 2, 4], 1), Some(1));
    }

    #[test]
    fn a_larger_batch_is_on_no_border() {
        assert_eq!(place(&[197, 3, 768], 1, &[591, 768], 3), Some(0));
        assert_eq!(place(&[591, 768], 0, &[197, 3, 768], 3), Some(1));
        assert_eq!(place(&[5, 3, 8], 1, &[5, 24], 3), Some(1));
        assert_eq!(place(&[0, 3], 1, &[0, 3], 3), None);
    }

    #[test]
    fn constants_of_the_exported_batch_meet_the_new_one() {
        let mut g = Graph::default();
        let input = g.add_tensor("x", Type::tensor(DType::Float32, Shape::from([2, 3])), Role::Input);
        g.inputs = vec![input];
        let baked = g.add_tensor("c", Type::tensor(DType::Float32, Shape::from([2, 1])), Role::Initializer);
        let y = g.push("Add", Attributes::default(), &[input, baked], "y").unwrap();
        let inferred = infer(&g, &Binding { batch: Some(7), ..Binding::default() }).unwrap();
        assert_eq!(inferred.shape(y), Some(&Shape::from([7, 3])));
    }

    #[test]
    fn a_gather_of_everything_follows_the_batch() {
        // A pooled [1, 768] laid out as [1, 768, 1, 1] by indices, as `aten::as_strided` is exported.
        let mut g = Graph::default();
        let x = g.add_tensor("x", Type::tensor(DType::Float32, Shape::from([1, 4])), Role::Input);
        g.inputs = vec![x];
        let flat = g.add_constant("flat", Value::vector(DType::Int64, [-1]));
        let flat = g.push("Reshape", Attributes::default(), &[x, flat], "f").unwrap();
        let mut indices = Value::vector(DType::Int64, [0, 1, 2, 3]);
        indices.shape = vec![1, 4, 1, 1];
        let indices = g.add_constant("i", indices);
        let y = g.push("Gather", Attributes::default(), &[flat, indices], "y").unwrap();
        let inferred = infer(&g, &Binding { batch: Some(3), ..Binding::default() }).unwrap();
        assert_eq!(inferred.shape(y), Some(&Shape::from([3, 4, 1, 1])));
    }

    /// x[1, 4] + table[positions[:, :4]], with positions for eight and as many rows.
    fn positions(rows: u64) -> (Graph, crate::TensorId, crate::TensorId) {
        let mut g = Graph::default();
        let x = g.add_tensor("x", Type::tensor(DType::Float32, Shape::from([1, 4, 3])), Role::Input);
        g.inputs = vec![x];
        let ids = Type::tensor(DType::Int64, Shape::from([1, 8]));
        let ids = g.add_tensor("position_ids", ids, Role::Initializer);
        let vector =
            |g: &mut Graph, name: &str, n: i64| g.add_constant(name, Value::vector(DType::Int64, [n]));
        let (start, end, axis) = (vector(&mut g, "s", 0), vector(&mut g, "e", 4), vector(&mut g, "a", 1));
        let ids = g.push("Slice", Attributes::default(), &[ids, start, end, axis], "ids").unwrap();
        let table = Type::tensor(DType::Float32, Shape::from([rows, 3]));
        let table = g.add_tensor("positions.weight", table, Role::Initializer);
        let rows = g.push("Gather", Attributes::default(), &[table, ids], "rows").unwrap();
        let y = g.push("Add", Attributes::default(), &[x, rows], "y").unwrap();
        (g, rows, y)
    }

    #[test]
    fn batch_and_length_are_replaced_one_after_the_other() {
        let (g, rows, y) = positions(8);
        let bound = |shape: [u64; 3]| {
            let shapes = [("x".to_owned(), shape.to_vec())].into();
            infer(&g, &Binding { shapes, ..Binding::default() })
        };
        let inferred = bound([2, 6, 3]).unwrap();
        assert_eq!(inferred.shape(rows), Some(&Shape::from([1, 6, 3])));
        assert_eq!(inferred.shape(y), Some(&Shape::from([2, 6, 3])));
        let problem = bound([2, 9, 3]).unwrap_err().remove(0).to_string();
        assert!(problem.starts_with("ids (Slice)") && problem.contains("`position_ids` (1x8)"), "{problem}");
    }

    #[test]
    fn a_stored_parameter_is_not_stretched() {
        let mut g = Graph::default();
        let x = g.add_tensor("x", Type::tensor(DType::Float32, Shape::from([1, 4, 3])), Role::Input);
        g.inputs = vec![x];
        let own = |name: &str| {
            let mut g = g.clone();
            let ty = Type::tensor(DType::Float32, Shape::from([1, 4, 3]));
            let table = g.add_tensor(name, ty, Role::Initializer);
            g.push("Add", Attributes::default(), &[x, table], "y").unwrap();
            infer(&g, &Binding { shapes: [("x".into(), vec![1, 6, 3])].into(), ..Binding::default() })
        };
        let problem = own("pos_embed").unwrap_err().remove(0).to_string();
        assert!(problem.starts_with("y (Add)") && problem.contains("`pos_embed` (1x4x3)"), "{problem}");
        assert!(own("val_7").is_ok());
    }

    #[test]
    fn windows_folded_into_the_batch_grow() {
        let target = [ints(&[64, 49, 96])];
        let inputs = [&[float(&[1, 64, 49, 96])], &target[..]].concat();
        assert_eq!(rebatched("Reshape", Attributes::default(), &inputs, 3).unwrap(), "192x49x96");
    }

    #[test]
    fn the_place_where_samples_were_folded_is_remembered() {
        // Tokens outside of samples: [1, 5, 8] -> [5, 1, 8] -> [5, 8] -> relu -> [1, 5, 1, 8].
        let mut g = Graph::default();
        let x = g.add_tensor("x", Type::tensor(DType::Float32, Shape::from([1, 5, 8])), Role::Input);
        g.inputs = vec![x];
        let perm = Attributes::from([("perm", crate::Attribute::Ints(vec![1, 0, 2]))]);
        let turned = g.push("Transpose", perm, &[x], "turned").unwrap();
        let flat = g.add_constant("flat", Value::vector(DType::Int64, [5, 8]));
        let flat = g.push("Reshape", Attributes::default(), &[turned, flat], "rows").unwrap();
        let relu = g.push("Relu", Attributes::default(), &[flat], "relu").unwrap();
        let target = g.add_constant("target", Value::vector(DType::Int64, [1, 5, 1, 8]));
        let y = g.push("Reshape", Attributes::default(), &[relu, target], "y").unwrap();
        let inferred = infer(&g, &Binding { batch: Some(3), ..Binding::default() }).unwrap();
        assert_eq!(inferred.shape(flat), Some(&Shape::from([15, 8])));
        assert_eq!(inferred.shape(y), Some(&Shape::from([1, 5, 3, 8])));
    }
}
