//! What a layer says of itself, and a layer call as a node of the graph.
//!
//! A call is one [`Op`]: its inputs are the tensors of the call in Keras' order, then the layer's variables. Everything that how a
//! framework composes the layer depends on stays readable here: the layer's own config, the dtype policy, the version of
//! Keras that wrote the file, the arguments of this call.

use crate::arguments::Arguments;
use crate::cell::Cell;
use crate::operations::Operation;
use crate::policy::Policy;
use crate::run::Run;
use crate::spatial::DataFormat;
use crate::spec::Spec;
use crate::torch::Torch;
use memfit_graph::kernels::{TfLowering, Wire};
use memfit_graph::{
    Call as Aten, DType, Dim, Infer, Lowering, Op, OpError, Penalty, TensorType, Type, Variable,
};
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

/// The version of Keras that wrote the file. The same layer is composed differently by each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Keras {
    /// With the number after the point, the newest where the file does not say.
    V2(u32),
    V3,
}

/// What every layer has.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Its class; a custom layer's carries its package (`lab>Scale`).
    pub class: String,
    /// Its name in its model.
    pub name: String,
    /// Whether its variables are trained, unless it says otherwise of some.
    pub trainable: bool,
    /// What it computes in and keeps.
    pub policy: Policy,
    /// Who wrote the file.
    pub keras: Keras,
    /// Where the channels of its images stand, of a layer that has a `data_format`.
    pub data_format: Option<DataFormat>,
    /// What its variables add to the loss, by the names that its config has for them (`kernel`, `recurrent`).
    pub penalties: Vec<(String, Penalty)>,
    /// What its outputs add.
    pub activity: Penalty,
}

impl Facts {
    /// What a variable of this name adds to the loss: `kernel` by `kernel_regularizer`, `recurrent_kernel` by `recurrent_regularizer`.
    pub(crate) fn penalty(&self, variable: &str) -> Penalty {
        let name = variable.rsplit('/').next().unwrap_or(variable);
        let is_meant = |key: &str| key == name || name.strip_suffix("_kernel") == Some(key);
        self.penalties.iter().find(|(key, _)| is_meant(key)).map(|(_, penalty)| *penalty).unwrap_or_default()
    }
}

/// A variable that a layer makes.
#[derive(Clone, Debug, PartialEq)]
pub struct Weight {
    /// Its name below the layer's: `kernel`.
    pub name: String,
    /// Dims.
    pub shape: Vec<u64>,
    /// Element type.
    pub dtype: DType,
    /// Whether it is trained, frozen, or state.
    pub variable: Variable,
}

/// One call of a layer.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The layer.
    pub facts: &'a Facts,
    /// What it is called on.
    pub arguments: &'a Arguments,
}

impl Call<'_> {
    /// The dtype of the arithmetic.
    pub fn compute(&self) -> DType {
        self.facts.policy.compute
    }

    /// The dtype that an input has after the layer cast it.
    pub fn cast(&self, dtype: DType) -> DType {
        self.facts.policy.cast(dtype)
    }

    /// What a layer inside of this one, called `name`, has of it: its policy may be its own.
    pub fn part(&self, name: &str) -> Facts {
        Facts { policy: self.facts.policy.of_part(name).clone(), ..self.facts.clone() }
    }

    /// A trained variable in the policy's dtype.
    pub fn weight(&self, name: &str, shape: impl Into<Vec<u64>>) -> Weight {
        let dtype = self.facts.policy.variable;
        Weight { name: name.into(), shape: shape.into(), dtype, variable: Variable::Trainable }
    }

    /// A variable that is never trained.
    pub fn state(&self, name: &str, shape: impl Into<Vec<u64>>) -> Weight {
        Weight { variable: Variable::State, ..self.weight(name, shape) }
    }

    /// A result of the layer's arithmetic.
    pub fn output(&self, dims: impl IntoIterator<Item = memfit_graph::Dim>) -> Spec {
        Spec::new(dims.into_iter().collect(), self.compute())
    }

    /// An input as the layer sees it, after its cast.
    pub fn seen(&self, spec: &Spec) -> Spec {
        Spec { dtype: self.cast(spec.dtype), ..spec.clone() }
    }
}

/// A layer with its configuration. See [`crate::layers`] for how a file of a layer is made.
pub trait Layer: Any + Debug + Send + Sync {
    /// The variables that it makes for these inputs, in the order in which Keras makes them.
    fn weights(&self, _: &Call<'_>, _inputs: &[Spec]) -> Result<Vec<Weight>, OpError> {
        Ok(Vec::new())
    }

    /// The tensors that it gives for these inputs; none where it cannot tell.
    fn outputs(&self, call: &Call<'_>, inputs: &[Spec]) -> Result<Vec<Spec>, OpError>;

    /// Whether what it does is known. A custom layer's is not.
    fn is_known(&self) -> bool {
        true
    }

    /// How many layers run in such a call, steps that are written out one by one counted each, which more than `most` are not.
    fn calls(&self, _: &Call<'_>, _inputs: &[Spec], _most: u64) -> u64 {
        1
    }

    /// The layer as one step of a recurrence, where it can be one.
    fn cell(&self) -> Option<&dyn Cell> {
        None
    }

    /// The ATen calls that Keras' PyTorch backend makes for it.
    fn pytorch(&self, run: &mut Torch<'_, '_>) {
        run.not_modelled();
    }

    /// The kernels that Keras' TensorFlow backend runs for it.
    fn tensorflow(&self, run: &mut Run<'_, '_>) {
        run.not_modelled();
    }
}

impl dyn Layer {
    /// The layer as its own type.
    pub fn downcast<T: Layer>(&self) -> Option<&T> {
        let any: &dyn Any = self;
        any.downcast_ref()
    }
}

/// A layer as its file configures it.
#[derive(Clone, Debug)]
pub struct Configured {
    /// What every layer has.
    pub facts: Facts,
    /// What this one is.
    pub layer: Arc<dyn Layer>,
}

impl Configured {
    /// The variables of a layer that another one holds, named below it.
    pub fn weights(&self, arguments: &Arguments, inputs: &[Spec]) -> Result<Vec<Weight>, OpError> {
        let prefix = |w: Weight| Weight { name: format!("{}/{}", self.facts.name, w.name), ..w };
        Ok(self.own_weights(arguments, inputs)?.into_iter().map(prefix).collect())
    }

    /// The variables by their own names, frozen where the layer is.
    pub fn own_weights(&self, arguments: &Arguments, inputs: &[Spec]) -> Result<Vec<Weight>, OpError> {
        let mut weights = self.layer.weights(&Call { facts: &self.facts, arguments }, inputs)?;
        if !self.facts.trainable {
            for weight in weights.iter_mut().filter(|w| w.variable == Variable::Trainable) {
                weight.variable = Variable::Frozen;
            }
        }
        Ok(weights)
    }

    /// The tensors that it gives.
    pub fn outputs(&self, arguments: &Arguments, inputs: &[Spec]) -> Result<Vec<Spec>, OpError> {
        self.layer.outputs(&Call { facts: &self.facts, arguments }, inputs)
    }

    /// How many layers run in such a call: [`Layer::calls`].
    pub fn calls(&self, arguments: &Arguments, inputs: &[Spec], most: u64) -> u64 {
        self.layer.calls(&Call { facts: &self.facts, arguments }, inputs, most)
    }

    /// The first of the tensors that it gives.
    pub fn output(&self, arguments: &Arguments, inputs: &[Spec]) -> Result<Spec, OpError> {
        let first = self.outputs(arguments, inputs)?.into_iter().next();
        first.ok_or_else(|| OpError::mismatch(format!("an output of {}", self.facts.name), "none"))
    }
}

/// Layers that XLA does not compile (`self.supports_jit = False`, keras/src/layers/preprocessing), beside those that run on cuDNN.
const UNCOMPILED: &[&str] = &[
    "HashedCrossing",
    "Hashing",
    "IntegerLookup",
    "RandomCrop",
    "RandomPerspective",
    "RandomRotation",
    "RandomShear",
    "RandomTranslation",
    "RandomZoom",
    "StringLookup",
    "TextVectorization",
];

/// What the outputs of a layer add to the loss under PyTorch.
fn penalise(l: &mut Lowering<'_>, penalty: Penalty) {
    for (j, of) in l.bound().to_vec() {
        if !l.out_dtype(j).is_float() {
            continue;
        }
        for mut call in penalty.calls(l.out_shape(j)) {
            call.inputs[0] = of;
            let term = l.call(call);
            let sum = l.call(Aten::sum_of_all(term));
            l.add_to_loss(sum);
        }
    }
}

/// A layer call in the graph.
#[derive(Debug)]
pub struct LayerCall {
    /// `keras.Dense`: apart from ONNX' operators, some of which have the same names.
    name: String,
    /// The layer.
    pub layer: Configured,
    /// What it is called on.
    pub arguments: Arguments,
    /// How many of the node's inputs are tensors of the call; the others are variables.
    pub tensors: usize,
    /// What the tensors are with the file's own open sizes.
    inputs: Vec<Spec>,
    /// What the outputs are then, which is all that is known of a layer that cannot tell.
    outputs: Vec<Spec>,
}

impl LayerCall {
    pub(crate) fn new(
        layer: Configured,
        arguments: Arguments,
        tensors: usize,
        inputs: Vec<Spec>,
        outputs: Vec<Spec>,
    ) -> LayerCall {
        LayerCall { name: format!("keras.{}", layer.facts.class), layer, arguments, tensors, inputs, outputs }
    }

    /// The outputs of a layer that cannot tell: those at import, with sizes in the place of symbols that inputs now have.
    fn recorded(&self, inputs: &[Spec]) -> Vec<Spec> {
        let mut sizes: BTreeMap<&str, u64> = BTreeMap::new();
        for (old, new) in self.inputs.iter().zip(inputs) {
            for (old, new) in old.dims().iter().zip(new.dims()) {
                let mut names = old.symbols();
                if let (Some(name), None, Some(n)) = (names.next(), names.next(), new.known())
                    && *old == Dim::symbol(name)
                {
                    sizes.insert(name, n);
                }
            }
        }
        let bound = |d: &Dim| d.bind(&|name| sizes.get(name).copied());
        self.outputs.iter().map(|s| s.with(s.dims().iter().map(bound))).collect()
    }
}

impl Op for LayerCall {
    fn name(&self) -> &str {
        &self.name
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError> {
        let input = |i: usize| {
            let TensorType { dtype, shape } = cx.ty(i).as_tensor()?;
            Some(Spec::new(shape.clone()?, *dtype))
        };
        let inputs: Option<Vec<Spec>> = (0..self.tensors).map(input).collect();
        // Where an input is not known, what the file recorded stands as the declared type.
        let Some(inputs) = inputs else { return Ok(()) };
        let mut outputs = Vec::new();
        if self.layer.layer.is_known() {
            outputs = self.layer.outputs(&self.arguments, &inputs)?;
        }
        if outputs.is_empty() {
            outputs = self.recorded(&inputs);
        }
        for (j, spec) in outputs.into_iter().enumerate() {
            cx.set_type(j, Type::tensor(spec.dtype, spec.shape));
        }
        Ok(())
    }

    fn channels_last(&self) -> Option<bool> {
        self.layer.facts.data_format.map(|format| format == DataFormat::ChannelsLast)
    }

    fn pytorch(&self, lowering: &mut Lowering<'_>) {
        let call = Call { facts: &self.layer.facts, arguments: &self.arguments };
        self.layer.layer.pytorch(&mut Torch::new(&call, lowering, self.tensors));
        if lowering.training && call.facts.activity != Penalty::default() {
            penalise(lowering, call.facts.activity);
        }
    }

    fn tensorflow(&self, lowering: &mut TfLowering<'_>) {
        let call = Call { facts: &self.layer.facts, arguments: &self.arguments };
        let policy = &call.facts.policy;
        // A mixed policy of the file's own; the plan's stands for the global one of a file that has none.
        if policy.compute.is_half() && policy.variable == DType::Float32 {
            lowering.compute.autocast = Some(policy.compute);
        } else if self.layer.layer.downcast::<Operation>().is_none() {
            // A layer that is told to stay in float32 casts what it is given (layer.py, `maybe_convert`), an operation does not.
            lowering.compute.autocast.get_or_insert(policy.compute);
        }
        if let Keras::V2(minor) = call.facts.keras {
            lowering.keras_2 = Some(minor);
        }
        lowering.uncompiled |= UNCOMPILED.contains(&&*call.facts.class);
        self.layer.layer.tensorflow(&mut Run::new(&call, lowering, self.tensors));
        // keras/src/layers/layer.py, `_handle_activity_regularization`: over the batch.
        let is_float = |wire: &Wire| lowering.compute.training && lowering.dtype(*wire).is_float();
        let outputs: Vec<Wire> = lowering.given().iter().map(|(_, wire)| *wire).filter(is_float).collect();
        for output in outputs {
            if let Some(term) = lowering.penalty(output, call.facts.activity) {
                let mean = lowering.scaled("DivNoNan", term);
                lowering.penalties.push(mean);
            }
        }
    }
}
