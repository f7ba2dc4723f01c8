//! A graph as a torch module, and the program around it.
//!
//! One line an operator, in the graph's order. A name is deleted after its last use, which is where a function of the user's model would
//! have ended (`body`). Recurrent layers and batch norms are torch's own modules; everything else is a function of parameters that this
//! module holds. Elements are random (`fed`): they change no memory.

use super::body::Body;
use super::fed::{fed, source};
use super::line::{At, Line, Refusal, name, tuple};
use super::optimizer::optimizer;
use super::{Settings, common, ops, quoted};
use memfit_engine::allocators::AllocatorSettings;
use memfit_engine::{Mode, Plan, Precision, Setting};
use memfit_graph::{Problem, TensorId, Value};
use std::collections::BTreeSet;
use std::fmt::Write;

/// What trains and measures.
const HARNESS: &str = include_str!("torch_step.py");

/// Where the generated part stands in it.
const MARK: &str = "# --- the model ---\n";

/// Where the allocator's settings stand, which torch reads when it is imported.
const ALLOCATOR: &str = "# --- the allocator ---\n";

/// Writes the whole program.
///
/// # Errors
/// All operators that have no rule here, and what of the plan is not written.
pub fn script(setting: &Setting<'_>, plan: &Plan, settings: Settings) -> Result<String, Vec<Problem>> {
    let mut problems = refused(plan);
    let lines = lines(setting, plan, &mut problems);
    let optimizer = optimizer(plan).map_err(|message| problems.push(Problem::new("--optimizer", message)));
    let mut model = String::new();
    if let Err(message) = module(&mut model, setting, plan, lines) {
        problems.push(Problem::new("model", message));
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let _ = writeln!(model, "def make_optimizer(parameters):\n{}\n\n", optimizer.unwrap_or_default());
    let config = configuration(plan, settings);
    let config = format!("CONFIG = json.loads({})\n\n\n", quoted(&config.to_string()));
    let conf = alloc_conf(&plan.allocator).map_or_else(|| "None".to_owned(), |conf| quoted(&conf));
    Ok(HARNESS.replace(ALLOCATOR, &format!("ALLOC_CONF = {conf}\n")).replace(MARK, &(config + &model)))
}

/// What the harness reads.
fn configuration(plan: &Plan, settings: Settings) -> serde_json::Value {
    let mut config = common(plan, settings);
    config["keep_gradients"] = plan.keep_gradients.into();
    config["autocast_backward"] = plan.autocast_backward.into();
    config["scaler"] = (plan.precision == Precision::MixedFp16).into();
    config["dtype"] = plan.precision.model_dtype().name().into();
    config["cudnn_benchmark"] = plan.cudnn_benchmark.into();
    config["channels_last"] = plan.channels_last.into();
    config["clip_norm"] = plan.clip_norm.into();
    config["ema"] = plan.ema.into();
    config["master_weights"] = plan.master_weights.into();
    config["memory_fraction"] = plan.allocator.memory_fraction.map(|n| f64::from(n) / 1000.0).into();
    config
}

/// What `PYTORCH_ALLOC_CONF` is to hold.
fn alloc_conf(settings: &AllocatorSettings) -> Option<String> {
    let own = settings.cuda_malloc_async.then(|| "backend:cudaMallocAsync".to_owned());
    let all: Vec<String> = own.into_iter().chain(settings.pytorch.text()).collect();
    (!all.is_empty()).then(|| all.join(","))
}

/// What of a plan is not written as a program. Every part of it is named, so that one that comes new is decided on here.
fn refused(plan: &Plan) -> Vec<Problem> {
    let Plan {
        parallel,
        // These are written: as settings, as the optimizer, or in the graph that is.
        framework: _,
        precision: _,
        mode: _,
        optimizer: _,
        optimizer_impl: _,
        weight_decay: _,
        accumulate: _,
        checkpoint: _,
        freeze: _,
        keep_gradients: _,
        loss: _,
        ema: _,
        master_weights: _,
        allocator: _,
        cudnn_benchmark: _,
        channels_last: _,
        autocast_backward: _,
        composed_attention: _,
        clip_norm: _,
        assume_batchnorm: _,
        assume_dropout: _,
        tied_embeddings: _,
        // These are TensorFlow's and Keras', which the plan's warnings say.
        xla: _,
        eager: _,
        grappler: _,
        loss_scale: _,
        // These follow from where the step runs.
        compute_capability: _,
        amd: _,
        as_fake_tensors: _,
    } = plan;
    let several =
        parallel.is_some().then(|| Problem::new("--gpus", "the written program trains on one device"));
    several.into_iter().collect()
}

fn lines(setting: &Setting<'_>, plan: &Plan, problems: &mut Vec<Problem>) -> Vec<Line> {
    let live = live(setting);
    let mut lines = Vec::new();
    for (number, node) in setting.graph.nodes.iter().enumerate() {
        if !node.outputs.iter().flatten().any(|id| live.contains(id)) {
            continue;
        }
        let mut at = At::new(setting, node, number, plan.mode == Mode::Train);
        let written: Result<(), Refusal> = match ops::find(node.op.name()) {
            Some(rule) => rule(&mut at),
            None => Err("cannot be written as torch yet".into()),
        };
        match written {
            Ok(()) => lines.push(at.line()),
            Err(message) => {
                let mut problem = Problem::new(&*node.name, message);
                problem.op = node.op.name().to_owned();
                problems.push(problem);
            }
        }
    }
    needed(setting, lines)
}

/// Tensors that the outputs follow from, folded ones left out.
fn live(setting: &Setting<'_>) -> BTreeSet<TensorId> {
    let mut live: BTreeSet<TensorId> = setting.graph.outputs.iter().copied().collect();
    let known = |id: &TensorId| setting.inferred.value(*id).is_some_and(Value::is_known);
    for node in setting.graph.nodes.iter().rev() {
        if node.outputs.iter().flatten().any(|id| live.contains(id) && !known(id)) {
            live.extend(node.inputs.iter().flatten());
        }
    }
    live.retain(|id| !known(id));
    live
}

/// The lines that an output really reads: an argument that was folded into a call made others idle.
fn needed(setting: &Setting<'_>, lines: Vec<Line>) -> Vec<Line> {
    let mut wanted: BTreeSet<TensorId> = setting.graph.outputs.iter().copied().collect();
    let mut kept: Vec<Line> = Vec::new();
    for line in lines.into_iter().rev() {
        if line.makes.iter().any(|id| wanted.contains(id)) {
            wanted.extend(&line.reads);
            kept.push(line);
        }
    }
    kept.reverse();
    kept
}

/// The class, and what is fed to it.
fn module(out: &mut String, setting: &Setting<'_>, plan: &Plan, lines: Vec<Line>) -> Result<(), Refusal> {
    let graph = &*setting.graph;
    let outputs: Vec<TensorId> =
        graph.outputs.iter().copied().filter(|id| setting.inferred.shape(*id).is_some()).collect();
    let mut stored: BTreeSet<TensorId> = lines.iter().flat_map(|line| &line.reads).copied().collect();
    stored.extend(&outputs);
    stored.retain(|id| name(setting, *id).starts_with("self."));
    let mut text = String::from("class Model(Step):\n    def __init__(self):\n        super().__init__()\n");
    for id in &stored {
        let _ = writeln!(text, "        {}", source(setting, *id)?);
    }
    for (name, constructor) in lines.iter().filter_map(|line| line.module.as_ref()) {
        let _ = writeln!(text, "        self.{name} = {constructor}");
    }
    let inputs: Vec<String> = graph.inputs.iter().map(|id| format!("t{}", id.0)).collect();
    let _ = writeln!(text, "\n    def forward({}):", [&["self".to_owned()][..], &inputs].concat().join(", "));
    text += &Body::of(setting, &lines, &outputs).text();
    let _ = writeln!(text, "        self.at(\"(loss)\")");
    let given: Vec<String> = outputs.iter().map(|id| name(setting, *id)).collect();
    let _ = writeln!(text, "        return {}\n\n", tuple(&given));
    out.push_str(&text);
    fed(out, setting, plan, &outputs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::python::keys;
    use memfit_engine::{Checkpoint, Model};
    use memfit_graph::{Attribute, Attributes, Binding, DType, Graph, Role, Shape, Type};

    /// x[2,8] → linear → relu → times its tanh → out
    fn model() -> Model {
        let mut g = Graph::default();
        let float = |shape: &[u64]| Type::tensor(DType::Float32, Shape::from(shape));
        let x = g.add_tensor("x", float(&[2, 8]), Role::Input);
        g.inputs = vec![x];
        let w = g.add_tensor("fc.weight", float(&[4, 8]), Role::Initializer);
        let b = g.add_tensor("fc.bias", float(&[4]), Role::Initializer);
        let turned = Attributes::from([("transB", Attribute::Int(1))]);
        let y = g.push("Gemm", turned, &[x, w, b], "y").unwrap();
        let z = g.push("Relu", Attributes::default(), &[y], "z").unwrap();
        let s = g.push("Tanh", Attributes::default(), &[z], "s").unwrap();
        let out = g.push("Mul", Attributes::default(), &[z, s], "out").unwrap();
        g.outputs = vec![out];
        Model::new(g, "m", "onnx", 4)
    }

    fn written(plan: &Plan) -> Result<String, Vec<Problem>> {
        let model = model();
        let setting = model.setting(&Binding::default(), plan).unwrap();
        let settings = Settings { steps: 2, device: Some("cpu"), limit: None };
        let text = script(&setting, plan, settings)?;
        let from = text.find("class Model").unwrap();
        Ok(text[from..text.find("DEVICE = CONFIG").unwrap()].to_owned())
    }

    #[test]
    fn a_line_is_an_operator_and_a_name_ends_with_its_last_use() {
        let plan = Plan { optimizer: "nesterov".into(), freeze: vec!["fc.bias".into()], ..Plan::default() };
        let expected = "\
class Model(Step):
    def __init__(self):
        super().__init__()
        self.parameter(\"t1\", \"fc.weight\", (4, 8))
        self.parameter(\"t2\", \"fc.bias\", (4,), False)

    def forward(self, t0):
        self.at(\"Gemm_0\")
        t3 = F.linear(t0, self.t1, self.t2)
        self.at(\"Relu_1\")
        t4 = F.relu(t3)
        del t3
        self.at(\"Tanh_2\")
        t5 = torch.tanh(t4)
        self.at(\"Mul_3\")
        t6 = t4 * t5
        del t4, t5
        self.at(\"(loss)\")
        return (t6,)


def make_inputs():
    return (random((2, 8), DTYPE, 2),)


def make_target(inputs):
    return random((2,), torch.int64, 4)


def compute_loss(outputs, target):
    return F.cross_entropy(outputs[0], target)


def make_optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9, nesterov=True, foreach=True, weight_decay=0.0)


";
        let found = written(&plan).unwrap();
        // Nodes without a name are named by whoever made the graph.
        let plain = |text: &str| {
            let lines = text.lines().filter(|line| !line.contains("self.at(\"") || line.contains("(loss)"));
            lines.map(|line| format!("{line}\n")).collect::<String>()
        };
        assert_eq!(plain(&found), plain(expected));
    }

    #[test]
    fn a_recomputed_run_is_a_function_of_what_it_reads() {
        let plan = Plan { checkpoint: Checkpoint::Full, ..Plan::default() };
        let found = written(&plan).unwrap();
        let from = found.find("        def segment0(t0):").unwrap();
        let rest = &found[from..];
        assert!(rest.contains("            del t3\n"), "{rest}");
        assert!(
            rest.contains(
                "            return (t6,)\n        t6, = checkpoint(segment0, t0, use_reentrant=False)\n"
            ),
            "{rest}"
        );
    }

    #[test]
    fn every_setting_is_read_and_every_one_read_is_there() {
        let config = configuration(&Plan::default(), Settings { steps: 2, device: None, limit: None });
        assert_eq!(keys::given(&config), keys::read(HARNESS));
    }

    #[test]
    fn the_allocator_is_set_before_torch_is_imported() {
        let program = |plan: &Plan| {
            let model = model();
            let setting = model.setting(&Binding::default(), plan).unwrap();
            script(&setting, plan, Settings { steps: 2, device: Some("cpu"), limit: None }).unwrap()
        };
        let mut plan = Plan::default();
        assert!(program(&plan).contains("\nALLOC_CONF = None\n"));
        plan.allocator.pytorch = plan.allocator.pytorch.apply("expandable_segments:True").unwrap();
        plan.allocator.memory_fraction = Some(500);
        let text = program(&plan);
        let (set, imported) =
            (text.find("ALLOC_CONF = \"expandable_segments:True\"\n"), text.find("import torch\n"));
        assert!(set.is_some() && set < imported, "{set:?} {imported:?}");
        assert!(text.contains("\\\"memory_fraction\\\":0.5"), "{text}");
        plan.allocator.cuda_malloc_async = true;
        assert!(
            program(&plan).contains("ALLOC_CONF = \"backend:cudaMallocAsync,expandable_segments:True\"\n")
        );
    }

    #[test]
    fn what_is_not_written_is_told_at_once() {
        let parallel = memfit_engine::parallel::Parallel::data(2, memfit_engine::parallel::Sharding::Ddp);
        let plan = Plan { optimizer: "nobody".into(), parallel: Some(parallel), ..Plan::default() };
        let problems = written(&plan).unwrap_err();
        assert_eq!(problems.len(), 2, "{problems:?}");
    }
}
