//! What an autograd node's function gives for each of its inputs: a new tensor, or a view of the gradient that came in.
//!
//! Source: torch/csrc/autograd/engine.cpp (2.15), `validate_outputs`, for what becomes of a gradient of another shape or dtype.

use super::layouts::Layout;
use super::record::{Node, NodeInput, Way};
use super::strides::Dims;
use super::tape::{Meta, Tape};
use crate::{Category, StorageId};
use memfit_graph::{DType, Grad};
use smallvec::SmallVec;

/// A gradient on its way; it holds its storage once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gradient {
    pub(super) storage: StorageId,
    pub(super) layout: Layout,
    pub(super) dtype: DType,
}

impl Tape {
    /// What the node's function returns for an input, before the engine validates it.
    pub(super) fn gradient(
        &mut self,
        node: &Node,
        input: &NodeInput,
        first: &Gradient,
        incoming: &[Option<Gradient>],
        scratch: &mut SmallVec<[StorageId; 2]>,
    ) -> Gradient {
        let meta = &input.meta;
        match input.grad {
            Grad::None | Grad::New => self.fresh(node, meta.layout, meta.dtype),
            Grad::Like => {
                let layout = self.layouts.like(meta.layout);
                self.made(node, layout, meta.dtype)
            }
            Grad::Pointwise => {
                let dtype = if node.function == "_to_copy" { meta.dtype } else { first.dtype };
                let layout = self.layouts.like(first.layout);
                self.made(node, layout, dtype)
            }
            Grad::Pass => self.shared(first, first.layout),
            Grad::Narrow => {
                let layout = self.layouts.joined(meta.layout, first.layout);
                self.shared(first, layout)
            }
            Grad::Expand => {
                let layout = self.layouts.expanded(first.layout, meta.layout);
                self.shared(first, layout)
            }
            Grad::Unview if node.outputs.range().len() > 1 => {
                // The gradient of a split joins its parts; a part without one is made of zeros.
                for (j, at) in node.outputs.range().enumerate() {
                    if incoming.get(j).is_none_or(Option::is_none) {
                        let out = self.outputs[at];
                        scratch.push(self.new_storage(out.layout, out.dtype, Category::Transient, "zeros"));
                    }
                }
                self.fresh(node, meta.layout, first.dtype)
            }
            Grad::Unview => match node.way {
                Way::Permute(order) if order.range().len() == self.layouts.shape(first.layout).len() => {
                    let old = Dims::from_slice(self.layouts.strides(first.layout));
                    let mut strides = old.clone();
                    for (k, from) in self.orders[order.range()].iter().enumerate() {
                        if let Some(slot) = strides.get_mut(*from) {
                            *slot = old[k];
                        }
                    }
                    let shape = Dims::from_slice(self.layouts.shape(meta.layout));
                    let layout = self.layouts.add(&shape, &strides);
                    self.shared(first, layout)
                }
                Way::Slice if !self.layouts.same_shape(meta.layout, first.layout) => {
                    self.fresh(node, meta.layout, first.dtype)
                }
                Way::Reshape => match self.layouts.viewed(first.layout, meta.layout) {
                    Some(layout) => self.shared(first, layout),
                    None => self.fresh(node, meta.layout, first.dtype),
                },
                // An expand's gradient is summed when it is validated.
                _ => self.shared(first, first.layout),
            },
        }
    }

    /// A new row-major tensor of the dims of a layout.
    fn fresh(&mut self, node: &Node, of: Layout, dtype: DType) -> Gradient {
        let layout = self.layouts.made_contiguous(of);
        self.made(node, layout, dtype)
    }

    fn made(&mut self, node: &Node, layout: Layout, dtype: DType) -> Gradient {
        let storage = self.new_storage(layout, dtype, Category::ActivationGradient, node.function);
        Gradient { storage, layout, dtype }
    }

    fn shared(&mut self, of: &Gradient, layout: Layout) -> Gradient {
        self.memory.hold(of.storage);
        Gradient { layout, ..*of }
    }

    /// `validate_outputs`: summed to the input's shape and cast to its dtype where they differ.
    pub(super) fn validated(&mut self, mut g: Gradient, meta: &Meta) -> Gradient {
        if !self.layouts.same_shape(g.layout, meta.layout) {
            let layout = self.layouts.made_contiguous(meta.layout);
            if self.layouts.elements(g.layout) != self.layouts.elements(meta.layout) {
                let summed = self.new_storage(layout, g.dtype, Category::ActivationGradient, "sum_to_size");
                self.memory.release(g.storage);
                g.storage = summed;
            }
            g.layout = layout;
        }
        if g.dtype != meta.dtype && meta.dtype.is_float() {
            let layout = self.layouts.like(g.layout);
            let storage = self.new_storage(g.layout, meta.dtype, Category::ActivationGradient, "_to_copy");
            self.memory.release(g.storage);
            g = Gradient { storage, layout, dtype: meta.dtype };
        }
        g
    }
}
