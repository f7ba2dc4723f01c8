//! Which crate may depend on which, proved with `cargo tree`.
//!
//! Dependencies point inward: graph ← onnx, keras, engine ← report ← hosts. The core runs in a browser tab and on any
//! machine, so nothing in it may bring a GPU, a network, a thread pool, a clock or a source of randomness.

use crate::command::{cargo, output};
use anyhow::Result;
use std::collections::BTreeSet;

/// A crate of the workspace: whether it is of the core, and the crates of the workspace it may use itself.
struct Rule {
    package: &'static str,
    core: bool,
    may_use: &'static [&'static str],
}

const RULES: &[Rule] = &[
    Rule { package: "memfit-graph", core: true, may_use: &[] },
    Rule { package: "memfit-onnx", core: true, may_use: &["memfit-graph"] },
    Rule { package: "memfit-keras", core: true, may_use: &["memfit-graph"] },
    Rule { package: "memfit-engine", core: true, may_use: &["memfit-graph"] },
    Rule { package: "memfit-explain", core: true, may_use: &["memfit-graph", "memfit-engine"] },
    Rule { package: "memfit-report", core: true, may_use: &["memfit-graph", "memfit-engine"] },
    Rule {
        package: "memfit-wasm",
        core: true,
        may_use: &[
            "memfit-graph",
            "memfit-onnx",
            "memfit-keras",
            "memfit-engine",
            "memfit-explain",
            "memfit-report",
        ],
    },
    Rule {
        package: "memfit",
        core: false,
        may_use: &[
            "memfit-graph",
            "memfit-onnx",
            "memfit-keras",
            "memfit-engine",
            "memfit-explain",
            "memfit-report",
            "memfit-validate",
        ],
    },
    Rule { package: "memfit-validate", core: false, may_use: &["memfit-graph", "memfit-engine"] },
    Rule {
        package: "memfit-web",
        core: false,
        may_use: &["memfit-graph", "memfit-engine", "memfit-report", "memfit-wasm"],
    },
    Rule { package: "memfit-parity", core: true, may_use: &["memfit-wasm"] },
    Rule {
        package: "lab",
        core: false,
        may_use: &[
            "memfit-graph",
            "memfit-onnx",
            "memfit-keras",
            "memfit-engine",
            "memfit-wasm",
            "memfit-bench-models",
            "memfit-validate",
        ],
    },
    Rule { package: "memfit-bench-models", core: false, may_use: &[] },
    Rule { package: "xtask", core: false, may_use: &[] },
    Rule { package: "xtask-web", core: false, may_use: &[] },
];

/// Beginnings of the names of crates that the core never brings, however indirectly.
const NEVER_IN_THE_CORE: &[&str] = &[
    "burn",
    "cubecl",
    "cudarc",
    "wgpu",
    "ash",
    "libloading",
    "tokio",
    "async-std",
    "mio",
    "socket2",
    "hyper",
    "reqwest",
    "ureq",
    "rustls",
    "native-tls",
    "rayon",
    "rand",
    "getrandom",
    "chrono",
    "time",
    "tempfile",
];

/// Every broken rule.
pub(crate) fn problems() -> Result<Vec<String>> {
    let members: BTreeSet<String> = names(&["--workspace", "--depth", "0"])?;
    let mut problems = Vec::new();
    for member in &members {
        if !RULES.iter().any(|rule| rule.package == member) {
            problems.push(format!("{member}: no rule says what it may depend on"));
        }
    }
    for rule in RULES {
        if !members.contains(rule.package) {
            problems.push(format!("{}: there is a rule for it, but no such crate", rule.package));
            continue;
        }
        let direct = names(&["--package", rule.package, "--depth", "1", "--edges", "normal,build"])?;
        let ours = direct.iter().filter(|name| members.contains(*name) && *name != rule.package);
        for name in ours.filter(|name| !rule.may_use.contains(&name.as_str())) {
            problems.push(format!("{}: it must not depend on {name}", rule.package));
        }
        if rule.core {
            let all = names(&["--package", rule.package, "--edges", "normal,build", "--target", "all"])?;
            let found = all.iter().filter(|name| is_forbidden(name));
            problems.extend(found.map(|name| format!("{}: the core must not bring {name}", rule.package)));
        }
    }
    Ok(problems)
}

fn is_forbidden(name: &str) -> bool {
    NEVER_IN_THE_CORE
        .iter()
        .any(|bad| name.strip_prefix(bad).is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '_'])))
}

/// The names of the packages that `cargo tree` lists.
fn names(arguments: &[&str]) -> Result<BTreeSet<String>> {
    let tree = output(cargo().args(["tree", "--prefix", "none", "--format", "{p}"]).args(arguments))?;
    Ok(tree
        .lines()
        .filter_map(|line| line.split(' ').next())
        .filter(|n| !n.is_empty())
        .map(str::to_owned)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_forbidden_and_a_namesake_is_not() {
        assert!(is_forbidden("burn") && is_forbidden("burn-core") && is_forbidden("rand_core"));
        assert!(!is_forbidden("burner") && !is_forbidden("timely") && !is_forbidden("ashpd"));
    }
}
