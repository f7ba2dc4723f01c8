//! The catalogue of cards as JSON: a reader of TOML would be a twentieth of what a browser downloads.

use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let source = "src/devices/catalogue.toml";
    println!("cargo::rerun-if-changed={source}");
    let catalogue: toml::Table = fs::read_to_string(source)?.parse().map_err(io::Error::other)?;
    let folder = env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?;
    fs::write(Path::new(&folder).join("catalogue.json"), serde_json::to_string(&catalogue)?)
}
