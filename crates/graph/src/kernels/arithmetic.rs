//! Elementwise kernels, reductions and matrix products, with their gradients (tensorflow/python/ops/math_grad.py, nn_grad.py).
//!
//! Elementwise kernels may write over an input (cwise_ops_common.h, `BinaryOpState`; numeric_op.h, `UnaryElementWiseOp`).
//! A broadcast input's gradient is summed (`_ReduceGradientArg`).

use super::build::{first, incoming};
use super::{Flow, Kernel, Wire};
use crate::Penalty;
use crate::{DType, elements};

/// How the gradient of a unary elementwise kernel is made.
#[derive(Clone, Copy)]
enum Rule {
    /// A kernel of this name reads the gradient and the output.
    Output(&'static str),
    /// It reads the gradient and the input.
    Input(&'static str),
    /// The gradient times the output (Exp).
    TimesOutput,
    /// The gradient times what these kernels make of the input, one after the other (Log: `Reciprocal`).
    Times(&'static [&'static str]),
    /// A kernel of this name reads the gradient alone (Neg).
    Alone(&'static str),
    /// Not differentiable, or zero everywhere.
    None,
}

/// Unary elementwise kernels.
const UNARY: &[(&str, Rule)] = &[
    ("Abs", Rule::Times(&["Sign"])),
    ("Acos", Rule::Times(&["Square", "Sub", "Sqrt", "Reciprocal", "Neg"])),
    ("Acosh", Rule::Times(&["Sinh"])),
    ("Asin", Rule::Times(&["Square", "Sub", "Sqrt", "Reciprocal"])),
    ("Asinh", Rule::Times(&["Cosh"])),
    ("Atan", Rule::Times(&["Square", "AddV2", "Reciprocal"])),
    ("Atanh", Rule::Times(&["Square", "Sub", "Reciprocal"])),
    ("Ceil", Rule::None),
    ("Cos", Rule::Times(&["Sin", "Neg"])),
    ("Cosh", Rule::Times(&["Sinh"])),
    ("Elu", Rule::Output("EluGrad")),
    ("Erf", Rule::Times(&["Square", "Neg", "Exp", "Mul"])),
    ("Erfc", Rule::Times(&["Square", "Neg", "Exp", "Mul"])),
    ("Exp", Rule::TimesOutput),
    ("Expm1", Rule::Times(&["Exp"])),
    ("Floor", Rule::None),
    ("LeakyRelu", Rule::Input("LeakyReluGrad")),
    ("Log", Rule::Times(&["Reciprocal"])),
    ("Log1p", Rule::Times(&["AddV2", "Reciprocal"])),
    ("Neg", Rule::Alone("Neg")),
    ("Pow", Rule::Times(&["Pow", "Mul"])),
    // Of a scalar by a tensor.
    ("RealDiv", Rule::Times(&["RealDiv", "RealDiv"])),
    ("Reciprocal", Rule::Output("ReciprocalGrad")),
    ("Relu", Rule::Output("ReluGrad")),
    ("Relu6", Rule::Output("Relu6Grad")),
    ("Rint", Rule::None),
    ("Rsqrt", Rule::Output("RsqrtGrad")),
    ("Selu", Rule::Output("SeluGrad")),
    ("Sigmoid", Rule::Output("SigmoidGrad")),
    ("Sign", Rule::None),
    ("Sin", Rule::Times(&["Cos"])),
    ("Sinh", Rule::Times(&["Cosh"])),
    ("Softplus", Rule::Times(&["Sigmoid"])),
    ("Softsign", Rule::Input("SoftsignGrad")),
    ("Sqrt", Rule::Output("SqrtGrad")),
    ("Square", Rule::Times(&["Mul"])),
    ("Tan", Rule::Times(&["Cos", "Reciprocal", "Square"])),
    ("Tanh", Rule::Output("TanhGrad")),
];

fn unary_gradient(flow: &mut Flow, kernel: &Kernel, y: Wire, grads: &[Option<Wire>]) -> Vec<Option<Wire>> {
    let (Some(dy), Some(x)) = (incoming(grads), kernel.inputs.first().copied()) else { return vec![None] };
    let Some((_, rule)) = UNARY.iter().find(|(name, _)| *name == kernel.name) else { return vec![None] };
    let made = match rule {
        Rule::Output(name) => flow.like(name, &[dy, y], None),
        Rule::Input(name) => flow.like(name, &[dy, x], None),
        Rule::TimesOutput => Some(flow.binary("Mul", dy, y)),
        Rule::Times(names) => {
            let start = flow.kernels.len();
            // A quotient is divided by the tensor once more.
            let reads = if kernel.name == "RealDiv" { 2 } else { 1 };
            let factor = names.iter().try_fold(x, |at, name| flow.like(name, &[at, x][..reads], None));
            // These are the ones that do not wait for the gradient.
            if !matches!(kernel.name, "Abs" | "Pow" | "RealDiv" | "Softplus") && start < flow.kernels.len() {
                flow.kernels[start].after.push(dy.kernel);
            }
            factor.map(|factor| flow.binary("Mul", dy, factor))
        }
        Rule::Alone(name) => flow.like(name, &[dy], None),
        Rule::None => None,
    };
    vec![made]
}

fn binary_gradient(flow: &mut Flow, kernel: &Kernel, y: Wire, grads: &[Option<Wire>]) -> Vec<Option<Wire>> {
    let (Some(dy), [a, b]) = (incoming(grads), &kernel.inputs[..]) else { return vec![None, None] };
    let (a, b) = (*a, *b);
    let (da, db) = match kernel.name {
        "AddV2" => (dy, dy),
        "Sub" => (dy, flow.scaled("Neg", dy)),
        // Grappler finds that the two gradients of a square are one (common_subgraph_elimination.cc).
        "Mul" if a == b => {
            let both = flow.binary("Mul", dy, b);
            (both, both)
        }
        "Mul" => (flow.binary("Mul", dy, b), flow.binary("Mul", a, dy)),
        "RealDiv" | "DivNoNan" => {
            let da = flow.binary(kernel.name, dy, b);
            let negative = flow.scaled("Neg", a);
            let once = flow.binary(kernel.name, negative, b);
            let twice = flow.binary(kernel.name, once, b);
            (da, flow.binary("Mul", dy, twice))
        }
        "SquaredDifference" => {
            let twice = flow.scaled("Mul", dy);
            let difference = flow.binary("Sub", a, b);
            flow.wait(difference, dy);
            let da = flow.binary("Mul", twice, difference);
            (da, flow.scaled("Neg", da))
        }
        "Maximum" | "Minimum" => {
            let mask = flow.compare("GreaterEqual", a, b);
            let (da, db) = (flow.select(mask, dy), flow.select(mask, dy));
            (da, db)
        }
        "Pow" => {
            let power = flow.binary("Pow", a, b);
            let by = flow.binary("Mul", dy, b);
            let da = flow.binary("Mul", by, power);
            let log = flow.scaled("Log", a);
            let by = flow.binary("Mul", dy, y);
            (da, flow.binary("Mul", by, log))
        }
        _ => return vec![None, None],
    };
    let reduced = |flow: &mut Flow, d: Wire, x: Wire| {
        let shape = flow.shape(x).to_vec();
        flow.unbroadcast(d, &shape)
    };
    let da = reduced(flow, da, a);
    vec![Some(da), Some(reduced(flow, db, b))]
}

fn pass(_: &mut Flow, _: &Kernel, _: Wire, grads: &[Option<Wire>]) -> Vec<Option<Wire>> {
    vec![incoming(grads)]
}

fn scaled_gradient(flow: &mut Flow, kernel: &Kernel, _: Wire, grads: &[Option<Wire>]) -> Vec<Option<Wire>> {
    vec![incoming(grads).map(|dy| flow.scaled(kernel.name, dy))]
}

fn cast_gradient(flow: &mut Flow, kernel: &Kernel, _: Wire, grads: &[Option<Wire>]) -> Vec<Option<Wire>> {
    let (Some(dy), Some(x)) = (incoming(grads), kernel.inputs.first()) else { return vec![None] };
    let dtype = flow.dtype(*x);
    if dtype.is_float() { first(flow.cast(dy, dtype)) } else { vec![None] }
}

fn select_gradient(flow: &mut Flow, kernel: &Kernel, _: Wire, grads: &[Option<Wire>]) -> Vec<Option<Wire>> {
    let (Some(dy), [mask, branches @ ..]) = (incoming(grads), &kernel.inputs[..]) else { return Vec::new() };
    let mut gradients = vec![None];
    for branch in branches {
        let shape = flow.shape(*branch).to_vec();
        let d = flow.select(*mask, dy);
        gradients.push(Some(flow.unbroadcast(d, &shape)));
    }
    gradients
}

fn reduce_gradient(flow: &mut Flow, kernel: &Kernel, y: Wire, grads: &[Option<Wire>]) -> Vec<Option<Wire>> {
    let (Some(dy), Some(x)) = (incoming(grads), kernel.inputs.first().copied()) else { return vec![None] };
    let shape = flow.shape(x).to_vec();
    match kernel.name {
        "Sum" | "Mean" => {
            let kept = kept_dims(&shape, flow.shape(dy));
            let dy = flow.view("Reshape", dy, &kept);
            let tiled = flow.broadcast_to(dy, &shape);
            if kernel.name == "Sum" {
                return first(tiled);
            }
            first(flow.scaled("RealDiv", tiled))
        }
        // _MinOrMaxGrad: indicators / num_selected * grad
        "Max" | "Min" => {
            let kept = kept_dims(&shape, flow.shape(y));
            let [y, dy] = [y, dy].map(|wire| flow.view("Reshape", wire, &kept));
            let equal = flow.make("Equal", &[y, x], &shape, DType::Bool, None);
            let indicators = flow.cast(equal, flow.dtype(x));
            let selected = flow.make("Sum", &[indicators], &kept, flow.dtype(x), None);
            let share = flow.reuse("RealDiv", &[indicators, selected], &shape, flow.dtype(x), None);
            first(flow.reuse("Mul", &[share, dy], &shape, flow.dtype(x), None))
        }
        "Prod" => {
            let (dtype, tiled) = (flow.dtype(x), flow.broadcast_to(dy, &shape));
            let left = flow.make("Cumprod", &[x], &shape, dtype, None);
            let right = flow.make("Cumprod", &[x], &shape, dtype, None);
            let product = flow.binary("Mul", left, right);
            first(flow.binary("Mul", tiled, product))
        }
        _ => vec![None],
    }
}

/// A reduced shape with the reduced axes as ones (`math_ops.reduced_shape`).
fn kept_dims(shape: &[u64], reduced: &[u64]) -> Vec<u64> {
    if shape.len() == reduced.len() {
        return reduced.to_vec();
    }
    let mut left = reduced.iter().peekable();
    shape.iter().map(|dim| left.next_if_eq(&dim).copied().unwrap_or(1)).collect()
}

fn matmul_gradient(flow: &mut Flow, kernel: &Kernel, _: Wire, grads: &[Option<Wire>]) -> Vec<Option<Wire>> {
    let (Some(dy), [a, b]) = (incoming(grads), &kernel.inputs[..]) else { return vec![None, None] };
    let (a, b) = (*a, *b);
    let product = |flow: &mut Flow, like: Wire, inputs: [Wire; 2]| {
        let own = flow.shape(like).to_vec();
        let batch = flow.shape(dy).len().saturating_sub(2);
        let matrix = own.get(own.len().saturating_sub(2)..).unwrap_or(&own).to_vec();
        // A product with a broadcast factor is summed over the axes that it was broadcast along.
        let mut shape = flow.shape(dy).get(..batch).unwrap_or_default().to_vec();
        shape.extend(matrix);
        let made = flow.make(kernel.name, &inputs, &shape, flow.dtype(like), None);
        flow.unbroadcast(made, &own)
    };
    let da = product(flow, a, [dy, b]);
    vec![Some(da), Some(product(flow, b, [a, dy]))]
}

/// Each operand's gradient is an `Einsum` of its own (tensorflow/python/ops/linalg_grad.py, `_EinsumGrad`).
fn einsum_gradient(flow: &mut Flow, kernel: &Kernel, _: Wire, grads: &[Option<Wire>]) -> Vec<Option<Wire>> {
    let (Some(dy), [a, b]) = (incoming(grads), &kernel.inputs[..]) else { return vec![None, None] };
    let mut product = |like: Wire, inputs: [Wire; 2]| {
        let (shape, dtype) = (flow.shape(like).to_vec(), flow.dtype(like));
        Some(flow.make(kernel.name, &inputs, &shape, dtype, None))
    };
    vec![product(*a, [dy, *b]), product(*b, [*a, dy])]
}

fn add_n_gradient(_: &mut Flow, kernel: &Kernel, _: Wire, grads: &[Option<Wire>]) -> Vec<Option<Wire>> {
    vec![incoming(grads); kernel.inputs.len()]
}

/// The shape of two broadcast together; the longer one's where they do not go together.
fn broadcast(a: &[u64], b: &[u64]) -> Vec<u64> {
    let (long, short) = if a.len() >= b.len() { (a, b) } else { (b, a) };
    let mut shape = long.to_vec();
    for (to, from) in shape.iter_mut().rev().zip(short.iter().rev()) {
        if *to == 1 {
            *to = *from;
        }
    }
    shape
}

impl Flow {
    /// An elementwise function of one tensor.
    pub fn unary(&mut self, name: &'static str, x: Wire) -> Wire {
        let (shape, dtype) = (self.shape(x).to_vec(), self.dtype(x));
        self.reuse(name, &[x], &shape, dtype, Some(unary_gradient))
    }

    /// An elementwise function of two tensors, broadcast together.
    pub fn binary(&mut self, name: &'static str, a: Wire, b: Wire) -> Wire {
        let (shape, dtype) = (broadcast(self.shape(a), self.shape(b)), self.dtype(a));
        self.reuse(name, &[a, b], &shape, dtype, Some(binary_gradient))
    }

    /// A product or quotient with a scalar: its gradient is one too and reads nothing else.
    pub fn scaled(&mut self, name: &'static str, x: Wire) -> Wire {
        let (shape, dtype) = (self.shape(x).to_vec(), self.dtype(x));
        let folded = self.folded(x, &shape, dtype);
        folded.unwrap_or_else(|| self.reuse(name, &[x], &shape, dtype, Some(scaled_gradient)))
    }

    /// A sum or difference with a scalar: the gradient passes.
    pub fn shifted(&mut self, name: &'static str, x: Wire) -> Wire {
        let (shape, dtype) = (self.shape(x).to_vec(), self.dtype(x));
        self.reuse(name, &[x], &shape, dtype, Some(pass))
    }

    /// A comparison, which has no gradient.
    pub fn compare(&mut self, name: &'static str, a: Wire, b: Wire) -> Wire {
        let shape = broadcast(self.shape(a), self.shape(b));
        self.make(name, &[a, b], &shape, DType::Bool, None)
    }

    /// A comparison with a scalar.
    pub fn test(&mut self, name: &'static str, x: Wire) -> Wire {
        let shape = self.shape(x).to_vec();
        self.make(name, &[x], &shape, DType::Bool, None)
    }

    /// Another dtype, in a new buffer; nothing where it has it already.
    pub fn cast(&mut self, x: Wire, dtype: DType) -> Wire {
        if self.dtype(x) == dtype {
            return x;
        }
        let shape = self.shape(x).to_vec();
        let folded = self.folded(x, &shape, dtype);
        folded.unwrap_or_else(|| self.make("Cast", &[x], &shape, dtype, Some(cast_gradient)))
    }

    /// What a regularizer makes of a tensor (keras/src/regularizers/regularizers.py, `L1L2`): a scalar, none where it sums nothing.
    pub fn penalty(&mut self, x: Wire, penalty: Penalty) -> Option<Wire> {
        let mut total = None;
        for name in [("Abs", penalty.l1), ("Square", penalty.l2)].into_iter().filter(|n| n.1).map(|n| n.0) {
            let each = self.unary(name, x);
            let sum = self.reduce("Sum", each, &[]);
            let term = self.scaled("Mul", sum);
            total = Some(total.map_or(term, |total| self.binary("AddV2", total, term)));
        }
        total
    }

    /// A tensor where a mask is set, else a scalar zero.
    pub fn select(&mut self, mask: Wire, x: Wire) -> Wire {
        let (shape, dtype) = (broadcast(self.shape(mask), self.shape(x)), self.dtype(x));
        self.reuse("SelectV2", &[mask, x], &shape, dtype, Some(select_gradient))
    }

    /// One tensor where a mask is set, else the other.
    pub fn choose(&mut self, mask: Wire, a: Wire, b: Wire) -> Wire {
        let shape = broadcast(self.shape(mask), &broadcast(self.shape(a), self.shape(b)));
        let dtype = self.dtype(a);
        self.reuse("SelectV2", &[mask, a, b], &shape, dtype, Some(select_gradient))
    }

    /// A reduction to a shape, reduced axes kept or not.
    pub fn reduce(&mut self, name: &'static str, x: Wire, shape: &[u64]) -> Wire {
        let dtype = self.dtype(x);
        self.make(name, &[x], shape, dtype, Some(reduce_gradient))
    }

    /// The sum over the axes along which something of `shape` was broadcast.
    pub fn unbroadcast(&mut self, x: Wire, shape: &[u64]) -> Wire {
        if self.shape(x) == shape {
            return x;
        }
        let summed =
            if elements(self.shape(x)) == elements(shape) { x } else { self.reduce("Sum", x, shape) };
        self.view("Reshape", summed, shape)
    }

    /// A matrix product, batched or not.
    pub fn matmul(&mut self, name: &'static str, a: Wire, b: Wire, shape: &[u64]) -> Wire {
        let dtype = self.dtype(a);
        self.make(name, &[a, b], shape, dtype, Some(matmul_gradient))
    }

    /// A product over named axes, none of which is broadcast: transposed copies live inside of the kernel.
    pub fn einsum(&mut self, a: Wire, b: Wire, shape: &[u64]) -> Wire {
        let dtype = self.dtype(a);
        self.make("Einsum", &[a, b], shape, dtype, Some(einsum_gradient))
    }

    /// The sum of tensors of one shape.
    pub fn add_n(&mut self, inputs: &[Wire]) -> Option<Wire> {
        self.like("AddN", inputs, Some(add_n_gradient))
    }
}
