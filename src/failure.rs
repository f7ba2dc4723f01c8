//! Why a command could not do its work: what it is about, what is wrong, and every problem found.

use memfit_graph::Problem;
use std::fmt;
use std::path::Path;

/// Bad input or usage, as it is shown after `error: `.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The file or the flag.
    about: String,
    problems: Vec<Problem>,
}

impl Failure {
    /// Something wrong with a file or a flag as a whole.
    pub(crate) fn new(about: impl Into<String>, message: impl Into<String>) -> Failure {
        Failure { about: about.into(), problems: vec![Problem::new("", message)] }
    }

    /// The same with what the user can do.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Failure {
        if let Some(problem) = self.problems.last_mut() {
            problem.hint = Some(hint.into());
        }
        self
    }

    /// A file that cannot be written.
    pub(crate) fn unwritten(path: &Path, error: &std::io::Error) -> Failure {
        Failure::new(path.display().to_string(), format!("cannot be written: {error}"))
    }

    /// Everything that is wrong inside of a file.
    pub(crate) fn of_file(file: &str, problems: Vec<Problem>) -> Failure {
        Failure { about: file.into(), problems }
    }
}

impl fmt::Display for Failure {
    /// One problem continues the line; several follow it, each with its hint below.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.about)?;
        match &self.problems[..] {
            [one] => {
                write!(f, " ")?;
                problem(f, one, "  ")
            }
            several => {
                write!(f, " {} problems", several.len())?;
                several.iter().try_for_each(|p| {
                    write!(f, "\n  ")?;
                    problem(f, p, "    ")
                })
            }
        }
    }
}

fn problem(f: &mut fmt::Formatter<'_>, p: &Problem, indent: &str) -> fmt::Result {
    // An importer calls the file as a whole `file`; its name is on the line already.
    let place = if p.place == "file" { "" } else { &*p.place };
    match (place, &*p.op) {
        ("", "") => write!(f, "{}", p.message)?,
        (place, "") => write!(f, "{place}: {}", p.message)?,
        (place, op) => write!(f, "{place} ({op}): {}", p.message)?,
    }
    match &p.hint {
        Some(hint) => write!(f, "\n{indent}hint: {hint}"),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_problem_continues_the_line_and_several_follow_it() {
        let mut wrong =
            Problem::new("/conv1/Conv", "input 1: expected rank 4, found rank 2").hint("export again");
        wrong.op = "Conv".into();
        let one = Failure::of_file("m.onnx", vec![wrong.clone()]);
        assert_eq!(
            one.to_string(),
            "m.onnx: /conv1/Conv (Conv): input 1: expected rank 4, found rank 2\n  hint: export again"
        );
        let two = Failure::of_file("m.onnx", vec![wrong, Problem::new("file", "cut short")]);
        assert_eq!(
            two.to_string(),
            "m.onnx: 2 problems\n  /conv1/Conv (Conv): input 1: expected rank 4, found rank 2\n    hint: export again\n  cut short"
        );
        let flag = Failure::new("--framework burn", "not supported yet").hint("use pytorch");
        assert_eq!(flag.to_string(), "--framework burn: not supported yet\n  hint: use pytorch");
    }
}
