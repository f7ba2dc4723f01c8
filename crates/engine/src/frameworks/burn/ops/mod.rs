//! How each operator of the graph is written in Burn's primitives. One file a family, in one ordered list.
//!
//! Where `burn-nn` 0.21 has a module for it, the calls are that module's in its order. Scalars that the graph does not carry
//! (an epsilon, a slope) are the frameworks' defaults: they change values, not memory.

mod activation;
mod attention;
mod convolution;
mod dropout;
mod elementwise;
mod indexing;
mod layout;
mod mask;
mod norm;
mod pool;
mod product;
mod recurrent;
mod reduce;
mod resize;
mod scatter;
mod sort;

use super::builder::Refusal;
use super::lower::Lower;

/// Writes one operator.
pub(super) type Rule = fn(&mut Lower<'_, '_>) -> Result<(), Refusal>;

/// Operators of one family, by name.
pub(super) struct Family {
    names: &'static [&'static str],
    rule: Rule,
}

/// Every family, in alphabetical order of its file.
static ALL: &[&[Family]] = &[
    activation::FAMILIES,
    attention::FAMILIES,
    convolution::FAMILIES,
    dropout::FAMILIES,
    elementwise::FAMILIES,
    indexing::FAMILIES,
    layout::FAMILIES,
    mask::FAMILIES,
    norm::FAMILIES,
    pool::FAMILIES,
    product::FAMILIES,
    recurrent::FAMILIES,
    reduce::FAMILIES,
    resize::FAMILIES,
    scatter::FAMILIES,
    sort::FAMILIES,
];

/// The rule of an operator.
pub(super) fn find(name: &str) -> Option<Rule> {
    ALL.iter().copied().flatten().find(|family| family.names.contains(&name)).map(|family| family.rule)
}

/// The names of all operators that can be run.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().copied().flatten().flat_map(|family| family.names.iter().copied())
}

#[cfg(test)]
mod tests {
    use crate::frameworks::burn::{Backend, program, step};
    use crate::{Framework, Loss, Plan};
    use memfit_graph::{Attributes, Binding, DType, Graph, Inferred, Role, Shape, Type, infer};

    #[test]
    fn no_operator_has_two_rules() {
        let mut names: Vec<_> = super::names().collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    /// One operator on an input and weights of these shapes, where shapes can be told.
    fn of_one(name: &str, dtype: DType, shapes: &[&[u64]]) -> Option<(Graph, Inferred)> {
        let mut g = Graph::default();
        for (i, shape) in shapes.iter().enumerate() {
            let role = if i == 0 { Role::Input } else { Role::Initializer };
            let id = g.add_tensor(format!("x{i}"), Type::tensor(dtype, Shape::from(*shape)), role);
            if i == 0 {
                g.inputs.push(id);
            }
        }
        let inputs: Vec<_> = (0..shapes.len()).filter_map(|i| g.find(&format!("x{i}"))).collect();
        let y = g.push(name, Attributes::default(), &inputs, "y").ok()?;
        g.outputs = vec![y];
        let inferred = infer(&g, &Binding::default()).ok()?;
        Some((g, inferred))
    }

    fn written(name: &str, dtype: DType, shapes: &[&[u64]]) -> Option<Result<(), String>> {
        let (g, inferred) = of_one(name, dtype, shapes)?;
        let plan =
            Plan { framework: Framework::Burn, optimizer: "sgd".into(), loss: Loss::None, ..Plan::default() };
        let written = program(&g, &inferred, &plan).map_err(|problems| problems[0].message.clone());
        Some(written.map(|program| drop(step(&program, Backend::CUDA))))
    }

    #[test]
    fn no_rank_makes_an_operator_panic() {
        let (mut tried, mut run) = (0, 0);
        let dims = [2_u64; 4];
        for name in super::names() {
            for (dtype, most) in [(DType::Float32, 4), (DType::Int64, 2)] {
                for (count, rank, last) in
                    (1..=most).flat_map(|c| (0..=4).flat_map(move |r| (0..=4).map(move |l| (c, r, l))))
                {
                    let mut shapes = vec![&dims[..rank]; count];
                    shapes[count - 1] = &dims[..last];
                    let made = written(name, dtype, &shapes);
                    tried += usize::from(made.is_some());
                    run += usize::from(made.is_some_and(|made| made.is_ok()));
                }
            }
        }
        assert!(tried > 1000 && run > 500, "{tried} {run}");
    }

    #[test]
    fn recurrences_of_broken_shapes_are_refused() {
        let shapes =
            |x: &'static [u64], bias: &'static [u64]| [x, &[1, 16, 8], &[1, 16, 4], bias].map(|shape| shape);
        let of = |x, bias| written("LSTM", DType::Float32, &shapes(x, bias));
        assert_eq!(of(&[3, 2, 8], &[1, 32]), Some(Ok(())));
        for (x, bias) in [(&[0, 2, 8][..], &[1, 32][..]), (&[3, 2, 8], &[32]), (&[3, 2, 8], &[1, 7])] {
            assert!(of(x, bias).is_none_or(|made| made.is_err()), "{x:?} {bias:?}");
        }
    }
}
