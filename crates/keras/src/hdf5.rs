//! HDF5 files.
use crate::container::Text;
use memfit_graph::Problem;
use std::io::{Read, Seek};
pub(crate) fn is_hdf5(head: &[u8]) -> bool {
    head.starts_with(b"\x89HDF\r\n\x1a\n")
}
pub(crate) fn find<R: Read + Seek>(_: &mut R, _: u64) -> std::io::Result<Option<u64>> {
    Ok(None)
}
pub(crate) fn config<R: Read + Seek>(_: &mut R, _: u64, _: u64) -> Result<Text, Problem> {
    Err(Problem::new("file", "no"))
}
