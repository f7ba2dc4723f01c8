//! What an operator is: a struct that infers shapes and says, as data, what a framework does to run it.

use crate::kernels::TfLowering;
use crate::{Attributes, DType, Infer, Lowering, OpError, ops};
use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

/// One operator with its configuration. See [`ops`] for how a file of an operator is made.
pub trait Op: Debug + Any + Send + Sync {
    /// The operator type as ONNX names it; contrib operators carry their domain (`com.microsoft.FusedMatMul`).
    fn name(&self) -> &str;

    /// Gives each output its type, and its elements where they can be folded.
    ///
    /// What is not known stays unknown; an error means that the model is wrong.
    fn infer(&self, cx: &mut Infer<'_>) -> Result<(), OpError>;

    /// The inputs that hold state or a table rather than trained values where they are stored in the file: the running
    /// statistics of a batch norm.
    fn buffer_inputs(&self) -> &'static [usize] {
        &[]
    }

    /// Scalars that the framework's module keeps on the device beside [`Op::buffer_inputs`] and no exporter writes: the batch
    /// counter of a batch norm.
    fn unexported_buffers(&self) -> &'static [DType] {
        &[]
    }

    /// Whether the channels of an image that it reads are its innermost axis, where it reads images and says so.
    fn channels_last(&self) -> Option<bool> {
        None
    }

    /// Writes the ATen calls that PyTorch makes for this operator, with what autograd keeps.
    ///
    /// The default keeps every input and output, a bound from above, and marks the operator as not modelled.
    fn pytorch(&self, lowering: &mut Lowering<'_>) {
        lowering.not_modelled();
    }

    /// Writes the kernels that TensorFlow runs for this operator.
    ///
    /// The default's gradient reads every input and output, a bound from above, and marks the operator as not modelled.
    fn tensorflow(&self, lowering: &mut TfLowering<'_>) {
        lowering.not_modelled();
    }
}

impl dyn Op {
    /// The operator as its own type.
    pub fn downcast<T: Op>(&self) -> Option<&T> {
        let any: &dyn Any = self;
        any.downcast_ref()
    }
}

/// How an operator is found and built.
pub struct OpSpec {
    /// `""` for the default domain.
    pub domain: &'static str,
    /// The operator type.
    pub name: &'static str,
    /// The opset versions that changed it, ascending; the first is where it appears.
    pub since: &'static [i64],
    /// Reads the attributes as the opset of the model defines them.
    pub build: Build,
}

/// Makes an operator from its attributes and the model's opset version.
pub type Build = fn(&mut Attributes, i64) -> Result<Arc<dyn Op>, OpError>;

impl OpSpec {
    /// Builds the operator as opset `version` defines it.
    pub fn build(&self, mut attributes: Attributes, version: i64) -> Result<Arc<dyn Op>, OpError> {
        (self.build)(&mut attributes, version)
    }
}

/// The operator `name` of `domain`, if memfit knows it. `ai.onnx` is the default domain's other name.
///
/// A version before the operator's first is accepted: exporters write such files, and the operator is the same.
pub fn find_op(domain: &str, name: &str, _version: i64) -> Option<&'static OpSpec> {
    use std::collections::HashMap;
    use std::sync::OnceLock;
    static BY_NAME: OnceLock<HashMap<(&str, &str), &OpSpec>> = OnceLock::new();
    let by_name = BY_NAME.get_or_init(|| ops::all().map(|spec| ((spec.domain, spec.name), spec)).collect());
    let domain = if domain == "ai.onnx" { "" } else { domain };
    by_name.get(&(domain, name)).copied()
}

/// An operator that memfit does not know: its outputs stay unknown, and the estimate says so.
#[derive(Debug)]
pub struct UnknownOp {
    /// `domain.name`, or the name alone in the default domain.
    pub name: String,
}

impl Op for UnknownOp {
    fn name(&self) -> &str {
        &self.name
    }

    fn infer(&self, _: &mut Infer<'_>) -> Result<(), OpError> {
        Ok(())
    }
}
