//! What can be wrong with an operator, and a problem as it is shown: file position, expected, found, hint.

use std::fmt;

/// Why an operator cannot be built or its shapes cannot be inferred.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum OpError {
    /// An attribute is missing or of another kind.
    Attribute {
        /// Its name.
        name: String,
        /// What it should be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// An input that the operator needs is not there.
    MissingInput {
        /// Position among the node's inputs.
        index: usize,
    },
    /// An input has another dtype, rank, shape or value than the operator takes.
    Input {
        /// Position among the node's inputs.
        index: usize,
        /// What the operator takes.
        expected: String,
        /// What is there.
        found: String,
    },
    /// Shapes do not go together.
    Mismatch {
        /// What should hold.
        expected: String,
        /// What holds.
        found: String,
    },
    /// A size does not fit in 64 bits or is negative.
    Overflow {
        /// Which size.
        what: String,
    },
    /// A body of a control-flow operator has problems of its own.
    Body(Vec<Problem>),
}

impl OpError {
    /// An attribute of the wrong kind or value.
    pub fn attribute(name: &str, expected: impl Into<String>, found: impl Into<String>) -> OpError {
        OpError::Attribute { name: name.into(), expected: expected.into(), found: found.into() }
    }

    /// A required attribute that is absent.
    pub fn missing_attribute(name: &str) -> OpError {
        OpError::attribute(name, "a value", "nothing")
    }

    /// An input that does not suit.
    pub fn input(index: usize, expected: impl Into<String>, found: impl fmt::Display) -> OpError {
        OpError::Input { index, expected: expected.into(), found: found.to_string() }
    }

    /// Shapes that do not go together.
    pub fn mismatch(expected: impl Into<String>, found: impl fmt::Display) -> OpError {
        OpError::Mismatch { expected: expected.into(), found: found.to_string() }
    }

    /// A size out of range.
    pub fn overflow(what: impl Into<String>) -> OpError {
        OpError::Overflow { what: what.into() }
    }
}

impl fmt::Display for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpError::Attribute { name, expected, found } => {
                write!(f, "attribute `{name}`: expected {expected}, found {found}")
            }
            OpError::MissingInput { index } => write!(f, "input {index} is required but absent"),
            OpError::Input { index, expected, found } => {
                write!(f, "input {index}: expected {expected}, found {found}")
            }
            OpError::Mismatch { expected, found } => write!(f, "expected {expected}, found {found}"),
            OpError::Overflow { what } => write!(f, "{what} is out of range"),
            OpError::Body(problems) => {
                write!(f, "its body has {} problem(s):", problems.len())?;
                problems.iter().try_for_each(|p| write!(f, " {p};"))
            }
        }
    }
}

impl std::error::Error for OpError {}

/// One thing that is wrong with a model, as it is shown to the user.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// The node or tensor, by the name the file gives it.
    pub place: String,
    /// The operator type, where it concerns one.
    pub op: String,
    /// What was expected and what was found.
    pub message: String,
    /// What the user can do.
    pub hint: Option<String>,
}

impl Problem {
    /// A problem of a whole file or of a tensor.
    pub fn new(place: impl Into<String>, message: impl Into<String>) -> Problem {
        Problem { place: place.into(), op: String::new(), message: message.into(), hint: None }
    }

    /// The same with a hint.
    pub fn hint(mut self, hint: impl Into<String>) -> Problem {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.op.is_empty() {
            write!(f, "{}: {}", self.place, self.message)?;
        } else {
            write!(f, "{} ({}): {}", self.place, self.op, self.message)?;
        }
        match &self.hint {
            Some(hint) => write!(f, " (hint: {hint})"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_names_place_expected_found_and_hint() {
        let error = OpError::input(1, "rank 4", "rank 2");
        let mut problem = Problem::new("/conv1/Conv", error.to_string()).hint("export again");
        problem.op = "Conv".into();
        assert_eq!(
            problem.to_string(),
            "/conv1/Conv (Conv): input 1: expected rank 4, found rank 2 (hint: export again)"
        );
    }
}
