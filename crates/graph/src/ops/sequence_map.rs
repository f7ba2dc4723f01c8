//! SequenceMap. ONNX 17.

use super::sequence;
use crate::{Graph, Infer, Op, OpError, OpSpec, Type, Value};
use std::sync::Arc;

/// Runs a body on each item of a sequence; further inputs are sequences walked with it, or tensors that stay.
#[derive(Clone, Debug)]
pub struct SequenceMap {
    /// Inputs: an item of each sequence, each tensor. Outputs: an item of each result.
    pub body: Graph,
}

/// How SequenceMap is found.
pub const SPECS: &[OpSpec] = &[OpSpec {
    domain: "",
    name: "SequenceMap",
    since: &[17],
    build: |a, _| {
        let body = a.take_graph("body")?.ok_or_else(|| OpError::missing_attribute("body"))?;
        Ok(Arc::new(SequenceMap { body }))
    },
}];

impl SequenceMap {
    /// The outputs for item `k`, or for what all items share.
    fn item(&self, cx: &Infer<'_>, k: Option<usize>) -> Result<Vec<Type>, OpError> {
        let of_item = |ty: &Type| match (ty, k) {
            (Type::Sequence { items: Some(items), .. }, Some(k)) => items.get(k).cloned().ok_or_else(|| {
                OpError::mismatch("sequences of one length", format!("one of {}", items.len()))
            }),
            (Type::Sequence { element, .. }, _) => Ok((**element).clone()),
            (ty, _) => Ok(ty.clone()),
        };
        let inputs = (0..cx.input_count()).map(|i| {
            let value = cx.value(i).cloned().filter(|_| i > 0);
            Ok((of_item(cx.ty(i))?, value))
        });
        let inputs: Vec<(Type, Option<Value>)> = inputs.collect::<Result<_, OpError>>()?;
        Ok(cx.body(&self.body, &inputs)?.into_iter().map(|(ty, _)| ty).collect())
    }
}

impl Op for SequenceMap {
    fn name(&self) -> &str {
        "SequenceMap"
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        let (_, items) = sequence::input(cx, 0)?;
        let count = items.map(Vec::len).filter(|n| *n > 0 && cx.affords(&self.body, *n as u64));
        let Some(count) = count else {
            for (j, element) in self.item(cx, None)?.into_iter().enumerate() {
                let items = items.map(|items| vec![element.clone(); items.len()]);
                cx.set_type(j, Type::Sequence { element: Box::new(element), items });
            }
            return Ok(());
        };
        let mut outputs = vec![Vec::with_capacity(count); self.body.outputs.len()];
        for k in 0..count {
            outputs.iter_mut().zip(self.item(cx, Some(k))?).for_each(|(list, ty)| list.push(ty));
        }
        outputs.into_iter().enumerate().for_each(|(j, list)| cx.set_type(j, Type::sequence(list)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{In, float, run};
    use super::*;
    use crate::{Attribute, Attributes, DType, Role, Shape};

    #[test]
    fn each_item_runs_the_body() {
        let mut g = Graph::default();
        for name in ["item", "same"] {
            let id = g.add_tensor(name, Type::Unknown, Role::Input);
            g.inputs.push(id);
        }
        let y = g.push("Add", Attributes::default(), &g.inputs.clone(), "y").unwrap();
        g.outputs = vec![y];
        let a = Attributes::from([("body", Attribute::Graph(Box::new(g)))]);
        let list = |dims: &[&[u64]]| {
            Type::sequence(dims.iter().map(|d| Type::tensor(DType::Float32, Shape::from(*d))).collect())
        };
        let inputs = [In::Typed(list(&[&[1], &[2, 1]])), float(&[3])];
        assert_eq!(run("SequenceMap", 17, a.clone(), &inputs, 1).unwrap()[0].0, list(&[&[3], &[2, 3]]));
        let uneven = [In::Typed(list(&[&[1], &[1]])), In::Typed(list(&[&[1]]))];
        assert!(run("SequenceMap", 17, a, &uneven, 1).is_err());
    }
}
