//! One file per optimizer.
