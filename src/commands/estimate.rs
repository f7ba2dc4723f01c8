//! `memfit estimate`: the peak of one training step.

use crate::args::EstimateArgs;
use crate::failure::Failure;
use crate::load;

/// Estimates the step and writes it as asked.
pub(crate) fn estimate(args: &EstimateArgs) -> Result<(), Failure> {
    let (_plan, _warnings) = args.plan.plan()?;
    let loaded = load::load(&args.model.file)?;
    let failure = |problems| Failure::of_file(&loaded.file, problems);
    let _binding = args.model.binding(&loaded.model.graph).map_err(failure)?;
    let _ = (args.depth, args.top, args.format.format);
    Err(Failure::new(&loaded.file, "the engine is being written"))
}
