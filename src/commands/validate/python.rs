//! Steps of the host's own PyTorch or Keras: a program is written, the host's Python runs it, and what it says is compared.

use super::{Asked, INTERRUPTED, asked};
use crate::args::{Backend, Runner, ValidateArgs};
use crate::failure::Failure;
use crate::{host, output};
use memfit_engine::devices::{Card, find};
use memfit_engine::{Framework, Plan};
use memfit_graph::Bytes;
use memfit_validate::driver::{Sampler, used};
use memfit_validate::framework;
use memfit_validate::python::{self, Report, Said, Settings};
use memfit_validate::record::Record;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Instant;

/// The program that would run.
pub(super) fn script(args: &ValidateArgs, asked: &Asked) -> Result<String, Failure> {
    let failure = |problems| asked.ready.failure(problems);
    let settings = settings(args)?;
    let setting = asked.ready.model.setting(&asked.ready.binding, &asked.plan).map_err(failure)?;
    match args.runner {
        Runner::Keras => {
            if asked.ready.format != "keras" {
                let message = "--runner keras loads Keras files";
                return Err(Failure::new(&asked.ready.file, message).hint("--runner torch runs ONNX files"));
            }
            let path = std::path::absolute(&args.model.file).unwrap_or_else(|_| args.model.file.clone());
            python::keras::script(&path, &setting, &asked.plan, settings).map_err(failure)
        }
        Runner::Torch => python::torch::script(&setting, &asked.plan, settings).map_err(failure),
        Runner::Burn => Err(Failure::new("--print-script", "Burn's steps are no program")),
    }
}

fn settings(args: &ValidateArgs) -> Result<Settings, Failure> {
    let device = match args.backend {
        None => None,
        Some(Backend::Cpu) => Some("cpu"),
        Some(Backend::Cuda) => Some("cuda"),
        Some(Backend::Wgpu) => {
            let name = args.runner.name();
            return Err(Failure::new("--backend wgpu", format!("--runner {name} runs on cpu or cuda")));
        }
    };
    Ok(Settings { steps: args.steps, device, limit: args.limit.map(|bytes| bytes.0) })
}

/// Runs the steps.
pub(super) fn run(args: &ValidateArgs) -> Result<Record, Failure> {
    let mut asked = asked(args)?;
    let program = script(args, &asked)?;
    let begin = Instant::now();
    let mut progress = |step: u32, peak: Bytes| output::steps(begin, step, args.steps, peak);
    let (report, device) = execute(args, &program, &mut progress)?;
    output::progress("");
    let card = card(&report);
    let plan = limited(&asked.plan, args.limit, card.as_ref());
    let estimate = asked.ready.model.estimate_on(&asked.ready.binding, &plan, card.as_ref());
    let estimate = estimate.map_err(|problems| asked.ready.failure(problems))?;
    let on_device = (report.backend == "cuda").then_some(device).flatten();
    framework::fill(&mut asked.record, &report, &estimate, on_device);
    let known = estimate.model.parameters_trainable + estimate.model.parameters_frozen;
    if args.runner == Runner::Torch && report.parameters > 0 && known != report.parameters {
        let message = format!("the module has {} parameters, the estimate {known}", report.parameters);
        asked.record.notes.push(message);
    }
    Ok(asked.record)
}

/// The plan as the written program runs it inside of `--limit`: TensorFlow has a logical device of that size, PyTorch a share of the card.
fn limited(plan: &Plan, limit: Option<Bytes>, card: Option<&Card>) -> Plan {
    let mut plan = plan.clone();
    let Some(limit) = limit else { return plan };
    let own = &mut plan.allocator;
    if plan.framework == Framework::Tensorflow {
        own.memory_limit = Some(own.memory_limit.map_or(limit, |other| other.min(limit)));
    } else if let Some(total) = card.map(|card| card.device.usable()).filter(|total| *total > limit) {
        let thousandths = u128::from(limit.0) * 1000 / u128::from(total.0);
        let thousandths = u32::try_from(thousandths).unwrap_or(1000);
        own.memory_fraction = Some(own.memory_fraction.map_or(thousandths, |other| other.min(thousandths)));
    }
    plan
}

/// The card that the framework found.
fn card(report: &Report) -> Option<Card> {
    (report.backend == "cuda")
        .then(|| find(&report.device).cloned().map(Card::alone).ok().or_else(|| host::card().ok()))
        .flatten()
}

/// What of a record is known before a step.
pub(super) fn describe(args: &ValidateArgs) -> Result<Record, Failure> {
    let device = settings(args)?.device;
    let (report, _) = execute(args, &python::describe(args.runner.name(), device), &mut |_, _| {})?;
    Ok(Record {
        framework: report.framework,
        backend: report.backend,
        device: report.device,
        ..Record::default()
    })
}

/// Runs a program, which it is given on standard input; what it reports, and the highest that the driver showed for it.
fn execute(
    args: &ValidateArgs,
    program: &str,
    progress: &mut dyn FnMut(u32, Bytes),
) -> Result<(Report, Option<Bytes>), Failure> {
    let named = args.python.as_deref().map(|path| path.display().to_string());
    let interpreter = named.clone().unwrap_or_else(|| "python3".into());
    let before = used().unwrap_or(Bytes::ZERO);
    let child = Command::new(&interpreter)
        .args(["-W", "ignore", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.map_err(|error| {
        let message = match error.kind() {
            ErrorKind::NotFound => "no such Python interpreter".to_owned(),
            _ => format!("cannot be started: {error}"),
        };
        let about = named.map_or(interpreter.clone(), |path| format!("--python {path}"));
        Failure::new(about, message).hint("--python PATH names one that has the framework")
    })?;
    let sampler = Sampler::start(child.id(), before);
    // What goes wrong there shows in what is printed.
    let fed = child.stdin.take().map(|mut stdin| stdin.write_all(program.as_bytes()));
    let errors = child.stderr.take().map(|stderr| {
        std::thread::spawn(move || {
            let lines = BufReader::new(stderr).lines().map_while(Result::ok);
            // The end of what may be long.
            lines.fold(Vec::new(), |mut last: Vec<String>, line| {
                if last.len() == 8 {
                    last.remove(0);
                }
                last.push(line);
                last
            })
        })
    });
    let mut report = None;
    let mut missing = None;
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            match python::read(&line) {
                Said::Progress(step, peak) => progress(step, peak),
                Said::Missing(what, message) => missing = Some((what, message)),
                Said::Report(found) => report = Some(*found),
                Said::Other => {}
            }
        }
    }
    let status = child.wait();
    let seen = sampler.end();
    let said = errors.and_then(|thread| thread.join().ok()).unwrap_or_default();
    let runner = format!("--runner {}", args.runner.name());
    if let Some((what, message)) = missing {
        let hint = match &*what {
            "cuda" => "--backend cpu runs the steps on the processor".to_owned(),
            package => format!("install {package} for {interpreter}, or name another with --python"),
        };
        return Err(Failure::new(runner, format!("{interpreter} has no {what}: {message}")).hint(hint));
    }
    if let Some(report) = report {
        return Ok((report, seen));
    }
    if INTERRUPTED.load(Ordering::Relaxed) {
        return Err(Failure::new(runner, "ended by the user before the first step"));
    }
    let how = status.map_or_else(|e| e.to_string(), |status| status.to_string());
    let fed = matches!(fed, Some(Err(_))).then_some(" before it had read the program").unwrap_or_default();
    let last = said.iter().rev().find(|line| !line.trim().is_empty()).cloned().unwrap_or_default();
    Err(Failure::new(runner, format!("{interpreter} ended{fed} ({how}): {}", last.trim())))
}

/// The largest batch that is predicted to run on the card of this host.
pub(super) fn largest(args: &ValidateArgs) -> Result<Option<u64>, Failure> {
    use memfit_engine::fit::{Subject, matrix};
    if args.backend == Some(Backend::Cpu) {
        return Ok(None);
    }
    let Ok(card) = host::card() else { return Ok(None) };
    let asked = asked(args)?;
    let (ready, plan) = (&asked.ready, limited(&asked.plan, args.limit, Some(&card)));
    let cells = matrix(Subject::batch(&ready.model, &ready.binding), &[plan], &[card], &mut |_, _| {});
    let cells = cells.map_err(|problems| ready.failure(problems))?;
    Ok(cells.first().map(|cell| cell.largest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_predicted_is_inside_of_the_limit_that_the_program_sets() {
        let card = Card::find("a100-40gb").unwrap();
        let limit = Some(Bytes(card.device.usable().0 / 4));
        let of = |framework, card| {
            let mut plan = Plan { framework, ..Plan::default() };
            plan.allocator.memory_fraction = (framework == Framework::Pytorch).then_some(500);
            limited(&plan, limit, card).allocator
        };
        assert_eq!(of(Framework::Pytorch, Some(&card)).memory_fraction, Some(250));
        assert_eq!(of(Framework::Pytorch, None).memory_fraction, Some(500));
        assert_eq!(of(Framework::Tensorflow, Some(&card)).memory_limit, limit);
        let open = limited(&Plan::default(), None, Some(&card));
        assert_eq!(open, Plan::default());
    }
}
