//! What one operator sees of the graph while it is written as calls of torch.

use super::quoted;
use memfit_engine::{Setting, Stored};
use memfit_graph::{DType, Node, Num, Op, TensorId, Value};
use std::sync::Arc;

/// Why an operator cannot be written.
pub(super) type Refusal = String;

/// One or more calls: what they read and make is known, so that a line nobody needs is left out and a name is deleted after its last use.
pub(super) struct Line {
    pub(super) layer: Arc<str>,
    /// The number of its node.
    pub(super) number: usize,
    pub(super) text: String,
    pub(super) reads: Vec<TensorId>,
    pub(super) makes: Vec<TensorId>,
    /// A module that holds this operator's own parameters: its name and constructor.
    pub(super) module: Option<(String, String)>,
}

/// An operator while it is written.
pub(super) struct At<'a> {
    pub(super) setting: &'a Setting<'a>,
    pub(super) node: &'a Node,
    pub(super) training: bool,
    /// The number of the node, which names its module.
    pub(super) number: usize,
    reads: Vec<TensorId>,
    makes: Vec<TensorId>,
    text: Vec<String>,
    module: Option<(String, String)>,
}

impl<'a> At<'a> {
    pub(super) fn new(setting: &'a Setting<'a>, node: &'a Node, number: usize, training: bool) -> At<'a> {
        let (reads, makes, text) = (Vec::new(), Vec::new(), Vec::new());
        At { setting, node, training, number, reads, makes, text, module: None }
    }

    pub(super) fn line(self) -> Line {
        let (text, reads, makes) = (self.text.join("\n"), self.reads, self.makes);
        let (layer, number) = (self.node.path().clone(), self.number);
        Line { layer, number, text, reads, makes, module: self.module }
    }

    /// The operator with its attributes.
    pub(super) fn op<T: Op>(&self) -> Result<&'a T, Refusal> {
        self.node.op.downcast::<T>().ok_or_else(|| "an unknown form".into())
    }

    pub(super) fn id(&self, i: usize) -> Option<TensorId> {
        self.node.inputs.get(i).copied().flatten()
    }

    fn given(&self, i: usize) -> Result<TensorId, Refusal> {
        self.id(i).ok_or_else(|| format!("input {i} is absent"))
    }

    pub(super) fn value(&self, i: usize) -> Option<&'a Value> {
        self.setting.inferred.value(self.id(i)?)
    }

    pub(super) fn ints(&self, i: usize) -> Option<Vec<i64>> {
        self.value(i)?.ints()
    }

    /// The only element of input `i`, where it is known.
    pub(super) fn number(&self, i: usize) -> Option<f64> {
        self.value(i)?.single().and_then(Num::as_f64)
    }

    /// Input `i` as an expression: a name, or the number that it is on the host.
    pub(super) fn input(&mut self, i: usize) -> Result<String, Refusal> {
        let id = self.given(i)?;
        let single = self.setting.inferred.value(id).and_then(Value::single);
        if let (true, Some(number)) = (self.setting.host[id.index()], single) {
            return literal(number, self.setting.inferred.dtype(id)).ok_or("a size that is not known".into());
        }
        Ok(self.tensor(id))
    }

    /// Input `i` on the device, also where it is one number.
    pub(super) fn on_device(&mut self, i: usize) -> Result<String, Refusal> {
        self.given(i).map(|id| self.tensor(id))
    }

    /// Input `i`, or `None`.
    pub(super) fn optional(&mut self, i: usize) -> Result<String, Refusal> {
        if self.id(i).is_some() { self.on_device(i) } else { Ok("None".into()) }
    }

    fn tensor(&mut self, id: TensorId) -> String {
        if !self.reads.contains(&id) {
            self.reads.push(id);
        }
        name(self.setting, id)
    }

    pub(super) fn shape(&self, i: usize) -> Result<Vec<u64>, Refusal> {
        self.known(self.given(i)?)
    }

    pub(super) fn rank(&self, i: usize) -> Result<usize, Refusal> {
        Ok(self.shape(i)?.len())
    }

    pub(super) fn output(&self, j: usize) -> Option<TensorId> {
        self.node.outputs.get(j).copied().flatten()
    }

    pub(super) fn output_shape(&self, j: usize) -> Result<Vec<u64>, Refusal> {
        self.known(self.output(j).ok_or_else(|| format!("output {j} is absent"))?)
    }

    pub(super) fn dtype(&self, id: TensorId) -> DType {
        self.setting.inferred.dtype(id)
    }

    fn known(&self, id: TensorId) -> Result<Vec<u64>, Refusal> {
        let shape = self.setting.inferred.shape(id).and_then(|s| s.known());
        shape.ok_or_else(|| format!("the size of {} depends on the data", self.setting.graph.tensor(id).name))
    }

    /// An axis counted from the front.
    pub(super) fn axis(&self, axis: i64, rank: usize) -> Result<usize, Refusal> {
        let at = if axis < 0 { axis.saturating_add_unsigned(rank as u64) } else { axis };
        usize::try_from(at).ok().filter(|at| *at < rank).ok_or_else(|| format!("there is no axis {axis}"))
    }

    /// Output 0 is this expression.
    pub(super) fn set(&mut self, expression: impl AsRef<str>) {
        self.set_at(0, expression);
    }

    pub(super) fn set_at(&mut self, j: usize, expression: impl AsRef<str>) {
        if let Some(id) = self.output(j) {
            self.makes.push(id);
            self.text.push(format!("{} = {}", name(self.setting, id), expression.as_ref()));
        }
    }

    /// Outputs from `from` on are what a call gives in a tuple.
    pub(super) fn set_all(&mut self, expression: impl AsRef<str>) {
        let mut names = String::new();
        for id in &self.node.outputs {
            let name = id.map_or_else(|| "_".to_owned(), |id| name(self.setting, id));
            names += &format!("{name}, ");
            self.makes.extend(*id);
        }
        self.text.push(format!("{names}= {}", expression.as_ref()));
    }

    /// A module of torch's own that holds the parameters of this operator; gives its name.
    pub(super) fn module(&mut self, constructor: String) -> String {
        let name = format!("m{}", self.number);
        self.module = Some((name.clone(), constructor));
        format!("self.{name}")
    }

    /// Whether the stored input is trained.
    pub(super) fn trains(&self, i: usize) -> bool {
        self.id(i).is_none_or(|id| self.setting.stored[id.index()] != Some(Stored::Frozen))
    }
}

/// What a tensor is called: stored ones are the module's.
pub(super) fn name(setting: &Setting<'_>, id: TensorId) -> String {
    let known = setting.inferred.value(id).is_some_and(Value::is_known);
    let input = setting.graph.inputs.contains(&id);
    if setting.stored[id.index()].is_some() || known && !input {
        format!("self.t{}", id.0)
    } else {
        format!("t{}", id.0)
    }
}

/// Whether an expression is a tensor's name rather than a number.
pub(super) fn is_tensor(expression: &str) -> bool {
    let digit = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
    expression.strip_prefix("self.t").or_else(|| expression.strip_prefix('t')).is_some_and(digit)
}

/// A number of Python.
pub(super) fn literal(number: &Num, dtype: DType) -> Option<String> {
    match dtype {
        DType::Bool => number.as_i64().map(|n| truth(n != 0).into()),
        d if d.is_float() => number.as_f64().map(float),
        _ => number.as_i64().map(|n| n.to_string()),
    }
}

/// A truth value of Python.
pub(super) fn truth(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}

/// A float of Python, which has no literal for what is not finite.
pub(super) fn float(x: f64) -> String {
    if x.is_finite() { format!("{x:?}") } else { format!("float({})", quoted(&x.to_string())) }
}

/// A tuple of Python.
pub(super) fn tuple<T: std::fmt::Display>(items: &[T]) -> String {
    let inner: Vec<String> = items.iter().map(ToString::to_string).collect();
    match &inner[..] {
        [one] => format!("({one},)"),
        all => format!("({})", all.join(", ")),
    }
}

/// The name of a dtype in torch; `DTYPE` is the model's own float.
pub(super) fn torch_dtype(dtype: DType) -> Result<&'static str, Refusal> {
    Ok(match dtype {
        DType::Float32 => "DTYPE",
        DType::Float64 => "torch.float64",
        DType::Float16 => "torch.float16",
        DType::Bfloat16 => "torch.bfloat16",
        DType::Bool => "torch.bool",
        DType::Int8 => "torch.int8",
        DType::Uint8 => "torch.uint8",
        DType::Int16 => "torch.int16",
        DType::Int32 => "torch.int32",
        DType::Int64 => "torch.int64",
        other => return Err(format!("{} tensors", other.name())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_python() {
        assert_eq!(float(1e-5), "1e-5");
        assert_eq!(float(f64::NEG_INFINITY), "float(\"-inf\")");
        assert_eq!(tuple(&[3]), "(3,)");
        assert_eq!(tuple::<u64>(&[]), "()");
        assert_eq!(literal(&Num::Int(1), DType::Bool).as_deref(), Some("True"));
        assert_eq!(literal(&Num::Int(2), DType::Float32).as_deref(), Some("2.0"));
        assert!(is_tensor("t12") && is_tensor("self.t3") && !is_tensor("True") && !is_tensor("1.0"));
    }
}
