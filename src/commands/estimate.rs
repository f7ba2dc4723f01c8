//! `memfit estimate`: the peak of one training step.

use crate::args::{EstimateArgs, Format};
use crate::failure::Failure;
use crate::step::Step;
use crate::{Finding, load, output};
use memfit_engine::{Companion, Life, Mode, Model, Plan};
use memfit_graph::Binding;
use memfit_report::{compare, json, text};

/// Estimates the step and writes it as asked.
pub(crate) fn estimate(args: &EstimateArgs) -> Result<Finding, Failure> {
    let mut step = Step::on(&args.model, &args.plan, &args.gpu, &args.hosts)?;
    let other = step.elsewhere()?;
    if let Some(life) = args.life.life() {
        add_process(args, &life, &mut step).map_err(|f| *f)?;
    }
    let estimate = &step.estimate;
    output::print(&match args.format.format {
        Format::Json => match &other {
            Some(other) => compare::json(estimate, other),
            None => json::estimate(estimate),
        },
        Format::Text => {
            let options = text::Options {
                width: output::width(),
                depth: args.depth,
                top: args.top,
                ..Default::default()
            };
            let comparison = other.as_ref().map(|other| compare::text(estimate, other, options.width));
            text::estimate(estimate, &options) + &comparison.unwrap_or_default()
        }
    })?;
    Ok(Finding::fine_if(step.fits()))
}

/// Adds the parts of the process around the step.
fn add_process(args: &EstimateArgs, life: &Life, step: &mut Step) -> Result<(), Box<Failure>> {
    let trained = args.life.with.iter().map(|path| (path, step.plan.mode));
    let frozen = args.life.with_frozen.iter().map(|path| (path, Mode::Infer));
    let mut others = Vec::new();
    for (path, mode) in trained.chain(frozen) {
        let loaded = load::load_with(path, &args.model.sizes).map_err(Box::new)?;
        let (own, _) = args.plan.plan(loaded.usual()).map_err(Box::new)?;
        let other = Model::new(loaded.model.graph, &loaded.name, loaded.format, loaded.model.operators);
        others.push((loaded.name, other, Plan { mode, ..own }));
    }
    let companions: Vec<Companion<'_>> = others
        .iter()
        .map(|(name, model, plan)| Companion {
            model,
            name,
            // Named sizes are this model's; the batch is the process's.
            binding: Binding { batch: args.model.sizes.batch_size, ..Binding::default() },
            plan: plan.clone(),
        })
        .collect();
    step.model
        .add_process(&mut step.estimate, &step.binding, life, &companions, step.card.as_ref())
        .map_err(|problems| Box::new(Failure::of_file(&args.model.file.display().to_string(), problems)))
}
