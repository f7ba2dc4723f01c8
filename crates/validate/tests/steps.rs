//! Steps that end early, or that never begin.
#![cfg(feature = "cpu")]
#![allow(clippy::unwrap_used)]

use memfit_engine::frameworks::burn::{Kind, Program, program};
use memfit_engine::{Checkpoint, Framework, Model, Plan, Precision};
use memfit_graph::{Binding, Bytes, Problem, infer};
use memfit_validate::backends::{Backend, run};
use memfit_validate::measure::Run;
use memfit_validate::measurement::Measurement;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

fn lenet(plan: &Plan) -> Result<Program, Vec<Problem>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/lenet.ts_train.onnx");
    let model = memfit_onnx::import_from(std::fs::File::open(path).unwrap()).unwrap();
    let model = Model::new(model.graph, "lenet", "onnx", model.operators);
    let graph = model.recomposed(plan);
    program(graph, &infer(graph, &Binding { batch: Some(2), ..Binding::default() }).unwrap(), plan)
}

fn plan() -> Plan {
    Plan { framework: Framework::Burn, optimizer: "sgd".into(), ..Plan::default() }
}

/// What panics on any thread ends a measurement: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Five steps, or fewer where `limit` or a Ctrl-C after step `end` ends them.
fn steps(limit: Option<Bytes>, end: u32) -> Measurement {
    steps_of(&plan(), limit, end)
}

fn steps_of(plan: &Plan, limit: Option<Bytes>, end: u32) -> Measurement {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (program, interrupted) = (lenet(plan).unwrap(), AtomicBool::new(false));
    let asked = Run { program: &program, steps: 5, interrupted: &interrupted, limit, gradients: None };
    let mut progress = |step: u32, _: Bytes| interrupted.store(step == end, Ordering::Relaxed);
    run(Backend::Cpu, asked, &mut progress)
}

#[test]
fn ctrl_c_ends_after_the_step_that_runs_and_what_was_measured_stays() {
    let measured = steps(None, 2);
    let ended = measured.ended.unwrap();
    assert_eq!((&*ended.kind, &*ended.message), ("interrupted", "ended by the user"));
    assert_eq!((measured.steps, measured.losses.len(), measured.after_steps.len()), (2, 2, 2));
    assert!(measured.phases.iter().all(|phase| *phase > Bytes::ZERO));
}

#[test]
fn more_than_is_allowed_is_out_of_memory_where_it_was_asked_for() {
    let ended = steps(Some(Bytes(1)), 0).ended.unwrap();
    assert_eq!(ended.kind, "out-of-memory");
    assert!(ended.message.contains("more than the 1 B that were allowed"), "{}", ended.message);
}

/// The gradients of one batch are there while the next goes forward, and their sum with its own takes no more. The processor also counts what
/// is no tensor.
#[test]
fn batches_before_an_update_add_up_in_the_first_ones_gradients() {
    let forward = |accumulate| {
        let plan = Plan { accumulate, ..plan() };
        let measured = steps_of(&plan, None, 2);
        assert_eq!((measured.steps, measured.losses.len()), (2, 2));
        (measured.phases[0], lenet(&plan).unwrap())
    };
    let [(one, program), (three, _)] = [1, 3].map(forward);
    let gradients: usize = program.parameters().map(|p| program.ty(p.slot).elements() * 4).sum();
    let more = three.0.saturating_sub(one.0) as f64 / gradients as f64;
    assert!((0.8..1.1).contains(&more), "{more}");
}

/// What is made again is what it was, so that no number changes; forward holds less.
#[test]
fn balanced_checkpointing_keeps_less_and_computes_the_same() {
    let [without, with] = [Checkpoint::None, Checkpoint::Balanced]
        .map(|checkpoint| steps_of(&Plan { checkpoint, ..plan() }, None, 2));
    assert_eq!((with.steps, &with.losses), (2, &without.losses));
    assert!(with.phases[0] < without.phases[0], "{:?} {:?}", with.phases, without.phases);
}

#[test]
fn what_of_a_plan_burn_does_not_run_is_refused_before_anything_is_made() {
    let plans = [
        ("--master-weights", Plan { precision: Precision::Bf16, master_weights: true, ..plan() }),
        ("--checkpoint", Plan { checkpoint: Checkpoint::Full, ..plan() }),
    ];
    for (flag, plan) in plans {
        let problems = lenet(&plan).unwrap_err();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].to_string().contains(flag), "{}", problems[0]);
    }
}

/// Burn refuses tensors of two precisions: every function of several reads one, in every model of the suite and small network.
#[test]
fn no_function_reads_floats_of_two_precisions() {
    // What it holds would count among what others measure.
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let precisions = [Precision::Bf16, Precision::MixedFp16];
    let mut files = Vec::new();
    for folder in ["../../models", "tests/data"] {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        files.extend(std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()));
    }
    files.retain(|path| path.extension().is_some_and(|e| e == "onnx"));
    let mut written = 0;
    for path in files {
        let Ok(model) = memfit_onnx::import_from(std::fs::File::open(&path).unwrap()) else { continue };
        let model = Model::new(model.graph, "model", "onnx", model.operators);
        for precision in precisions {
            let plan = Plan { precision, ..plan() };
            let graph = model.recomposed(&plan);
            let Ok(inferred) = infer(graph, &Binding { batch: Some(2), ..Binding::default() }) else { break };
            let Ok(program) = program(graph, &inferred, &plan) else { break };
            written += 1;
            let all = program.instrs.iter().chain(program.updates.iter().flat_map(|update| &update.instrs));
            for instr in all {
                let kinds = instr.inputs.iter().map(|slot| program.ty(*slot).kind);
                let floats: Vec<_> = kinds.filter(|kind| kind.is_float()).collect();
                assert!(floats.windows(2).all(|pair| pair[0] == pair[1]), "{}: {instr:?}", path.display());
            }
            let parameters = program.updates.iter().map(|update| program.ty(update.parameter).kind);
            assert!(parameters.clone().all(|kind| kind == Kind::Float(program.stored)));
        }
    }
    assert!(written > 50, "{written}");
}
