//! Nodes that hand their input on: Identity, and a Cast to the dtype that the tensor already has.
//!
//! PyTorch runs nothing for `x.to(x.dtype)`; the exporters write a Cast. An Identity of an initializer is different:
//! the TorchScript exporter merges equal-valued initializers of a fresh model and writes one Identity for each further
//! user, so that every one of them stands for a parameter of its own.

use super::Pass;
use super::rewriter::Rewriter;
use memfit_graph::{DType, NodeId, Role};

pub(super) const PASS: Pass = Pass { name: "alias", run };

fn run(rw: &mut Rewriter<'_>, id: NodeId) -> bool {
    let (Some(from), Some(to)) = (rw.input(id, 0), rw.output(id)) else { return false };
    let alias = match rw.node(id).op.name() {
        "Identity" => true,
        "Cast" | "CastLike" => rw.dtype(to) == rw.dtype(from) && rw.dtype(to) != DType::Undefined,
        _ => false,
    };
    if !alias || rw.is_graph_output(to) {
        return false;
    }
    let own = if rw.is_stored(from) && rw.value(from).is_none() && rw.is(id, "Identity") {
        let (name, ty) = (rw.graph.tensor(to).name.to_string(), rw.ty(from).clone());
        rw.add_stored(name, ty, Role::Initializer)
    } else {
        from
    };
    rw.redirect(to, own);
    true
}
