//! Burn 0.21: burn-autodiff over a cubecl backend (CUDA, wgpu), without kernel fusion.
//!
//! The model is first written as the list of Burn's functions that it calls ([`program`]); then that list is run without
//! computing: what autodiff keeps, the order of its backward pass, which functions write into their input because nobody else
//! holds it. `memfit validate` runs the same list on a device, so that what is run is what is predicted.

mod builder;
mod elements;
mod fits;
mod loss;
mod lower;
mod ops;
mod optimizer;
mod precision;
mod predict;
mod program;
mod simulate;

pub use elements::Elements;
pub use ops::names as supported_operators;
pub use optimizer::NAMES as OPTIMIZERS;
pub use predict::{Prediction, phase_index, predict};
pub use program::{
    Binary, Compare, Fill, Float, Instr, Kind, Prim, Program, Range, Slot, SlotType, Source, SourceKind,
    Unary, Update, Window,
};
pub use simulate::Backend;

use crate::parameters::{self, Stored};
use crate::step::{LayerOps, SavedStorage, Step, StoredTensor};
use crate::{Checkpoint, Loss, Mode, Plan, StorageId, losses};
use builder::Calls;
use lower::{Lower, Model};
use memfit_graph::{Bytes, DType, Graph, Inferred, Node, Problem, TensorId};
use simulate::simulate;
use smallvec::smallvec;
use std::sync::Arc;

/// Writes one training step of a graph as Burn's functions.
///
/// # Errors
/// All operators that have no rule here, and each node that one cannot be applied to.
pub fn program(graph: &Graph, inferred: &Inferred, plan: &Plan) -> Result<Program, Vec<Problem>> {
    supported(plan)?;
    let kinds = parameters::frozen(parameters::by_graph(graph, inferred), graph, &plan.freeze);
    let training = plan.mode == Mode::Train;
    let mut model = Model {
        graph,
        inferred,
        trained: if training { trained(graph, inferred, &kinds) } else { vec![false; graph.tensors.len()] },
        kinds,
        consumers: graph.consumers(),
        training,
        slots: vec![None; graph.tensors.len()],
    };
    let balanced = plan.checkpoint == Checkpoint::Balanced;
    let mut program = Program { accumulate: plan.accumulate, balanced, ..Program::of(plan.precision) };
    let inputs: Arc<str> = "(inputs)".into();
    program.layer(&inputs);
    let mut problems = Vec::new();
    for node in live(&model) {
        let layer = program.layer(node.path());
        let calls = Calls::of(&mut program, layer);
        let result = match ops::find(node.op.name()) {
            Some(rule) => {
                let mut lower = Lower { calls, model: &mut model, node };
                rule(&mut lower).and_then(|()| lower.calls.end())
            }
            None => Err("Burn's profile has no rule for this operator".into()),
        };
        if let Err(message) = result {
            let mut problem = Problem::new(&**node.path(), message);
            problem.op = node.op.name().to_owned();
            problems.push(problem);
        }
    }
    // What follows from an operator that is not run says nothing more.
    let first = |p: &Problem| !p.message.ends_with("made by an operator that is not run");
    if problems.iter().any(first) {
        problems.retain(first);
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    for source in &mut program.sources {
        if source.kind == SourceKind::Input {
            source.layer = 0;
        }
    }
    finish(&mut program, &mut model, plan).map_err(|message| vec![Problem::new("loss", message)])?;
    if plan.mode == Mode::Train {
        optimizer::write(&mut program, plan).map_err(|message| vec![Problem::new("optimizer", message)])?;
    }
    Ok(program)
}

/// Outputs and loss.
fn finish(program: &mut Program, model: &mut Model<'_>, plan: &Plan) -> Result<(), String> {
    let mut outputs = Vec::new();
    for id in &model.graph.outputs {
        if model.inferred.dtype(*id).is_float() {
            outputs.push(model.slot(program, *id, 0)?);
        }
    }
    program.outputs = outputs;
    if plan.mode == Mode::Infer {
        return Ok(());
    }
    let first = *program.outputs.first().ok_or("no output of floats to compare")?;
    let mut loss = plan.loss;
    if loss == Loss::Auto {
        let wide = |shape: &[usize]| shape.iter().map(|d| *d as u64).collect::<Vec<u64>>();
        let outputs: Vec<Vec<u64>> = program.outputs.iter().map(|s| wide(&program.ty(*s).shape)).collect();
        let inputs: Vec<(Vec<u64>, DType)> = model
            .graph
            .inputs
            .iter()
            .filter_map(|id| Some((model.inferred.shape(*id)?.known()?, model.inferred.dtype(*id))))
            .collect();
        let (chosen, why) = losses::choose(&outputs, &inputs);
        loss = chosen;
        program.assumptions.push(why);
    }
    let name: Arc<str> = "(loss)".into();
    let layer = program.layer(&name);
    let mut calls = Calls::of(program, layer);
    let loss = loss::write(&mut calls, loss, first)?;
    calls.end()?;
    program.loss = Some(loss);
    Ok(())
}

/// What of a plan this profile does not know.
fn supported(plan: &Plan) -> Result<(), Vec<Problem>> {
    let unknown = [
        (plan.ema, "--ema", "burn-optim keeps no averaged weights"),
        (plan.master_weights, "--master-weights", "burn-optim keeps no master weights"),
        (plan.keep_gradients, "--keep-gradients", "Burn drops gradients after a step"),
    ];
    let unknown = unknown.into_iter().filter(|(asked, ..)| *asked);
    let mut problems: Vec<Problem> = unknown.map(|(_, flag, why)| Problem::new(flag, why)).collect();
    problems.extend(plan.refusal());
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// Floats that follow from a trained parameter: they change from step to step, though the file knows their elements.
fn trained(graph: &Graph, inferred: &Inferred, kinds: &[Option<Stored>]) -> Vec<bool> {
    let mut trained: Vec<bool> = kinds.iter().map(|kind| *kind == Some(Stored::Parameter)).collect();
    for node in &graph.nodes {
        if node.inputs.iter().flatten().any(|id| trained[id.index()]) {
            for id in node.outputs.iter().flatten().filter(|id| inferred.dtype(**id).is_float()) {
                trained[id.index()] = true;
            }
        }
    }
    trained
}

/// The nodes that the outputs follow from, constants that were folded left out.
fn live<'g>(model: &Model<'g>) -> Vec<&'g Node> {
    let graph = model.graph;
    let mut needed = vec![false; graph.tensors.len()];
    for id in &graph.outputs {
        needed[id.index()] = true;
    }
    let folded = |id: &TensorId| {
        !model.trained[id.index()] && model.inferred.value(*id).is_some_and(|v| v.floats().is_some())
    };
    let mut live = Vec::new();
    for node in graph.nodes.iter().rev() {
        if node.outputs.iter().flatten().any(|id| needed[id.index()] && !folded(id)) {
            node.inputs.iter().flatten().for_each(|id| needed[id.index()] = true);
            live.push(node);
        }
    }
    live.reverse();
    live
}

/// A step of Burn in the form that all profiles share.
///
/// # Errors
/// As [`program`].
pub(crate) fn run(graph: &Graph, inferred: &Inferred, plan: &Plan) -> Result<Step, Vec<Problem>> {
    let program = program(graph, inferred, plan)?;
    let step = step(&program, Backend::CUDA);
    Ok(step)
}

/// A program's step on a backend.
fn step(program: &Program, backend: Backend) -> Step {
    let simulated = simulate(program, backend);
    let mut layer_ops = LayerOps::of(program.layers.len());
    for instr in &program.instrs {
        let ops = &mut layer_ops[instr.layer as usize];
        let name = format!("{:?}", instr.prim);
        let name = name.split(['(', ' ', '{']).next().unwrap_or_default().to_owned();
        let name = match &instr.prim {
            Prim::Unary(function) => format!("{function:?}"),
            Prim::Binary(function) => format!("{function:?}"),
            _ => name,
        };
        ops.ran(&name.into());
        let shape = program.ty(instr.output).shape.iter().map(|d| *d as u64).collect();
        ops.output_shapes = smallvec![shape];
    }
    let mut stored = Vec::new();
    let mut rows = std::collections::BTreeMap::new();
    for (source, storage) in program.sources.iter().zip(&simulated.storages) {
        let bytes = simulated.timeline.storages[storage.0 as usize].bytes;
        let kind = match source.kind {
            SourceKind::Parameter => Stored::Parameter,
            SourceKind::Frozen => Stored::Frozen,
            SourceKind::Buffer => Stored::Buffer,
            SourceKind::State(parameter) => {
                if let Some(row) = rows.get(&parameter).copied() {
                    let row: &mut StoredTensor = &mut stored[row];
                    row.optimizer_bytes += bytes;
                }
                continue;
            }
            SourceKind::Input | SourceKind::Target => continue,
        };
        if kind == Stored::Parameter {
            rows.insert(rows.len(), stored.len());
        }
        let elements = program.ty(source.slot).elements() as u64;
        let layer = source.layer;
        stored.push(StoredTensor { kind, elements, bytes, layer, optimizer_bytes: Bytes::ZERO });
    }
    let layer_of = |id: StorageId| simulated.timeline.storages[id.0 as usize].layer;
    let saved = simulated
        .saved
        .iter()
        .map(|id| SavedStorage {
            storage: *id,
            layer: layer_of(*id),
            holders: smallvec::smallvec!["autodiff"],
        })
        .collect();
    let mut assumptions = program.assumptions.clone();
    let checkpointing = if program.balanced { "balanced" } else { "no" };
    assumptions.push(format!(
        "Burn: without kernel fusion and autotuning, with {checkpointing} checkpointing; rows are aligned as cubecl does"
    ));
    Step { timeline: simulated.timeline, saved, layer_ops, stored, unknown: Vec::new(), assumptions }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_graph::{Attributes, Binding, Role, Shape, Type, infer};

    /// x[4,8] · [8,16] + b → relu → · [16,2] + b
    fn two_layers() -> Graph {
        let mut g = Graph::default();
        let float = |shape: &[u64]| Type::tensor(DType::Float32, Shape::from(shape));
        let x = g.add_tensor("x", float(&[4, 8]), Role::Input);
        g.inputs = vec![x];
        let mut weight = |name: &str, shape: &[u64]| g.add_tensor(name, float(shape), Role::Initializer);
        let first = [weight("a.weight", &[8, 16]), weight("a.bias", &[16])];
        let second = [weight("b.weight", &[16, 2]), weight("b.bias", &[2])];
        let y = g.push("Gemm", Attributes::default(), &[x, first[0], first[1]], "y").unwrap();
        let z = g.push("Relu", Attributes::default(), &[y], "z").unwrap();
        let out = g.push("Gemm", Attributes::default(), &[z, second[0], second[1]], "out").unwrap();
        g.outputs = vec![out];
        g
    }

    fn plan(optimizer: &str) -> Plan {
        Plan {
            framework: crate::Framework::Burn,
            optimizer: optimizer.into(),
            loss: Loss::None,
            ..Plan::default()
        }
    }

    fn kept(g: &Graph, checkpoint: Checkpoint) -> (Program, Vec<u64>) {
        let inferred = infer(g, &Binding::default()).unwrap();
        let program = program(g, &inferred, &Plan { checkpoint, ..plan("sgd") }).unwrap();
        let step = step(&program, Backend::WGPU);
        let bytes = |s: &SavedStorage| step.timeline.storages[s.storage.0 as usize].bytes.0;
        let kept = step.saved.iter().map(bytes).collect();
        (program, kept)
    }

    fn step_of(g: &Graph, optimizer: &str) -> (Program, Step) {
        let inferred = infer(g, &Binding::default()).unwrap();
        let program = program(g, &inferred, &plan(optimizer)).unwrap();
        let step = step(&program, Backend::WGPU);
        (program, step)
    }

    #[test]
    fn relu_keeps_its_input_and_a_layer_its_own() {
        // The bias is added in place; relu cannot write into what autodiff keeps of it.
        let (_, step) = step_of(&two_layers(), "sgd");
        let kept: Vec<u64> =
            step.saved.iter().map(|s| step.timeline.storages[s.storage.0 as usize].bytes.0).collect();
        assert_eq!(kept, [256, 256]);
    }

    #[test]
    fn balanced_checkpointing_keeps_what_is_dear_to_make() {
        let mut g = two_layers();
        let mut y = g.outputs[0];
        for name in ["a", "b", "c"] {
            y = g.push("Tanh", Attributes::default(), &[y], name).unwrap();
        }
        g.outputs = vec![y];
        let (without, _) = kept(&g, Checkpoint::None);
        let (with, held) = kept(&g, Checkpoint::Balanced);
        assert!(!without.balanced && with.balanced);
        // Both products; what relu and all tanh but the last read is made again.
        assert_eq!(held, [256, 32]);
        let peak = |p: &Program| predict(p, Backend::WGPU).phases[1];
        assert!(peak(&with) <= peak(&without));
    }

    #[test]
    fn blocks_are_not_what_burn_recomputes() {
        let g = two_layers();
        let inferred = infer(&g, &Binding::default()).unwrap();
        for checkpoint in [Checkpoint::Block, Checkpoint::Full] {
            let problems = program(&g, &inferred, &Plan { checkpoint, ..plan("sgd") }).unwrap_err();
            assert_eq!(problems[0].hint.as_deref(), Some("--checkpoint balanced is Burn's own strategy"));
        }
    }

    #[test]
    fn what_is_held_between_steps_is_parameters_state_and_the_batch() {
        let parameters = 4 * (8 * 16 + 16 + 16 * 2 + 2);
        for (optimizer, copies) in [("sgd", 1), ("momentum", 2), ("adam", 3)] {
            let (program, step) = step_of(&two_layers(), optimizer);
            let p = predict(&program, Backend::WGPU);
            assert_eq!(p.steady, Bytes(copies * parameters + 4 * 4 * 8), "{optimizer}");
            assert!(p.peak >= p.between && p.between > p.steady);
            let held: Bytes = step.stored.iter().map(|s| s.bytes + s.optimizer_bytes).sum();
            assert_eq!(held, Bytes(copies * parameters));
        }
    }

    #[test]
    fn a_second_batch_finds_the_gradients_of_the_first() {
        let g = two_layers();
        let inferred = infer(&g, &Binding::default()).unwrap();
        let predicted = |accumulate| {
            let program = program(&g, &inferred, &Plan { accumulate, ..plan("sgd") }).unwrap();
            predict(&program, Backend::WGPU)
        };
        let [one, two, five] = [1, 2, 5].map(predicted);
        let gradients = Bytes(4 * (8 * 16 + 16 + 16 * 2 + 2));
        assert_eq!(two.phases[0], one.phases[0] + gradients);
        assert_eq!((two.between, two.steady), (five.between, one.steady));
    }

    #[test]
    fn rows_on_cuda_are_as_far_apart_as_cubecl_lays_them() {
        // A row of two floats is aligned to 16 bytes, all others lie on powers of two.
        let (program, _) = step_of(&two_layers(), "sgd");
        let gaps = 16 * (16 - 8);
        let [cuda, wgpu] = [Backend::CUDA, Backend::WGPU].map(|backend| predict(&program, backend).steady);
        assert_eq!(cuda, wgpu + Bytes(gaps));
    }

    #[test]
    fn a_step_ends_with_what_it_began_with() {
        use crate::EventKind;
        let (program, step) = step_of(&two_layers(), "adam");
        let mut live = 0_i128;
        for event in &step.timeline.events {
            let bytes = i128::from(step.timeline.storages[event.storage.0 as usize].bytes.0);
            live += if event.kind == EventKind::Allocate { bytes } else { -bytes };
        }
        assert_eq!(live, i128::from(predict(&program, Backend::WGPU).steady.0));
    }

    #[test]
    fn layers_and_tables_are_found_by_name() {
        // What is looked for among all before it takes minutes here.
        let mut g = Graph::default();
        let x = g.add_tensor("x", Type::tensor(DType::Float32, Shape::from([4, 4])), Role::Input);
        g.inputs = vec![x];
        let mut y = x;
        for i in 0..20_000 {
            y = g.push("Trilu", Attributes::default(), &[y], &format!("layer{i}.y")).unwrap();
        }
        g.outputs = vec![y];
        let inferred = infer(&g, &Binding::default()).unwrap();
        let program = program(&g, &inferred, &plan("sgd")).unwrap();
        // All triangles of a size are one.
        assert_eq!(program.sources.iter().filter(|s| s.name.contains("triangle")).count(), 1);
        let names: std::collections::BTreeSet<_> = program.layers.iter().collect();
        assert_eq!(names.len(), program.layers.len());
    }

    #[test]
    fn all_operators_without_a_rule_are_listed() {
        let mut g = two_layers();
        let out = g.outputs[0];
        let a = g.push("Shrink", Attributes::default(), &[out], "a").unwrap();
        let b = g.push("Hardmax", Attributes::default(), &[a], "b").unwrap();
        g.outputs = vec![b];
        let inferred = infer(&g, &Binding::default()).unwrap();
        let problems = program(&g, &inferred, &plan("sgd")).unwrap_err();
        assert_eq!(problems.iter().map(|p| &*p.op).collect::<Vec<_>>(), ["Shrink", "Hardmax"]);
    }
}
