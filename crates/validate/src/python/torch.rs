//! A graph as a torch module, and the program around it.
//!
//! One line an operator, in the graph's order. A name is deleted after its last use, which is where a function of the user's model would
//! have ended. Recurrent layers and batch norms are torch's own modules; everything else is a function of parameters that this
//! module holds. Elements are random: they change no memory.

use super::line::{At, Line, Refusal, literal, name, torch_dtype, tuple};
use super::optimizer::optimizer;
use super::{Settings, configuration, ops, quoted};
use memfit_engine::{Loss, Mode, Plan, Setting, Stored, Target};
use memfit_graph::{DType, Problem, TensorId, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::ops::Range;

/// What trains and measures.
const HARNESS: &str = include_str!("torch_step.py");

/// Where the generated part stands in it.
const MARK: &str = "# --- the model ---\n";

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
    Ok(HARNESS.replace(MARK, &(config + &model)))
}

/// What of a plan is not written as a program.
fn refused(plan: &Plan) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut refuse = |place: &str, message: &str| problems.push(Problem::new(place, message));
    if plan.parallel.is_some() {
        refuse("--gpus", "the written program trains on one device");
    }
    problems
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
    let graph = setting.graph;
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

/// The lines of `forward`.
struct Body<'a> {
    setting: &'a Setting<'a>,
    lines: &'a [Line],
    outputs: &'a [TensorId],
    /// The last line that needs a name; inputs stay, since who calls holds them.
    last: BTreeMap<TensorId, usize>,
}

impl<'a> Body<'a> {
    fn of(setting: &'a Setting<'a>, lines: &'a [Line], outputs: &'a [TensorId]) -> Body<'a> {
        let mut last: BTreeMap<TensorId, usize> = BTreeMap::new();
        for (i, line) in lines.iter().enumerate() {
            last.extend(line.makes.iter().chain(&line.reads).map(|id| (*id, i)));
        }
        last.retain(|id, _| {
            let inputs = &setting.graph.inputs;
            !outputs.contains(id) && !inputs.contains(id) && !name(setting, *id).starts_with("self.")
        });
        Body { setting, lines, outputs, last }
    }

    fn text(&self) -> String {
        let segment = |line: &Line| self.setting.recomputed.iter().position(|r| r.contains(&line.number));
        let mut text = String::new();
        let mut begin = 0;
        while begin < self.lines.len() {
            let which = segment(&self.lines[begin]);
            let more = self.lines[begin..].iter().take_while(|line| segment(line) == which).count();
            let lines = begin..begin + more;
            begin = lines.end;
            match which {
                Some(number) => self.recomputed(&mut text, number, lines),
                None => self.plain(&mut text, lines, 8, &|_| true),
            }
        }
        text
    }

    /// Lines one after the other; names that `own` says are given up after their last use.
    fn plain(&self, text: &mut String, lines: Range<usize>, indent: usize, own: &dyn Fn(TensorId) -> bool) {
        let mut layer: Option<&str> = None;
        for i in lines {
            let line = &self.lines[i];
            if layer != Some(&*line.layer) {
                layer = Some(&line.layer);
                let _ = writeln!(text, "{:indent$}self.at({})", "", quoted(&line.layer));
            }
            for one in line.text.lines() {
                let _ = writeln!(text, "{:indent$}{one}", "");
            }
            self.delete(text, &(i..i + 1), indent, own);
        }
    }

    /// Gives up the names whose last use is in these lines.
    fn delete(&self, text: &mut String, lines: &Range<usize>, indent: usize, own: &dyn Fn(TensorId) -> bool) {
        let gone = self.last.iter().filter(|(id, at)| lines.contains(at) && own(**id));
        let gone: Vec<String> = gone.map(|(id, _)| name(self.setting, *id)).collect();
        if !gone.is_empty() {
            let _ = writeln!(text, "{:indent$}del {}", "", gone.join(", "));
        }
    }

    /// A function of what it reads, which is called again in backward.
    fn recomputed(&self, text: &mut String, number: usize, lines: Range<usize>) {
        let own = &self.lines[lines.clone()];
        let made: BTreeSet<TensorId> = own.iter().flat_map(|line| &line.makes).copied().collect();
        let read = own.iter().flat_map(|line| &line.reads).copied().collect::<BTreeSet<_>>();
        let names = |ids: Vec<TensorId>| ids.into_iter().map(|id| name(self.setting, id)).collect::<Vec<_>>();
        let given = read.into_iter().filter(|id| !made.contains(id)).collect();
        let mut given = names(given);
        given.retain(|name| !name.starts_with("self."));
        let leaves = |id: &TensorId| {
            self.outputs.contains(id) || self.last.get(id).is_some_and(|last| *last >= lines.end)
        };
        let back = names(made.iter().copied().filter(leaves).collect());
        let function = format!("segment{number}");
        let _ = writeln!(text, "        def {function}({}):", given.join(", "));
        self.plain(text, lines.clone(), 12, &|id| made.contains(&id));
        let _ = writeln!(text, "            return {}", tuple(&back));
        given.insert(0, function);
        let call = format!("checkpoint({}, use_reentrant=False)", given.join(", "));
        let _ = writeln!(text, "        {}, = {call}", back.join(", "));
        self.delete(text, &lines, 8, &|id| !made.contains(&id));
    }
}

/// How a stored tensor is made.
fn source(setting: &Setting<'_>, id: TensorId) -> Result<String, Refusal> {
    let (tensor, dtype) = (setting.graph.tensor(id), setting.inferred.dtype(id));
    let key = quoted(&format!("t{}", id.0));
    let kind = setting.stored[id.index()];
    let value = setting.inferred.value(id).filter(|v| v.is_known());
    let shape = setting.inferred.shape(id).and_then(|s| s.known());
    let shape = tuple(&shape.ok_or_else(|| format!("the size of {} is not known", tensor.name))?);
    if let (Some(value), false) = (value, matches!(kind, Some(Stored::Parameter | Stored::Frozen))) {
        let elements = elements(value, dtype);
        let elements = elements.ok_or_else(|| format!("an element of {} is not known", tensor.name))?;
        let dtype = torch_dtype(dtype)?;
        return Ok(format!("self.constant({key}, [{elements}], {shape}, {dtype})"));
    }
    let name = quoted(&tensor.name);
    Ok(match kind {
        Some(Stored::Parameter) if dtype.is_float() => format!("self.parameter({key}, {name}, {shape})"),
        Some(Stored::Frozen) if dtype.is_float() => format!("self.parameter({key}, {name}, {shape}, False)"),
        _ => format!("self.buffer({key}, {shape}, {})", torch_dtype(dtype)?),
    })
}

/// The elements of a list of Python, where all are known.
fn elements(value: &Value, dtype: DType) -> Option<String> {
    let elements: Option<Vec<String>> = value.data.iter().map(|n| literal(n, dtype)).collect();
    elements.map(|elements| elements.join(", "))
}

/// Inputs, the target and the loss as functions.
fn fed(out: &mut String, setting: &Setting<'_>, plan: &Plan, outputs: &[TensorId]) -> Result<(), Refusal> {
    let graph = setting.graph;
    let mut inputs = Vec::new();
    for id in &graph.inputs {
        let shape = setting.inferred.shape(*id).and_then(|s| s.known());
        let input = &graph.tensor(*id).name;
        let shape = tuple(&shape.ok_or_else(|| format!("the size of {input} is not known"))?);
        let dtype = setting.inferred.dtype(*id);
        inputs.push(match setting.inferred.value(*id).filter(|v| v.is_known()) {
            Some(value) => {
                let elements = elements(value, dtype).unwrap_or_default();
                format!("given([{elements}], {shape}, {})", torch_dtype(dtype)?)
            }
            None => format!("random({shape}, {}, {})", torch_dtype(dtype)?, below(setting, *id)),
        });
    }
    let _ = writeln!(out, "def make_inputs():\n    return {}\n\n", tuple(&inputs));
    let first = setting.compared.first();
    let target = match &setting.target {
        Target::None => "None".to_owned(),
        Target::Input(id) => {
            let at = graph.inputs.iter().position(|input| input == id).unwrap_or(0);
            format!("inputs[{at}]")
        }
        Target::New(shape, dtype) => {
            let classes = first.and_then(|id| setting.inferred.shape(*id)?.known());
            let classes =
                classes.and_then(|s| if s.len() == 3 { s.last().copied() } else { s.get(1).copied() });
            format!("random({}, {}, {})", tuple(shape), torch_dtype(*dtype)?, classes.unwrap_or(1))
        }
    };
    let _ = writeln!(out, "def make_target(inputs):\n    return {target}\n\n");
    let _ = writeln!(out, "def compute_loss(outputs, target):");
    if plan.mode == Mode::Infer || first.is_none() {
        let _ = writeln!(out, "    return outputs[0].float().mean()\n\n");
        return Ok(());
    }
    let mut terms = Vec::new();
    for id in &setting.compared {
        let at = outputs.iter().position(|o| o == id).unwrap_or(0);
        let up = if setting.upcast { ".float()" } else { "" };
        let rank = setting.inferred.shape(*id).map_or(0, memfit_graph::Shape::rank);
        terms.push(match setting.loss {
            Loss::CrossEntropy if rank == 3 => {
                format!("F.cross_entropy(outputs[{at}]{up}.flatten(0, 1), target.flatten())")
            }
            Loss::CrossEntropy => format!("F.cross_entropy(outputs[{at}]{up}, target)"),
            Loss::Mse => format!("F.mse_loss(outputs[{at}], target)"),
            Loss::Bce => format!("F.binary_cross_entropy_with_logits(outputs[{at}], target)"),
            Loss::Auto | Loss::None => format!("outputs[{at}].mean()"),
        });
    }
    let _ = writeln!(out, "    return {}\n\n", terms.join(" + "));
    Ok(())
}

/// Integers of an input stay below the rows of the table that they pick from.
fn below(setting: &Setting<'_>, id: TensorId) -> u64 {
    // Through what changes their shape alone.
    let mut same = BTreeSet::from([id]);
    for node in &setting.graph.nodes {
        let input = |i: usize| node.inputs.get(i).copied().flatten();
        match node.op.name() {
            "Gather" if input(1).is_some_and(|id| same.contains(&id)) => {
                let axis = node.op.downcast::<memfit_graph::ops::gather::Gather>().map_or(0, |op| op.axis);
                let shape = input(0).and_then(|table| setting.inferred.shape(table)?.known());
                let at = usize::try_from(axis).unwrap_or(0);
                if let Some(rows) = shape.and_then(|s| s.get(at).copied()) {
                    return rows.max(1);
                }
            }
            "Cast" | "Reshape" | "Squeeze" | "Unsqueeze" | "Identity" | "Flatten"
                if input(0).is_some_and(|id| same.contains(&id)) =>
            {
                same.extend(node.outputs.iter().flatten());
            }
            _ => {}
        }
    }
    2
}

#[cfg(test)]
mod tests {
    use super::*;
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
    fn what_is_not_written_is_told_at_once() {
        let parallel = memfit_engine::parallel::Parallel::data(2, memfit_engine::parallel::Sharding::Ddp);
        let plan = Plan { optimizer: "nobody".into(), parallel: Some(parallel), ..Plan::default() };
        let problems = written(&plan).unwrap_err();
        assert_eq!(problems.len(), 2, "{problems:?}");
    }
}
