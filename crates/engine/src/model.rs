//! A model made ready once, and estimated for any plan.

use crate::devices::{Card, Device, context};
#[cfg(feature = "burn")]
use crate::frameworks::burn;
use crate::frameworks::pytorch;
#[cfg(feature = "tensorflow")]
use crate::frameworks::tensorflow;
use crate::parallel;
use crate::parameters::Stored;
use crate::prepared::{Prepared, Variants, options, prepare, prepare_for};
use crate::step::{Step, StoredTensor};
use crate::{
    Estimate, Framework, LayerRow, ModelSummary, Plan, Precision, Structure, placement, recompose, replay,
    sizes,
};
use memfit_graph::{Binding, Bytes, Graph, Inferred, Problem, infer};
use std::borrow::Cow;

/// The block that PyTorch's caching allocator rounds every request up to
/// (c10/cuda/CUDACachingAllocator.cpp, `kMinBlockSize`).
const PYTORCH_BLOCK: u64 = 512;

/// The block that TensorFlow's BFC allocator rounds every request up to (xla/tsl/framework/bfc_allocator.h,
/// `kMinAllocationSize`).
const BFC_BLOCK: u64 = 256;

/// What cubecl rounds a slice of its pools up to on CUDA (cubecl-cuda/src/runtime.rs).
const CUBECL_SLICE: u64 = 512;

/// What requests are rounded up to, in bytes.
pub fn block(framework: Framework) -> u64 {
    match framework {
        Framework::Tensorflow => BFC_BLOCK,
        Framework::Pytorch => PYTORCH_BLOCK,
        Framework::Burn => CUBECL_SLICE,
    }
}

/// One step, and the batch size it has.
struct Run {
    step: Step,
    batch: Option<u64>,
    /// What the whole model stores, where the step is that of a GPU with a part of it.
    whole: Option<Vec<StoredTensor>>,
}

/// A model whose structure has been put back as the framework runs it.
pub struct Model {
    /// As the importer made it.
    source: Graph,
    prepared: Prepared,
    /// The same with other options.
    variants: Variants,
    name: String,
    format: String,
    operators: u64,
}

impl Model {
    /// Takes a graph as an importer made it; `operators` counts the file's nodes.
    pub fn new(graph: Graph, name: &str, format: &str, operators: u64) -> Model {
        let prepared = prepare(&graph, recompose::Options::default());
        let (name, format) = (name.into(), format.into());
        Model { source: graph, prepared, variants: Variants::default(), name, format, operators }
    }

    /// The graph as the importer made it.
    pub fn graph(&self) -> &Graph {
        &self.source
    }

    /// What recomposition did and found.
    pub fn report(&self) -> &recompose::Report {
        &self.prepared.report
    }

    /// The graph as the framework runs it: recomposed, with what `plan` assumes put back.
    pub fn recomposed(&self, plan: &Plan) -> &Graph {
        &self.prepared(plan).graph
    }

    fn prepared(&self, plan: &Plan) -> &Prepared {
        let options = options(plan);
        if options == recompose::Options::default() {
            return &self.prepared;
        }
        self.variants.of(options, |options| prepare(&self.source, options))
    }

    /// The same for these sizes, where they decide how often a loop runs or which branch is taken.
    pub(crate) fn prepared_for(&self, binding: &Binding, plan: &Plan) -> Cow<'_, Prepared> {
        let of_file = self.prepared(plan);
        let own = of_file.graph.has_bodies().then(|| prepare_for(&self.source, binding, options(plan)));
        own.flatten().map_or(Cow::Borrowed(of_file), Cow::Owned)
    }

    /// Whether Keras runs it: its nodes are Keras' layers.
    pub fn is_keras(&self) -> bool {
        self.prepared.structure.is_keras
    }

    /// The plan as the file's layers run it: a mixed policy of their own stands before the plan's precision.
    pub fn under_policy<'p>(&self, plan: &'p Plan) -> Cow<'p, Plan> {
        let own = self.prepared.structure.policy.filter(|_| plan.framework != Framework::Burn);
        match own.filter(|own| *own != plan.precision) {
            Some(precision) => Cow::Owned(Plan { precision, ..plan.clone() }),
            None => Cow::Borrowed(plan),
        }
    }

    /// What the user should know of the file under these plans: what training has and the file does not show, and which parts
    /// of a plan do nothing.
    pub fn notices(&self, plans: &[Plan]) -> Vec<String> {
        let mut all = Vec::new();
        for notice in plans.iter().flat_map(|plan| self.notices_under(plan)) {
            if !all.contains(&notice) {
                all.push(notice);
            }
        }
        all
    }

    fn notices_under(&self, plan: &Plan) -> Vec<String> {
        let mut notices: Vec<String> =
            self.prepared(plan).report.findings.iter().map(|f| f.message.clone()).collect();
        let named = |glob: &String| self.source.tensors.iter().any(|t| crate::glob_matches(glob, &t.name));
        let nothing = plan.freeze.iter().filter(|glob| !named(glob));
        notices.extend(nothing.map(|glob| format!("--freeze {glob} matches no parameter")));
        let ran = self.under_policy(plan);
        if ![Precision::Fp32, ran.precision].contains(&plan.precision) {
            notices.push("the layers in the file have a mixed dtype policy of their own, which stands before --precision".into());
        }
        notices.extend(ran.idle_for(self.is_keras()));
        notices.extend(ran.foreign_split(self.is_keras()).map(str::to_owned));
        // What a body holds is found when sizes write it out; of a Keras file it is known that these flags are idle.
        if !self.is_keras() && !self.prepared.graph.has_bodies() {
            notices.extend(recompose::idle(plan, &self.prepared.report, &self.prepared(plan).report));
        }
        notices
    }

    /// What one step of `plan` holds, with the model's open sizes bound by `binding`.
    ///
    /// # Errors
    /// All problems found: sizes that are not given, shapes that do not go together, a profile that is not there yet.
    pub fn estimate(&self, binding: &Binding, plan: &Plan) -> Result<Estimate, Vec<Problem>> {
        self.estimate_on(binding, plan, None)
    }

    /// The same, and how the step gets on inside of a card.
    ///
    /// # Errors
    /// As [`Model::estimate`].
    pub fn estimate_on(
        &self,
        binding: &Binding,
        plan: &Plan,
        card: Option<&Card>,
    ) -> Result<Estimate, Vec<Problem>> {
        let warnings = self.notices_under(plan);
        let plan = &*self.under_policy(plan);
        let on_card = card.map_or_else(|| plan.clone(), |card| plan.on(card));
        let run = self.run(binding, &on_card)?;
        let (mut step, batch_size) = (run.step, run.batch);
        let mut replayed = replay::peak(&step.timeline, block(plan.framework));
        step.assumptions.extend(card.and_then(Card::caveat).map(Into::into));
        let unknown = Card::alone(Device::unknown());
        let on = card.unwrap_or(&unknown);
        let context = on.context(plan);
        let open = placement::open(&step.timeline, plan.framework, &plan.allocator, card.map(|c| &c.device));
        let slack = on.slack(plan).with(step.timeline.spread);
        replayed.hold(&open, &context::total(&context), slack, card.map(|c| &c.device));
        let fit = card.map(|card| placement::place(&step.timeline, plan, card, &open));
        let mut layers = rows(&mut step);
        if let Some(whole) = &run.whole {
            // Counts of values are the model's, bytes those of this GPU.
            layers.iter_mut().for_each(|row| row.parameters = 0);
            whole.iter().for_each(|stored| layers[stored.layer as usize].parameters += stored.parameters());
        }
        for (row, at_peak) in layers.iter_mut().zip(&replayed.layers) {
            row.at_peak = *at_peak;
        }
        let nothing = LayerRow::default();
        layers.retain_mut(|row| {
            let name = std::mem::take(&mut row.name);
            let says_something = *row != nothing;
            row.name = name;
            says_something
        });
        let whole = run.whole.as_ref().unwrap_or(&step.stored);
        let elements = |kind| whole.iter().filter(|s| s.kind == kind).map(|s| s.elements).sum();
        let model = ModelSummary {
            name: self.name.clone(),
            format: self.format.clone(),
            parameters_trainable: elements(Stored::Parameter),
            parameters_frozen: elements(Stored::Frozen),
            buffers: elements(Stored::Buffer),
            operators: self.operators,
        };
        let saved_for_backward =
            step.saved.iter().map(|s| step.timeline.storages[s.storage.0 as usize].bytes).sum();
        Ok(Estimate {
            model,
            plan: plan.clone(),
            batch_size,
            peak: replayed.peak,
            breakdown: replayed.breakdown,
            context,
            fit,
            saved_for_backward,
            scenario: None,
            layers,
            largest: replayed.largest,
            timeline: step.timeline,
            unknown: step.unknown,
            assumptions: step.assumptions,
            warnings,
        })
    }

    /// One step under the plan.
    pub(crate) fn step(&self, binding: &Binding, plan: &Plan) -> Result<Step, Vec<Problem>> {
        self.run(binding, plan).map(|run| run.step)
    }

    /// The batch size, where an input has a batch axis.
    pub(crate) fn batch(&self, binding: &Binding) -> Result<Option<u64>, Vec<Problem>> {
        infer(&self.prepared.graph, binding).map(|inferred| inferred.batch)
    }

    fn run(&self, binding: &Binding, plan: &Plan) -> Result<Run, Vec<Problem>> {
        if crate::optimizers::find(&plan.optimizer).is_none() {
            let message = format!("there is no optimizer `{}`", plan.optimizer);
            return Err(vec![Problem::new("optimizer", message)]);
        }
        let plan = &*self.under_policy(plan);
        let prepared = self.prepared_for(binding, plan);
        let Prepared { graph, structure, .. } = &*prepared;
        let inferred = infer(graph, binding)?;
        let batch = inferred.batch;
        let Some(shared) = plan.parallel.filter(|_| cfg!(feature = "parallel")) else {
            return Ok(Run { step: run(graph, structure, &inferred, plan)?, batch, whole: None });
        };
        let plan = Plan { accumulate: shared.micro_batches(plan.accumulate), ..plan.clone() };
        let mut step = run(graph, structure, &inferred, &plan)?;
        let (mut whole, mut of_layers) = (None, Vec::new());
        if shared.tensor > 1 {
            let split = parallel::Split::over(graph, &inferred, shared.tensor);
            of_layers = split.said;
            // Each GPU has the logits of all words, but not the table of all.
            let causal_vocabulary = structure.causal_vocabulary;
            let parts = Structure::new(&split.graph, Some(&split.inferred));
            let structure = Structure { causal_vocabulary, ..parts };
            let part = run(&split.graph, &structure, &split.inferred, &plan)?;
            whole = Some(std::mem::replace(&mut step, part).stored);
        }
        let ties = parallel::ties(graph, structure);
        let applied = shared.apply(&mut step.timeline, &ties, &plan, of_layers);
        let (here, said) = applied.map_err(|problem| vec![problem])?;
        sizes::adds_up(&step.timeline, sizes::LARGEST_STEP)?;
        if let Some(here) = here {
            let all = step.stored.clone();
            step.stored.retain(|stored| here.get(stored.layer as usize).is_none_or(|here| *here));
            whole.get_or_insert(all);
        }
        step.assumptions.extend(said);
        Ok(Run { step, batch, whole })
    }

    /// What is kept for backward, by the autograd functions that keep it: (functions, bytes, storages). For checking the
    /// rules against a framework's own report.
    ///
    /// # Errors
    /// As [`Model::estimate`].
    pub fn saved_by_function(&self, binding: &Binding, plan: &Plan) -> Result<Vec<SavedBy>, Vec<Problem>> {
        let step = self.step(binding, plan)?;
        let mut groups: std::collections::BTreeMap<Vec<&'static str>, (Bytes, u64)> = Default::default();
        for saved in &step.saved {
            let mut holders = saved.holders.to_vec();
            holders.sort_unstable();
            let group = groups.entry(holders).or_default();
            group.0 += step.timeline.storages[saved.storage.0 as usize].bytes;
            group.1 += 1;
        }
        Ok(groups
            .into_iter()
            .map(|(functions, (bytes, storages))| SavedBy { functions, bytes, storages })
            .collect())
    }
}

/// One step under the rules of the plan's framework.
fn run(graph: &Graph, structure: &Structure, inferred: &Inferred, plan: &Plan) -> Result<Step, Vec<Problem>> {
    if let Some(problem) = plan.refusal() {
        return Err(vec![problem]);
    }
    // No framework adds up sizes that leave 64 bits.
    let sizes = sizes::of(graph, inferred)?;
    let mut step = match plan.framework {
        Framework::Pytorch => Ok(pytorch::run(graph, structure, inferred, sizes, plan)),
        #[cfg(feature = "tensorflow")]
        Framework::Tensorflow => Ok(tensorflow::run(graph, structure, inferred, sizes, plan)),
        #[cfg(feature = "burn")]
        Framework::Burn => burn::run(graph, inferred, plan),
        #[cfg(not(all(feature = "burn", feature = "tensorflow")))]
        _ => Err(vec![Problem::new("framework", "this build is without the framework's profile")]),
    }?;
    sizes::adds_up(&step.timeline, sizes::LARGEST_STEP)?;
    step.timeline.is_partial = !step.unknown.is_empty();
    Ok(step)
}

/// Storages kept by the same set of autograd functions.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedBy {
    /// ATen names, sorted.
    pub functions: Vec<&'static str>,
    /// Their bytes.
    pub bytes: Bytes,
    /// How many.
    pub storages: u64,
}

/// One row a layer, in the order in which layers first ran.
fn rows(step: &mut Step) -> Vec<LayerRow> {
    let mut rows: Vec<LayerRow> = step
        .timeline
        .layers
        .iter()
        .zip(std::mem::take(&mut step.layer_ops))
        .map(|(name, mut ops)| LayerRow {
            name: name.clone(),
            op: if ops.ops.len() > 1 { ops.ops.join("+").into() } else { ops.ops.pop().unwrap_or_default() },
            output_shapes: ops.output_shapes,
            ..LayerRow::default()
        })
        .collect();
    for stored in &step.stored {
        let row = &mut rows[stored.layer as usize];
        row.optimizer_bytes += stored.optimizer_bytes;
        row.parameters += stored.parameters();
        if stored.parameters() > 0 {
            row.parameter_bytes += stored.bytes;
        }
        if stored.kind == Stored::Parameter {
            row.gradient_bytes += stored.bytes;
        }
    }
    for saved in &step.saved {
        rows[saved.layer as usize].saved_bytes += step.timeline.storages[saved.storage.0 as usize].bytes;
    }
    for storage in &step.timeline.storages {
        if storage.category == crate::Category::Workspace {
            let row = &mut rows[storage.layer as usize];
            row.workspace_bytes = row.workspace_bytes.max(storage.bytes);
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_graph::{Attributes, DType, Role, Shape, Type};

    #[test]
    fn what_functions_keep_is_said_of_the_same_step() {
        let mut g = Graph::default();
        let x = g.add_tensor("x", Type::tensor(DType::Float32, Shape::from([8, 64])), Role::Input);
        g.inputs = vec![x];
        let w = g.add_tensor("w", Type::tensor(DType::Float32, Shape::from([64, 64])), Role::Initializer);
        let h = g.push("MatMul", Attributes::default(), &[x, w], "h").unwrap();
        g.outputs = vec![g.push("Tanh", Attributes::default(), &[h], "y").unwrap()];
        let (model, binding) = (Model::new(g, "m", "onnx", 2), Binding::default());
        let mut kept = Vec::new();
        for framework in [Framework::Pytorch, Framework::Tensorflow, Framework::Burn] {
            let plan = Plan { framework, ..Plan::default() };
            let functions = model.saved_by_function(&binding, &plan).unwrap();
            let bytes: Bytes = functions.iter().map(|held| held.bytes).sum();
            assert_eq!(bytes, model.estimate(&binding, &plan).unwrap().saved_for_backward, "{framework:?}");
            kept.push(functions);
        }
        assert!(kept[0] != kept[1] && kept[1] != kept[2], "{kept:?}");
        let none = Plan { optimizer: "none".into(), ..Plan::default() };
        let foreign = Plan { checkpoint: crate::Checkpoint::Balanced, ..Plan::default() };
        for plan in [none, foreign] {
            assert_eq!(
                model.saved_by_function(&binding, &plan).unwrap_err(),
                model.estimate(&binding, &plan).unwrap_err()
            );
        }
    }
}
