//! Scan. ONNX 8 (a batch axis before all others), 9 (axes of one's own), 11, 16, 19, 21, 23, 24, 25.

use super::bodies::{self, Typed};
use crate::{Dim, Graph, Infer, Lowering, Op, OpError, OpSpec, Shape, TensorType, Type};
use std::sync::Arc;

/// Runs a body over slices of its scan inputs, with state; further outputs of the body are stacked.
#[derive(Clone, Debug)]
pub struct Scan {
    /// Inputs: state, slices. Outputs: state, slices.
    pub body: Graph,
    /// How many inputs are scanned; those before them are state.
    pub scanned: usize,
    /// The axis of each scanned input.
    pub input_axes: Vec<i64>,
    /// The axis along which each scan output is stacked.
    pub output_axes: Vec<i64>,
    /// For each scanned input, 1 where it is read from its end.
    pub input_directions: Vec<i64>,
    /// For each scan output, 1 where it is written from its end.
    pub output_directions: Vec<i64>,
    /// Whether it is opset 8: input 0 is the sequence lengths, axis 0 the batch, axis 1 the sequence.
    pub batched: bool,
}

/// How Scan is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "Scan",
    since: &[8, 9, 11, 16, 19, 21, 23, 24, 25],
    build: |a, version| {
        let body = a.take_graph("body")?.ok_or_else(|| OpError::missing_attribute("body"))?;
        let scanned =
            a.int("num_scan_inputs")?.ok_or_else(|| OpError::missing_attribute("num_scan_inputs"))?;
        let negative = || OpError::attribute("num_scan_inputs", "a count", scanned.to_string());
        let input_directions = if version < 9 { "directions" } else { "scan_input_directions" };
        Ok(Arc::new(Scan {
            body,
            input_directions: a.ints(input_directions)?.unwrap_or_default(),
            output_directions: a.ints("scan_output_directions")?.unwrap_or_default(),
            scanned: usize::try_from(scanned).map_err(|_| negative())?,
            input_axes: a.ints("scan_input_axes")?.unwrap_or_default(),
            output_axes: a.ints("scan_output_axes")?.unwrap_or_default(),
            batched: version < 9,
        }))
    },
}];

impl Scan {
    /// The type of one slice, and the length and batch that were taken away.
    fn slice(&self, ty: &Type, k: usize) -> Result<(Typed, Option<Dim>, Option<Dim>), OpError> {
        let Some(TensorType { dtype, shape: Some(shape) }) = ty.as_tensor() else {
            return Ok(((ty.clone(), None), None, None));
        };
        let axis = if self.batched { 1 } else { self.input_axes.get(k).copied().unwrap_or(0) };
        let at = shape.axis(axis).ok_or_else(|| {
            OpError::mismatch(format!("a scanned input that has axis {axis}"), format!("shape {shape}"))
        })?;
        let mut shape = shape.clone();
        let length = shape.remove(at);
        let batch = self.batched.then(|| shape.remove(0));
        Ok(((Type::tensor(*dtype, shape), None), Some(length), batch))
    }

    /// `element` with the length put in, and the batch before it.
    fn stacked(&self, element: &Type, k: usize, length: &Dim, batch: Option<&Dim>) -> Result<Type, OpError> {
        let Some(TensorType { dtype, shape: Some(shape) }) = element.as_tensor() else {
            return Ok(element.clone());
        };
        let mut shape: Shape = shape.clone();
        let axis = self.output_axes.get(k).copied().unwrap_or(0);
        let rank = shape.rank();
        let at = crate::shape::normalize_axis(axis, rank + 1).ok_or_else(|| {
            OpError::attribute("scan_output_axes", format!("axes of {}", rank + 1), axis.to_string())
        })?;
        shape.insert(at, length.clone());
        if let Some(batch) = batch {
            shape.insert(0, batch.clone());
        }
        Ok(Type::tensor(*dtype, shape))
    }
}

impl Op for Scan {
    fn name(&self) -> &str {
        "Scan"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        let first = usize::from(self.batched);
        let states = cx.input_count().saturating_sub(first + self.scanned);
        if self.body.inputs.len() != states + self.scanned || self.body.outputs.len() < states {
            let found = format!("{} inputs and {} outputs", self.body.inputs.len(), self.body.outputs.len());
            return Err(OpError::mismatch(format!("a body for {states} states"), found));
        }
        let (mut slices, mut length, mut batch) = (Vec::new(), None, None);
        for k in 0..self.scanned {
            let (slice, own_length, own_batch) = self.slice(cx.ty(first + states + k), k)?;
            if let (Some(a), Some(b)) =
                (length.as_ref().and_then(Dim::known), own_length.as_ref().and_then(Dim::known))
                && a != b
            {
                return Err(OpError::mismatch(format!("{a} slices of each scanned input"), b));
            }
            slices.push(slice);
            length = own_length.or(length);
            batch = own_batch.or(batch);
        }
        let mut initial: Vec<Typed> = (0..states).map(|k| bodies::typed(cx, first + k)).collect();
        if self.batched {
            for (ty, value) in &mut initial {
                *value = None;
                if let Type::Tensor(TensorType { shape: Some(shape), .. }) = ty
                    && shape.rank() > 0
                {
                    batch = Some(shape.remove(0));
                }
            }
        }
        let step = |state: &[Typed]| [state.to_vec(), slices.clone()].concat();
        let (state, outputs) = bodies::stable(cx, &self.body, initial, 0, step)?;
        let length = length.unwrap_or_else(|| cx.fresh_dim("length", None));
        for (k, (ty, value)) in state.into_iter().enumerate() {
            match (&batch, value) {
                (Some(batch), _) => cx.set_type(k, bodies::stacked(batch.clone(), &ty)),
                (None, Some(value)) => cx.set_value(k, value),
                (None, None) => cx.set_type(k, ty),
            }
        }
        for (k, (element, _)) in outputs.iter().skip(states).enumerate() {
            cx.set_type(states + k, self.stacked(element, k, &length, batch.as_ref())?);
        }
        Ok(())
    }

    fn pytorch(&self, l: &mut Lowering<'_>) {
        bodies::lower(l, "scan");
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{In, float, run};
    use super::*;
    use crate::{Attribute, Attributes, Role};

    /// The state plus each slice, handed out twice.
    fn sum(axes: [i64; 2]) -> Attributes {
        let mut g = Graph::default();
        for name in ["state", "slice"] {
            let id = g.add_tensor(name, Type::Unknown, Role::Input);
            g.inputs.push(id);
        }
        let y = g.push("Add", Attributes::default(), &g.inputs.clone(), "y").unwrap();
        g.outputs = vec![y, y];
        Attributes::from([
            ("body", Attribute::Graph(Box::new(g))),
            ("num_scan_inputs", Attribute::Int(1)),
            ("scan_input_axes", Attribute::Ints(vec![axes[0]])),
            ("scan_output_axes", Attribute::Ints(vec![axes[1]])),
        ])
    }

    #[test]
    fn slices_are_taken_and_stacked() {
        let shapes = |version, a, inputs: &[In]| -> Vec<String> {
            let out = run("Scan", version, a, inputs, 2).unwrap();
            out.iter().map(|(ty, _)| ty.shape().unwrap().to_string()).collect()
        };
        assert_eq!(shapes(9, sum([0, 0]), &[float(&[2]), float(&[3, 2])]), ["2", "3x2"]);
        assert_eq!(shapes(9, sum([-1, 1]), &[float(&[2]), float(&[2, 3])]), ["2", "2x3"]);
        // The state is broadcast by the first slice, so its size is not that of the beginning.
        assert_eq!(shapes(9, sum([0, 0]), &[float(&[1]), float(&[3, 2])])[1], "3x2");
        let batched = [In::Absent, float(&[4, 2]), float(&[4, 3, 2])];
        assert_eq!(shapes(8, sum([0, 0]), &batched), ["4x2", "4x3x2"]);
    }
}
