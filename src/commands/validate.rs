//! `memfit validate`: real steps, measured beside predicted.

use crate::Finding;
use crate::args::ValidateArgs;
use crate::failure::Failure;

/// Says how to get it.
#[cfg(not(feature = "validate"))]
pub(crate) fn validate(args: &ValidateArgs) -> Result<Finding, Failure> {
    let name = format!("{:?}", args.backend).to_lowercase();
    let features = if name == "cpu" { "validate".to_owned() } else { name };
    Err(Failure::new("validate", "this memfit was built without real steps")
        .hint(format!("cargo install memfit --features {features}")))
}

#[cfg(feature = "validate")]
pub(crate) use real::validate;

#[cfg(feature = "validate")]
mod real {
    use super::{Failure, Finding, ValidateArgs};
    use crate::args::{self, Format};
    use crate::load::{self, Loaded};
    use crate::output;
    use memfit_engine::frameworks::burn::{self, Program};
    use memfit_engine::{Framework, Plan};
    use memfit_graph::Bytes;
    use memfit_validate::backends::{self, Backend};
    use memfit_validate::measure::Run;
    use memfit_validate::measurement::{Comparison, error_percent};
    use memfit_validate::search::{Outcome, search};
    use std::path::Path;
    use std::process::{Command, Stdio};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    static INTERRUPTED: AtomicBool = AtomicBool::new(false);

    /// The most that a search tries.
    const LARGEST_BATCH: u64 = 1 << 20;

    /// Runs the steps and writes what they showed.
    pub(crate) fn validate(args: &ValidateArgs) -> Result<Finding, Failure> {
        let backend = match args.backend {
            args::Backend::Cpu => Backend::Cpu,
            args::Backend::Wgpu => Backend::Wgpu,
            args::Backend::Cuda => Backend::Cuda,
        };
        backend.available().map_err(|why| Failure::new(format!("--backend {}", backend.name()), why))?;
        // A second Ctrl-C ends it at once, which is what happens without a handler too.
        let _ = ctrlc::set_handler(|| {
            if INTERRUPTED.swap(true, Ordering::Relaxed) {
                std::process::exit(130);
            }
        });
        let (plan, _) = args.plan.plan(Framework::Burn)?;
        let plan = Plan { framework: Framework::Burn, ..plan };
        let loaded = load::load(&args.model)?;
        if args.search && args.try_batch.is_none() {
            return find_largest(args, backend);
        }
        let program = program(args, &plan, loaded)?;
        let prediction = burn::predict(&program, backend.layout());
        let run = Run { program: &program, steps: args.steps, interrupted: &INTERRUPTED };
        let begin = Instant::now();
        let mut progress = |step: u32, peak: Bytes| {
            let left =
                begin.elapsed().checked_div(step).unwrap_or_default() * args.steps.saturating_sub(step);
            output::progress(&format!(
                "step {step} of {}, peak {peak}, {} s left",
                args.steps,
                left.as_secs()
            ));
        };
        let measurement = backends::run(backend, run, &mut progress);
        output::progress("");
        let reserved = backends::pools(backend).and_then(|config| prediction.reserved(config));
        let comparison =
            Comparison { measured: &measurement, predicted: &prediction, reserved, program: &program };
        let text = json(&comparison, args, &plan);
        if let Some(path) = &args.record {
            write(path, &text)?;
        }
        output::print(&match args.format.format {
            Format::Json => text,
            Format::Text => comparison.text(),
        })?;
        let off = error_percent(measurement.peak(), prediction.between);
        Ok(Finding::fine_if(measurement.ended.is_none() && off.is_none_or(|e| e.abs() <= args.tolerance)))
    }

    fn program(args: &ValidateArgs, plan: &Plan, loaded: Loaded) -> Result<Program, Failure> {
        let mut ready = loaded.bind(&args.model.sizes)?;
        ready.binding.batch = args.try_batch.or(ready.binding.batch);
        let graph = ready.model.recomposed(plan);
        let failure = |problems| ready.failure(problems);
        let inferred = memfit_graph::infer(graph, &ready.binding).map_err(failure)?;
        burn::program(graph, &inferred, plan).map_err(failure)
    }

    fn json(comparison: &Comparison<'_>, args: &ValidateArgs, plan: &Plan) -> String {
        let mut record = comparison.json();
        record["tool"] = format!("memfit {}", env!("CARGO_PKG_VERSION")).into();
        record["framework"] = "burn 0.21.0, cubecl 0.10.0".into();
        record["model"] = args.model.file.display().to_string().into();
        record["model_fnv1a"] = fingerprint(&args.model.file).map(|h| format!("{h:016x}")).into();
        record["optimizer"] = plan.optimizer.clone().into();
        format!("{record:#}\n")
    }

    /// FNV-1a of the file.
    fn fingerprint(path: &Path) -> Option<u64> {
        use std::io::Read;
        let mut file = std::fs::File::open(path).ok()?;
        let (mut hash, mut buffer) = (0xcbf2_9ce4_8422_2325_u64, vec![0; 1 << 16]);
        loop {
            let n = file.read(&mut buffer).ok()?;
            if n == 0 {
                return Some(hash);
            }
            for byte in &buffer[..n] {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
    }

    /// A record is there as a whole or not at all.
    fn write(path: &Path, text: &str) -> Result<(), Failure> {
        let part = path.with_extension("part");
        let written = std::fs::write(&part, text).and_then(|()| std::fs::rename(&part, path));
        written.map_err(|e| Failure::new(path.display().to_string(), format!("cannot be written: {e}")))
    }

    /// Each try is a process of its own, with a fresh context; one that is killed had not enough memory.
    fn find_largest(args: &ValidateArgs, backend: Backend) -> Result<Finding, Failure> {
        let own = std::env::current_exe().map_err(|e| Failure::new("--search", e.to_string()))?;
        let rest: Vec<_> = std::env::args_os().skip(1).filter(|a| a != "--search").collect();
        let begin = Instant::now();
        let go_on = || {
            !INTERRUPTED.load(Ordering::Relaxed) && begin.elapsed() < Duration::from_secs(args.search_seconds)
        };
        let attempt = |batch: u64| {
            output::progress(&format!("batch {batch}"));
            let mut child = Command::new(&own);
            child.args(&rest).args(["--try-batch", &batch.to_string(), "--format", "json"]);
            let done = child
                .stderr(Stdio::piped())
                .output()
                .map_err(|e| Failure::new("--search", format!("cannot start a process: {e}")))?;
            let text = String::from_utf8_lossy(&done.stdout);
            match done.status.code() {
                None => Ok(Outcome::OutOfMemory),
                Some(_) if text.contains("\"kind\": \"out-of-memory\"") => Ok(Outcome::OutOfMemory),
                Some(0 | 1) if !text.contains("\"kind\": \"failed\"") => Ok(Outcome::Ran),
                Some(_) => {
                    let why = String::from_utf8_lossy(&done.stderr);
                    Err(Failure::new(format!("batch {batch}"), format!("{}{}", why.trim(), text.trim())))
                }
            }
        };
        let found = search(1, LARGEST_BATCH, go_on, attempt)?;
        output::progress("");
        let end = if found.bounded { "" } else { " (the search ended before a larger one failed)" };
        output::print(&format!(
            "largest batch on {}: {}{end}, {} tries\n",
            backend.name(),
            found.largest,
            found.tried.len()
        ))?;
        Ok(Finding::fine_if(found.largest > 0))
    }
}
