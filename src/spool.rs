//! A stream that cannot be sought in (a pipe, a device) as a file that can.
//!
//! Importers skip weights by seeking over them, and find an archive's directory at its end. So a stream is copied to a temporary file
//! without a name, which takes disk and no memory and is gone with the process. It may have no end: what does not begin as a
//! model is not read on, and no more is copied than the largest models have.

use std::fs::File;
use std::io::{self, Read, Seek, Write};

/// As much of the beginning as formats are told by.
const HEAD: u64 = 1024;

/// No more is copied. An ONNX file has 2 GiB at most, as every protobuf message; Keras archives have weights without such a bound.
const MOST: u64 = 16 << 30;

/// What became of a stream.
#[derive(Debug)]
pub(crate) enum Spooled {
    /// It is in this file, which is at its beginning.
    File(File),
    /// It was so short that it is here.
    Whole(Vec<u8>),
    /// It begins with this, which is no model.
    Refused(Vec<u8>),
}

/// Reads a stream whose beginning is `accepted`.
pub(crate) fn spool(reader: impl Read, accepted: impl Fn(&[u8]) -> bool) -> io::Result<Spooled> {
    up_to(MOST, reader, accepted)
}

fn up_to(most: u64, mut reader: impl Read, accepted: impl Fn(&[u8]) -> bool) -> io::Result<Spooled> {
    let mut head = Vec::new();
    reader.by_ref().take(HEAD).read_to_end(&mut head)?;
    if (head.len() as u64) < HEAD {
        return Ok(Spooled::Whole(head));
    }
    if !accepted(&head) {
        return Ok(Spooled::Refused(head));
    }
    let mut file = tempfile::tempfile()?;
    file.write_all(&head)?;
    let copied = io::copy(&mut reader.take(most.saturating_sub(HEAD)), &mut file)?;
    if HEAD + copied >= most {
        return Err(io::Error::other(format!(
            "{} came without an end; give the path of a file",
            memfit_graph::Bytes(most)
        )));
    }
    file.rewind()?;
    Ok(Spooled::File(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endless_stream_ends_at_its_beginning_or_at_the_limit() {
        let Spooled::Refused(head) = spool(io::repeat(0), |head| head[0] != 0).unwrap() else { panic!() };
        assert_eq!(head.len() as u64, HEAD);
        let error = up_to(1 << 20, io::repeat(8), |head| head[0] == 8).unwrap_err().to_string();
        assert!(error.contains("1.0 MiB"), "{error}");
    }

    #[test]
    fn a_stream_is_all_in_its_file() {
        let bytes: Vec<u8> = (0..100_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        let Spooled::File(mut file) = spool(&*bytes, |_| true).unwrap() else { panic!() };
        let mut read = Vec::new();
        file.read_to_end(&mut read).unwrap();
        assert_eq!(read, bytes);
        assert!(matches!(spool(&b"{}"[..], |_| false), Ok(Spooled::Whole(short)) if short == b"{}"));
    }
}
