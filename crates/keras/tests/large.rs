//! A file costs what its config costs: gibibytes of weights in it are not read.

#![allow(clippy::unwrap_used)]

use memfit_keras::{Options, import_from};
use std::io::{self, Read, Seek, SeekFrom};

const WEIGHTS: u64 = 3 << 30;

/// A file that is zero but for some parts, and counts what is read of it.
struct Sparse {
    parts: Vec<(u64, Vec<u8>)>,
    length: u64,
    at: u64,
    read: u64,
}

impl Read for Sparse {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = (self.length - self.at).min(buffer.len() as u64);
        for i in 0..count {
            let at = self.at + i;
            let part =
                self.parts.iter().find(|(start, part)| (*start..start + part.len() as u64).contains(&at));
            buffer[i as usize] = part.map_or(0, |(start, part)| part[(at - start) as usize]);
        }
        self.at += count;
        self.read += count;
        Ok(count as usize)
    }
}

impl Seek for Sparse {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(n) => Some(n),
            SeekFrom::End(n) => self.length.checked_add_signed(n),
            SeekFrom::Current(n) => self.at.checked_add_signed(n),
        };
        self.at = at.filter(|at| *at <= self.length).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

fn model(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/../../models/keras/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// The archive with a stored entry of weights before all others.
fn with_weights(archive: &[u8]) -> Sparse {
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
    let name = b"model.weights.h5";
    let end = archive.len() - 22;
    let directory = number(&archive[end + 16..end + 20]) as usize;
    // From the version up to the extra field, as both headers have it.
    let mut facts = vec![20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    facts.extend([(WEIGHTS as u32).to_le_bytes(), (WEIGHTS as u32).to_le_bytes()].concat());
    facts.extend([name.len() as u8, 0, 0, 0]);
    let local = [b"PK\x03\x04" as &[u8], &facts, name].concat();
    let shift = local.len() as u64 + WEIGHTS;
    let mut entries = [b"PK\x01\x02\x14\x00" as &[u8], &facts, &[0; 14], name].concat();
    let mut old = &archive[directory..end];
    while !old.is_empty() {
        let length = 46 + [28, 30, 32].iter().map(|at| number(&old[*at..at + 2]) as usize).sum::<usize>();
        let mut entry = old[..length].to_vec();
        let offset = (number(&entry[42..46]) + shift) as u32;
        entry[42..46].copy_from_slice(&offset.to_le_bytes());
        entries.extend(entry);
        old = &old[length..];
    }
    let mut tail = archive[end..].to_vec();
    let count = (number(&tail[8..10]) + 1) as u16;
    tail[8..10].copy_from_slice(&count.to_le_bytes());
    tail[10..12].copy_from_slice(&count.to_le_bytes());
    tail[12..16].copy_from_slice(&(entries.len() as u32).to_le_bytes());
    tail[16..20].copy_from_slice(&((directory as u64 + shift) as u32).to_le_bytes());
    let rest = [&archive[..directory], &entries, &tail].concat();
    let length = shift + rest.len() as u64;
    Sparse { parts: vec![(0, local), (shift, rest)], length, at: 0, read: 0 }
}

#[test]
fn weights_in_an_archive_and_in_hdf5_are_not_read() {
    let h5 = model("lenet.h5");
    let files = [
        with_weights(&model("lenet.keras")),
        Sparse { length: h5.len() as u64 + WEIGHTS, parts: vec![(0, h5)], at: 0, read: 0 },
    ];
    for mut file in files {
        let imported = import_from(&mut file, &Options::default()).unwrap();
        assert_eq!(imported.graph.nodes.len(), 8);
        assert!(file.length > WEIGHTS && file.read < 200 << 10, "{} bytes read", file.read);
    }
}
