//! How much a first visit downloads, compressed as servers do, and that it stays below a limit.

use anyhow::{Result, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;
use std::path::Path;

/// All that a first visit needs: code, styles, the page itself. Examples are fetched when they are chosen.
const MOST: usize = 700 << 10;

/// Prints the sizes of files of a folder; an error where they are too large in all.
pub(crate) fn check(folder: &Path, files: &[String]) -> Result<()> {
    let mut sum = 0;
    println!("{:<28} {:>10} {:>10}", "file", "bytes", "gzip");
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
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?.len())
}
