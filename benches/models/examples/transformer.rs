//! Writes a transformer with at least so many nodes: `cargo run --example transformer -- NODES FILE`.
#![allow(clippy::print_stdout)]

use std::env::args;
use std::io::{Error, Result};

fn main() -> Result<()> {
    let arguments: Vec<String> = args().skip(1).collect();
    let [nodes, file] = &arguments[..] else {
        return Err(Error::other("expected a number of nodes and a file"));
    };
    let nodes = nodes.parse().map_err(Error::other)?;
    std::fs::write(file, memfit_bench_models::transformer(nodes))?;
    println!("wrote {file}");
    Ok(())
}
