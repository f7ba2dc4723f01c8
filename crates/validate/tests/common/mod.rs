//! One step of a program, as several tests run it.

use memfit_engine::frameworks::burn::{Prim, Program};
use memfit_validate::backends::{Backend, run};
use memfit_validate::measure::Run;
use memfit_validate::record::Ended;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

/// Chance off: masks keep everything.
pub(crate) fn keep_everything(program: &mut Program) {
    for instr in &mut program.instrs {
        if matches!(instr.prim, Prim::Bernoulli(_)) {
            instr.prim = Prim::Full(1.0);
        }
    }
}

/// The gradient of each parameter by its name.
pub(crate) type Gradients = BTreeMap<String, Vec<f32>>;

/// The loss and the gradients; else why the step ended.
pub(crate) fn step(backend: Backend, program: &Program) -> Result<(f64, Gradients), Option<Ended>> {
    let found = RefCell::new(BTreeMap::new());
    let see =
        |name: &str, gradient: &[f32]| drop(found.borrow_mut().insert(name.to_owned(), gradient.to_vec()));
    let interrupted = AtomicBool::new(false);
    let asked = Run { program, steps: 1, interrupted: &interrupted, limit: None, gradients: Some(&see) };
    let measured = run(backend, asked, &mut |_, _| {});
    match (measured.losses.first(), measured.ended) {
        (Some(loss), None) => Ok((*loss, found.into_inner())),
        (_, ended) => Err(ended),
    }
}
