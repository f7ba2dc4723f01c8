//! `memfit fit`: the largest batch, image or sequence on each card.

use crate::args::{FitArgs, Format};
use crate::failure::Failure;
use crate::progress::Progress;
use crate::{Finding, load, output, threads};
use memfit_engine::devices::Card;
use memfit_engine::fit::{self, Axis, Cell, Subject};
use memfit_engine::{Aside, Plan};
use memfit_graph::Problem;
use memfit_report::fit as report;

/// Searches and writes the matrix as asked.
pub(crate) fn fit(args: &FitArgs) -> Result<Finding, Failure> {
    args.plan.check()?;
    let cards = args.gpus.cards()?;
    let axis = Axis::parse(&args.max);
    let loaded = load::load(&args.model)?;
    let aside = Aside { card: true, life: args.life.life(), ..Aside::default() };
    let (plans, mut warnings) = args.plan.plans(loaded.usual(), aside)?;
    let ready = loaded.bind(&args.model.sizes)?;
    let (model, binding) = (&ready.model, &ready.binding);
    let life = &args.life.life();
    let subject = Subject { model, binding, axis: &axis, life };
    let cells = search(subject, &plans, &cards).map_err(|problems| ready.failure(problems))?;
    warnings.splice(0..0, ready.notices(&plans));
    warnings.extend(cards.iter().find_map(Card::caveat).map(str::to_owned));
    let matrix = report::Matrix {
        model: &ready.name,
        axis: axis.name(),
        batch: binding.batch,
        cells: &cells,
        warnings: &warnings,
    };
    output::print(&match args.format.format {
        Format::Json => report::json(&matrix),
        Format::Text => report::text(&matrix, output::width()),
    })?;
    Ok(Finding::fine_if(matrix.any()))
}

/// The matrix, by card and then by plan. Plans are searched side by side.
fn search(subject: Subject<'_>, plans: &[Plan], cards: &[Card]) -> Result<Vec<Cell>, Vec<Problem>> {
    let progress = Progress::new("searching", plans.len() * cards.len());
    let columns = threads::each(plans, |_, plan| {
        let mut tell = |_, _| progress.step();
        fit::matrix(subject, std::slice::from_ref(plan), cards, &mut tell)
    });
    let columns: Vec<Vec<Cell>> = columns.into_iter().collect::<Result<_, _>>()?;
    let of_card = |card: usize| columns.iter().filter_map(move |cells| cells.get(card).cloned());
    Ok((0..cards.len()).flat_map(of_card).collect())
}
