//! Weights that a file makes with `ConstantOfShape` instead of storing them.
//!
//! Test models are published so, for their size: every weight is a `ConstantOfShape` of a stored shape. To training they are
//! parameters like any other.

use crate::ops::constant_of_shape::ConstantOfShape;
use crate::{Graph, Node, Role, Shape, TensorId, Type};

impl Graph {
    /// Turns generated weights into stored ones; how many there were. A file generates its weights where a layer's weight comes
    /// from such a node: a lone `zeros` (the state that a recurrent layer begins with) is none.
    pub fn store_generated_weights(&mut self) -> usize {
        let generated: Vec<Option<(TensorId, Type)>> = self.nodes.iter().map(|n| self.generated(n)).collect();
        let mut made = vec![false; self.tensors.len()];
        generated.iter().flatten().for_each(|(id, _)| made[id.index()] = true);
        let feeds = |n: &Node| {
            let layer = matches!(n.op.name(), "Conv" | "ConvTranspose" | "Gemm" | "BatchNormalization");
            layer && n.inputs.iter().skip(1).flatten().any(|id| made[id.index()])
        };
        if !self.nodes.iter().any(feeds) {
            return 0;
        }
        for (id, ty) in generated.iter().flatten() {
            let tensor = &mut self.tensors[id.index()];
            (tensor.role, tensor.declared) = (Role::Initializer, ty.clone());
        }
        let count = generated.iter().flatten().count();
        let mut kept = generated.iter().map(Option::is_none);
        self.nodes.retain(|_| kept.next().unwrap_or(true));
        count
    }

    /// What a node makes from nothing but a shape that is stored in the file.
    fn generated(&self, node: &Node) -> Option<(TensorId, Type)> {
        let op = node.op.downcast::<ConstantOfShape>().filter(|op| op.dtype.is_float())?;
        let stored = |id: &TensorId| matches!(self.tensor(*id).role, Role::Initializer | Role::Constant);
        let shape = node.inputs.first().copied().flatten().filter(stored)?;
        let dims = self.tensor(shape).value.as_ref()?.ints()?;
        let dims = dims.into_iter().map(u64::try_from).collect::<Result<Shape, _>>().ok()?;
        Some((node.outputs.first().copied().flatten()?, Type::tensor(op.dtype, dims)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attributes, Binding, DType, Value, infer};

    fn graph(layer: &str) -> Graph {
        let mut g = Graph::default();
        let x = g.add_tensor("x", Type::tensor(DType::Float32, Shape::from([2, 3])), Role::Input);
        g.inputs = vec![x];
        let shape = g.add_constant("shape", Value::vector(DType::Int64, [3, 5]));
        let w = g.push("ConstantOfShape", Attributes::default(), &[shape], "w").unwrap();
        let y = g.push(layer, Attributes::default(), &[x, w], "y").unwrap();
        g.outputs = vec![y];
        g
    }

    #[test]
    fn a_layer_s_generated_weight_is_stored() {
        let mut g = graph("Gemm");
        assert_eq!(g.store_generated_weights(), 1);
        assert_eq!((g.nodes.len(), g.tensor(g.find("w").unwrap()).role), (1, Role::Initializer));
        assert_eq!(infer(&g, &Binding::default()).unwrap().shape(g.outputs[0]), Some(&Shape::from([2, 5])));
    }

    #[test]
    fn zeros_elsewhere_are_left() {
        assert_eq!(graph("MatMul").store_generated_weights(), 0);
    }
}
