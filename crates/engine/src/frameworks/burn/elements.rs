//! Elements that are known before a step: listed, or how they are made. What predicts memory reads none, and a file may ask for more than
//! a machine holds, so a table is made where a step is run and nowhere else.

use std::sync::Arc;

/// How the elements of a table are made.
type Make = dyn Fn() -> Vec<f64> + Send + Sync;

/// The elements of a tensor, in order.
#[derive(Clone)]
pub struct Elements(Form);

#[derive(Clone)]
enum Form {
    Listed(Arc<[f64]>),
    Made(Arc<Make>),
}

impl Elements {
    /// Those that a function gives when they are asked for.
    pub(super) fn made(make: impl Fn() -> Vec<f64> + Send + Sync + 'static) -> Elements {
        Elements(Form::Made(Arc::new(make)))
    }

    /// All of them.
    pub fn to_vec(&self) -> Vec<f64> {
        match &self.0 {
            Form::Listed(all) => all.to_vec(),
            Form::Made(make) => make(),
        }
    }
}

impl From<Vec<f64>> for Elements {
    fn from(all: Vec<f64>) -> Elements {
        Elements(Form::Listed(all.into()))
    }
}

/// The same list, or made by the same function.
impl PartialEq for Elements {
    fn eq(&self, other: &Elements) -> bool {
        match (&self.0, &other.0) {
            (Form::Listed(a), Form::Listed(b)) => a == b,
            (Form::Made(a), Form::Made(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

impl std::fmt::Debug for Elements {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Form::Listed(all) => write!(f, "{} elements", all.len()),
            Form::Made(_) => f.write_str("elements that are made"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_made_when_it_is_asked_for() {
        let table = Elements::made(|| (0..3).map(f64::from).collect());
        assert_eq!(table.to_vec(), Elements::from(vec![0.0, 1.0, 2.0]).to_vec());
        assert!(table == table.clone() && table != Elements::from(vec![0.0, 1.0, 2.0]));
    }
}
