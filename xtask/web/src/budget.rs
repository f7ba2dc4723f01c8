//! How much a first visit downloads, compressed as hosts on the web do, and that it stays below a limit.

use anyhow::{Result, ensure};
use brotli::enc::BrotliEncoderParams;
use std::path::Path;

/// All that a first visit needs: code, styles, the page itself. Examples are fetched when they are chosen.
const MOST: usize = 700 << 10;

/// Prints the sizes of files of a folder; an error where they are too large in all.
pub(crate) fn check(folder: &Path, files: &[String]) -> Result<()> {
    let mut sum = 0;
    println!("{:<28} {:>10} {:>10}", "file", "bytes", "brotli");
    for file in files {
        let bytes = std::fs::read(folder.join(file))?;
        let small = compressed(&bytes)?;
        println!("{file:<28} {:>10} {small:>10}", bytes.len());
        sum += small;
    }
    println!("{:<28} {:>10} {sum:>10}", "first load", "");
    ensure!(sum <= MOST, "a first visit downloads {} KiB, {} KiB at most", sum >> 10, MOST >> 10);
    Ok(())
}

fn compressed(bytes: &[u8]) -> Result<usize> {
    let mut small = Vec::new();
    let parameters =
        BrotliEncoderParams { quality: 11, lgwin: 24, size_hint: bytes.len(), ..Default::default() };
    brotli::BrotliCompress(&mut &bytes[..], &mut small, &parameters)?;
    Ok(small.len())
}
