//! The command line of memfit.
fn main() {}
