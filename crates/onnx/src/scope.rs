//! The module path of a node, as the framework's user knows it, from what exporters leave of it.
//!
//! * torch.onnx (TorchScript) names nodes `/layer1/layer1.0/conv1/Conv`: one segment per module that was called, each
//!   the module's name in the parent that called it. A child of a called container repeats the container's name
//!   (`layer1/layer1.0`), a child of a `ModuleList`, which is never called, carries it instead (`encoder/layer.0`).
//! * torch.onnx (dynamo) writes the scopes as metadata: full module paths, then the node's own name.
//! * tf2onnx keeps TensorFlow's names: `model/conv1/Conv2D`.

use onnx_protobuf::NodeProto;

/// The module path, empty for the model itself; `None` where the file does not say it.
pub(crate) fn of(node: &NodeProto) -> Option<String> {
    let metadata = |key: &str| node.metadata_props.iter().find(|p| p.key == key).map(|p| p.value.as_str());
    // A Conv with a BatchNorm folded into it carries the latter's path, and not its own.
    let class = metadata("pkg.torch.onnx.class_hierarchy").and_then(|list| last_but_one(list));
    if class.is_some_and(|c| c.contains(".batchnorm.")) && node.op_type == "Conv" {
        return None;
    }
    if let Some(scopes) = metadata("pkg.torch.onnx.name_scopes") {
        return last_but_one(scopes).map(str::to_owned);
    }
    if let Some(namespace) = metadata("namespace") {
        return from_namespace(namespace);
    }
    match node.name.strip_prefix('/') {
        Some(name) => Some(from_torch_script(name)),
        None => from_tensorflow(&node.name),
    }
}

/// `['', 'layer1', 'layer1.0', 'layer1.0.conv1', 'conv2d_1']`, a list as Python prints it.
fn last_but_one(list: &str) -> Option<&str> {
    let mut quoted = list.split('\'').skip(1).step_by(2);
    let mut last = quoted.next()?;
    let mut module = None;
    for next in quoted {
        module = Some(std::mem::replace(&mut last, next));
    }
    module
}

/// `: Model/layer1: Sequential/layer1.0: Block/conv2d_1: aten.conv2d.default`: the last but one.
fn from_namespace(namespace: &str) -> Option<String> {
    let mut names = namespace.split('/').map(|part| part.split(": ").next().unwrap_or_default());
    names.nth_back(1).map(|name| name.trim_end_matches(':').to_owned())
}

fn from_torch_script(name: &str) -> String {
    let mut path = String::new();
    let mut last = "";
    let Some((modules, _)) = name.rsplit_once('/') else { return path };
    for segment in modules.split('/') {
        let inside = segment.strip_prefix(last).filter(|rest| !last.is_empty() && rest.starts_with('.'));
        match inside {
            Some(rest) => path.push_str(rest),
            None => {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(segment);
            }
        }
        last = segment;
    }
    path
}

/// `StatefulPartitionedCall/model/conv1/Conv2D` is the operation `Conv2D` of `model.conv1`.
fn from_tensorflow(name: &str) -> Option<String> {
    let (path, _) = name.rsplit_once('/')?;
    let calls = ["StatefulPartitionedCall", "PartitionedCall"];
    let modules = path.split('/').skip_while(|part| calls.iter().any(|call| part.starts_with(call)));
    Some(modules.collect::<Vec<_>>().join("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torch_script_segments_become_a_module_path() {
        for (name, path) in [
            ("layer1/layer1.0/conv1/Conv", "layer1.0.conv1"),
            ("features/features.1/features.1.0/attn/Gather", "features.1.0.attn"),
            ("bert/encoder/layer.1/attention/self/value/MatMul", "bert.encoder.layer.1.attention.self.value"),
            ("Flatten", ""),
        ] {
            assert_eq!(from_torch_script(name), path);
        }
    }

    #[test]
    fn dynamo_metadata_ends_with_the_node_itself() {
        assert_eq!(
            last_but_one("['', 'layer1', 'layer1.0', 'layer1.0.bn1', 'norm_1']"),
            Some("layer1.0.bn1")
        );
        assert_eq!(last_but_one("['', 'add']"), Some(""));
        assert_eq!(last_but_one("[]"), None);
        let namespace = ": m.ResNet/layer1: torch.Sequential/layer1.0: m.Block/add_23: aten.add.Tensor";
        assert_eq!(from_namespace(namespace).unwrap(), "layer1.0");
        assert_eq!(from_namespace(": m.ResNet/add: aten.add.Tensor").unwrap(), "");
    }

    #[test]
    fn tensorflow_names_end_with_the_operation() {
        let name = "StatefulPartitionedCall/resnet50_1/conv1_bn_1/batchnorm/mul_1";
        assert_eq!(from_tensorflow(name).unwrap(), "resnet50_1.conv1_bn_1.batchnorm");
        assert_eq!(from_tensorflow("Conv_0"), None);
    }
}
