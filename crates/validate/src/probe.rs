//! A function that does nothing, and is seen when autodiff passes it.
//!
//! Burn runs its whole backward pass in one call. So that memory can be read between two functions of it, each output of forward
//! goes through this identity: its own step in backward reads the meter and hands the gradient on. It holds no tensor.

use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::retro_forward::RetroForward;
use burn_autodiff::checkpoint::state::BackwardStates;
use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind, unary};
use burn_autodiff::{Autodiff, NodeId};
use burn_backend::Backend;
use burn_backend::tensor::FloatTensor;
use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;

/// Is told the number of a call.
pub(crate) type Observer = Option<Box<dyn FnMut(u32)>>;

thread_local! {
    static OBSERVER: RefCell<Observer> = const { RefCell::new(None) };
}

/// Calls `observer` with the call's number whenever backward passes it, until another is set.
pub(crate) fn observe(observer: Observer) {
    OBSERVER.with_borrow_mut(|slot| *slot = observer);
}

#[derive(Debug)]
struct Probe;

impl<B: Backend> Backward<B, 1> for Probe {
    type State = u32;

    fn backward(self, ops: Ops<u32, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let call = ops.state;
        OBSERVER.with_borrow_mut(|observer| {
            if let Some(observer) = observer {
                observer(call);
            }
        });
        unary::<B, _>(ops.parents, ops.node, grads, |grad| grad);
    }
}

/// Made again as what it is the identity of.
#[derive(Debug)]
struct Again<B> {
    input: NodeId,
    backend: PhantomData<B>,
}

impl<B: Backend> RetroForward for Again<B> {
    fn forward(&self, states: &mut BackwardStates, output: NodeId) {
        let x = states.get_state::<B::FloatTensorPrimitive>(&self.input);
        states.save(output, x);
    }
}

/// Whether a node's output is made again in backward. Autodiff's type for that cannot be named from outside, but it is told by its
/// name, the first that it writes.
fn is_made_again(properties: &impl fmt::Debug) -> bool {
    struct First(bool);
    impl fmt::Write for First {
        fn write_str(&mut self, name: &str) -> fmt::Result {
            self.0 = name == "MemoryBound";
            Err(fmt::Error)
        }
    }
    let mut first = First(false);
    // Ends after the name: all else may be the elements of a tensor.
    let _ = fmt::write(&mut first, format_args!("{properties:?}"));
    first.0
}

/// The tensor itself, seen in backward as call number `call`. It is kept, or made again, as its input is.
pub(crate) fn probe<B: Backend, C: CheckpointStrategy>(
    tensor: FloatTensor<Autodiff<B, C>>,
    call: u32,
) -> FloatTensor<Autodiff<B, C>> {
    if tensor.node.order == 0 {
        // No function's output, so that it has no place in the order of backward.
        return tensor;
    }
    let prepared = Probe.prepare::<C>([tensor.node.clone()]);
    let prepared = if is_made_again(&tensor.node.properties) {
        let again = Again::<B> { input: tensor.node.id, backend: PhantomData };
        prepared.memory_bound().retro_forward(again).parents([&tensor])
    } else {
        prepared.compute_bound()
    };
    match prepared.stateful() {
        OpsKind::Tracked(prep) => prep.finish(call, tensor.primitive),
        OpsKind::UnTracked(prep) => prep.finish(tensor.primitive),
    }
}
