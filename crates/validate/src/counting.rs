//! Counts the bytes that the process has allocated: what stands for device memory where the processor is the device.
#![allow(unsafe_code)]

use memfit_graph::Bytes;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

struct Counting;

static NOW: AtomicU64 = AtomicU64::new(0);
static HIGHEST: AtomicU64 = AtomicU64::new(0);

#[global_allocator]
static COUNTING: Counting = Counting;

fn grow(size: usize) {
    let now = NOW.fetch_add(size as u64, Relaxed) + size as u64;
    HIGHEST.fetch_max(now, Relaxed);
}

fn shrink(size: usize) {
    NOW.fetch_sub(size as u64, Relaxed);
}

// SAFETY: every call goes to the system's allocator with the arguments it came with.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        shrink(layout.size());
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        grow(size);
        shrink(layout.size());
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Bytes allocated now, and the highest since the last call.
pub(crate) fn take() -> (Bytes, Bytes) {
    let now = NOW.load(Relaxed);
    let highest = HIGHEST.swap(now, Relaxed);
    (Bytes(now), Bytes(highest.max(now)))
}
