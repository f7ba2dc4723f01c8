//! What stood around a failure: the Python frames above it, the step it was at, the batch that the run was started with.

mod runs;

use memfit_engine::Phase;
use regex_lite::Regex;
use std::sync::OnceLock;

/// What the program was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// Training.
    Training,
    /// Validation or a test.
    Validation,
    /// Prediction, generation.
    Prediction,
    /// Reading a checkpoint.
    Loading,
    /// Making a model's weights on the device, read or not.
    Weights,
    /// Moving a model to the device.
    Building,
}

/// What stood around the first failure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// Names of the functions of the last traceback, outermost first.
    pub frames: Vec<String>,
    /// The pass, where frames or node names tell it.
    pub pass: Option<Phase>,
    /// What the program was doing, where they tell it.
    pub run: Option<Run>,
    /// The last epoch seen.
    pub epoch: Option<u64>,
    /// The last step seen.
    pub step: Option<u64>,
    /// The batch size that the log names.
    pub batch: Option<u64>,
}

macro_rules! regex {
    ($name:ident, $pattern:literal) => {
        fn $name() -> &'static Regex {
            static REGEX: OnceLock<Regex> = OnceLock::new();
            REGEX.get_or_init(|| {
                Regex::new($pattern).unwrap_or_else(|_| unreachable!("the pattern is a constant"))
            })
        }
    };
}

// Python's own frames; those of Rich (`train.py:12 in main`) and of IPython (`File train.py:12, in main(x)`, `train.py in main(x)`).
regex!(frame, r#"(?:File "([^"]*)", line \d+,|(\S+\.py)(?::\d+,?)?) in ([\w<>.]+)"#);
regex!(epoch, r"(?i)\bepoch[ \t:=\[(#]*(\d+)");
regex!(step, r"(?i)\b(?:step|iter|iteration|batch)[ \t:=\[(#]*(\d+)");
regex!(bar, r"(\d+)/\d+ \[");
regex!(batch, r"(?i)batch[-_ ]?size['\x22]?\s*[:=]?\s*(\d+)");
regex!(
    reading_of,
    r"(?i)\b(?:max[ _]?mem(?:ory)?|gpu[ _]?mem(?:ory)?|mem(?:ory)?|memory_allocated|cuda[ _]mem|vram)(?:[ _](?:used|allocated|reserved|usage))?(?:\s*[:=]\s*(\d+(?:\.\d+)?)\s?([KMGT]?i?B?)|\s(\d+(?:\.\d+)?)\s?([KMGT]i?B))\b"
);

/// What a line contains that prints the memory used so far.
pub(crate) const READINGS: &[&str] = &[
    "max mem",
    "max_mem",
    "Max mem",
    "MaxMem",
    "gpu_mem",
    "GPU mem",
    "GPU Mem",
    "memory:",
    "Memory:",
    "mem:",
    "mem=",
    "memory=",
    "memory_allocated",
    "VRAM",
    "vram",
];

/// What it contains where a size with its unit follows at once: `mem 10.1 GiB`.
pub(crate) const READINGS_BEFORE_A_NUMBER: &[&str] = &["mem ", "Mem ", "memory ", "Memory "];

/// What a traceback begins with.
const TRACEBACK: &str = "Traceback (most recent call last)";

/// Bytes from the beginning of a traceback to the message that it ends in, at most.
const REACH: usize = 40_000;

/// Whether a traceback leads to what stands below `text`.
pub(crate) fn is_traced(text: &[u8]) -> bool {
    let near = &text[text.len().saturating_sub(REACH)..];
    memchr::memmem::find(near, TRACEBACK.as_bytes()).is_some()
}

/// A message that a logger wrote as a string of JSON, which holds the lines of a traceback.
fn unescaped(line: &str) -> String {
    line.replace("\\n", "\n").replace("\\\"", "\"")
}

/// The memory that a line prints, in KiB where it has a unit, else in thousandths of its own.
pub(crate) fn reading(line: &str) -> Option<u64> {
    let found = reading_of().captures(line)?;
    let number = found.get(1).or(found.get(3))?.as_str();
    let unit = found.get(2).or(found.get(4)).map_or("", |u| u.as_str());
    let sized =
        if unit.is_empty() || unit == "B" { format!("{number}KB") } else { format!("{number}{unit}") };
    crate::size::size(&sized).map(|b| b.0 >> 10)
}

/// The first epoch that a line names.
pub(crate) fn epoch_of(line: &str) -> Option<u64> {
    epoch().captures(line)?.get(1)?.as_str().parse().ok()
}

impl Context {
    /// From the text before a failure and its own line.
    pub(crate) fn before(text: &str, line: &str) -> Context {
        let mut context = Context::default();
        let last = |regex: &Regex, text: &str| -> Option<u64> {
            regex.captures_iter(text).last().and_then(|c| c.get(1)?.as_str().parse().ok())
        };
        context.epoch = last(epoch(), text);
        context.step = last(step(), text).or_else(|| last(bar(), text));
        context.batch = last(batch(), text);
        let logged = unescaped(line);
        let traceback = [logged.as_str(), text].into_iter().find_map(|t| Some(&t[t.rfind(TRACEBACK)?..]));
        let traceback = traceback.unwrap_or_default();
        let mut script = None;
        // A failure far below a traceback is not what it led to.
        if traceback.len() < REACH {
            // From the outside to the inside: what stands further in is what asked.
            for row in traceback.lines() {
                for found in frame().captures_iter(row) {
                    let file = found.get(1).or(found.get(2)).map_or("", |file| file.as_str());
                    if context.frames.is_empty() {
                        script = runs::of_script(file);
                    }
                    context.frame(file, &found[3]);
                }
                if row.trim_start().starts_with("at::") || row.contains("optimizer.step(") {
                    context.words(row);
                }
                context.code(row.trim_start());
            }
        }
        context.words(line);
        context.run = context.run.or(script);
        context
    }

    fn frame(&mut self, file: &str, function: &str) {
        self.frames.push(function.to_owned());
        let file = file.replace('\\', "/");
        let name = function.rsplit('.').next().unwrap_or(function).to_ascii_lowercase();
        self.run = runs::after(self.run, &file, &name);
        let has = |word: &str| name.contains(word);
        if file.contains("/optim/") && self.pass != Some(Phase::Backward) {
            self.pass = Some(Phase::OptimizerStep);
        } else if has("backward") || file.contains("autograd/__init__") {
            self.pass = Some(Phase::Backward);
        } else if (has("forward") || has("_call_impl")) && self.pass != Some(Phase::Backward) {
            // An optimizer that is given the whole step as a function runs forward inside of its own step.
            self.pass = Some(Phase::Forward);
        } else if ["apply_gradients", "apply_grad", "update_step"].iter().any(|word| has(word)) {
            self.pass = Some(Phase::OptimizerStep);
        }
    }

    /// What a line of code tells, where the function that it stands in has no telling name: a script's, a notebook's.
    fn code(&mut self, line: &str) {
        let calls = |name: &str| line.contains(name) && !line.starts_with("File \"");
        if self.run.is_none_or(|run| run == Run::Training) {
            if calls(".predict(") || calls(".generate(") {
                self.run = Some(Run::Prediction);
            } else if calls(".evaluate(") {
                self.run = Some(Run::Validation);
            }
        }
        if calls(".backward(") && self.pass.is_none_or(|pass| pass == Phase::Forward) {
            self.pass = Some(Phase::Backward);
        }
    }

    /// What node names and lists of functions tell.
    pub(crate) fn words(&mut self, line: &str) {
        let has = |word: &str| line.contains(word);
        if has("gradient_tape/")
            || has("gradients/")
            || has("Backprop")
            || has("_grad/")
            || has("Backward")
            || has("transpose(jvp(")
        {
            self.pass = Some(Phase::Backward);
        } else if has("/ApplyAdam")
            || has("/ResourceApply")
            || has("apply_gradients")
            || has("optimizer.step(")
            || has("{{node Adam/")
        {
            self.pass = Some(Phase::OptimizerStep);
        } else if self.pass.is_none() && (has("{{node ") || has("[[node ") || has("jvp(")) {
            self.pass = Some(Phase::Forward);
        }
        if has("test_function") {
            self.run = Some(Run::Validation);
        } else if has("predict_function") || has("warming up sampler") {
            self.run = Some(Run::Prediction);
        } else if has("error loading model") || has("failed to load model") {
            // llama.cpp, and what is built on it.
            self.run = Some(Run::Weights);
        } else if self.run.is_none() && has("train_function") {
            self.run = Some(Run::Training);
        }
    }
}

/// What a line after the failure that tells what the program was doing contains one of.
pub(crate) const TELLING: [&str; 6] =
    ["_function", "{{node ", "[[node ", "Operator: op_name", "load model", "loading model"];

/// Whether a line after the failure tells what the program was doing.
pub(crate) fn tells(line: &str) -> bool {
    TELLING.iter().any(|word| line.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_tell_the_pass_and_the_run() {
        let text = "Epoch 3 step 120\nTraceback (most recent call last):\n  File \"train.py\", line 9, in validate\n  File \"torch/nn/modules/module.py\", line 1, in _call_impl\n";
        let context = Context::before(text, "");
        assert_eq!((context.run, context.pass), (Some(Run::Validation), Some(Phase::Forward)));
        assert_eq!((context.epoch, context.step), (Some(3), Some(120)));
    }

    #[test]
    fn frames_of_rich_of_ipython_and_of_a_string_of_json() {
        let run = |text: &str, line: &str| Context::before(text, line).run;
        let title = "Traceback (most recent call last)";
        assert_eq!(
            run(&format!("╭─ {title} ─╮\n│ /a/train.py:210 in validate │\n"), ""),
            Some(Run::Validation)
        );
        assert_eq!(
            run(&format!("{title}\nFile ~/a/trainer.py:89, in Trainer.predict(self)\n"), ""),
            Some(Run::Prediction)
        );
        assert_eq!(run(&format!("{title}\n/a/trainer.py in evaluate(self, x)\n"), ""), Some(Run::Validation));
        let line =
            format!(r#"{{"exc": "{title}:\n  File \"t.py\", line 3, in validate\n    y = model(x)"}}"#);
        assert_eq!(run("", &line), Some(Run::Validation));
    }

    #[test]
    fn readings_of_common_printers() {
        assert_eq!(reading("Epoch: [0] [10/100] loss: 2.1 max mem: 5432"), Some(5432));
        assert_eq!(reading("step 5 GPU mem: 3.5 GB"), Some(3_670_016));
        assert_eq!(reading("step 5 mem 10.5 GiB"), Some(21 << 19));
        assert_eq!(reading("step 5 mem 10"), None, "of what does not say so");
        assert_eq!(reading("the memory: of it"), None);
    }
}
