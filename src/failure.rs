//! Why a command could not do its work: what it is about, what is wrong, and every problem found.

use memfit_graph::Problem;
use std::borrow::Cow;
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

    /// Everything that is wrong with flags, each of which a problem names as its place.
    pub(crate) fn of_flags(mut problems: Vec<Problem>) -> Failure {
        let about = match &mut problems[..] {
            [one] => std::mem::take(&mut one.place),
            _ => "flags".into(),
        };
        Failure { about, problems }
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
    let (place, op, message) = (quoted(place), quoted(&p.op), quoted(&p.message));
    match (&*place, &*op) {
        ("", "") => write!(f, "{message}")?,
        (place, "") => write!(f, "{place}: {message}")?,
        (place, op) => write!(f, "{place} ({op}): {message}")?,
    }
    match &p.hint {
        Some(hint) => write!(f, "\n{indent}hint: {}", quoted(hint)),
        None => Ok(()),
    }
}

/// No name or path that people give is longer, but a file may hold one of megabytes.
const LONGEST_WORD: usize = 300;

/// No message has more of them; an end that comes to it is one that was quoted.
const LONGEST: usize = 10_000;

/// A message with what it quotes shortened in the middle where it is too long to be read.
pub(crate) fn quoted(text: &str) -> Cow<'_, str> {
    let is_long = |word: &str| word.len() > LONGEST_WORD;
    if text.len() <= LONGEST && !text.split(char::is_whitespace).any(is_long) {
        return Cow::Borrowed(text);
    }
    let words = text.split_inclusive(char::is_whitespace).map(|word| shortened(word, LONGEST_WORD));
    Cow::Owned(shortened(&words.collect::<String>(), LONGEST).into_owned())
}

/// About `most` bytes of a text, the most of them from its beginning.
fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return Cow::Borrowed(text);
    }
    let (mut front, mut back) = (most / 3 * 2, text.len() - most / 3);
    while !text.is_char_boundary(front) {
        front -= 1;
    }
    while !text.is_char_boundary(back) {
        back += 1;
    }
    Cow::Owned(format!("{}…{}", &text[..front], &text[back..]))
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
        let long = Problem::new("x", format!("the size of {} is not known", "é".repeat(1 << 20)));
        let long = Failure::of_file("m.onnx", vec![long]).to_string();
        assert!(long.len() < 400 && long.contains("é…é") && long.ends_with("é is not known"), "{long}");
        let wrong = |flag: &str| Problem::new(flag, "expected a number, found none");
        let flag = Failure::of_flags(vec![wrong("--gpus")]).to_string();
        assert_eq!(flag, "--gpus: expected a number, found none");
        let two = Failure::of_flags(vec![wrong("--gpus"), wrong("--accumulate")]).to_string();
        assert!(two.starts_with("flags: 2 problems\n  --gpus: expected"), "{two}");
        let flag = Failure::new("--framework burn", "not supported yet").hint("use pytorch");
        assert_eq!(flag.to_string(), "--framework burn: not supported yet\n  hint: use pytorch");
    }
}
