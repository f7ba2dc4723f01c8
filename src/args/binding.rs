//! The model and the numbers it leaves open: from flags to a [`Binding`].

use super::typed::{self, Given, Input, InputValue};
use clap::Args;
use memfit_graph::{Binding, DType, Dim, Graph, Num, Problem, Shape, Type, Value, batch_symbol};
use memfit_keras::{Custom, Options};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

#[derive(Args, Debug)]
pub(crate) struct ModelArgs {
    /// An .onnx, .keras, .h5 or .json file, a directory that holds a config.json, or - for standard input
    #[arg(value_name = "MODEL")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) sizes: SizeArgs,
}

impl ModelArgs {
    /// The same numbers for another file.
    pub(crate) fn of(&self, file: &Path) -> ModelArgs {
        self.sizes.of(file)
    }

    /// What the flags mean for this model, or everything that is wrong with them.
    pub(crate) fn binding(&self, graph: &Graph) -> Result<Binding, Vec<Problem>> {
        self.sizes.binding(graph)
    }
}

/// Numbers that a model leaves open.
#[derive(Args, Clone, Debug)]
pub(crate) struct SizeArgs {
    /// Samples in a batch: binds the batch axis of every input, also where the file fixes it
    #[arg(short, long, value_name = "N", value_parser = typed::count::<u64>, allow_negative_numbers = true, help_heading = "Sizes that the model leaves open")]
    pub(crate) batch_size: Option<u64>,
    /// Give a named size: --set seq=512
    #[arg(long, value_name = "NAME=N", value_parser = typed::size, help_heading = "Sizes that the model leaves open")]
    set: Vec<(String, u64)>,
    /// Give an input's whole shape: --input image:8x3x224x224
    #[arg(long, value_name = "NAME:SHAPE", value_parser = typed::input, help_heading = "Sizes that the model leaves open")]
    input: Vec<Input>,
    /// Give an input's elements, where shapes depend on them: --value target=8,64
    #[arg(long, value_name = "NAME=A,B,…", value_parser = typed::value, help_heading = "Sizes that the model leaves open")]
    value: Vec<InputValue>,
    /// Tell what a Keras file does not say of a custom layer: --layer scale:shape=7x7x64,params=1000
    #[arg(long, value_name = "NAME:WHAT", value_parser = typed::layer, help_heading = "Sizes that the model leaves open")]
    layer: Vec<(String, Custom)>,
}

impl SizeArgs {
    /// These numbers for a file.
    pub(crate) fn of(&self, file: &Path) -> ModelArgs {
        ModelArgs { file: file.to_owned(), sizes: self.clone() }
    }

    /// What the importer of Keras files is told.
    pub(crate) fn options(&self) -> Options {
        let shape = |input: &Input| match &input.given {
            Given::Shape(dims) => Some((input.name.clone().unwrap_or_default(), dims.clone())),
            _ => None,
        };
        Options {
            inputs: self.input.iter().filter_map(shape).collect(),
            layers: self.layer.iter().cloned().collect(),
        }
    }

    /// What does nothing for a file of this format.
    pub(crate) fn idle(&self, format: &str) -> Option<Problem> {
        let idle = !self.layer.is_empty() && format != "keras";
        idle.then(|| Problem::new("--layer", "it does nothing: it tells of custom layers in Keras files"))
    }

    /// The batch and those of the named sizes that another model of the process has.
    pub(crate) fn known_to(&self, graph: &Graph) -> Binding {
        let known = self.set.iter().filter(|(name, _)| unknown_symbol(graph, name).is_none());
        Binding { batch: self.batch_size, symbols: known.cloned().collect(), ..Binding::default() }
    }

    /// What the flags mean for this model, or everything that is wrong with them.
    pub(crate) fn binding(&self, graph: &Graph) -> Result<Binding, Vec<Problem>> {
        let mut binding = Binding { batch: self.batch_size, ..Binding::default() };
        let mut problems = Vec::new();
        for (name, n) in &self.set {
            if let Some(before) = binding.symbols.insert(name.clone(), *n).filter(|before| before != n) {
                problems.push(contradiction(&format!("--set {name}={before}"), &format!("--set {name}={n}")));
            }
            problems.extend(unknown_symbol(graph, name));
        }
        for input in &self.input {
            if let Err(problem) = bind_input(graph, &mut binding, input) {
                problems.push(problem);
            }
        }
        let typed = self.input.iter().map(|input| ("--input", input.name.as_deref().unwrap_or_default()));
        let typed = typed.chain(self.value.iter().map(|value| ("--value", &*value.name)));
        let typed = typed.chain(self.layer.iter().map(|(name, _)| ("--layer", &**name)));
        problems.extend(twice(typed));
        problems.extend(contradictions(graph, &binding));
        for given in &self.value {
            match value(graph, &binding, given) {
                Ok(value) => {
                    binding.shapes.entry(given.name.clone()).or_insert_with(|| value.shape.clone());
                    binding.values.insert(given.name.clone(), value);
                }
                Err(problem) => problems.push(problem),
            }
        }
        if problems.is_empty() { Ok(binding) } else { Err(problems) }
    }
}

/// A flag that says something of one name more than once: only one of them could hold.
fn twice<'a>(flags: impl Iterator<Item = (&'static str, &'a str)>) -> Vec<Problem> {
    let (mut seen, mut problems) = (BTreeSet::new(), Vec::new());
    for (flag, name) in flags.filter(|of| !seen.insert(*of)) {
        problems.push(
            Problem::new(format!("{flag} {name}").trim_end(), "it is given more than once")
                .hint("leave all but one of them out"),
        );
    }
    problems
}

fn contradiction(one: &str, other: &str) -> Problem {
    Problem::new(one, format!("it says another size than {other}")).hint("leave one of them out")
}

/// Where the batch size, named sizes and whole shapes say different sizes of the same axis, and a batch without samples.
fn contradictions(graph: &Graph, binding: &Binding) -> Vec<Problem> {
    let mut problems = Vec::new();
    let batch = batch_symbol(graph);
    let sized = |name: &str| {
        let set = binding.symbols.get(name).map(|n| (*n, format!("--set {name}={n}")));
        let is_batch = batch.as_deref() == Some(name);
        set.or_else(|| binding.batch.filter(|_| is_batch).map(|n| (n, format!("-b {n}"))))
    };
    if let (Some(n), Some(name)) = (binding.batch, &batch)
        && let Some((_, set)) = sized(name).filter(|(other, _)| *other != n)
    {
        problems.push(contradiction(&format!("-b {n}"), &set));
    }
    for (at, tensor) in graph.inputs.iter().map(|id| graph.tensor(*id)).enumerate() {
        let Some(given) = binding.shapes.get(&*tensor.name) else { continue };
        let dims: Vec<String> = given.iter().map(u64::to_string).collect();
        let flag = format!("--input {}:{}", tensor.name, dims.join("x"));
        let declared = tensor.declared.shape().map_or(&[][..], |shape| shape.dims());
        for (axis, (dim, n)) in declared.iter().zip(given).enumerate() {
            let name = dim.symbols().next().filter(|name| *dim == Dim::symbol(name));
            // In a file without open sizes -b replaces the first of each input; of others than the first it is not sure to be the batch.
            let fixed_batch = batch.is_none() && at == 0 && axis == 0;
            let said = match name {
                Some(name) => sized(name),
                None => binding.batch.filter(|_| fixed_batch).map(|n| (n, format!("-b {n}"))),
            };
            if let Some((_, other)) = said.filter(|(size, _)| size != n) {
                problems.push(contradiction(&flag, &other));
            } else if *n == 0 && (fixed_batch || name.is_some() && name == batch.as_deref()) {
                problems.push(Problem::new(&flag, "expected a batch of at least one sample, found 0"));
            }
        }
    }
    problems
}

/// Gives an input its shape, or its whole type where it is no dense tensor. Names are checked by inference.
fn bind_input(graph: &Graph, binding: &mut Binding, input: &Input) -> Result<(), Problem> {
    let name = input.name.clone().map_or_else(|| only_input(graph), Ok)?;
    let id = graph.inputs.iter().find(|id| *graph.tensor(**id).name == *name);
    let declared = id.map_or(&Type::Unknown, |id| &graph.tensor(*id).declared);
    let ty = match (&input.given, declared) {
        (Given::Shape(dims), Type::Unknown | Type::Tensor(_)) => {
            binding.shapes.insert(name, dims.clone());
            return Ok(());
        }
        (given, Type::Optional { element, .. }) => match given {
            Given::Absent => Some(Type::Optional { element: element.clone(), present: Some(false) }),
            given => whole_type(given, element)
                .map(|element| Type::Optional { element: Box::new(element), present: Some(true) }),
        },
        (given, declared) => whole_type(given, declared),
    };
    let ty = ty.ok_or_else(|| {
        Problem::new(format!("--input {name}"), "what is given does not suit the input's type")
            .hint("8x3 is a tensor, [8x3,4x3] a sequence, absent an optional without a value")
    })?;
    binding.types.insert(name, ty);
    Ok(())
}

/// The declared type with the given sizes in it.
fn whole_type(given: &Given, declared: &Type) -> Option<Type> {
    let of =
        |dims: &[u64], ty: &Type| Type::tensor(ty.dtype().unwrap_or(DType::Undefined), Shape::from(dims));
    match (given, declared) {
        (Given::Shape(dims), Type::Tensor(_) | Type::Unknown) => Some(of(dims, declared)),
        (Given::Items(items), Type::Sequence { element, .. }) => {
            Some(Type::sequence(items.iter().map(|dims| of(dims, element)).collect()))
        }
        _ => None,
    }
}

fn unknown_symbol(graph: &Graph, name: &str) -> Option<Problem> {
    let shapes = graph.inputs.iter().filter_map(|id| graph.tensor(*id).declared.shape());
    let mut symbols: Vec<&str> = shapes.flat_map(|s| s.dims()).flat_map(Dim::symbols).collect();
    symbols.sort_unstable();
    symbols.dedup();
    if symbols.contains(&name) {
        return None;
    }
    let hint = if symbols.is_empty() {
        "its inputs have fixed sizes; -b and --input replace them".to_owned()
    } else {
        format!("its named sizes are: {}", symbols.join(", "))
    };
    Some(Problem::new(format!("--set {name}"), "the model has no size of this name").hint(hint))
}

fn only_input(graph: &Graph) -> Result<String, Problem> {
    let names: Vec<&str> = graph.inputs.iter().map(|id| &*graph.tensor(*id).name).collect();
    match names[..] {
        [one] => Ok(one.to_owned()),
        _ => Err(Problem::new("--input", "expected NAME:SHAPE, since the model has not just one input")
            .hint(format!("its inputs are: {}", names.join(", ")))),
    }
}

/// The elements as the input's dtype takes them, in the shape that is declared or given.
fn value(graph: &Graph, binding: &Binding, given: &InputValue) -> Result<Value, Problem> {
    let problem = |message: String| Problem::new(format!("--value {}", given.name), message);
    let Some(id) = graph.inputs.iter().find(|id| *graph.tensor(**id).name == *given.name) else {
        let names: Vec<&str> = graph.inputs.iter().map(|id| &*graph.tensor(*id).name).collect();
        return Err(problem("the model has no input of this name".into())
            .hint(format!("its inputs are: {}", names.join(", "))));
    };
    let declared = &graph.tensor(*id).declared;
    let dtype = declared.dtype().unwrap_or(DType::Undefined);
    let data = given.elements.iter().map(|text| {
        element(text, dtype).ok_or_else(|| problem(format!("expected elements of {dtype}, found `{text}`")))
    });
    let data = data.collect::<Result<Vec<_>, _>>()?;
    let count = data.len() as u64;
    if count > Value::MAX_ELEMENTS {
        return Err(problem(format!("expected at most {} elements, found {count}", Value::MAX_ELEMENTS)));
    }
    let dims: Vec<Option<u64>> = match (binding.shapes.get(&given.name), declared.shape()) {
        (Some(shape), _) => shape.iter().copied().map(Some).collect(),
        (None, Some(shape)) => {
            let bound = |d: &Dim| d.bind(&|name| binding.symbols.get(name).copied()).known();
            shape.dims().iter().map(bound).collect()
        }
        (None, None) => vec![None],
    };
    let shape = solve(&dims, count).map_err(|message| {
        problem(message).hint(format!("give its shape too: --input {}:SHAPE", given.name))
    })?;
    Ok(Value { dtype, shape, data })
}

/// The shape that holds `count` elements, where at most one dim is open.
fn solve(dims: &[Option<u64>], count: u64) -> Result<Vec<u64>, String> {
    let known = dims.iter().flatten().try_fold(1_u64, |n, d| n.checked_mul(*d)).unwrap_or(u64::MAX);
    let open = match dims.iter().filter(|d| d.is_none()).count() {
        0 if known == count => 0,
        0 => return Err(format!("expected {known} elements, found {count}")),
        1 if known > 0 && count.is_multiple_of(known) => count / known,
        1 => return Err(format!("expected a multiple of {known} elements, found {count}")),
        _ => return Err("its shape has more than one size that is not known".into()),
    };
    Ok(dims.iter().map(|d| d.unwrap_or(open)).collect())
}

fn element(text: &str, dtype: DType) -> Option<Num> {
    match dtype {
        DType::String => None,
        DType::Bool => match &*text.to_ascii_lowercase() {
            "true" | "1" => Some(Num::Int(1)),
            "false" | "0" => Some(Num::Int(0)),
            _ => None,
        },
        d if d.is_integer() => {
            let exact = || Num::Float(text.parse().ok()?).as_i64();
            text.parse().ok().or_else(exact).map(Num::Int)
        }
        _ => text.parse().ok().map(Num::Float),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use memfit_graph::{Role, Shape, Type};

    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        model: ModelArgs,
    }

    /// ids[batch, seq] of int64, flag[] of bool, and parts, a sequence of float32.
    fn graph() -> Graph {
        let mut g = Graph::default();
        let ids: Shape = [Dim::symbol("batch"), Dim::symbol("seq")].into_iter().collect();
        let ids = g.add_tensor("ids", Type::tensor(DType::Int64, ids), Role::Input);
        let flag = g.add_tensor("flag", Type::tensor(DType::Bool, Shape::scalar()), Role::Input);
        let element = Box::new(Type::tensor(DType::Float32, Shape::from([1])));
        let parts = g.add_tensor("parts", Type::Sequence { element, items: None }, Role::Input);
        g.inputs = vec![ids, flag, parts];
        g
    }

    fn bind(flags: &[&str]) -> Result<Binding, Vec<Problem>> {
        let all = ["memfit", "m.onnx"].iter().chain(flags);
        Typed::try_parse_from(all).unwrap().model.binding(&graph())
    }

    #[test]
    fn values_take_the_dtype_and_the_shape_of_their_input() {
        let binding =
            bind(&["--set", "batch=2", "--value", "ids=1,2,3,4,5,6", "--value", "flag=true"]).unwrap();
        assert_eq!(binding.values["ids"].shape, [2, 3]);
        assert_eq!(binding.values["ids"].ints().unwrap(), [1, 2, 3, 4, 5, 6]);
        assert_eq!(binding.shapes["ids"], [2, 3]);
        assert_eq!(binding.values["flag"].shape, [0_u64; 0]);
    }

    #[test]
    fn sequences_are_given_item_by_item() {
        let binding = bind(&["--input", "parts:[4x3,2x3]"]).unwrap();
        let Type::Sequence { items: Some(items), .. } = &binding.types["parts"] else {
            panic!("{binding:?}")
        };
        assert_eq!(items[1], Type::tensor(DType::Float32, Shape::from([2, 3])));
        for wrong in ["parts:4x3", "parts:absent", "ids:[4x3]", "ids:absent"] {
            assert!(bind(&["--input", wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn one_name_is_told_once() {
        for flags in
            [["--input", "ids:4x3", "--input", "ids:4x5"], ["--value", "flag=true", "--value", "flag=false"]]
        {
            let problems = bind(&flags).unwrap_err();
            assert!(
                problems.len() == 1 && problems[0].to_string().contains("more than once"),
                "{problems:?}"
            );
        }
        assert!(bind(&["--input", "ids:4x3", "--input", "flag:1"]).is_ok());
    }

    #[test]
    fn sizes_that_contradict_each_other_are_named() {
        for (flags, one, other) in [
            (&["-b", "8", "--set", "batch=16"][..], "-b 8", "--set batch=16"),
            (&["-b", "8", "--input", "ids:4x128"], "--input ids:4x128", "-b 8"),
            (&["--set", "batch=4", "--set", "batch=5"], "--set batch=4", "--set batch=5"),
            (&["--set", "seq=4", "--input", "ids:2x3"], "--input ids:2x3", "--set seq=4"),
            (&["--input", "ids:0x128"], "--input ids:0x128", "found 0"),
        ] {
            let problems = bind(flags).unwrap_err();
            let text = problems[0].to_string();
            assert!(problems.len() == 1 && text.contains(one) && text.contains(other), "{text}");
        }
        let alike = ["-b", "8", "--set", "batch=8", "--set", "seq=0", "--input", "ids:8x0"];
        assert_eq!(bind(&alike).unwrap().batch, Some(8));
    }

    #[test]
    fn all_problems_are_told_with_hints() {
        let flags = ["--set", "sequence=4", "--input", "2x3", "--value", "ids=1,2", "--value", "flag=maybe"];
        let problems = bind(&flags).unwrap_err();
        let text: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert!(text[0].contains("batch, seq"), "{text:?}");
        assert!(text[1].contains("ids, flag, parts"), "{text:?}");
        assert!(text[2].contains("--input ids:SHAPE"), "{text:?}");
        assert!(text[3].contains("expected elements of bool, found `maybe`"), "{text:?}");
        assert!(
            bind(&["--input", "ids:2x3", "--value", "ids=1"]).unwrap_err()[0].message.contains("expected 6")
        );
        assert!(bind(&["--value", "nobody=1"]).unwrap_err()[0].hint.is_some());
    }
}
