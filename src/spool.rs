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
pub(crate) enum Spooled<E> {
    /// It is in this file, which is at its beginning.
    File(File),
    /// It was so short that it is here.
    Whole(Vec<u8>),
    /// Its beginning is no model's.
    Refused(E),
}

/// Reads a stream unless there is a `refusal` of its beginning.
pub(crate) fn spool<E>(reader: impl Read, refusal: impl Fn(&[u8]) -> Option<E>) -> io::Result<Spooled<E>> {
    up_to(MOST, reader, refusal)
}

fn up_to<E>(
    most: u64,
    mut reader: impl Read,
    refusal: impl Fn(&[u8]) -> Option<E>,
) -> io::Result<Spooled<E>> {
    let mut head = Vec::new();
    reader.by_ref().take(HEAD).read_to_end(&mut head)?;
    if (head.len() as u64) < HEAD {
        return Ok(Spooled::Whole(head));
    }
    if let Some(refused) = refusal(&head) {
        return Ok(Spooled::Refused(refused));
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
        let length = |head: &[u8]| Some(head.len() as u64);
        assert!(matches!(spool(io::repeat(0), length), Ok(Spooled::Refused(HEAD))));
        let error = up_to(1 << 20, io::repeat(8), |_| None::<()>).unwrap_err().to_string();
        assert!(error.contains("1.0 MiB"), "{error}");
    }

    #[test]
    fn a_stream_is_all_in_its_file() {
        let bytes: Vec<u8> = (0..100_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        let Spooled::File(mut file) = spool(&*bytes, |_| None::<()>).unwrap() else { panic!() };
        let mut read = Vec::new();
        file.read_to_end(&mut read).unwrap();
        assert_eq!(read, bytes);
        assert!(matches!(spool(&b"{}"[..], |_| Some(())), Ok(Spooled::Whole(short)) if short == b"{}"));
    }
}
