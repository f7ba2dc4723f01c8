//! The TensorFlow kernels of `einsum` over two operands.
//!
//! Keras 3 runs the equations that its layers use as one product of matrices, with operands and result transposed where their axes
//! lie otherwise (keras/src/backend/tensorflow/numpy.py, `einsum`: `use_custom_ops`). All others, and Keras 2, call `tf.einsum`: one
//! kernel that transposes inside.

use crate::run::Run;
use memfit_graph::elements;
use memfit_graph::kernels::Wire;
use std::collections::BTreeMap;

/// Equations that are products of matrices, with their axes: of the batch, rows of the first, what is summed over, columns of the second.
const PRODUCTS: &[(&str, [&str; 4])] = &[
    ("a,b->ab", ["", "a", "", "b"]),
    ("ab,b->a", ["", "a", "b", ""]),
    ("ab,bc->ac", ["", "a", "b", "c"]),
    ("ab,cb->ac", ["", "a", "b", "c"]),
    ("abc,cd->abd", ["a", "b", "c", "d"]),
    ("abc,dc->abd", ["a", "b", "c", "d"]),
    ("abc,cde->abde", ["a", "b", "c", "de"]),
    ("abc,dce->abde", ["a", "b", "c", "de"]),
    ("abc,dec->abde", ["a", "b", "c", "de"]),
    ("abcd,abde->abce", ["ab", "c", "d", "e"]),
    ("abcd,abed->abce", ["ab", "c", "d", "e"]),
    ("abcd,acbe->adbe", ["ab", "d", "c", "e"]),
    ("abcd,adbe->acbe", ["ab", "c", "d", "e"]),
    ("abcd,aecd->acbe", ["ac", "b", "d", "e"]),
    ("abcd,aecd->aceb", ["ac", "b", "d", "e"]),
    ("abcd,cde->abe", ["a", "b", "cd", "e"]),
    ("abcd,ced->abe", ["a", "b", "cd", "e"]),
    ("abcd,ecd->abe", ["a", "b", "cd", "e"]),
    ("abcde,aebf->adbcf", ["ab", "cd", "e", "f"]),
    ("abcde,afce->acdbf", ["ac", "db", "e", "f"]),
];

/// The equation with its letters in alphabetical order of their first use.
fn normalized(equation: &str) -> String {
    let mut letters = BTreeMap::new();
    let renamed = |c: char| {
        let next = ('a'..='z').nth(letters.len()).unwrap_or(c);
        if c.is_ascii_alphabetic() { *letters.entry(c).or_insert(next) } else { c }
    };
    equation.chars().filter(|c| !c.is_whitespace()).map(renamed).collect()
}

/// Axes that `...` stands for in the first operand alone: the second's gradient has them, too, and is summed over them then
/// (tensorflow/python/ops/linalg_grad.py, `_EinsumGrad`).
fn repeated(run: &mut Run<'_, '_>, left: &str, a: Wire, right: &str, b: Wire) -> Wire {
    let Some((before, after)) = left.split_once("...").filter(|_| !right.contains("...")) else { return b };
    let shape = run.shape(a);
    let rest = shape.get(before.len()..shape.len().saturating_sub(after.len())).unwrap_or_default();
    let whole = [run.shape(b), rest].concat();
    if rest.is_empty() { b } else { run.repeated_inside(b, &whole) }
}

/// `equation` of `a` and `b`, whose result has this shape.
pub(crate) fn einsum(run: &mut Run<'_, '_>, equation: &str, a: Wire, b: Wire, shape: &[u64]) -> Wire {
    let equation = normalized(equation);
    let product = PRODUCTS.iter().find(|(name, _)| run.is_keras3() && *name == equation);
    let sides = equation.split_once("->").and_then(|(both, y)| Some((both.split_once(',')?, y)));
    let (Some((_, [batch, rows, over, columns])), Some(((left, right), output))) = (product, sides) else {
        let b = sides.map_or(b, |((left, right), _)| repeated(run, left, a, right, b));
        return run.einsum(a, b, shape);
    };
    let sizes: BTreeMap<char, u64> = [(left, a), (right, b)]
        .into_iter()
        .flat_map(|(letters, x)| letters.chars().zip(run.shape(x).to_vec()))
        .collect();
    let dims = |letters: &str| letters.chars().filter_map(|c| sizes.get(&c).copied()).collect::<Vec<u64>>();
    let turned = |run: &mut Run<'_, '_>, x: Wire, from: &str, to: &str| {
        if from == to { x } else { run.moved("Transpose", x, &dims(to)) }
    };
    let viewed = |run: &mut Run<'_, '_>, x: Wire, shape: &[u64]| {
        if run.shape(x) == shape { x } else { run.view("Reshape", x, shape) }
    };
    let matrix = |batch: &str, rows: &str, columns: &str| {
        [&dims(batch)[..], &[elements(&dims(rows)), elements(&dims(columns))]].concat()
    };
    // A kernel without the batch's axes is one matrix for all of it.
    let shared = if batch.chars().all(|c| right.contains(c)) { batch } else { "" };
    let a = turned(run, a, left, &[*batch, rows, over].concat());
    let a = viewed(run, a, &matrix(batch, rows, over));
    let b = turned(run, b, right, &[shared, over, columns].concat());
    let b = viewed(run, b, &matrix(shared, over, columns));
    let name = if batch.is_empty() { "MatMul" } else { "BatchMatMulV2" };
    let y = run.matmul(name, a, b, &matrix(batch, rows, columns));
    let made = [*batch, rows, columns].concat();
    let y = viewed(run, y, &dims(&made));
    turned(run, y, &made, output)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(letters: &str) -> Vec<char> {
        let mut letters: Vec<char> = letters.chars().collect();
        letters.sort_unstable();
        letters
    }

    #[test]
    fn letters_are_named_by_their_first_use() {
        assert_eq!(normalized("aecd, abcd->acbe"), "abcd,aecd->aceb");
        assert_eq!(normalized("...x,xy->...y"), "...a,ab->...b");
    }

    #[test]
    fn the_axes_of_a_product_are_those_of_its_equation() {
        for (equation, [batch, rows, over, columns]) in PRODUCTS {
            assert_eq!(normalized(equation), *equation);
            let (both, output) = equation.split_once("->").unwrap();
            let (left, right) = both.split_once(',').unwrap();
            assert_eq!(sorted(&[*batch, rows, over].concat()), sorted(left), "{equation}");
            assert_eq!(sorted(&[*batch, rows, columns].concat()), sorted(output), "{equation}");
            let shared = if batch.chars().all(|c| right.contains(c)) { batch } else { "" };
            assert_eq!(sorted(&[shared, over, columns].concat()), sorted(right), "{equation}");
        }
    }
}
