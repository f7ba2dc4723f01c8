//! Names that exporters make up for tensors, apart from those of a module's own parameters, and names that no model has.

use crate::{Graph, Problem};

/// As many modules as a path may go through. Models have ten or twenty; each of them is looked at, alone and with those around it.
const DEEPEST: usize = 256;

impl Graph {
    /// What is wrong where a layer's path goes through more modules than any model has.
    pub fn too_deep(&self) -> Option<Problem> {
        self.nodes.iter().find_map(|node| {
            let modules = node.path().split(['.', '/']).count();
            let message = format!("expected a path through at most {DEEPEST} modules, found {modules}");
            (modules > DEEPEST).then(|| {
                Problem::new(&*node.name, message).hint("the file is damaged, or made to be slow to read")
            })
        })
    }
}

/// ATen functions that torch's dynamo exporter names a folded result after (`unsqueeze_14`). Those that only turn a
/// weight around (`view`, `permute`) or shift it (`add`) are left out: the result stands for the weight.
const FOLDED: &[&str] = &[
    "_to_copy",
    "arange",
    "cat",
    "clone",
    "cos",
    "div",
    "exp",
    "expand",
    "flip",
    "full",
    "index",
    "log",
    "mul",
    "neg",
    "ones",
    "outer",
    "pow",
    "repeat",
    "rsqrt",
    "select",
    "sin",
    "slice",
    "slice_scatter",
    "sqrt",
    "stack",
    "sub",
    "sum",
    "tmp",
    "tril",
    "triu",
    "unsqueeze",
    "where",
    "zeros",
];

/// A name that an exporter makes up for a constant it computed: torch's dynamo exporter writes `val_12` or the name of
/// the function that made it, the legacy one `/encoder/Constant_output_0`.
pub fn is_exporter_name(name: &str) -> bool {
    let function = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let function = function.strip_suffix('_').filter(|f| f.len() < name.len()).unwrap_or(name);
    if FOLDED.contains(&function) {
        return true;
    }
    let numbered = |prefix: &str| {
        name.strip_prefix(prefix).is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit() || c == '_'))
    };
    numbered("val_")
        || numbered("_val_")
        || numbered("lifted_tensor_")
        || numbered("scalar_tensor_default")
        || (name.starts_with('/') && name.contains("_output_"))
}
