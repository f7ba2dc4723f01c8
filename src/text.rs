//! A file of text, read as a whole and no further than any such file goes: a device may have no end.

use crate::failure::Failure;
use memfit_graph::Bytes;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// As much of the beginning as tells text from what is none.
const HEAD: u64 = 1024;

/// Records of thousands of runs, layer by layer, have a tenth of it.
const MOST: u64 = 256 << 20;

/// The text of a file; the message says what is wrong with it.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    up_to(MOST, File::open(path)?)
}

/// The same with the file's name in front of what is wrong.
pub(crate) fn of(path: &Path) -> Result<String, Failure> {
    read(path).map_err(|error| Failure::new(path.display().to_string(), format!("cannot be read: {error}")))
}

fn up_to(most: u64, mut reader: impl Read) -> io::Result<String> {
    let mut bytes = Vec::new();
    reader.by_ref().take(HEAD).read_to_end(&mut bytes)?;
    if bytes.contains(&0) {
        return Err(io::Error::other("expected text, found bytes that are none"));
    }
    reader.take(most.saturating_sub(HEAD)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 >= most {
        return Err(io::Error::other(format!("{} came without an end", Bytes(most))));
    }
    String::from_utf8(bytes)
        .map_err(|_| io::Error::other("expected text in UTF-8, found bytes that are none"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_end_is_not_read_to_it() {
        let told = |error: io::Result<String>| error.unwrap_err().to_string();
        assert!(told(up_to(MOST, io::repeat(0))).contains("expected text"));
        assert!(told(up_to(1 << 20, io::repeat(b'x'))).contains("1.0 MiB came without an end"));
        assert!(told(up_to(MOST, &b"\xff"[..])).contains("UTF-8"));
        let long = "é".repeat(5_000);
        assert_eq!(up_to(MOST, long.as_bytes()).unwrap(), long);
    }
}
