//! Batch norms that an inference export folded into the convolution before them.
//!
//! Folding multiplies the norm into the weights and leaves one bias a channel, so the file does not show that training
//! keeps the convolution's result, trains two parameters a channel and updates two statistics. The names tell it: the
//! TorchScript exporter renames both folded tensors (`onnx::Conv_193`), the dynamo exporter makes a bias of the weight's
//! name (`conv1.weight_bias`) or leaves the norm's name on the result (`getitem_3`), TensorFlow's exporter the norm's
//! scope (`bn/batchnorm/mul_1`). The dynamo exporter folds even a model that trains.

use super::rewriter::{Rewriter, build};
use super::{Finding, Options};
use memfit_graph::{Attribute, DType, NodeId, Role, Shape, TensorId, Type};

/// A convolution or linear layer that carries a norm.
struct Carrier {
    node: NodeId,
    /// Whether its bias is its own, with the norm's multiplied in.
    has_own_bias: bool,
    /// Channels, which the norm has parameters for.
    channels: u64,
}

/// Finds them all, and puts the norms back where that is asked for.
pub(super) fn restore(rw: &mut Rewriter<'_>, options: &Options) -> Option<Finding> {
    let carriers: Vec<Carrier> = rw.node_ids().into_iter().filter_map(|id| carrier(rw, id)).collect();
    if carriers.is_empty() {
        return None;
    }
    let layers = carriers.iter().map(|c| path(rw, c.node)).collect();
    let parameters = carriers.iter().fold(0_u64, |sum, c| sum.saturating_add(c.channels.saturating_mul(2)));
    let count = carriers.len();
    let message = if options.assume_batchnorm {
        carriers.iter().for_each(|c| put_back(rw, c));
        format!("{count} batch norms that the export folded into convolutions were put back")
    } else {
        format!(
            "the export folded {count} batch norms into convolutions: training keeps each one's input and has \
             {parameters} more parameters; assume them back with --assume-batchnorm, or export the model in training mode"
        )
    };
    Some(Finding { kind: "folded-batchnorm", message, layers })
}

fn carrier(rw: &Rewriter<'_>, id: NodeId) -> Option<Carrier> {
    if !["Conv", "ConvTranspose", "Gemm"].iter().any(|op| rw.is(id, op)) {
        return None;
    }
    let name = |t: TensorId| &*rw.graph.tensor(t).name;
    let weight = rw.input(id, 1).filter(|t| rw.is_stored(*t))?;
    let bias = rw.input(id, 2).filter(|t| rw.is_stored(*t))?;
    let output = rw.output(id)?;
    let made_up = name(bias).starts_with("onnx::Conv_")
        || name(bias).strip_suffix("_bias").is_some_and(|stem| stem == name(weight));
    let tensorflow = name(output).to_ascii_lowercase().contains("batchnorm");
    if !made_up && !tensorflow && !is_getitem(name(output)) {
        return None;
    }
    let channels = rw.shape(output)?.dims().get(1)?.known()?;
    Some(Carrier { node: id, has_own_bias: !made_up && !tensorflow, channels })
}

/// The name that torch gives an element of a tuple, which a norm returns and a convolution does not.
fn is_getitem(name: &str) -> bool {
    name.strip_prefix("getitem").is_some_and(|rest| rest.chars().all(|c| c == '_' || c.is_ascii_digit()))
}

/// The module path of a node: that of its weight, its own, or its name.
fn path(rw: &Rewriter<'_>, id: NodeId) -> String {
    let weight = rw.input(id, 1).and_then(|t| rw.graph.tensor(t).name.strip_suffix(".weight"));
    weight.unwrap_or(rw.node(id).path()).to_owned()
}

/// The node becomes the norm, and a new one before it the convolution.
fn put_back(rw: &mut Rewriter<'_>, carrier: &Carrier) {
    let id = carrier.node;
    let (Some(output), Some(norm)) =
        (rw.output(id), build("BatchNormalization", [("training_mode", Attribute::Int(1))]))
    else {
        return;
    };
    let prefix = path(rw, id);
    let node = rw.node(id);
    let (op, mut inputs) = (node.op.clone(), node.inputs.clone());
    if !carrier.has_own_bias {
        inputs.truncate(2);
    }
    let ty = rw.ty(output).clone();
    let result = rw.insert_before(id, op, inputs, ty);
    if let Some(convolution) = rw.producer(result) {
        let name = rw.node(id).name.clone();
        rw.graph.nodes[id.index()].name = format!("{name}/batchnorm").into();
        rw.graph.nodes[convolution.index()].name = name;
    }
    let mut norm_inputs = vec![Some(result)];
    for part in ["weight", "bias", "running_mean", "running_var"] {
        let ty = Type::tensor(DType::Float32, Shape::from([carrier.channels]));
        let name = format!("{prefix}.batchnorm.{part}");
        norm_inputs.push(Some(rw.add_stored(name, ty, Role::Initializer)));
    }
    rw.rewrite(id, norm, norm_inputs);
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
        for (weight, bias) in [("onnx::Conv_1", "onnx::Conv_2"), ("c.weight", "c.weight_bias")] {
            let (names, s) = recomposed(weight, bias, false);
            assert_eq!(names, ["Conv", "Relu"]);
            assert!(s.report.findings[0].message.contains("32 more parameters"), "{:?}", s.report);
            let (names, s) = recomposed(weight, bias, true);
            assert_eq!(names, ["Conv", "BatchNormalization", "Relu"]);
            assert_eq!(s.inputs_of(0), ["x", if weight == "c.weight" { weight } else { "Conv3.weight" }]);
        }
    }

    #[test]
    fn a_bias_of_its_own_is_none() {
        let (names, s) = recomposed("c.weight", "c.bias", true);
        assert_eq!(names, ["Conv", "Relu"]);
        assert!(s.report.findings.iter().all(|f| f.kind != "folded-batchnorm"));
    }
}
