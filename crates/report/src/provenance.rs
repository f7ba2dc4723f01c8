//! What a report was made from, so that it can be made again: the file's name, a hash of its structure, the version.
//!
//! The hash is SHA-256 over names, types, operators and edges. Weights are never read, so they are not in it: two
//! checkpoints of one architecture have the same.

use memfit_graph::Graph;
use sha2::{Digest, Sha256};
use std::fmt::Write;

/// What a report was made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provenance {
    /// The file's name, without the folders before it.
    pub file: String,
    /// SHA-256 of the structure, in hexadecimal.
    pub structure: String,
}

impl Provenance {
    /// Of a graph as an importer made it.
    pub fn new(file: &str, graph: &Graph) -> Provenance {
        let file = file.rsplit(['/', '\\']).next().unwrap_or(file).to_owned();
        Provenance { file, structure: fingerprint(graph) }
    }

    /// As one line.
    pub(crate) fn line(&self) -> String {
        format!("memfit {} · {} · structure {}", env!("CARGO_PKG_VERSION"), self.file, &self.structure[..16])
    }
}

/// Feeds what is written to it into a hash.
struct Hasher(Sha256);

impl Hasher {
    fn hexadecimal(self) -> String {
        self.0.finalize().iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

impl Write for Hasher {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.update(text.as_bytes());
        Ok(())
    }
}

/// SHA-256 of a text, in hexadecimal: the same on every machine, under every compiler.
pub fn text_hash(text: &str) -> String {
    let mut hash = Hasher(Sha256::new());
    let _ = hash.write_str(text);
    hash.hexadecimal()
}

/// SHA-256 of a graph's structure, in hexadecimal.
pub fn fingerprint(graph: &Graph) -> String {
    let mut hash = Hasher(Sha256::new());
    for tensor in &graph.tensors {
        let _ = writeln!(hash, "{} {:?} {:?}", tensor.name, tensor.declared, tensor.role);
    }
    for node in &graph.nodes {
        let _ = writeln!(hash, "{} {:?} {:?} {:?}", node.name, node.op, node.inputs, node.outputs);
    }
    let _ = writeln!(hash, "{:?} {:?}", graph.inputs, graph.outputs);
    hash.hexadecimal()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_that_of_everybody_else() {
        // FIPS 180-4, the example of one block.
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(text_hash("abc"), abc);
    }
}
