//! A file of 2 GiB with its weights inside, which takes no room on the disk: the weights are holes.

use crate::model::{head, tensor};
use crate::wire::{Message, key};
use std::fs::File;
use std::io::{Result, Seek, SeekFrom, Write};
use std::path::Path;

/// Bytes of one weight: a square of floats.
const SIDE: u64 = 4096;
const WEIGHT: u64 = SIDE * SIDE * 4;

/// Writes a chain of linear layers of at least `size` bytes.
///
/// # Errors
/// The file cannot be written.
pub fn write_large(path: &Path, size: u64) -> Result<()> {
    let layers = size.div_ceil(WEIGHT);
    let names: Vec<String> = (0..layers).map(|i| format!("layer{i}.weight")).collect();
    let mut before = Message::default().bytes(2, "large");
    for (i, weight) in names.iter().enumerate() {
        let node =
            Message::default().bytes(1, format!("t{i}")).bytes(1, weight).bytes(2, format!("t{}", i + 1));
        before = before.bytes(1, node.bytes(3, format!("/layer{i}/MatMul")).bytes(4, "MatMul"));
    }
    let dims = Message::default().bytes(1, Message::default().bytes(2, "batch"));
    let dims = dims.bytes(1, Message::default().number(1, SIDE));
    let input = Message::default().bytes(1, Message::default().number(1, 1).bytes(2, dims));
    before = before.bytes(11, Message::default().bytes(1, "t0").bytes(2, input));
    before = before.bytes(12, Message::default().bytes(1, format!("t{layers}")));

    // What stands before each weight's elements: the keys of the tensor and of its bytes.
    let openings: Vec<Vec<u8>> = names
        .iter()
        .map(|name| {
            let fields = tensor(name, 1, &[SIDE, SIDE]).0;
            let elements = key(9, WEIGHT);
            let length = (fields.len() + elements.len()) as u64 + WEIGHT;
            [key(5, length), fields, elements].concat()
        })
        .collect();
    let weights: u64 = openings.iter().map(|o| o.len() as u64 + WEIGHT).sum();

    let mut file = File::create(path)?;
    file.write_all(head().as_ref())?;
    file.write_all(&key(7, before.0.len() as u64 + weights))?;
    file.write_all(before.as_ref())?;
    for opening in openings {
        file.write_all(&opening)?;
        file.seek(SeekFrom::Current(WEIGHT.cast_signed()))?;
    }
    let end = file.stream_position()?;
    file.set_len(end)
}
