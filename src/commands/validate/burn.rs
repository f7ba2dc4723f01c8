//! Steps on Burn, inside of this program.

use crate::args::ValidateArgs;
use crate::failure::Failure;
use memfit_validate::record::Record;

/// Says how to get it.
#[cfg(not(feature = "validate"))]
pub(super) fn run(args: &ValidateArgs) -> Result<Record, Failure> {
    let name = args.backend.unwrap_or_default().name();
    let features = if name == "cpu" { "validate" } else { name };
    Err(Failure::new("validate", "this memfit was built without steps of its own").hint(format!(
        "cargo install memfit --features {features}; or --runner torch or keras, which run the host's own"
    )))
}

#[cfg(not(feature = "validate"))]
pub(super) use run as describe;

/// No step was ever run.
#[cfg(not(feature = "validate"))]
pub(super) fn largest(_: &ValidateArgs) -> Result<Option<u64>, Failure> {
    Ok(None)
}

#[cfg(feature = "validate")]
pub(super) use real::{describe, largest, run};

#[cfg(feature = "validate")]
mod real {
    use super::super::{Asked, INTERRUPTED, asked};
    use super::{Failure, Record, ValidateArgs};
    use crate::args;
    use crate::output;
    use memfit_engine::frameworks::burn::{self, Program};
    use memfit_graph::Bytes;
    use memfit_validate::backends::{self, Backend};
    use memfit_validate::measure::Run;
    use memfit_validate::measurement::Comparison;
    use memfit_validate::record::Pools;
    use memfit_validate::search::{Outcome, search};
    use std::time::Instant;

    fn backend(args: &ValidateArgs) -> Result<Backend, Failure> {
        let backend = match args.backend.unwrap_or_default() {
            args::Backend::Cpu => Backend::Cpu,
            args::Backend::Wgpu => Backend::Wgpu,
            args::Backend::Cuda => Backend::Cuda,
        };
        let lacks = |why| Failure::new(format!("--backend {}", backend.name()), why);
        backend.available().map_err(lacks).map(|()| backend)
    }

    /// What of a record is known before a step.
    pub(in super::super) fn describe(args: &ValidateArgs) -> Result<Record, Failure> {
        let backend = backend(args)?;
        Ok(Record {
            framework: backends::FRAMEWORK.into(),
            backend: backend.name().into(),
            device: backends::device(backend),
            ..Record::default()
        })
    }

    /// Runs the steps.
    pub(in super::super) fn run(args: &ValidateArgs) -> Result<Record, Failure> {
        let backend = backend(args)?;
        let mut asked = asked(args)?;
        let program = program(&asked, backend, None)?;
        let run = Run {
            program: &program,
            steps: args.steps,
            interrupted: &INTERRUPTED,
            limit: args.limit,
            gradients: None,
        };
        let begin = Instant::now();
        let mut progress = |step: u32, peak: Bytes| output::steps(begin, step, args.steps, peak);
        let measurement = backends::run(backend, run, &mut progress);
        output::progress("");
        let config = backends::pools(backend);
        let prediction = burn::predict(&program, backend.layout(config.as_ref()));
        let reserved = config.and_then(|config| prediction.reserved(config));
        let comparison = Comparison { measured: &measurement, predicted: &prediction, reserved };
        comparison.fill(&mut asked.record);
        asked.record.pools =
            config.map(|c| Pools { max_page_bytes: c.max_page.0, alignment_bytes: c.alignment });
        asked.record.framework = backends::FRAMEWORK.into();
        Ok(asked.record)
    }

    fn program(asked: &Asked, backend: Backend, batch: Option<u64>) -> Result<Program, Failure> {
        let mut binding = asked.ready.binding.clone();
        binding.batch = batch.or(binding.batch);
        let failure = |problems| asked.ready.failure(problems);
        let setting = asked.ready.model.setting(&binding, &asked.plan).map_err(failure)?;
        let program = burn::program(&setting.graph, &setting.inferred, &asked.plan).map_err(failure)?;
        for float in [program.stored, program.products] {
            let lacks = |why| {
                let other = if backend == Backend::Cpu { "--backend wgpu or cuda; " } else { "" };
                Failure::new("--precision", why).hint(format!("{other}--runner torch; --precision fp32"))
            };
            backends::computes(backend, float).map_err(lacks)?;
        }
        Ok(program)
    }

    /// The largest batch that is predicted to run inside of a limit: that of `--limit`, else what is free on the device.
    pub(in super::super) fn largest(args: &ValidateArgs) -> Result<Option<u64>, Failure> {
        let backend = backend(args)?;
        let asked = asked(args)?;
        let Some(limit) = args.limit.or_else(|| backends::free(backend)) else { return Ok(None) };
        let config = backends::pools(backend);
        let attempt = |batch: u64| {
            let program = program(&asked, backend, Some(batch))?;
            let prediction = burn::predict(&program, backend.layout(config.as_ref()));
            let fits = match config {
                Some(mut config) if args.limit.is_none() => {
                    config.limit = Some(limit);
                    prediction.reserved(config).is_some()
                }
                _ => prediction.between <= limit,
            };
            Ok::<_, Failure>(Some(if fits { Outcome::Ran } else { Outcome::OutOfMemory }))
        };
        let most = super::super::search::LARGEST_BATCH;
        search(1, most, &[], || true, attempt).map(|found| Some(found.largest))
    }
}
