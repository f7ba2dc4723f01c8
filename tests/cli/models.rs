//! Small models, written the way exporters write them.

use onnx_protobuf::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, TensorShapeProto,
    TypeProto, ValueInfoProto, attribute_proto, tensor_shape_proto, type_proto,
};
use protobuf::{EnumOrUnknown, Message, MessageField};

/// A model that grows node by node.
#[derive(Default)]
pub(crate) struct Builder(GraphProto);

impl Builder {
    /// `x[batch, 3, 8, 8] → Conv(4 filters of 3x3) → Relu → y`.
    pub(crate) fn conv() -> Builder {
        let mut b = Builder::default();
        b.0.input.push(value_info("x", 1, &["batch", "3", "8", "8"]));
        b.weight("conv.weight", &[4, 3, 3, 3]);
        b.weight("conv.bias", &[4]);
        b.node("Conv", "/conv/Conv", &["x", "conv.weight", "conv.bias"], "/conv/Conv_output_0");
        b.0.node[0].attribute.push(ints("pads", &[1, 1, 1, 1]));
        b.node("Relu", "/Relu", &["/conv/Conv_output_0"], "y");
        b.output("y");
        b
    }

    /// `x[batch, seq, 4]` reshaped to what the input `target` says.
    pub(crate) fn reshape() -> Builder {
        let mut b = Builder::default();
        b.0.input.push(value_info("x", 1, &["batch", "seq", "4"]));
        b.0.input.push(value_info("target", 7, &["2"]));
        b.node("Reshape", "/Reshape", &["x", "target"], "y");
        b.output("y");
        b
    }

    pub(crate) fn node(&mut self, op: &str, name: &str, inputs: &[&str], output: &str) -> &mut NodeProto {
        let mut node = NodeProto::new();
        (node.op_type, node.name) = (op.into(), name.into());
        node.input = inputs.iter().map(|s| (*s).to_owned()).collect();
        node.output = vec![output.to_owned()];
        self.0.node.push(node);
        self.0.node.last_mut().unwrap()
    }

    pub(crate) fn output(&mut self, name: &str) {
        let mut output = ValueInfoProto::new();
        output.name = name.into();
        self.0.output.push(output);
    }

    pub(crate) fn weight(&mut self, name: &str, dims: &[i64]) {
        let mut tensor = TensorProto::new();
        (tensor.name, tensor.dims, tensor.data_type) = (name.into(), dims.to_vec(), 1);
        let elements: i64 = dims.iter().product();
        tensor.raw_data = vec![0; usize::try_from(elements * 4).unwrap()];
        self.0.initializer.push(tensor);
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut opset = OperatorSetIdProto::new();
        opset.version = 17;
        let mut model = ModelProto::new();
        model.ir_version = 8;
        model.producer_name = "memfit-tests".into();
        model.opset_import = vec![opset];
        model.graph = MessageField::some(self.0.clone());
        model.write_to_bytes().unwrap()
    }
}

fn ints(name: &str, values: &[i64]) -> AttributeProto {
    let mut attribute = AttributeProto::new();
    attribute.name = name.into();
    attribute.ints = values.to_vec();
    attribute.type_ = EnumOrUnknown::new(attribute_proto::AttributeType::INTS);
    attribute
}

/// A tensor whose dims are numbers or names.
fn value_info(name: &str, dtype: i32, dims: &[&str]) -> ValueInfoProto {
    let mut shape = TensorShapeProto::new();
    for dim in dims {
        let mut one = tensor_shape_proto::Dimension::new();
        match dim.parse() {
            Ok(n) => one.set_dim_value(n),
            Err(_) => one.set_dim_param((*dim).to_owned()),
        }
        shape.dim.push(one);
    }
    let mut tensor = type_proto::Tensor::new();
    tensor.elem_type = dtype;
    tensor.shape = MessageField::some(shape);
    let mut ty = TypeProto::new();
    ty.set_tensor_type(tensor);
    let mut info = ValueInfoProto::new();
    info.name = name.into();
    info.type_ = MessageField::some(ty);
    info
}
