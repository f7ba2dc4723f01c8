//! A file costs what its structure costs: 2 GiB of weights inside of it are neither read nor kept.
//!
//! This is a test binary of its own because it measures the whole process.

use std::fs::File;
use std::io::{BufReader, Read, Result, Seek, SeekFrom};

const SIZE: u64 = 2 << 30;
const MOST_READ: u64 = 1 << 20;
const MOST_RESIDENT_KIB: u64 = 40 << 10;

/// A file that counts what is read of it.
struct Counted {
    file: File,
    read: u64,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let read = self.file.read(buffer)?;
        self.read += read as u64;
        Ok(read)
    }
}

impl Seek for Counted {
    fn seek(&mut self, to: SeekFrom) -> Result<u64> {
        self.file.seek(to)
    }
}

/// The largest resident size of this process so far (`VmHWM`), where the system tells it.
fn resident_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

#[test]
fn two_gibibytes_of_weights_are_not_read() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("large.onnx");
    memfit_bench_models::write_large(&path, SIZE).unwrap();
    assert!(std::fs::metadata(&path).unwrap().len() >= SIZE);

    let mut counted = Counted { file: File::open(&path).unwrap(), read: 0 };
    let model = memfit_onnx::import_from(BufReader::new(&mut counted)).unwrap();
    std::fs::remove_file(&path).unwrap();

    println!("{} bytes read, {:?} KiB resident", counted.read, resident_kib());
    assert_eq!(model.graph.nodes.len(), 32);
    assert!(counted.read <= MOST_READ, "{} bytes", counted.read);
    if let Some(resident) = resident_kib() {
        assert!(resident <= MOST_RESIDENT_KIB, "{resident} KiB");
    }
}
