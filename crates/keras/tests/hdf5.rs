//! Every way in which h5py keeps an attribute is read, and structures that lead back to themselves end.
//!
//! The files are h5py's (3.16), all with the config of one model: `libver="latest"` with its attributes in the header and beside it
//! (dense), the old format with a block of the user's before it, and with a text of fixed length.

#![allow(clippy::unwrap_used)]

use memfit_keras::{Options, import};

fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/tests/hdf5/{name}.h5", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn problem(bytes: &[u8]) -> String {
    import(bytes, &Options::default()).unwrap_err()[0].to_string()
}

#[test]
fn attributes_are_found_wherever_they_are() {
    for name in ["compact", "dense", "fixed", "user_block"] {
        let model = import(&bytes(name), &Options::default()).unwrap();
        assert_eq!((model.layers.len(), &*model.producer), (5, "keras 3.15.1"), "{name}");
    }
    assert!(problem(&bytes("weights")).contains("weights alone"));
}

#[test]
fn a_header_that_continues_in_itself_ends() {
    let mut file = bytes("fixed");
    let number = |file: &[u8], at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap());
    let root = number(&file, 64) as usize;
    let size = u64::from(u32::from_le_bytes(file[root + 8..root + 12].try_into().unwrap()));
    let mut at = root + 16;
    while u16::from_le_bytes([file[at], file[at + 1]]) != 0x10 {
        at += 8 + usize::from(u16::from_le_bytes([file[at + 2], file[at + 3]]));
        assert!(at < root + 16 + size as usize, "the header has no continuation");
    }
    file[at + 8..at + 16].copy_from_slice(&(root as u64 + 16).to_le_bytes());
    file[at + 16..at + 24].copy_from_slice(&size.to_le_bytes());
    let message = problem(&file);
    assert!(message.contains("256 blocks") || message.contains("without"), "{message}");
}

#[test]
fn no_byte_makes_it_panic() {
    for name in ["compact", "dense", "fixed", "user_block"] {
        let whole = bytes(name);
        for at in (0..whole.len()).step_by(41) {
            for byte in [0, 0xFF] {
                let mut damaged = whole.clone();
                damaged[at] = byte;
                let _ = import(&damaged, &Options::default());
            }
        }
    }
}
