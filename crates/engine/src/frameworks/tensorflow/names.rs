//! The names that kernels have in the graph, as far as an order depends on them.
//!
//! Grappler sorts the inputs of kernels that commute by name (grappler/utils.cc, `CanonicalizeNode`, which
//! common_subgraph_elimination.cc calls), so names decide which of a sum's terms the next walk meets first. Sums of gradients are called
//! `AddN`, forward's kernels `MODEL_1/LAYER_1/SCOPE/mul_1`, backward's `gradient_tape/MODEL_1/LAYER_1/SCOPE/mul_1/Mul`, where a function
//! that opens no scope of its own (`Softmax`) leaves its name out of its gradient's.
//! What a function of Keras or TensorFlow calls its kernels is only known as far as [`called`] goes: most are called what
//! they are, and those that Python's operators make begin with a small letter. An operation between layers has no scope.
//! Keras 3 opens a layer's scope twice in each call, once to build it and once to run it (keras/src/layers/layer.py, `__call__`), so a layer
//! runs in the second: `dense_1` is `dense`'s where it was called first, and `dense_1`'s is then `dense_1_2` (framework/ops.py, `unique_name`).
//! Keras 2 hands its variables to TensorFlow's functions, which read them in their own scopes (`mul/ReadVariableOp`); an operator of Python
//! whose first operand is a variable reads it beside its own.

use super::Flow;
use memfit_graph::kernels::{Effect, Kernel, OF_MODEL, Stage};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Kernels that commute (`SetIsCommutative` in core/ops/math_ops.cc).
const COMMUTATIVE: &[&str] = &[
    "AddN",
    "AddV2",
    "BitwiseAnd",
    "Equal",
    "LogicalAnd",
    "LogicalOr",
    "Mul",
    "NotEqual",
    "SquaredDifference",
];

/// Kernels that Python's operators make.
const OPERATORS: &[&str] = &["AddV2", "Mul", "RealDiv", "Sub"];

/// Whether grappler sorts what this kernel reads.
pub(super) fn commutes(kernel: &Kernel) -> bool {
    COMMUTATIVE.contains(&kernel.name)
}

/// Kernels whose function opens a scope of its own, in which their gradients are made.
const SCOPED: &[&str] = &[
    "AddV2",
    "BatchMatMulV2",
    "BiasAdd",
    "Conv2D",
    "Conv3D",
    "Einsum",
    "MatMul",
    "Mul",
    "RealDiv",
    "Sub",
    "Transpose",
];

/// Names of a graph's kernels. They stay when kernels read something else.
pub(super) struct Names<'a> {
    model: &'a str,
    /// The scopes of the layers, by their number.
    layers: Vec<String>,
    /// By kernel, how many of its name stand before it in its scope.
    earlier: Vec<u32>,
    /// What Keras appends to a name that it calls a second time, once to make the model and once to trace the step: version 2 has a graph for
    /// each.
    again: &'static [u8],
    /// By kernel, which one it reads a variable for, where its name tells.
    read_for: Vec<Option<u32>>,
    /// Whether the optimizer's scope comes after the model's in the alphabet.
    pub(super) optimizer_is_last: bool,
}

impl<'a> Names<'a> {
    /// The names of the kernels of this model, which belong to these layers.
    pub(super) fn of(flow: &Flow, model: &'a str, layers: &'a [Arc<str>]) -> Names<'a> {
        let mut counts: BTreeMap<_, u32> = BTreeMap::new();
        let mut earlier = Vec::with_capacity(flow.kernels.len());
        for kernel in &flow.kernels {
            let of = scoped_gradient(flow, kernel);
            let layer = Some(kernel.layer).filter(|_| !kernel.scope.starts_with(OF_MODEL));
            let count = counts.entry((layer, kernel.stage, kernel.scope, of, called(kernel))).or_default();
            earlier.push(*count);
            *count += 1;
        }
        let again = if flow.keras_2.is_some() { b"/".as_slice() } else { b"_1/" };
        let layers = match flow.keras_2 {
            None => scopes(flow, layers),
            Some(_) => layers.iter().map(|name| name.to_string()).collect(),
        };
        let mut read_for = vec![None; flow.kernels.len()];
        for (at, kernel) in (0..).zip(&flow.kernels).filter(|_| flow.keras_2.is_some()) {
            for (i, wire) in kernel.inputs.iter().enumerate() {
                let is_named = i > 0 || !OPERATORS.contains(&kernel.name);
                if matches!(flow.kernel(*wire).effect, Effect::Read(_)) && is_named {
                    read_for[wire.kernel as usize].get_or_insert(at);
                }
            }
        }
        Names { model, layers, earlier, again, read_for, optimizer_is_last: false }
    }

    /// The same where the step is this optimizer's. A model without a name is called after its class.
    pub(super) fn with(self, optimizer: &str) -> Names<'a> {
        let model = if self.model.is_empty() { "functional" } else { self.model };
        let is_keras_3 = self.again.len() > 1;
        let scope = scope_of(optimizer).bytes().enumerate();
        // Keras 2 opens a scope that is called as the class is (optimizer.py, `apply_gradients`).
        let scope =
            scope.map(|(i, letter)| if i > 0 || is_keras_3 { letter } else { letter.to_ascii_uppercase() });
        let last = scope.gt(self.path(model));
        Names { optimizer_is_last: last, ..self }
    }

    /// Which of two kernels has the name that comes first in the alphabet.
    pub(super) fn compare(&self, flow: &Flow, a: u32, b: u32) -> Ordering {
        let [of_a, of_b] = [a, b].map(|at| &flow.kernels[self.read_for[at as usize].unwrap_or(at) as usize]);
        self.scope(of_a).cmp(self.scope(of_b)).then_with(|| self.inner(flow, a).cmp(&self.inner(flow, b)))
    }

    /// Puts kernels into the order of their names.
    pub(super) fn sort(&self, flow: &Flow, kernels: &mut [u32]) {
        kernels.sort_by(|a, b| self.compare(flow, *a, *b));
    }

    /// The scopes around a kernel, each with a slash.
    fn scope<'n>(&'n self, kernel: &Kernel) -> impl Iterator<Item = u8> + use<'n, 'a> {
        let root = match kernel.stage {
            _ if kernel.name == "AddN" => "AddN",
            Stage::Backward => "gradient_tape/",
            Stage::Forward | Stage::Update => "",
        };
        let (is_layer, own) = match kernel.scope.strip_prefix(OF_MODEL) {
            Some(own) => (false, own.trim_start_matches('/')),
            None => (true, kernel.scope),
        };
        let layer = self.layers.get(kernel.layer as usize).filter(|_| is_layer).map_or("", |name| &**name);
        let model = Some(self.model).filter(|_| !layer.starts_with('(')).unwrap_or("");
        let own = Some(own)
            .filter(|scope| !scope.is_empty())
            .into_iter()
            .flat_map(|scope| scope.bytes().chain([b'/']));
        let end = if layer.is_empty() { "" } else { "/" };
        root.bytes().chain(self.path(model)).chain(layer.bytes()).chain(end.bytes()).chain(own)
    }

    /// The name of the model in a path.
    fn path<'n>(&self, name: &'n str) -> impl Iterator<Item = u8> + use<'n> {
        let ending = if name.is_empty() { b"" } else { self.again };
        name.bytes().chain(ending.iter().copied())
    }

    /// What Python calls a kernel: Keras 2 calls no function of its own around a convolution.
    fn called(&self, kernel: &Kernel) -> &'static str {
        match kernel.name {
            "Conv2D" | "Conv3D" if self.again.len() == 1 => kernel.name,
            _ => called(kernel),
        }
    }

    /// What comes after the scope.
    fn inner(&self, flow: &Flow, at: u32) -> String {
        if let Some(reader) = self.read_for[at as usize] {
            return format!("{}/ReadVariableOp", self.inner(flow, reader));
        }
        let kernel = &flow.kernels[at as usize];
        let called = self.called(kernel);
        let own = match self.earlier[at as usize] {
            0 => called.to_owned(),
            n => format!("{called}_{n}"),
        };
        match scoped_gradient(flow, kernel) {
            Some(of) => format!("{}/{own}", self.inner(flow, of)),
            None => own,
        }
    }
}

/// The scopes in which Keras 3 runs layers, in the order of their calls: of a layer in a model, below that one's.
fn scopes(flow: &Flow, layers: &[Arc<str>]) -> Vec<String> {
    let mut used = BTreeMap::new();
    // By the path of a layer or a model, its scope.
    let mut opened: BTreeMap<&str, String> = BTreeMap::new();
    for kernel in flow.kernels.iter().filter(|kernel| kernel.stage == Stage::Forward) {
        let Some(path) = layers.get(kernel.layer as usize) else { continue };
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        let mut around = String::new();
        for end in ends {
            let part = path.get(..end).unwrap_or_default();
            let scope = opened.entry(part).or_insert_with(|| {
                let name = part.rsplit('/').next().unwrap_or_default();
                unique(&mut used, &format!("{around}{name}"));
                unique(&mut used, &format!("{around}{name}"))
            });
            around = format!("{scope}/");
        }
    }
    let scope = |path: &Arc<str>| opened.get(&**path).cloned().unwrap_or_else(|| format!("{path}_1"));
    layers.iter().map(scope).collect()
}

/// A name that was not used before: this one, or with the first number that makes it one.
fn unique(used: &mut BTreeMap<String, u32>, name: &str) -> String {
    let count = used.entry(name.to_owned()).or_default();
    let mut number = *count;
    *count += 1;
    let mut found = name.to_owned();
    if number > 0 {
        while used.contains_key(&found) {
            found = format!("{name}_{number}");
            number += 1;
        }
        used.insert(found.clone(), 1);
    }
    found
}

/// The scope that Keras opens for an optimizer: its class in small letters (`auto_name`, keras/src/utils/naming.py).
fn scope_of(optimizer: &str) -> &str {
    match optimizer.split('-').next().unwrap_or_default() {
        "adamw" => "adam_w",
        "amsgrad" => "adam",
        "momentum" | "nesterov" => "sgd",
        "rmsprop" => "rm_sprop",
        class => class,
    }
}

/// The forward kernel in whose own scope a gradient kernel is.
fn scoped_gradient(flow: &Flow, kernel: &Kernel) -> Option<u32> {
    let of = kernel.gradient_of.filter(|_| kernel.stage == Stage::Backward)?;
    SCOPED.contains(&flow.kernels.get(of as usize)?.name).then_some(of)
}

/// What Python calls a kernel.
fn called(kernel: &Kernel) -> &'static str {
    match kernel.name {
        "AddV2" if kernel.scope == OF_MODEL => "Add",
        "Mul" | "Sub" if kernel.scope == OF_MODEL => kernel.name,
        "AddV2" => "add",
        "BatchMatMulV2" => "MatMul",
        "ConcatV2" => "concat",
        "Conv2D" | "Conv3D" => "convolution",
        "Mul" => "mul",
        "RealDiv" => "truediv",
        "StridedSlice" => "strided_slice",
        "Sub" => "sub",
        "Transpose" => "transpose",
        name => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_graph::DType;

    #[test]
    fn terms_of_a_sum_are_sorted_by_where_they_were_made() {
        let mut flow = Flow::default();
        let x = flow.constant(&[2], DType::Float32);
        let mut made = Vec::new();
        for (layer, scope, name) in
            [(1, "", "Sub"), (0, "value", "MatMul"), (0, "key", "MatMul"), (0, "key", "Mul")]
        {
            (flow.layer, flow.scope) = (layer, scope);
            made.push(flow.scaled(name, x).kernel);
        }
        flow.stage = Stage::Backward;
        made.push(flow.scaled("Mul", x).kernel);
        flow.push("AddN", &[x], Vec::new(), None);
        let last = u32::try_from(flow.kernels.len() - 1).unwrap();
        made.push(last);
        let layers = ["attention".into(), "conv2d".into()];
        for (model, expected) in [
            ("functional", [last, made[2], made[3], made[1], made[0], made[4]]),
            ("resnet", [last, made[4], made[2], made[3], made[1], made[0]]),
        ] {
            let names = Names::of(&flow, model, &layers);
            let mut sorted = made.clone();
            sorted.sort_by(|a, b| names.compare(&flow, *a, *b));
            assert_eq!(sorted, expected, "{model}");
        }
    }

    #[test]
    fn a_layer_runs_in_the_second_scope_that_it_opens() {
        let mut flow = Flow::default();
        let x = flow.constant(&[2], DType::Float32);
        let scopes = |flow: &mut Flow, layers: &[&str], calls: &[u32]| {
            flow.kernels.truncate(1);
            for layer in calls {
                flow.layer = *layer;
                flow.scaled("Mul", x);
            }
            let layers: Vec<Arc<str>> = layers.iter().map(|name| (*name).into()).collect();
            super::scopes(flow, &layers).split_off(1)
        };
        let layers = ["(inputs)", "conv1d", "conv1d_1", "conv1d_2"];
        assert_eq!(scopes(&mut flow, &layers, &[1, 2, 3]), ["conv1d_1", "conv1d_1_2", "conv1d_2_1"]);
        // A shortcut's layer was made first and is called last.
        let layers = ["(inputs)", "conv1d", "conv1d_1", "conv1d_2", "conv1d_3"];
        let found = scopes(&mut flow, &layers, &[2, 3, 1, 4]);
        assert_eq!(found, ["conv1d_3", "conv1d_1_1", "conv1d_2_1", "conv1d_3_2"]);
        let layers = ["(inputs)", "encoder/dense", "encoder/dense_1", "dense"];
        assert_eq!(
            scopes(&mut flow, &layers, &[1, 2, 3]),
            ["encoder_1/dense_1", "encoder_1/dense_1_2", "dense_1"]
        );
    }

    #[test]
    fn an_optimizer_is_compared_with_the_model() {
        let is_last = |model: &str, optimizer| {
            Names::of(&Flow::default(), model, &[]).with(optimizer).optimizer_is_last
        };
        for (model, optimizer, expected) in [
            ("functional", "adam", false),
            ("functional", "momentum", true),
            ("functional", "rmsprop-centered", true),
            ("sequential", "rmsprop", false),
            ("sequential", "sgd", true),
            ("Unet", "adam", true),
            ("", "adam", false),
        ] {
            assert_eq!(is_last(model, optimizer), expected, "{model} {optimizer}");
        }
    }

    #[test]
    fn tenth_comes_before_second() {
        let mut flow = Flow::default();
        let x = flow.constant(&[2], DType::Float32);
        let muls: Vec<u32> = (0..11).map(|_| flow.scaled("Mul", x).kernel).collect();
        let names = Names::of(&flow, "m", &[]);
        assert_eq!(names.compare(&flow, muls[10], muls[2]), Ordering::Less);
        assert_eq!(names.compare(&flow, muls[0], muls[10]), Ordering::Less);
    }
}
