//! What a layer sees while it writes the kernels that TensorFlow runs for it.

use crate::activation::Activation;
use crate::arguments::Arguments;
use crate::layer::{Call, Configured, Keras};
use crate::operations::sorting;
use crate::spatial::DataFormat;
use crate::spec::Spec;
use memfit_graph::kernels::{Effect, Made, Place, Source, TfLowering, Wire};
use memfit_graph::{DType, Graph, Shape, TensorId, TensorType, elements};
use std::ops::{Deref, DerefMut};

/// A layer call that writes its kernels: tensors of the call, then variables.
pub struct Run<'r, 'a> {
    /// The call.
    pub call: &'r Call<'r>,
    lowering: &'r mut TfLowering<'a>,
    /// How many inputs are tensors.
    tensors: usize,
}

impl<'r, 'a> Run<'r, 'a> {
    pub(crate) fn new(call: &'r Call<'r>, lowering: &'r mut TfLowering<'a>, tensors: usize) -> Run<'r, 'a> {
        Run { call, lowering, tensors }
    }

    /// How many tensors it is called on.
    pub fn tensors(&self) -> usize {
        self.tensors
    }

    /// How many variables it has.
    pub fn weights(&self) -> usize {
        self.input_count().saturating_sub(self.tensors)
    }

    /// Tensor `i` in the layer's dtype.
    pub fn x(&mut self, i: usize) -> Wire {
        self.lowering.input(i)
    }

    /// Tensor 0 as a convolution over two axes reads it: an image of the batch whose channels come last is turned around once,
    /// where grappler does that. What layers make in between stays turned.
    pub fn image(&mut self, format: DataFormat) -> Wire {
        let x = self.x(0);
        let is_fed = matches!(self.kernel(x).effect, Effect::Feed(_));
        if !self.compute.channels_first || format != DataFormat::ChannelsLast || !is_fed {
            return x;
        }
        let turned = self.kernels.iter().position(|k| k.name == "Transpose" && k.inputs == [x]);
        match turned.and_then(|at| u32::try_from(at).ok()) {
            Some(kernel) => Wire { kernel, output: 0 },
            None => {
                let shape = self.shape(x).to_vec();
                self.moved("Transpose", x, &shape)
            }
        }
    }

    /// Variable `k` in the layer's dtype.
    pub fn weight(&mut self, k: usize) -> Wire {
        self.lowering.input(self.tensors + k)
    }

    /// Variable `k` as it is kept.
    pub fn raw_weight(&mut self, k: usize) -> Wire {
        self.lowering.raw(self.tensors + k)
    }

    /// Variable `k` in float32.
    pub fn weight_f32(&mut self, k: usize) -> Wire {
        self.lowering.input_f32(self.tensors + k)
    }

    /// Whether Keras 3 composes it.
    pub fn is_keras3(&self) -> bool {
        self.call.facts.keras == Keras::V3
    }

    /// `x / |x|`, over the axes that are one in `rows`: Keras 3 bounds the inverse norm (ops/nn.py, `_normalize`), Keras 2 the sum
    /// (`tf.math.l2_normalize`).
    pub fn unit(&mut self, x: Wire, rows: &[u64]) -> Wire {
        let square = self.unary("Square", x);
        let sum = self.reduce("Sum", square, rows);
        let inverse = if self.is_keras3() {
            let inverse = self.unary("Rsqrt", sum);
            self.clip_side("Minimum", inverse)
        } else {
            let sum = self.clip_side("Maximum", sum);
            self.unary("Rsqrt", sum)
        };
        self.binary("Mul", x, inverse)
    }

    /// Whether it trains, rather than infers or is frozen.
    pub fn trains(&self) -> bool {
        self.compute.training && self.call.facts.trainable
    }

    /// Applies an activation.
    pub fn activate(&mut self, activation: &Activation, x: Wire) -> Wire {
        if matches!(activation, Activation::Other(_)) {
            return self.lowering.bound(x);
        }
        let is_keras3 = self.is_keras3();
        let flow = &mut **self.lowering;
        match activation {
            Activation::Linear => x,
            Activation::HardTanh => flow.clipped(x),
            // clip(0.2 * x + 0.5, 0, 1) (tf_keras/src/backend.py)
            Activation::HardSigmoid if !is_keras3 => {
                let scaled = flow.scaled("Mul", x);
                let shifted = flow.shifted("AddV2", scaled);
                flow.clipped(shifted)
            }
            Activation::TanhShrink => {
                let tanh = flow.unary("Tanh", x);
                flow.binary("Sub", x, tanh)
            }
            Activation::HardShrink | Activation::Threshold => {
                let mask = flow.test("Greater", x);
                flow.select(mask, x)
            }
            // where(x > t, x - t, where(x < -t, x + t, 0))
            Activation::SoftShrink => {
                let (above, less) = (flow.test("Greater", x), flow.shifted("Sub", x));
                let (below, more) = (flow.test("Less", x), flow.shifted("AddV2", x));
                let rest = flow.select(below, more);
                flow.choose(above, less, rest)
            }
            // where(x <= -1, 0, where(x >= 1, 1, 0.5 * (x + 1)))
            Activation::SparseSigmoid => {
                let (below, above) = (flow.test("LessEqual", x), flow.test("GreaterEqual", x));
                let shifted = flow.shifted("AddV2", x);
                let half = flow.scaled("Mul", shifted);
                let rest = flow.select(above, half);
                flow.select(below, rest)
            }
            Activation::Squareplus => {
                let square = flow.unary("Square", x);
                let shifted = flow.shifted("AddV2", square);
                let root = flow.unary("Sqrt", shifted);
                let sum = flow.binary("AddV2", x, root);
                flow.scaled("RealDiv", sum)
            }
            Activation::Glu => {
                let mut half = flow.shape(x).to_vec();
                half.last_mut().into_iter().for_each(|d| *d /= 2);
                let value = flow.split(x, &[half.clone(), half]);
                let gate = flow.output(value, 1);
                let gate = flow.unary("Sigmoid", gate);
                flow.binary("Mul", value, gate)
            }
            Activation::Sparsemax => sorting::sparsemax(flow, x),
            // where(x <= -1, 0, where(x < 1, 0.25 * (x + 1)², x))
            Activation::SparsePlus => {
                let (below, within) = (flow.test("LessEqual", x), flow.test("Less", x));
                let shifted = flow.shifted("AddV2", x);
                let square = flow.unary("Square", shifted);
                let quarter = flow.scaled("Mul", square);
                let rest = flow.choose(within, quarter, x);
                flow.select(below, rest)
            }
            // Composed by Keras 3, a kernel of its own in Keras 2.
            named => flow.activation(named.name(), x),
        }
    }

    /// A bias: `BiasAdd`, in Keras 3 of what is left once the tensor that broadcasts (`base_conv.py`) has lost its ones
    /// (backend/tensorflow/numpy.py, `add`).
    pub fn add_bias(&mut self, y: Wire, k: usize, channel_axis: usize) -> Wire {
        let bias = self.weight(k);
        if !self.is_keras3() {
            return self.bias_add(y, bias);
        }
        let mut shape = vec![1; self.shape(y).len()];
        let channels = elements(self.shape(bias));
        shape.get_mut(channel_axis).into_iter().for_each(|d| *d = channels);
        let bias = self.view("Reshape", bias, &shape);
        if channels == 1 {
            return self.binary("AddV2", y, bias);
        }
        let bias = self.view("Squeeze", bias, &[channels]);
        self.bias_add(y, bias)
    }

    /// A product over the last axes of `x` and the first of `kernel`, as Keras' einsum runs it: both reshaped around one matrix
    /// product, which is batched where `x` has a batch.
    pub fn project(&mut self, x: Wire, kernel: Wire, shape: &[u64]) -> Wire {
        let inputs = self.shape(x).to_vec();
        let width = elements(self.shape(kernel));
        // The axes that both shapes begin with are kept; what is left of the input is summed over.
        let kept = inputs.iter().zip(shape).take_while(|(a, b)| a == b).count();
        let mut kept = kept.min(inputs.len().saturating_sub(1));
        while kept > 1 && !width.is_multiple_of(elements(&inputs[kept..]).max(1)) {
            kept -= 1;
        }
        let leading = inputs.get(..kept).unwrap_or_default();
        let inner = elements(inputs.get(kept..).unwrap_or_default());
        let out = width.checked_div(inner).unwrap_or(0);
        let flat = self.view("Reshape", x, &[leading, &[inner]].concat());
        let matrix = self.view("Reshape", kernel, &[inner, out]);
        let name = if leading.len() > 1 { "BatchMatMulV2" } else { "MatMul" };
        let product = self.matmul(name, flat, matrix, &[leading, &[out]].concat());
        self.view("Reshape", product, shape)
    }

    /// `1 - mask` in the dtype of `x`, scaled: what a mask adds to scores.
    pub fn cast_mask(&mut self, mask: Wire, x: Wire) -> Wire {
        let dtype = self.dtype(x);
        let mask = self.cast(mask, dtype);
        let inverse = self.shifted("Sub", mask);
        self.scaled("Mul", inverse)
    }

    /// Another size by interpolation, in the dtype of `x`: the kernel writes float32 whatever it reads.
    pub fn resize(&mut self, name: &'static str, x: Wire, shape: &[u64]) -> Wire {
        let dtype = self.dtype(x);
        let mut y = self.resized(name, x, shape);
        if dtype.is_half() && self.is_keras3() {
            // `saturate_cast` (backend/tensorflow/image.py)
            y = self.clipped(y);
        }
        self.cast(y, dtype)
    }

    /// The tensor that an argument of the call is, in the dtype that it has.
    pub(crate) fn argument(&mut self, position: usize, name: &str) -> Option<Wire> {
        let at = self.call.arguments.tensor(position, name).filter(|at| *at < self.tensors())?;
        Some(self.raw(at))
    }

    /// Runs a layer that this one holds on these tensors, its variables being this one's from `first` on; gives its outputs.
    pub(crate) fn inner(&mut self, layer: &Configured, tensors: &[Wire], first: usize) -> Vec<Wire> {
        self.inner_call(layer, &Arguments::plain(tensors.len()), tensors, first)
    }

    /// The same with arguments in which these tensors stand.
    pub(crate) fn inner_call(
        &mut self,
        layer: &Configured,
        arguments: &Arguments,
        tensors: &[Wire],
        first: usize,
    ) -> Vec<Wire> {
        let specs: Vec<Spec> =
            tensors.iter().map(|w| Spec::new(Shape::from(self.shape(*w)), self.dtype(*w))).collect();
        let weights = layer.own_weights(arguments, &specs).map_or(0, |w| w.len());
        let made = |spec: &Spec| {
            let shape = spec.shape.upper()?;
            Some(Made { shape, dtype: spec.dtype, place: Place::New })
        };
        let outputs: Vec<Option<Made>> =
            layer.outputs(arguments, &specs).unwrap_or_default().iter().map(made).collect();
        let at = |k: usize| self.tensors + first + k;
        let sources: Vec<Option<Source>> = tensors
            .iter()
            .map(|w| Some(Source::Wire(*w)))
            .chain((0..weights).map(|k| self.source(at(k))))
            .collect();
        let inputs: Vec<Made> = tensors
            .iter()
            .map(|w| self.made(*w).clone())
            .chain((0..weights).filter_map(|k| self.in_made(at(k)).cloned()))
            .collect();
        let call = Call { facts: &layer.facts, arguments };
        let compute = self.compute;
        let mut nested = TfLowering::new(self.lowering, &sources, &inputs, &outputs, &[], compute);
        layer.layer.tensorflow(&mut Run::new(&call, &mut nested, tensors.len()));
        let (mut bound, modelled) = nested.into_parts();
        if !modelled {
            self.unmodelled();
        }
        bound.sort_by_key(|(j, _)| *j);
        bound.into_iter().map(|(_, wire)| wire).collect()
    }

    /// Runs the layers of a graph, whose inputs are these tensors and whose variables are this layer's, in order. `None` where an output is
    /// not made.
    pub(crate) fn graph(&mut self, graph: &Graph, tensors: &[Wire]) -> Option<Vec<Wire>> {
        let variables = graph.tensors.iter().filter(|t| t.variable.is_some()).count();
        let mut next = (0..variables).map(|k| self.tensors + k);
        let mut given: Vec<(Option<Source>, Option<Made>)> = Vec::with_capacity(graph.tensors.len());
        for tensor in &graph.tensors {
            let variable = tensor.variable.and_then(|_| next.next());
            given.push(match variable {
                Some(at) => (self.source(at), self.in_made(at).cloned()),
                None => {
                    let made = |ty: &TensorType| {
                        Some(Made { shape: ty.shape.as_ref()?.upper()?, dtype: ty.dtype, place: Place::New })
                    };
                    (None, tensor.declared.as_tensor().and_then(made))
                }
            });
        }
        for (id, wire) in graph.inputs.iter().zip(tensors) {
            given[id.index()] = (Some(Source::Wire(*wire)), Some(self.made(*wire).clone()));
        }
        for node in &graph.nodes {
            let of = |ids: &[Option<TensorId>]| -> Vec<_> {
                ids.iter().map(|id| id.map(|id| given[id.index()].clone())).collect()
            };
            let (sources, inputs): (Vec<_>, Vec<_>) =
                of(&node.inputs).into_iter().map(|input| input.unwrap_or_default()).unzip();
            let inputs: Option<Vec<Made>> = inputs.into_iter().collect();
            let outputs: Vec<Option<Made>> = of(&node.outputs).into_iter().map(|output| output?.1).collect();
            let compute = self.compute;
            let inputs = inputs?;
            let mut nested = TfLowering::new(self.lowering, &sources, &inputs, &outputs, &[], compute);
            node.op.tensorflow(&mut nested);
            let (bound, modelled) = nested.into_parts();
            if !modelled {
                self.unmodelled();
            }
            for (j, wire) in bound {
                if let Some(Some(id)) = node.outputs.get(j) {
                    given[id.index()].0 = Some(Source::Wire(wire));
                }
            }
        }
        let wire = |id: &TensorId| match given[id.index()].0 {
            Some(Source::Wire(wire)) => Some(wire),
            _ => None,
        };
        graph.outputs.iter().map(wire).collect()
    }

    /// Says that output 0 is this.
    pub fn finish(&mut self, y: Wire) {
        self.bind(0, y);
    }

    /// Runs a computation in float32 and casts back to what the layer computes in.
    pub fn to_compute(&mut self, y: Wire) -> Wire {
        let dtype = self.compute.autocast.unwrap_or(self.call.compute());
        self.cast(y, dtype)
    }

    /// Tensor `i` in float32.
    pub fn x_f32(&mut self, i: usize) -> Wire {
        let x = self.x(i);
        if self.dtype(x).is_float() { self.cast(x, DType::Float32) } else { x }
    }
}

impl<'a> Deref for Run<'_, 'a> {
    type Target = TfLowering<'a>;

    fn deref(&self) -> &TfLowering<'a> {
        self.lowering
    }
}

impl<'a> DerefMut for Run<'_, 'a> {
    fn deref_mut(&mut self) -> &mut TfLowering<'a> {
        self.lowering
    }
}
