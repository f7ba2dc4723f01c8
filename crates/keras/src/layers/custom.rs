//! A layer that is not Keras' own.
//!
//! Its output is what the user gives (`--layer`) or what the file recorded where it is read; its parameters are what the user
//! gives. What it keeps for backward is a bound.

use crate::layer::{Call, Layer};
use crate::spec::Spec;
use memfit_graph::OpError;

/// Any class that Keras does not have.
#[derive(Clone, Copy, Debug)]
pub struct Custom;

impl Layer for Custom {
    fn outputs(&self, _: &Call<'_>, _: &[Spec]) -> Result<Vec<Spec>, OpError> {
        Ok(Vec::new())
    }

    fn is_known(&self) -> bool {
        false
    }
}
