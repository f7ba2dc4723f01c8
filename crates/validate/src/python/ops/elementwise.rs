//! Functions of single elements, comparisons, choices, casts, dropout.

use super::Family;
use crate::python::line::{At, Refusal, float, is_tensor, torch_dtype};
use memfit_graph::ops::activation::Activation;
use memfit_graph::ops::clip::Clip;
use memfit_graph::ops::dropout::Dropout;
use memfit_graph::ops::glu::Glu;
use memfit_graph::ops::hard_sigmoid::HardSigmoid;
use memfit_graph::ops::swish::Swish;

pub(super) const FAMILIES: &[Family] = &[
    Family { names: &FUNCTIONS, rule: function },
    Family { names: &["Add", "Sub", "Mul", "Div", "Pow", "Mod"], rule: arithmetic },
    Family {
        names: &[
            "Equal",
            "Greater",
            "GreaterOrEqual",
            "Less",
            "LessOrEqual",
            "And",
            "Or",
            "Xor",
            "BitwiseAnd",
            "BitwiseOr",
            "BitwiseXor",
        ],
        rule: arithmetic,
    },
    Family { names: &["Max", "Min", "Sum", "Mean"], rule: variadic },
    Family { names: &["Not", "BitwiseNot"], rule: not },
    Family { names: &["Where"], rule: select },
    Family { names: &["Cast", "CastLike"], rule: cast },
    Family { names: &["Clip"], rule: clip },
    Family { names: &["PRelu"], rule: prelu },
    Family { names: &["Swish", "HardSigmoid"], rule: gated },
    Family { names: &["Glu"], rule: glu },
    Family { names: &["Dropout"], rule: dropout },
];

/// Operators of one tensor, and torch's functions for them.
const CALLS: [(&str, &str); 39] = [
    ("Abs", "torch.abs"),
    ("Acos", "torch.acos"),
    ("Acosh", "torch.acosh"),
    ("Asin", "torch.asin"),
    ("Asinh", "torch.asinh"),
    ("Atan", "torch.atan"),
    ("Atanh", "torch.atanh"),
    ("Ceil", "torch.ceil"),
    ("Celu", "F.celu"),
    ("Cos", "torch.cos"),
    ("Cosh", "torch.cosh"),
    ("Elu", "F.elu"),
    ("Erf", "torch.erf"),
    ("Exp", "torch.exp"),
    ("Floor", "torch.floor"),
    ("Gelu", "F.gelu"),
    ("com.microsoft.Gelu", "F.gelu"),
    ("HardSwish", "F.hardswish"),
    ("IsInf", "torch.isinf"),
    ("IsNaN", "torch.isnan"),
    ("LeakyRelu", "F.leaky_relu"),
    ("Log", "torch.log"),
    ("LogSigmoid", "F.logsigmoid"),
    ("Mish", "F.mish"),
    ("Neg", "torch.neg"),
    ("Reciprocal", "torch.reciprocal"),
    ("Relu", "F.relu"),
    ("Round", "torch.round"),
    ("Selu", "F.selu"),
    ("Shrink", "F.softshrink"),
    ("Sigmoid", "torch.sigmoid"),
    ("Sign", "torch.sign"),
    ("Sin", "torch.sin"),
    ("Sinh", "torch.sinh"),
    ("Softplus", "F.softplus"),
    ("Softsign", "F.softsign"),
    ("Sqrt", "torch.sqrt"),
    ("Tan", "torch.tan"),
    ("Tanh", "torch.tanh"),
];

const FUNCTIONS: [&str; CALLS.len()] = {
    let mut names = [""; CALLS.len()];
    let mut i = 0;
    while i < names.len() {
        names[i] = CALLS[i].0;
        i += 1;
    }
    names
};

fn function(at: &mut At<'_>) -> Result<(), Refusal> {
    let name = at.node.op.name();
    let (_, call) = CALLS.iter().find(|(of, _)| *of == name).ok_or("an unknown form")?;
    let x = at.on_device(0)?;
    let more = match at.node.op.downcast::<Activation>() {
        Some(op) if op.tanh => ", approximate=\"tanh\"".into(),
        Some(Activation { alpha: Some(alpha), .. }) if takes_alpha(name) => format!(", {}", float(*alpha)),
        _ => String::new(),
    };
    at.set(format!("{call}({x}{more})"));
    Ok(())
}

fn glu(at: &mut At<'_>) -> Result<(), Refusal> {
    let axis = at.node.op.downcast::<Glu>().map_or(-1, |op| op.axis);
    let x = at.on_device(0)?;
    at.set(format!("F.glu({x}, {axis})"));
    Ok(())
}

/// Whether torch's function has ONNX's `alpha` second.
fn takes_alpha(name: &str) -> bool {
    matches!(name, "Celu" | "Elu" | "LeakyRelu")
}

fn arithmetic(at: &mut At<'_>) -> Result<(), Refusal> {
    let sign = match at.node.op.name() {
        "Add" => "+",
        "Sub" => "-",
        "Mul" => "*",
        "Div" => "/",
        "Pow" => "**",
        "Mod" => "%",
        "Equal" => "==",
        "Greater" => ">",
        "GreaterOrEqual" => ">=",
        "Less" => "<",
        "LessOrEqual" => "<=",
        "And" | "BitwiseAnd" => "&",
        "Or" | "BitwiseOr" => "|",
        _ => "^",
    };
    let integers = at.output(0).is_some_and(|id| at.dtype(id).is_integer());
    let sign = if sign == "/" && integers { "//" } else { sign };
    // Two numbers are still a tensor to whoever reads them.
    let (a, b) = (at.input(0)?, at.input(1)?);
    let a = if is_tensor(&a) || is_tensor(&b) { a } else { at.on_device(0)? };
    at.set(format!("{a} {sign} {b}"));
    Ok(())
}

fn variadic(at: &mut At<'_>) -> Result<(), Refusal> {
    let inputs = (0..at.node.inputs.len()).map(|i| at.on_device(i)).collect::<Result<Vec<_>, _>>()?;
    let joined = match at.node.op.name() {
        "Sum" => inputs.join(" + "),
        "Mean" => format!("({}) / {}", inputs.join(" + "), inputs.len()),
        name => {
            let call = if name == "Max" { "torch.maximum" } else { "torch.minimum" };
            let mut inputs = inputs.into_iter();
            let first = inputs.next().ok_or("nothing to compare")?;
            inputs.fold(first, |all, next| format!("{call}({all}, {next})"))
        }
    };
    at.set(joined);
    Ok(())
}

fn not(at: &mut At<'_>) -> Result<(), Refusal> {
    let x = at.on_device(0)?;
    at.set(format!("~{x}"));
    Ok(())
}

fn select(at: &mut At<'_>) -> Result<(), Refusal> {
    let (condition, yes, no) = (at.on_device(0)?, at.input(1)?, at.input(2)?);
    let yes = if is_tensor(&yes) || is_tensor(&no) { yes } else { at.on_device(1)? };
    at.set(format!("torch.where({condition}, {yes}, {no})"));
    Ok(())
}

fn cast(at: &mut At<'_>) -> Result<(), Refusal> {
    let x = at.on_device(0)?;
    let from = at.id(0).map(|id| at.dtype(id));
    let to = at.output(0).map(|id| at.dtype(id)).ok_or("no output")?;
    if from == Some(to) {
        at.set(x);
    } else {
        at.set(format!("{x}.to({})", torch_dtype(to)?));
    }
    Ok(())
}

fn clip(at: &mut At<'_>) -> Result<(), Refusal> {
    let op = at.node.op.downcast::<Clip>().copied();
    let bound = |i: usize, attribute: Option<f64>| match (at.id(i), attribute) {
        (None, attribute) => Ok(attribute),
        (Some(_), _) => at.number(i).map(Some).ok_or("a bound that is not known"),
    };
    let (min, max) = (bound(1, op.and_then(|op| op.min))?, bound(2, op.and_then(|op| op.max))?);
    let x = at.on_device(0)?;
    let shown = |bound: Option<f64>| bound.map_or_else(|| "None".to_owned(), float);
    at.set(match (min, max) {
        (Some(0.0), Some(6.0)) => format!("F.relu6({x})"),
        (Some(-1.0), Some(1.0)) => format!("F.hardtanh({x})"),
        _ => format!("torch.clamp({x}, {}, {})", shown(min), shown(max)),
    });
    Ok(())
}

fn prelu(at: &mut At<'_>) -> Result<(), Refusal> {
    let (x, slope) = (at.on_device(0)?, at.on_device(1)?);
    at.set(format!("F.prelu({x}, {slope}.reshape(-1))"));
    Ok(())
}

fn gated(at: &mut At<'_>) -> Result<(), Refusal> {
    let x = at.on_device(0)?;
    let slope = at.node.op.downcast::<HardSigmoid>().copied();
    let alpha = at.node.op.downcast::<Swish>().map_or(1.0, |op| op.alpha);
    at.set(match slope {
        Some(op) if (op.alpha - 1.0 / 6.0).abs() < 1e-4 => format!("F.hardsigmoid({x})"),
        Some(op) => format!("torch.clamp({x} * {} + {}, 0, 1)", float(op.alpha), float(op.beta)),
        None if alpha == 1.0 => format!("F.silu({x})"),
        None => format!("{x} * torch.sigmoid({x} * {})", float(alpha)),
    });
    Ok(())
}

fn dropout(at: &mut At<'_>) -> Result<(), Refusal> {
    let op = at.node.op.downcast::<Dropout>().copied();
    let ratio = at.number(1).or(op.and_then(|op| op.ratio)).unwrap_or(0.5);
    let off = at.number(2) == Some(0.0) || op.is_some_and(|op| op.is_test) || ratio == 0.0;
    let x = at.on_device(0)?;
    at.set(if off || !at.training { x } else { format!("F.dropout({x}, {}, True)", float(ratio)) });
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_function_has_a_call() {
        assert_eq!(super::FUNCTIONS.len(), super::CALLS.len());
        let at = |name: &str| super::CALLS.iter().find(|(of, _)| *of == name).unwrap().1;
        assert_eq!(
            (at("Relu"), at("Tanh"), at("Gelu"), at("Neg")),
            ("F.relu", "torch.tanh", "F.gelu", "torch.neg")
        );
    }
}
