//! RotaryEmbedding. ONNX 23 and com.microsoft.
//!
//! No kernel of PyTorch's: two slices of the input, four products with cosines and sines, a difference, a sum and a
//! `cat`, as the ONNX function body writes it. The tables have no gradient, so the products keep the tables and not the
//! input (derivatives.yaml: `mul`).

use super::calls::Traced;
use crate::{Attributes, Call, Grad, Infer, Lowering, Op, OpError, OpSpec, OutDtype, Place};
use std::sync::Arc;

/// Rotates pairs of features by an angle that depends on the position.
#[derive(Clone, Copy, Debug)]
pub struct RotaryEmbedding {
    /// The operator's name.
    pub name: &'static str,
    /// Heads of an input with three axes.
    pub heads: Option<u64>,
    /// How many features of each head are rotated; all where 0.
    pub rotated: u64,
    /// Positions of cosines and of position ids.
    pub at: [usize; 2],
}

/// How they are found.
pub const SPECS: &[OpSpec] = &[
    OpSpec {
        domain: "",
        name: "RotaryEmbedding",
        since: &[23],
        build: |a, _| build(a, "RotaryEmbedding", [1, 3]),
    },
    OpSpec {
        domain: "com.microsoft",
        name: "RotaryEmbedding",
        since: &[1],
        build: |a, _| build(a, "com.microsoft.RotaryEmbedding", [2, 1]),
    },
];

fn build(a: &mut Attributes, name: &'static str, at: [usize; 2]) -> Result<Arc<dyn Op>, OpError> {
    let count = |name| Ok::<_, OpError>(a.int(name)?.and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0));
    Ok(Arc::new(RotaryEmbedding {
        name,
        heads: count("num_heads")?,
        rotated: count("rotary_embedding_dim")?.unwrap_or(0),
        at,
    }))
}

impl Op for RotaryEmbedding {
    fn name(&self) -> &str {
        self.name
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        let x = cx.require(0)?.clone();
        cx.require(self.at[0])?;
        cx.require(self.at[0] + 1)?;
        if let Some(shape) = x.shape()
            && !matches!(shape.rank(), 3 | 4)
        {
            return Err(OpError::input(0, "three or four axes", format!("shape {shape}")));
        }
        cx.set_type(0, x);
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        let x = Traced::input(l, 0);
        // [B, S, H, D], as a view.
        let x = match x.shape[..] {
            [b, s, width] => {
                let heads = self.heads.unwrap_or(1);
                x.reshape(l, &[b, s, heads, width.checked_div(heads).unwrap_or(0)])
            }
            _ => x.transpose(l, 1, 2),
        };
        let [batch, rows, heads, size] = x.shape[..] else { return };
        let rotated = if self.rotated == 0 { size } else { self.rotated.min(size) };
        let half = [batch, rows, heads, rotated / 2];
        let [cos, sin] = [self.at[0], self.at[0] + 1].map(|i| table(l, i, &[batch, rows, 1, rotated / 2]));
        let first = x.narrow(l, 3, 0, rotated / 2);
        let second = x.narrow(l, 3, rotated / 2, rotated / 2);
        let real = (first.mul(l, &cos, &half), second.mul(l, &sin, &half));
        let real = sub(l, &real.0, &real.1);
        let imaginary = (first.mul(l, &sin, &half), second.mul(l, &cos, &half));
        let imaginary = imaginary.0.add(l, &imaginary.1, &half);
        let mut parts = vec![real, imaginary];
        if rotated < size {
            parts.push(x.narrow(l, 3, rotated, size - rotated));
        }
        let mut call = Call::new("cat");
        for part in &parts {
            call = call.input(part.operand, Grad::Narrow);
        }
        call = call.output(&x.shape, OutDtype::Promoted, Place::New);
        let y = Traced::of(l, call, &x.shape, &parts.iter().collect::<Vec<_>>());
        let y = if l.shape(0).len() == 4 { y.transpose(l, 1, 2) } else { y };
        y.bind(l, 0);
    }
}

/// The rows of a table of cosines or sines at the positions asked for.
fn table(l: &mut Lowering<'_>, i: usize, shape: &[u64]) -> Traced {
    let table = Traced::input(l, i);
    let call = Call::new("embedding").input(table.operand, Grad::None);
    Traced::of(l, call.output(shape, OutDtype::Like(0), Place::New), shape, &[])
}

fn sub(l: &mut Lowering<'_>, x: &Traced, y: &Traced) -> Traced {
    let call = Call::new("sub").input(x.operand, Grad::Pass).input(y.operand, Grad::Pointwise);
    Traced::of(l, call.output(&x.shape, OutDtype::Promoted, Place::Pointwise), &x.shape, &[x, y])
}

#[cfg(test)]
mod tests {
    use super::super::testing::{self, float, int};
    use super::*;
    use crate::Attribute;

    #[test]
    fn halves_are_rotated_and_joined() {
        let inputs = [float(&[2, 4, 3, 8]), float(&[50, 2]), float(&[50, 2]), int(0)];
        let attributes = Attributes::from([("rotary_embedding_dim", Attribute::Int(4))]);
        let calls = testing::calls("RotaryEmbedding", 23, attributes, &inputs, 1);
        let cat = calls.iter().find(|c| c.function == "cat").unwrap();
        assert_eq!((cat.inputs.len(), &cat.outputs[0].shape[..]), (3, &[2, 3, 4, 8][..]));
        assert_eq!(calls.iter().filter(|c| c.function == "mul").count(), 4);
    }
}
