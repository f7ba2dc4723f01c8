//! Batch norms that an inference export folded into the convolution before them, or into a factor and a term.
//!
//! Folding multiplies the norm into the weights and leaves one bias a channel, so the file does not show that training
//! keeps the convolution's result, trains two parameters a channel and updates two statistics. The names tell it: the
//! TorchScript exporter renames both folded tensors (`onnx::Conv_193`), the dynamo exporter makes a bias of the weight's
//! name (`conv1.weight_bias`) or leaves the norm's name on the result (`getitem_3`). The dynamo exporter folds even a
//! model that trains. TensorFlow's exporter leaves the norm's scope (tf.nn.batch_normalization's `batchnorm`) on what is
//! left of it: on the bias of a convolution that had none (`bn/batchnorm/sub`), and elsewhere on a product and a sum with
//! one number a channel (`bn/batchnorm/mul_1`, `bn/batchnorm/add_1`).

use super::rewriter::{Rewriter, build};
use super::{Finding, Options};
use memfit_graph::{Attribute, DType, Dim, NodeId, Role, Shape, TensorId, Type};

/// What carries a norm.
struct Carrier {
    node: NodeId,
    into: Into,
    /// Channels, which the norm has parameters for.
    channels: u64,
}

/// What a norm was folded into.
enum Into {
    /// A convolution or linear layer, and whether its bias is its own, with the norm's multiplied in.
    Layer { has_own_bias: bool },
    /// A factor and a term a channel of this tensor.
    Affine(TensorId),
}

/// Finds them all, and puts the norms back where that is asked for.
pub(super) fn restore(rw: &mut Rewriter<'_>, options: &Options) -> Option<Finding> {
    let carriers: Vec<Carrier> = rw.node_ids().into_iter().filter_map(|id| carrier(rw, id)).collect();
    if carriers.is_empty() {
        return options.assume_batchnorm.then(|| Finding {
            kind: "folded-batchnorm",
            message: "no layer shows a batch norm that the export folded into it: none was put back".into(),
            layers: Vec::new(),
        });
    }
    let layers = carriers.iter().map(|c| path(rw, c.node)).collect();
    let parameters = carriers.iter().fold(0_u64, |sum, c| sum.saturating_add(c.channels.saturating_mul(2)));
    let count = carriers.len();
    let message = if options.assume_batchnorm {
        carriers.iter().for_each(|c| put_back(rw, c));
        format!("{count} batch norms that the export folded into what is before them were put back")
    } else {
        format!(
            "the export folded {count} batch norms into what is before them: training keeps each one's input and has \
             {parameters} more parameters; assume them back with --assume-batchnorm, or export the model in training mode"
        )
    };
    Some(Finding { kind: "folded-batchnorm", message, layers })
}

fn carrier(rw: &Rewriter<'_>, id: NodeId) -> Option<Carrier> {
    let output = rw.output(id)?;
    let channels = rw.shape(output)?.dims().get(1)?.known()?;
    let into = if rw.is(id, "Add") {
        Into::Affine(scaled_and_shifted(rw, id, channels)?)
    } else {
        Into::Layer { has_own_bias: has_own_bias(rw, id, output)? }
    };
    Some(Carrier { node: id, into, channels })
}

/// Whether the bias of a layer that carries a norm is its own; `None` where it carries none.
fn has_own_bias(rw: &Rewriter<'_>, id: NodeId, output: TensorId) -> Option<bool> {
    if !["Conv", "ConvTranspose", "Gemm"].iter().any(|op| rw.is(id, op)) {
        return None;
    }
    let name = |t: TensorId| &*rw.graph.tensor(t).name;
    let weight = rw.input(id, 1).filter(|t| rw.is_stored(*t))?;
    let is_norms = is_getitem(name(output)) || in_scope(rw, output);
    let Some(bias) = rw.input(id, 2) else {
        // A norm that has not been trained leaves zeros, which the exporter drops.
        return is_norms.then_some(false);
    };
    if !rw.is_stored(bias) {
        return None;
    }
    let made_up = name(bias).starts_with("onnx::Conv_")
        || name(bias).strip_suffix("_bias").is_some_and(|stem| stem == name(weight))
        || in_scope(rw, output)
        || in_scope(rw, bias);
    (made_up || is_norms).then_some(!made_up)
}

/// The tensor that `add` and the product before it give one factor and one term a channel, in a norm's scope.
fn scaled_and_shifted(rw: &Rewriter<'_>, add: NodeId, channels: u64) -> Option<TensorId> {
    let output = rw.output(add).filter(|t| in_scope(rw, *t))?;
    let after_channels = rw.rank(output)?.checked_sub(2)?;
    let a_channel = |t: TensorId| {
        let dims = rw.shape(t).filter(|_| rw.is_stored(t))?.dims();
        let at = dims.len().checked_sub(after_channels + 1)?;
        let ones = |dims: &[Dim]| dims.iter().all(|d| *d == Dim::Known(1));
        (dims[at] == Dim::Known(channels) && ones(&dims[..at]) && ones(&dims[at + 1..])).then_some(())
    };
    let ((), product) = rw.operands(add, a_channel)?;
    let mul = rw.made_for_one(product, "Mul")?;
    rw.operands(mul, a_channel).map(|((), x)| x)
}

/// Whether TensorFlow's exporter named a tensor in the scope of a batch norm.
fn in_scope(rw: &Rewriter<'_>, t: TensorId) -> bool {
    rw.graph.tensor(t).name.to_ascii_lowercase().contains("batchnorm")
}

/// The name that torch gives an element of a tuple, which a norm returns and a convolution does not.
fn is_getitem(name: &str) -> bool {
    name.strip_prefix("getitem").is_some_and(|rest| rest.chars().all(|c| c == '_' || c.is_ascii_digit()))
}

/// The module path of a node: that of its weight, its own, or its name.
pub(super) fn path(rw: &Rewriter<'_>, id: NodeId) -> String {
    let weight = rw.input(id, 1).and_then(|t| rw.graph.tensor(t).name.strip_suffix(".weight"));
    weight.unwrap_or(rw.node(id).path()).to_owned()
}

/// The node becomes the norm; a layer gets a new node before it.
fn put_back(rw: &mut Rewriter<'_>, carrier: &Carrier) {
    let id = carrier.node;
    let (Some(output), Some(norm)) =
        (rw.output(id), build("BatchNormalization", [("training_mode", Attribute::Int(1))]))
    else {
        return;
    };
    let prefix = path(rw, id);
    let normed = match carrier.into {
        Into::Affine(x) => x,
        Into::Layer { has_own_bias } => layer_before(rw, id, output, has_own_bias),
    };
    let mut norm_inputs = vec![Some(normed)];
    for part in ["weight", "bias", "running_mean", "running_var"] {
        let ty = Type::tensor(DType::Float32, Shape::from([carrier.channels]));
        let name = format!("{prefix}.batchnorm.{part}");
        norm_inputs.push(Some(rw.add_stored(name, ty, Role::Initializer)));
    }
    rw.rewrite(id, norm, norm_inputs);
}

/// The layer's result, in a node before it, which takes its name.
fn layer_before(rw: &mut Rewriter<'_>, id: NodeId, output: TensorId, has_own_bias: bool) -> TensorId {
    let node = rw.node(id);
    let (op, mut inputs) = (node.op.clone(), node.inputs.clone());
    if !has_own_bias {
        inputs.truncate(2);
    }
    let ty = rw.ty(output).clone();
    let result = rw.insert_before(id, op, inputs, ty);
    if let Some(layer) = rw.producer(result) {
        let name = rw.node(id).name.clone();
        rw.graph.nodes[id.index()].name = format!("{name}/batchnorm").into();
        rw.graph.nodes[layer.index()].name = name;
    }
    result
}

#[cfg(test)]
mod tests {
    use crate::recompose::testing::Sketch;

    /// Conv, Relu with these names for weight and bias.
    fn recomposed(weight: &str, bias: &str, assume: bool) -> (Vec<String>, Sketch) {
        let mut s = Sketch::default();
        s.options.assume_batchnorm = assume;
        let x = s.input("x", &[2, 3, 8, 8]);
        let (w, b) = (s.weight(weight, &[16, 3, 3, 3]), s.weight(bias, &[16]));
        let y = s.push("Conv", &[x, w, b]);
        let y = s.push("Relu", &[y]);
        let names = s.recompose(y).into_iter().map(str::to_owned).collect();
        (names, s)
    }

    #[test]
    fn names_of_both_exporters_are_found_and_put_back() {
        for (weight, bias) in [
            ("onnx::Conv_1", "onnx::Conv_2"),
            ("c.weight", "c.weight_bias"),
            ("c.weight", "bn/batchnorm/sub:0"),
        ] {
            let (names, s) = recomposed(weight, bias, false);
            assert_eq!(names, ["Conv", "Relu"]);
            assert!(s.report.findings[0].message.contains("32 more parameters"), "{:?}", s.report);
            let (names, s) = recomposed(weight, bias, true);
            assert_eq!(names, ["Conv", "BatchNormalization", "Relu"]);
            assert_eq!(s.inputs_of(0), ["x", if weight == "c.weight" { weight } else { "Conv3.weight" }]);
        }
    }

    #[test]
    fn an_untrained_norm_leaves_no_bias() {
        for (name, becomes) in [("getitem_3", &["Conv", "BatchNormalization"][..]), ("conv2d", &["Conv"])] {
            let mut s = Sketch::default();
            s.options.assume_batchnorm = true;
            let (x, w) = (s.input("x", &[2, 3, 8, 8]), s.weight("c.weight", &[16, 3, 3, 3]));
            let y = s.push("Conv", &[x, w]);
            s.graph.tensors[y.index()].name = name.into();
            assert_eq!(s.recompose(y), becomes, "{name}");
        }
    }

    #[test]
    fn a_factor_and_a_term_a_channel_in_a_norms_scope_are_one() {
        for (shape, name, becomes) in [
            ([1, 16, 1, 1], "bn/batchnorm/add_1:0", &["BatchNormalization"][..]),
            ([1, 16, 1, 1], "affine/add_1:0", &["Mul", "Add"]),
            ([1, 1, 1, 16], "bn/batchnorm/add_1:0", &["Mul", "Add"]),
        ] {
            let mut s = Sketch::default();
            s.options.assume_batchnorm = true;
            let x = s.input("x", &[2, 16, 4, 16]);
            let (w, b) = (s.weight("w", &shape), s.weight("b", &shape));
            let y = s.push("Mul", &[x, w]);
            let y = s.push("Add", &[y, b]);
            s.graph.tensors[y.index()].name = name.into();
            assert_eq!(s.recompose(y), becomes, "{name}");
        }
    }

    #[test]
    fn a_bias_of_its_own_is_none() {
        let (names, s) = recomposed("c.weight", "c.bias", true);
        assert_eq!(names, ["Conv", "Relu"]);
        assert!(s.report.findings[0].message.contains("none was put back"), "{:?}", s.report);
        let (_, s) = recomposed("c.weight", "c.bias", false);
        assert!(s.report.findings.is_empty(), "{:?}", s.report);
    }
}
