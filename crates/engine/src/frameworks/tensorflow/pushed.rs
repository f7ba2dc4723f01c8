//! Grappler moves a constant factor down to one of the factors that it multiplies.
//!
//! `(a b) c` with a constant `c` becomes `b (c a)`, where `a` is the first of the two by name, provided that nobody else reads `a b`
//! (grappler/optimizers/constant_folding.cc, `ConstantPushDown`; not in half precision). The gradient of `0.5 x erfc(…)` is such
//! a product: `c a` needs a buffer of its own where `a` is read once more.

use super::Flow;
use super::names::Names;
use memfit_graph::DType;
use memfit_graph::kernels::{Effect, Kernel, Made, Place, Stage, Wire};

/// A product, and the product of it with a constant.
struct Chain {
    outer: usize,
    inner: usize,
    /// The factor that takes the constant, and the other.
    factors: [Wire; 2],
}

/// Moves constant factors down, but for products that are kept.
pub(super) fn push_down(flow: &mut Flow, names: &Names<'_>, kept: &[Wire]) {
    let mut readers = vec![0_u32; flow.kernels.len()];
    let inputs = flow.kernels.iter().flat_map(|kernel| &kernel.inputs);
    inputs.chain(kept).for_each(|wire| readers[wire.kernel as usize] += 1);
    let chains: Vec<Chain> =
        (0..flow.kernels.len()).filter_map(|outer| chain(flow, names, &readers, outer)).collect();
    for Chain { outer, inner, factors: [first, second] } in chains {
        let scaled = Made { place: Place::Reuse, ..flow.made(first).clone() };
        flow.kernels[inner].inputs = vec![first];
        flow.kernels[inner].outputs = vec![scaled];
        flow.kernels[outer].inputs.push(second);
    }
}

fn chain(flow: &Flow, names: &Names<'_>, readers: &[u32], outer: usize) -> Option<Chain> {
    let is_product = |kernel: &Kernel, factors: usize| {
        kernel.name == "Mul"
            && kernel.inputs.len() == factors
            && kernel.effect == Effect::None
            && kernel.stage != Stage::Update
            && kernel.outputs.iter().all(|made| made.dtype == DType::Float32)
    };
    let kernel = flow.kernels.get(outer).filter(|kernel| is_product(kernel, 1))?;
    let inner = kernel.inputs.first()?.kernel as usize;
    let product = flow.kernels.get(inner).filter(|product| is_product(product, 2) && readers[inner] == 1)?;
    let [a, b] = product.inputs[..] else { return None };
    if [a, b].iter().any(|wire| flow.made(*wire).place == Place::Host) {
        return None;
    }
    let factors = if names.compare(flow, a.kernel, b.kernel).is_le() { [a, b] } else { [b, a] };
    Some(Chain { outer, inner, factors })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pushed(flow: &mut Flow, kept: &[Wire]) {
        let names = Names::of(flow, "m", &[]);
        push_down(flow, &names, kept);
    }

    #[test]
    fn the_first_by_name_takes_the_constant() {
        let mut flow = Flow::default();
        let variable = flow.variable(&[4], DType::Float32, true);
        let x = flow.read(variable);
        flow.scope = "b";
        let b = flow.unary("Exp", x);
        flow.scope = "a";
        let a = flow.unary("Exp", x);
        let product = flow.binary("Mul", b, a);
        let outer = flow.scaled("Mul", product);
        pushed(&mut flow, &[]);
        assert_eq!(flow.kernel(product).inputs, [a]);
        assert_eq!(flow.kernel(outer).inputs, [product, b]);
        // A product that somebody else reads, or that is kept, stays.
        let product = flow.binary("Mul", b, a);
        flow.scaled("Mul", product);
        flow.unary("Exp", product);
        pushed(&mut flow, &[]);
        assert_eq!(flow.kernel(product).inputs, [b, a]);
        let product = flow.binary("Mul", b, a);
        flow.scaled("Mul", product);
        pushed(&mut flow, &[product]);
        assert_eq!(flow.kernel(product).inputs, [b, a]);
    }
}
