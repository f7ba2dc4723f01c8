//! One file per recomposition pattern.
