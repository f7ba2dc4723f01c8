//! memfit's answers behind a plain C interface.
//!
//! The check that wasm gives the same bytes as a native build runs this module in an interpreter. It imports nothing:
//! there is no host to ask for files, time or randomness, which proves that the core needs none of them.

use std::slice;

/// Room for `length` bytes in this module's memory, never given back: the host makes a new instance for each question.
#[unsafe(no_mangle)]
pub extern "C" fn allocate(length: usize) -> *mut u8 {
    Box::leak(vec![0u8; length].into_boxed_slice()).as_mut_ptr()
}

/// Answers a question about a model: an estimate (0) or an inspection (anything else), under a plan in JSON. The result is
/// the address of the answer in the upper half and its length in the lower; its first byte is 0 for an answer and 1 for
/// an error.
///
/// # Safety
/// Both ranges must have come from [`allocate`] and be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn answer(
    question: u32,
    model: *const u8,
    model_length: usize,
    plan: *const u8,
    plan_length: usize,
) -> u64 {
    // SAFETY: the caller promises that the ranges are live and written, and nothing frees what `allocate` gave.
    let (model, plan) =
        unsafe { (slice::from_raw_parts(model, model_length), slice::from_raw_parts(plan, plan_length)) };
    let plan = String::from_utf8_lossy(plan);
    let result = match question {
        0 => memfit_wasm::estimate_json(model, &plan),
        _ => memfit_wasm::inspect_json(model, &plan),
    };
    let (kind, text) = match result {
        Ok(text) => (0, text),
        Err(text) => (1, text),
    };
    let bytes: &'static mut [u8] = Box::leak([&[kind], text.as_bytes()].concat().into_boxed_slice());
    ((bytes.as_ptr() as u64) << 32) | bytes.len() as u64
}
