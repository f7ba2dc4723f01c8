//! How fast a log of one GiB is read: a healthy one, ones whose every line matches, one line without an end, progress bars, allocator
//! dumps of millions of chunks, killed processes, and runs that survive a failure, or one after the other.

#![allow(missing_docs)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::io::{Cursor, Read, Result};

const GIB: u64 = 1 << 30;

/// The same lines over and over, up to a length.
struct Repeated {
    lines: Vec<u8>,
    at: usize,
}

impl Read for Repeated {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let count = buffer.len().min(self.lines.len() - self.at);
        buffer[..count].copy_from_slice(&self.lines[self.at..self.at + count]);
        self.at = (self.at + count) % self.lines.len();
        Ok(count)
    }
}

fn log(first: &str, line: &str) -> impl Read {
    let lines = line.repeat((1 << 20) / line.len()).into_bytes();
    Cursor::new(first.to_owned().into_bytes()).chain(Repeated { lines, at: 0 }).take(GIB)
}

fn scan(c: &mut Criterion) {
    let failure = "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.92 GiB total capacity; 10.11 GiB already allocated; 66.44 MiB free; 10.31 GiB reserved in total by PyTorch)\n";
    let plain =
        "2024-05-01 12:00:00,123 INFO trainer.py:88] epoch 3 step 1200 loss 0.4321 lr 0.0003 1.23 it/s\n";
    let reading =
        "Epoch: [3] [1200/5004] eta: 0:10:00 lr: 0.0003 loss: 0.4321 (0.5) time: 0.31 max mem: 5432\n";
    let other = "W0501 12:00:00.123456 4242 loader.cc:77] [worker 3] fetched shard [17] of bucket a\n";
    let bar = "\rEpoch 3:  37%|####      | 7412/20000 [02:11<03:40, 57.1it/s, loss=0.4321, gpu_mem=5432]";
    let chunk = "2024-05-01 12:00:00.123456: I tensorflow/core/common_runtime/bfc_allocator.cc:1066] InUse at 7f1c9e000000 of size 2359296 next 95\n";
    let survived = format!("{failure}skipped\n{}", plain.repeat(4));
    let warning = "2024-05-01 12:00:00.123456: W tensorflow/core/framework/cpu_allocator_impl.cc:82] Allocation of 411041792 exceeds 10% of free system memory.\n";
    let mut group = c.benchmark_group("scan one GiB");
    group.sample_size(10).throughput(Throughput::Bytes(GIB));
    for (name, first, line) in [
        ("healthy", "", plain),
        ("a reading in every line", "", reading),
        ("a failure, then progress", failure, plain),
        ("a failure, then neither progress nor an end", failure, other),
        ("a warning in every line", "", warning),
        ("a failure in every line", "", failure),
        ("a failure after every few steps", "", &survived),
        ("one line of failures", "", failure.trim_end()),
        ("a progress bar that returns", "", bar),
        ("an allocator's dump", failure, chunk),
        ("a short line of a killed process", "", "worker 12: exit code 137\n"),
        (
            "short lines of processes that ended",
            "",
            "worker 12: exit code 137\nworker 9: exit code 0\nworker 207: exit code 2\n",
        ),
    ] {
        group.bench_function(name, |b| b.iter(|| black_box(memfit_explain::read(log(first, line)))));
    }
    group.finish();
}

criterion_group!(benches, scan);
criterion_main!(benches);
